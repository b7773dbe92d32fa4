#include "core/gathering.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <sstream>
#include <string>

namespace accel::detail {
namespace {

/// As many as a tensor's description has room for.
constexpr int64_t kMaxDims = 12;
/// More than there are; a description has dtype and device in one number.
constexpr int64_t kDtypes = 1024;

std::string describe(const at::Tensor& description) {
  std::ostringstream out;
  const auto* numbers = description.const_data_ptr<int64_t>();
  out << static_cast<at::ScalarType>(numbers[0] % kDtypes)
      << at::IntArrayRef(numbers + 2, static_cast<size_t>(numbers[1]));
  const auto device = static_cast<c10::DeviceType>(numbers[0] / kDtypes);
  if (device != c10::kCPU) {
    out << " on " << c10::DeviceTypeName(device, /*lower_case=*/true);
  }
  return out.str();
}

} // namespace

void check_dense(const char* operation, const at::Tensor& tensor) {
  TORCH_CHECK(
      tensor.layout() == at::kStrided,
      "accel: ",
      operation,
      " was given a tensor of the layout ",
      tensor.layout(),
      ", which the processes cannot exchange. Give it tensor.to_dense().");
}

std::vector<int64_t> check_alike(
    const char* operation,
    Communicator& communicator,
    const std::vector<at::Tensor>& tensors,
    int64_t first_dim,
    int64_t number) {
  const auto count = static_cast<int64_t>(tensors.size());
  auto mine = at::zeros({count + 1, 2 + kMaxDims}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const auto& tensor = tensors[static_cast<size_t>(i)];
    TORCH_CHECK(
        tensor.defined(), "accel: ", operation, " was given no tensor.");
    check_dense(operation, tensor);
    TORCH_CHECK(
        tensor.dim() <= kMaxDims,
        "accel: ",
        operation,
        " was given a tensor with ",
        tensor.dim(),
        " dimensions; ",
        kMaxDims,
        " is the most.");
    auto* row = mine[i].mutable_data_ptr<int64_t>();
    // The device, too: a GPU's tensors take another way than the host's.
    row[0] = static_cast<int64_t>(tensor.scalar_type()) +
        kDtypes * static_cast<int64_t>(tensor.device().type());
    row[1] = tensor.dim();
    std::copy(tensor.sizes().begin(), tensor.sizes().end(), row + 2);
  }
  mine[count].mutable_data_ptr<int64_t>()[0] = number;
  const auto all = communicator.all_gather(mine);
  std::vector<int64_t> numbers;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (int64_t i = 0; i < count; ++i) {
      const auto* own = mine[i].const_data_ptr<int64_t>();
      const auto* other = all[rank][i].const_data_ptr<int64_t>();
      TORCH_CHECK(
          std::equal(own, own + 2, other) &&
              std::equal(
                  own + 2 + first_dim,
                  own + 2 + kMaxDims,
                  other + 2 + first_dim),
          "accel: ",
          operation,
          " was called with a tensor ",
          describe(mine[i]),
          " on process ",
          communicator.rank(),
          " but ",
          describe(all[rank][i]),
          " on process ",
          rank,
          ". All processes must call it with tensors on the same kind of "
          "device, of the same dtype and ",
          first_dim == 0 ? "shape." : "shape but for dimension 0.");
    }
    numbers.push_back(all[rank][count].const_data_ptr<int64_t>()[0]);
  }
  return numbers;
}

} // namespace accel::detail
