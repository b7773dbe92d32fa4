#pragma once

#include <accel/backward.h>
#include <accel/detail/communicator.h>
#include <accel/grad_scaler.h>
#include <accel/parallel/sharded_init.h>
#include <accel/state.h>

#include "checkpoint/background_save.h"
#include "checkpoint/removals.h"
#include "core/batch_check.h"
#include "core/registry.h"
#include "core/same_parameters.h"
#include "core/unaccumulated.h"
#include "core/world.h"
#include "distributed/axis.h"
#include "gradients/reducer.h"
#include "parallel/offload.h"
#include "parallel/parallelism.h"
#include "distributed/recompute.h"
#include "parallel/sharded_parameters.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel::detail {

class GradientWindow;
class OptimizerControl;

/// What the Accelerators of this program share: the state, the connections to
/// the other processes, and where the training step stands. Made by the first
/// Accelerator, ended by the last.
class Runtime {
 public:
  /// Every process must call it. Throws where the environment is incomplete,
  /// the processes cannot meet, or their options differ.
  explicit Runtime(const ResolvedOptions& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// The one that exists, or null.
  static Runtime* get();
  /// The one that exists; throws where there is none.
  static Runtime& require();

  /// Which process this was, when the last one has ended; else null.
  static const AcceleratorState* ended_state();
  /// That, or the state of the one that exists; throws where there was none.
  static const AcceleratorState& output_state();

  /// The one that exists, whose options must be `options`, or a new one.
  static std::shared_ptr<Runtime> share(const ResolvedOptions& options);

  const AcceleratorState& state() const {
    return *state_;
  }
  Communicator& communicator(Channel channel = Channel::kMain) {
    return world_->communicator(channel);
  }
  Reducer& reducer() {
    return *reducer_;
  }
  /// Null unless the mixed precision is fp16.
  GradScaler* scaler() {
    return scaler_.get();
  }
  Registry& registry();
  /// Moves what optimizers keep; null where it stays where they compute.
  const parallel::Offload* optimizer_offload() const {
    return optimizer_offload_ ? &*optimizer_offload_ : nullptr;
  }
  /// `zero3_init_flag`: what is built from now on has whole parameters.
  void end_building_in_parts() {
    build_in_parts_.reset();
  }
  /// Null without activation checkpointing.
  distributed::Recompute* recompute() {
    return recompute_.get();
  }
  /// Null unless parameters are divided between the processes.
  parallel::ShardedParameters* sharded() {
    return sharded_.get();
  }
  /// `ShardedParameters::whole`; nothing where they are whole anyway.
  [[nodiscard]] parallel::ShardedParameters::Whole whole(
      const std::vector<const torch::nn::Module*>& models,
      const std::vector<torch::optim::Optimizer*>& optimizers,
      bool here,
      const std::function<bool(const at::Tensor&)>& but = nullptr) {
    return sharded_ ? sharded_->whole(models, optimizers, here, but)
                    : parallel::ShardedParameters::Whole();
  }
  /// The axis of all processes, which distributed tensors lie along.
  distributed::Axis& axis() {
    return *axis_;
  }
  /// The axes of more than one process of `ParallelismConfig`'s mesh, in its order.
  const std::vector<parallel::NamedSize>& named_axes() const {
    return named_axes_;
  }
  /// The same, as tensors lie along them. Where it is one it is `axis()`.
  const std::vector<distributed::Axis*>& parallel_axes() const {
    return parallel_axes_;
  }
  /// Those along which the samples of batches are shared out.
  const std::vector<distributed::Axis*>& batch_axes() const {
    return batch_axes_;
  }
  /// That along which the positions of sequences are shared out (cp or sp); null
  /// where there is none.
  distributed::Axis* sequence_axis() const {
    return sequence_axis_;
  }
  /// Where this process stands along an axis of Accelerate's name; 0 where that has
  /// one process.
  int64_t rank_along(const char* name) const;
  /// The axes of a mesh of these sizes and names, made where there is none yet.
  /// Every process must call it with the same. Throws on all processes where the
  /// sizes do not make the number of processes.
  const std::vector<distributed::Axis*>& mesh(
      const std::vector<int64_t>& sizes,
      const std::vector<std::string>& names);

  /// Registers tensors for averaging and gives the new ones, and `buffers`,
  /// process 0's values. Distributed tensors are left out, but for parameters that
  /// were built in parts: they and their gradients are in their places. The gradients of `sparse`, which are among
  /// the parameters, will be sparse. Every process must call it with the same.
  void add_tensors(
      const std::vector<std::pair<std::string, at::Tensor>>& given_parameters,
      const std::vector<std::pair<std::string, at::Tensor>>& given_buffers,
      const std::vector<at::Tensor>& sparse);

  /// Enters and leaves an accumulation step. With `match_single_device` one in which
  /// nothing was learnt, of an evaluation say, is none when it is left.
  void begin_micro_step();
  void end_micro_step();
  bool in_micro_step() const {
    return !open_steps_.empty();
  }
  bool has_had_micro_steps() const {
    return had_micro_steps_;
  }
  /// Whether the step that an optimizer with this window would make now updates its
  /// parameters. On a micro-step on which the program asks whether it synchronises,
  /// that decides; else, in `match_single_device`, how many steps of the optimizer
  /// were left out.
  bool steps_now(const GradientWindow& window) const;
  /// A backward runs.
  void note_learning();
  /// The optimizer was asked to step.
  void note_step(const OptimizerControl& optimizer);
  /// It has, with a closure that ran backwards perhaps.
  void note_stepped();
  /// Whether the open micro-step's backward has left gradients that no optimizer has
  /// used yet.
  bool holds_unused_gradients() const;
  /// Whether the open micro-step has no backward and no step of an optimizer yet,
  /// though there are optimizers.
  bool has_not_learnt() const;
  /// Whether each process trains on its own now (`LocalSGD`).
  bool trains_locally() const {
    return reducer_->local();
  }
  /// The program asks whether this micro-step synchronises.
  void note_question();
  /// Between two windows, after `step` micro-steps since the loader's last end.
  void restart_window(int64_t step);

  /// One backward with the loss counted `weight` times.
  void backward(
      const at::Tensor& loss,
      double weight,
      bool ghost,
      const BackwardOptions& options);

  /// Starts comparing the whole batches that the processes are about to split.
  void check_same_batch(
      const char* operation,
      const std::vector<at::Tensor>& tensors);
  /// Waits for it.
  void finish_batch_check();

  /// Averages what micro-steps have accumulated where no backward has done so.
  void average_accumulated();
  /// Whether a window is under way: something was accumulated that no update has used.
  bool accumulating() const;
  /// In between nothing is averaged (`LocalTraining`).
  void begin_local_training();
  void end_local_training();
  /// The gradients of `tensors` have become those of a window, of this process only.
  void note_accumulated(const std::vector<at::Tensor>& tensors);

  /// The loss of the whole batch, of one element, plain and the same on all
  /// processes; `loss` is this process's. Every process must call it.
  at::Tensor whole_loss(const at::Tensor& loss);

  /// Rows of the batch that was distributed last; 0 before the first.
  int64_t batch_rows = 0;
  /// One of so many rows is shared out.
  void enter_batch(int64_t rows);

  /// Whether `resume` or `load_state` has been called.
  bool resumed = false;
  /// Whether a checkpoint was saved in a micro-step that had learnt.
  bool saved_behind_step = false;

  /// The save that goes on while the program does; null where there is none.
  /// Every process has one, or none has.
  std::unique_ptr<checkpoint::BackgroundSave> background_save;
  /// Waits until it is done on all processes; throws where it has failed.
  /// Every process must call it.
  void finish_background_save();
  /// `World::exchange_beside`.
  std::vector<std::string> exchange_beside(
      const std::string& name,
      const std::string& text,
      const std::atomic<bool>& cancelled) {
    return world_->exchange_beside(name, text, cancelled);
  }
  /// `World::follow_first`.
  void follow_first(const std::string& name) {
    world_->follow_first(name);
  }
  /// Of what saves have replaced.
  checkpoint::Removals removals;
  /// How many saves were begun in the background.
  int64_t background_saves = 0;

  /// Ends everything. `orderly`: waits a bounded time for the other processes;
  /// otherwise cuts the connections at once.
  void end(bool orderly) noexcept;

 private:
  void check_options_agree();
  /// Connects the processes along the axes. Collective.
  void connect_axes();
  /// Nothing where it is not moved, or lies in the host's memory anyway.
  std::optional<parallel::Offload> make_offload(
      bool is_moved, const std::string& folder) const;
  /// Whether `ReadValues` are those of the other processes.
  bool compares_values() const;
  void leave() noexcept;
  /// `hold`: what it leaves is kept aside for the next micro-step.
  void run_backward(
      const std::function<void()>& run,
      bool synchronize,
      bool hold,
      bool ghost);
  struct OpenStep;
  void hold_gradients(const OpenStep& step);
  void broadcast_buffers();
  /// Lets go of tensors that nobody else has.
  void drop_unused();

  std::unique_ptr<World> world_;
  /// Never destroyed: tensors may outlive the Accelerator.
  distributed::Axis* axis_ = nullptr;
  ParallelSizes sizes_;
  std::vector<parallel::NamedSize> named_axes_;
  std::vector<distributed::Axis*> parallel_axes_;
  std::vector<distributed::Axis*> batch_axes_;
  distributed::Axis* sequence_axis_ = nullptr;
  struct Mesh {
    std::vector<int64_t> sizes;
    std::vector<std::string> names;
    /// The same.
    std::vector<distributed::Axis*> axes;
  };
  std::vector<std::unique_ptr<Mesh>> meshes_;
  std::unique_ptr<AcceleratorState> state_;
  std::unique_ptr<Reducer> reducer_;
  std::unique_ptr<GradScaler> scaler_;
  std::optional<parallel::Offload> optimizer_offload_;
  std::unique_ptr<parallel::ShardedParameters> sharded_;
  /// Null without activation checkpointing.
  std::unique_ptr<distributed::Recompute> recompute_;
  std::optional<ShardedInitGuard> build_in_parts_;
  Registry registry_;
  std::vector<at::Tensor> buffers_;
  BatchCheck batch_check_;
  /// A backward has left gradients that are this process's only.
  bool unaveraged_ = false;
  /// Of an accumulation guard that lives.
  struct OpenStep {
    /// What was before it.
    int64_t step;
    bool sync_gradients;
    bool learns;
    /// It works on its loader's last batch, which ends windows.
    bool ends_pass = false;
    /// The program has asked whether it synchronises.
    bool asked = false;
    /// A backward has run, and no optimizer has stepped behind it.
    bool had_backward = false;
    bool unused = false;
    /// The optimizers that were asked to step in it.
    std::vector<const OptimizerControl*> optimizers;
  };
  std::vector<OpenStep> open_steps_;
  bool had_micro_steps_ = false;
  UnaccumulatedUpdates unaccumulated_;
  SameParameters same_parameters_;
};

/// Overwrites all tensors with process 0's, in few messages.
void broadcast_all(
    Communicator& communicator,
    const std::vector<at::Tensor>& tensors);

} // namespace accel::detail
