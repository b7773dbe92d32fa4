#include <accel/checkpoint/processes.h>

#include <accel/detail/communicator.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace accel::checkpoint {

namespace {

std::vector<std::string> exchange(const std::string& text) {
  auto& communicator = accel::detail::communicator();
  const auto own_size = at::full(
      {1}, static_cast<int64_t>(text.size()), at::TensorOptions(at::kLong));
  std::vector<int64_t> sizes;
  for (const auto& size : communicator.all_gather(own_size)) {
    sizes.push_back(size.item<int64_t>());
  }
  // Tensors of equal shape; at least one byte, since not every group sends
  // empty ones.
  const int64_t longest =
      std::max<int64_t>(1, *std::max_element(sizes.begin(), sizes.end()));
  auto padded = at::zeros({longest}, at::TensorOptions(at::kByte));
  std::memcpy(padded.mutable_data_ptr(), text.data(), text.size());
  std::vector<std::string> texts;
  for (const auto& bytes : communicator.all_gather(padded)) {
    texts.emplace_back(
        static_cast<const char*>(bytes.const_data_ptr()),
        static_cast<size_t>(sizes[texts.size()]));
  }
  return texts;
}

} // namespace

Processes all_processes() {
  const auto& communicator = accel::detail::communicator();
  return {communicator.rank(), communicator.size(), exchange};
}

} // namespace accel::checkpoint
