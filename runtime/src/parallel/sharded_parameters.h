#pragma once

#include "distributed/axis.h"
#include "distributed/units.h"
#include "parallel/offload.h"
#include "parallel/model_units.h"
#include "parallel/parallelism.h"
#include "parallel/tensor_plan.h"
#include "parallel/unit_gradients.h"

#include <accel/checkpoint/pieces.h>
#include <accel/parallel/fully_sharded.h>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace accel::parallel {

/// The parameters of which each process holds a part: sharded data parallelism and
/// tensor parallelism by placements. A parameter becomes a distributed tensor, in
/// place, so that whoever holds it (the module, optimizers) goes on with it: of the
/// placement `Shard(0)` along the axis dp_shard, or `Shard(1)` where the plan of
/// tensor parallelism cuts its rows along tp; along dp_replicate all hold the same. All that follows is what operators do with distributed tensors: one
/// that reads a weight beside a cut batch gathers it, the weight's gradient is a
/// part of a sum, an optimizer's state is made like its parameter.
///
/// What is added here: gradients are brought to their parameter's rows as soon as
/// backward has computed them; the parameters of a layer are gathered in one message
/// (`model_units`), and stay so until two others were needed, or backward is done
/// (SHARD_GRAD_OP); a parameter that a program has made whole (`torch::load`, a
/// write into a row) is cut again.
class ShardedParameters {
 public:
  /// `axes`: of the whole mesh; `names` say which one is dp_shard, and which tp.
  /// `wrap`: which modules are gathered together. `reduce_dtype`: in which type units
  /// of gradients are summed; nothing: in their own.
  /// `forward`, `backward`: whether and when units are gathered ahead.
  /// `offload`, `of_gradients`: where the parts and their gradients lie while nobody
  /// computes with them; nothing: where the processes compute.
  ShardedParameters(
      const std::vector<NamedSize>& names,
      std::vector<distributed::Axis*> axes,
      ShardingStrategy strategy,
      PlanEntries plan,
      AutoWrap wrap = {},
      std::optional<at::ScalarType> reduce_dtype = std::nullopt,
      std::optional<Offload> offload = std::nullopt,
      std::optional<Offload> of_gradients = std::nullopt,
      std::optional<bool> forward = std::nullopt,
      std::optional<BackwardPrefetch> backward = std::nullopt);
  ~ShardedParameters();
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  /// Divides the parameters of a model, which all processes have alike, but for
  /// those in `but`. Communicates where one has been built in other parts. Throws
  /// where the plan of tensor
  /// parallelism cannot be honoured; returns what that cuts, for people.
  std::string add(const torch::nn::Module& module, const std::vector<at::Tensor>& but);

  /// Divides a parameter that is being built, which all processes have alike; again,
  /// where it has become whole since. Nobody knows its model yet, and `add` may move
  /// it. Whether it was divided now. Nothing is communicated.
  bool build(const at::Tensor& parameter);

  /// Whether it is one of those that are divided.
  bool has(const at::Tensor& parameter) {
    return find(parameter) != nullptr;
  }

  /// Divides what an optimizer keeps for them already.
  void add(torch::optim::Optimizer& optimizer);

  /// Throws where the plan, or the policy of units, names what no model has. Before the
  /// first step.
  void check_plan();

  /// To live while a backward runs, which may then put gradients off until a unit has
  /// them all, and to be finished behind it.
  [[nodiscard]] UnitGradients::Backward backward();

  /// Between two steps: weights that were kept are dropped, and parameters that
  /// have become whole are cut again, where no view of them is left.
  void settle();

  /// What this process holds of a parameter, or of a tensor that an optimizer keeps,
  /// for files; empty where it holds all of it. Communicates nothing.
  std::optional<checkpoint::TensorPiece> piece(const at::Tensor& tensor) const;

  /// Whether a tensor is divided, and `piece` can say how.
  bool is_piece(const at::Tensor& tensor) const {
    return piece(tensor).has_value();
  }

