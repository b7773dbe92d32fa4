#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace accel::detail {

/// A model and all modules in it, with their names, the model's own first. Unlike
/// `named_modules()` it does not ask for a model that is held by a pointer.
inline std::vector<std::pair<std::string, const torch::nn::Module*>>
named_modules_of(const torch::nn::Module& model, const std::string& name = "") {
  std::vector<std::pair<std::string, const torch::nn::Module*>> modules{
      {name, &model}};
  for (const auto& part : model.named_modules(name, /*include_self=*/false)) {
    modules.emplace_back(part.key(), part.value().get());
  }
  return modules;
}

} // namespace accel::detail
