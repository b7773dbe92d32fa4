#pragma once

#include <accel/data/data_loader.h>
#include <accel/distributed/tensor.h>

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <vector>

/// Data sets for the loader tests, and what one device would see of them.
namespace accel::test {

/// Sample i is ([i, i], i).
struct Numbers : torch::data::datasets::Dataset<Numbers> {
  explicit Numbers(size_t size) : count(size) {}
  torch::data::Example<> get(size_t index) override {
    return {
        torch::full({2}, static_cast<double>(index), torch::kDouble),
        torch::tensor(static_cast<int64_t>(index))};
  }
  std::optional<size_t> size() const override {
    return count;
  }
  size_t count;
};

/// Sample i is ([i + noise, i + noise], i); noise is drawn for every n-th
/// sample.
struct NoisyNumbers : torch::data::datasets::Dataset<NoisyNumbers> {
  explicit NoisyNumbers(size_t size, size_t every = 1)
      : count(size), every(every) {}
  torch::data::Example<> get(size_t index) override {
    auto data = torch::full({2}, static_cast<double>(index), torch::kDouble);
    if (index % every == 0) {
      data += torch::rand({2}, torch::kDouble);
    }
    return {data, torch::tensor(static_cast<int64_t>(index))};
  }
  std::optional<size_t> size() const override {
    return count;
  }
  size_t count;
  size_t every;
};

inline auto stacked(Numbers numbers) {
  return numbers.map(torch::data::transforms::Stack<>());
}
inline auto stacked(NoisyNumbers numbers) {
  return numbers.map(torch::data::transforms::Stack<>());
}

/// A stream of unknown length, which is not saved; `Self` says how to read and reset it.
template <typename Self, typename Batch>
struct UnsizedStream : torch::data::datasets::StatefulDataset<Self, Batch> {
  std::optional<size_t> size() const override {
    return std::nullopt;
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
};

/// Tensor batches of one pass.
template <typename Loader>
std::vector<torch::data::Example<>> collect(Loader& loader) {
  std::vector<torch::data::Example<>> batches;
  for (auto& batch : loader) {
    batches.push_back(batch);
  }
  return batches;
}

/// The sample numbers in a batch; collective where it is distributed.
inline std::vector<int64_t> ids(const torch::data::Example<>& batch) {
  const auto target =
      accel::distributed::full_tensor(batch.target).contiguous();
  const auto* first = target.template data_ptr<int64_t>();
  return {first, first + target.numel()};
}

inline torch::Tensor generator_state() {
  return at::detail::getDefaultCPUGenerator().get_state();
}

} // namespace accel::test