  /// Whether values may be written into what `piece` returns: the parameter is cut,
  /// and nobody has a view of it as a whole.
  bool can_be_written(const at::Tensor& tensor) const;

  /// `piece` where it can be written; what was gathered of it before is dropped.
  std::optional<checkpoint::TensorPiece> piece_to_write(const at::Tensor& tensor) const;

  /// While it lives the parameters and states are whole, plain tensors, for what
  /// reads and writes their memory: checkpoints. Collective to make.
  class Whole {
   public:
    Whole() = default;
    Whole(Whole&& other) noexcept
        : give_back_(std::exchange(other.give_back_, nullptr)) {}
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;
    Whole& operator=(Whole&& other) noexcept {
      give_back_.swap(other.give_back_);
      return *this;
    }
    /// Puts the parts back that were there.
    ~Whole();

    /// Divides what is there now instead: after loading.
    void divide();

   private:
    friend class ShardedParameters;
    std::function<void(bool anew)> give_back_;
  };

  /// `here`: whether this process needs them; where not, it only takes part. With
  /// `but`, tensors for which it is true stay as they are; all processes must say the
  /// same of a tensor.
  [[nodiscard]] Whole whole(
      const std::vector<const torch::nn::Module*>& models,
      const std::vector<torch::optim::Optimizer*>& optimizers,
      bool here,
      const std::function<bool(const at::Tensor&)>& but = nullptr);

 private:
  using Weak = c10::weak_intrusive_ptr<at::TensorImpl>;
  struct Known {
    Weak parameter;
    /// Its gradients are brought to its rows; not while it needs none.
    bool followed;
    /// Its place along tp.
    distributed::Placement of_tensor;
    /// What it is gathered with, and which parameter of that it is; null before its
    /// model is known.
    distributed::UnitPtr unit;
    uint32_t number = 0;
  };

  /// Null for a parameter that is not divided.
  Known* find(const at::Tensor& parameter);
  void follow_gradient(Known& known, const at::Tensor& parameter);
  /// A place along each axis for a parameter of these sizes, with its place along
  /// tp; `Replicate` along all where it is to stay whole.
  std::vector<distributed::Placement> places_for(
      c10::IntArrayRef sizes,
      const distributed::Placement& of_tensor) const;
  /// Puts a parameter into these places, where that can be done. One that is
  /// distributed is put together first: collective.
  bool cut(
      const at::Tensor& parameter,
      const std::vector<distributed::Placement>& places);
  /// Where one lies that has become whole, if it can be cut.
  void cut_again(const Known& known, const at::Tensor& parameter);
  /// SHARD_GRAD_OP: what is gathered stays until backward is done.
  bool keeps_whole() const {
    return strategy_ == ShardingStrategy::kShardGradOp ||
        strategy_ == ShardingStrategy::kHybridShardZero2;
  }
  /// Says to the part of a parameter what it is gathered with, and for how long.
  void join(const Known& known, const at::Tensor& parameter) const;
  /// The units of a model whose parameters are divided.
  void make_units(const torch::nn::Module& module);
  /// Whether nobody would miss the memory that it has now.
  static bool can_be_cut(const at::Tensor& parameter);

  std::vector<distributed::Axis*> axes_;
  /// The numbers of dp_shard and tp among them, where these have several processes.
  std::optional<size_t> shard_;
  std::optional<size_t> tensor_;
  ShardingStrategy strategy_;
  /// Where parts do not lie in the memory of what computes.
  std::optional<Offload> offload_;
  PlanEntries plan_;
  AutoWrap wrap_;
  ClassNames class_names_;
  /// Which entries have named a module.
  std::vector<bool> matched_;
  bool checked_ = false;
  bool any_model_ = false;
  std::vector<Known> parameters_;
  /// What the units along dp_shard are gathered into.
  std::shared_ptr<distributed::UnitMemory> unit_memory_;
  /// Null where nothing lies along dp_shard.
  std::shared_ptr<UnitGradients> gradients_;
};

} // namespace accel::parallel
