#include "parallel/model_units.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <unordered_set>

namespace accel::parallel {
namespace {

constexpr int64_t kSmall = int64_t{1} << 20;

int64_t bytes_of(const std::vector<at::Tensor>& parameters) {
  int64_t bytes = 0;
  for (const auto& parameter : parameters) {
    bytes += parameter.numel() * static_cast<int64_t>(parameter.element_size());
  }
  return bytes;
}

bool is_container(const torch::nn::Module& module) {
  return module.as<torch::nn::Sequential>() != nullptr ||
         module.as<torch::nn::ModuleList>() != nullptr ||
         module.as<torch::nn::ModuleDict>() != nullptr;
}

class Units {
 public:
  explicit Units(const torch::nn::Module& model)
      : large_(bytes_of(model.parameters()) / 4) {
    take_apart(model);
  }

  std::vector<std::vector<at::Tensor>> all;

 private:
  void take_apart(const torch::nn::Module& module) {
    add(module.parameters(/*recurse=*/false));
    for (const auto& child : module.children()) {
      const auto parameters = child->parameters();
      if (is_container(*child) || bytes_of(parameters) > large_) {
        take_apart(*child);
      } else {
        add(parameters);
      }
    }
  }

  void add(const std::vector<at::Tensor>& parameters) {
    std::vector<at::Tensor> unit;
    for (const auto& parameter : parameters) {
      if (seen_.insert(parameter.unsafeGetTensorImpl()).second) {
        unit.push_back(parameter);
      }
    }
    if (unit.empty()) {
      return;
    }
    if (!all.empty() && bytes_of(all.back()) + bytes_of(unit) < kSmall) {
      all.back().insert(all.back().end(), unit.begin(), unit.end());
    } else {
      all.push_back(std::move(unit));
    }
  }

  const int64_t large_;
  std::unordered_set<const void*> seen_;
};

} // namespace

std::vector<std::vector<at::Tensor>> model_units(
    const torch::nn::Module& model) {
  return Units(model).all;
}

} // namespace accel::parallel
