#include "core/registry.h"

#include "core/optimizers.h"

#include <algorithm>

namespace accel::detail {

bool Registry::Model::gone() const {
  if (owned) {
    return owner.expired();
  }
  return !tensors.empty() &&
      std::all_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
           return tensor.expired();
         });
}

void Registry::add(torch::nn::Module& module) {
  models(); // drops one that was at the same address
  const auto known = std::find_if(
      models_.begin(), models_.end(), [&](const Model& model) {
        return model.module == &module;
      });
  if (known != models_.end()) {
    return;
  }
  Model model{&module, module.weak_from_this(), false, {}};
  model.owned = !model.owner.expired();
  for (const auto& tensor : module.parameters()) {
    if (tensor.defined()) {
      model.tensors.emplace_back(tensor.getIntrusivePtr());
    }
  }
  models_.push_back(std::move(model));
}

std::vector<torch::nn::Module*> Registry::models() {
  models_.erase(
      std::remove_if(
          models_.begin(),
          models_.end(),
          [](const Model& model) { return model.gone(); }),
      models_.end());
  std::vector<torch::nn::Module*> result;
  for (const auto& model : models_) {
    result.push_back(model.module);
  }
  return result;
}

std::vector<torch::optim::Optimizer*> Registry::optimizers() const {
  TORCH_CHECK(
      plain_optimizers_ == 0,
      "accel: a checkpoint needs the state of all optimizers, but one was "
      "prepared whose type is torch's, and accel cannot know whether it still "
      "exists. Make it an accel::AcceleratedOptimizer<torch::optim::SGD> (or "
      "which type it is), which can be used wherever the torch type can.");
  std::vector<torch::optim::Optimizer*> result;
  for (auto* control : prepared_optimizers()) {
    result.push_back(dynamic_cast<torch::optim::Optimizer*>(control));
  }
  return result;
}

void Registry::check_schedulers() const {
  TORCH_CHECK(
      plain_schedulers_ == 0,
      "accel: a checkpoint needs the state of all schedulers, but one was "
      "prepared whose type is torch's. Make it an "
      "accel::AcceleratedScheduler<torch::optim::StepLR> (or which type it "
      "is).");
}

int64_t Registry::add_save_hook(CheckpointHook hook) {
  save_hooks_.emplace(next_hook_, std::move(hook));
  return next_hook_++;
}

int64_t Registry::add_load_hook(CheckpointHook hook) {
  load_hooks_.emplace(next_hook_, std::move(hook));
  return next_hook_++;
}

void Registry::remove_hook(int64_t id) {
  save_hooks_.erase(id);
  load_hooks_.erase(id);
}

void Registry::run_save_hooks(
    std::vector<torch::nn::Module*>& models,
    const std::string& directory) const {
  for (const auto& hook : save_hooks_) {
    hook.second(models, directory);
  }
}

void Registry::run_load_hooks(
    std::vector<torch::nn::Module*>& models,
    const std::string& directory) const {
  for (const auto& hook : load_hooks_) {
    hook.second(models, directory);
  }
}

void Registry::clear() {
  models_.clear();
  objects_.clear();
  plain_optimizers_ = 0;
  plain_schedulers_ = 0;
  prepared_optimizers().clear();
}

} // namespace accel::detail
