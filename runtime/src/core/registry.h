#pragma once

#include <accel/checkpoint/custom_object.h>
#include <accel/checkpoint/hooks.h>

#include <c10/util/intrusive_ptr.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace accel::detail {

/// What the program has prepared and registered: the parts of a checkpoint.
/// Models are not kept alive. Those that are gone are left out.
class Registry {
 public:
  /// One that is known already stays where it is.
  void add(torch::nn::Module& module);
  /// An optimizer of torch's own type: nothing tells when it is gone.
  void add_plain_optimizer() {
    ++plain_optimizers_;
  }
  bool has_plain_optimizers() const {
    return plain_optimizers_ > 0;
  }
  /// The same for a scheduler.
  void add_plain_scheduler() {
    ++plain_schedulers_;
  }
  /// Throws where a scheduler of torch's own type has been prepared.
  void check_schedulers() const;
  void add(checkpoint::CustomObject object) {
    objects_.push_back(std::move(object));
  }

  std::vector<torch::nn::Module*> models();
  /// Throws where one of torch's own type has been prepared.
  std::vector<torch::optim::Optimizer*> optimizers() const;
  const std::vector<checkpoint::CustomObject>& objects() const {
    return objects_;
  }

  int64_t add_save_hook(CheckpointHook hook);
  int64_t add_load_hook(CheckpointHook hook);
  void remove_hook(int64_t id);
  bool has_save_hooks() const {
    return !save_hooks_.empty();
  }
  bool has_load_hooks() const {
    return !load_hooks_.empty();
  }
  /// Calls them in the order in which they were added.
  void run_save_hooks(
      std::vector<torch::nn::Module*>& models,
      const std::string& directory) const;
  void run_load_hooks(
      std::vector<torch::nn::Module*>& models,
      const std::string& directory) const;

  /// Forgets models, optimizers and objects.
  void clear();

 private:
  struct Model {
    torch::nn::Module* module;
    /// Empty for a module that no shared pointer owns. Then it is gone when
    /// its tensors are.
    std::weak_ptr<torch::nn::Module> owner;
    bool owned;
    std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> tensors;

    bool gone() const;
  };

  std::vector<Model> models_;
  int64_t plain_optimizers_ = 0;
  int64_t plain_schedulers_ = 0;
  std::vector<checkpoint::CustomObject> objects_;
  int64_t next_hook_ = 0;
  std::map<int64_t, CheckpointHook> save_hooks_;
  std::map<int64_t, CheckpointHook> load_hooks_;
};

} // namespace accel::detail
