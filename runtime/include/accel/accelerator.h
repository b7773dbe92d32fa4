#pragma once

#include <accel/accumulate.h>
#include <accel/autocast.h>
#include <accel/backward.h>
#include <accel/checkpoint/custom_object.h>
#include <accel/checkpoint/hooks.h>
#include <accel/checkpoint/load_options.h>
#include <accel/checkpoint/save_options.h>
#include <accel/checkpoint/state_dict.h>
#include <accel/collectives.h>
#include <accel/detail/preparable.h>
#include <accel/detail/runtime_pointer.h>
#include <accel/distributed/device_mesh.h>
#include <accel/export.h>
#include <accel/input.h>
#include <accel/options.h>
#include <accel/output.h>
#include <accel/parallel/context_parallel.h>
#include <accel/process_first.h>
#include <accel/profile.h>
#include <accel/state.h>
#include <accel/stop.h>
#include <accel/version.h>

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

namespace accel {

namespace detail {
class Runtime;
} // namespace detail

class Accelerator;
inline Accelerator& accelerator(const AcceleratorOptions& options);

/// Connects this process with the others of the program. Make it at the top of
/// `main`: it must outlive everything that uses it. Elsewhere
/// `accel::accelerator()` returns it.
///
///     accel::Accelerator accelerator;
///     Net model;
///     accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
///         model->parameters(), 0.1);
///     accelerator.prepare(model, optimizer);
///     auto loader = accel::data::make_data_loader(std::move(data), 64);
///     for (auto& batch : *loader) {
///       auto step = accelerator.accumulate(model);
///       auto loss = torch::nll_loss(model->forward(batch.data), batch.target);
///       optimizer.zero_grad();
///       accelerator.backward(loss);
///       optimizer.step();
///     }
///     accelerator.save(model, "model.pt");
///
/// *Collective* below means: every process must call it, in the same order.
/// Where another process has died, or stays away for longer than the option
/// `timeout`, it throws `c10::Error`. With one process nothing is sent, copied
/// or changed. Counterpart of Hugging Face Accelerate's class of this name
/// (docs/parity.md).
///
/// What it derives from has the members of three subjects: `gather`, `reduce`,
/// `broadcast` and what else brings values of all processes together
/// (accel/collectives.h); standard input (accel/input.h); `print`, `cout`, `save`
/// and what else process 0 does alone (accel/output.h).
class ACCEL_API Accelerator : public detail::Collectives,
                              public detail::SharedInput,
                              public detail::MainProcessOutput {
 public:
  /// Meets the other processes, as torchrun's environment says. Collective.
  /// Throws `c10::Error` where the environment is incomplete, the others cannot
  /// be reached or have other options, and where an Accelerator with other
  /// options exists; with the same options the two share everything.
  explicit Accelerator(const AcceleratorOptions& options = {})
      : Accelerator(detail::built_with<AcceleratorOptions>(), options) {}

  /// The last one waits a bounded time for the other processes and ends the
  /// connections; while an exception is on its way, it cuts them at once, so
  /// that the others stop too.
  ~Accelerator();

  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  // ==== This process among the others (accel/state.h, accel/process_first.h)

  /// This process and the options in force. The functions below read from it.
  const AcceleratorState& state() const;
  /// Where this process computes: its GPU, or the CPU.
  torch::Device device() const;
  /// One process, several on CPUs, or several with a GPU each.
  DistributedType distributed_type() const;
  /// How many processes train, on all machines together.
  int64_t num_processes() const;
  /// The rank of this process among all, from 0.
  int64_t process_index() const;
  /// The rank of this process on its machine, from 0.
  int64_t local_process_index() const;
  /// Whether this is process 0.
  bool is_main_process() const;
  /// Whether this is the first process of its machine.
  bool is_local_main_process() const;
  /// Whether this is the process with the highest rank.
  bool is_last_process() const;
  /// Whether there is more than one process.
  bool use_distributed() const;

  /// The processes as `parallelism_config` says, or as `fsdp_plugin` needs them:
  /// the axes of more than one process, by their names in Accelerate ("dp_shard");
  /// one axis of all processes where there is no such.
  distributed::DeviceMesh device_mesh() const;
  /// This process's place along the axis dp_replicate, from 0.
  int64_t data_parallel_rank() const;
  /// This process's place along the axis dp_shard, from 0.
  int64_t data_parallel_shard_rank() const;
  /// This process's place along the axis cp, from 0.
  int64_t context_parallel_rank() const;
  /// This process's place along the axis tp, from 0.
  int64_t tensor_parallel_rank() const;

  /// The precision in which models compute: none, bf16 or fp16.
  MixedPrecision mixed_precision() const;

  /// For people: the processes, and each option with its value and who has said
  /// so. `ACCEL_PRINT_PLAN=1` writes it to process 0's standard error at the
  /// start.
  std::string plan() const;

  /// Returns when every process has called it. Collective.
  void wait_for_everyone() const;

  /// Returns when this process's device has done all that it was given, on all
  /// its streams; at once on the CPU. What `torch::cuda::synchronize` is for
  /// CUDA. Not collective.
  void wait_for_device() const;

  /// Calls `f(args...)` on one process only: process 0. The functions below
  /// choose another one: `on_local_main_process` the first of each machine,
  /// `on_last_process` the last, `on_process` that of an index among all,
  /// `on_local_process` that of an index on each machine. Returns the result
  /// there and an empty optional elsewhere; nothing where `f` returns nothing.
  /// Not collective. Collective calls in `f`, and operators that communicate,
  /// throw `c10::Error`.
  template <typename F, typename... Args>
  auto on_main_process(F&& f, Args&&... args) const;
  template <typename F, typename... Args>
  auto on_local_main_process(F&& f, Args&&... args) const;
  template <typename F, typename... Args>
  auto on_last_process(F&& f, Args&&... args) const;
  template <typename F, typename... Args>
  auto on_process(int64_t index, F&& f, Args&&... args) const;
  template <typename F, typename... Args>
  auto on_local_process(int64_t index, F&& f, Args&&... args) const;

  /// Process 0 does the rest of the scope first, then the others do it: for
  /// work whose result stays on disk. `local_main_process_first`: the first
  /// process of each machine. Collective over all processes in both forms.
  ///
  ///     auto first = accelerator.main_process_first();
  ///     download_if_missing();
  [[nodiscard]] ProcessFirstGuard main_process_first() const;
  [[nodiscard]] ProcessFirstGuard local_main_process_first() const;

  /// Raises this process's flag, so that all can stop together. Not collective.
  void set_trigger();
  /// Whether any process has called `set_trigger` since the last check. The
  /// same answer on every process; lowers the flags. Collective.
  bool check_trigger();

  // ==== Models, optimizers, schedulers (accel/optim/)

  /// Makes them take part. Models move to `device()` (option
  /// `device_placement`) and get process 0's parameters and buffers; gradients
  /// of their parameters, and of those that only an optimizer has, are brought
  /// together from now on. Any order, any number; what is prepared is skipped.
  /// Checksums are compared first: a tensor that has process 0's values already
  /// is not written to, so that a graph which was built before stays valid.
  ///
  /// Takes `torch::nn::Module`s, module holders, `AnyModule`s, optimizers,
  /// schedulers, and (smart) pointers to them. Collective. Throws where a
  /// holder is empty or the processes have different models.
  template <typename... Objects>
  void prepare(Objects&&... objects);

  // ==== The training step (accel/accumulate.h, backward.h, autocast.h)

  /// Begins a micro-step; to be made first in the loop body and kept until its
  /// end. Gradients are brought together, and the optimizer steps, every
  /// `gradient_accumulation_steps` times and (with `sync_with_dataloader`) at
  /// the last batch of the loader that the loop is over, whatever other loops
  /// were left before or are left inside. Pass the models that the body trains.
  /// With `match_single_device` each optimizer counts its own steps
  /// (`AcceleratedOptimizer`), unless the body asks for `sync_gradients`, which then
  /// decides. A body without a backward, a step and that question, of an evaluation
  /// or of a round in which nothing is learnt yet, counts for nothing.
  template <typename... Models>
  [[nodiscard]] AccumulateGuard accumulate(const Models&... models);

  /// Whether this micro-step brings gradients together and steps the optimizer.
  bool sync_gradients() const;

  /// Micro-steps of a window: what `AcceleratorOptions` say, or was set last.
  int64_t gradient_accumulation_steps() const;

  /// Sets it from here on, as where `find_executable_batch_size` has found a smaller
  /// batch. All processes must call it, with the same number, between two windows and
  /// outside of `accumulate`. Throws where it is less than 1, where a window is under
  /// way, and where it is more than 1 and an optimizer of torch's own type was prepared.
  void set_gradient_accumulation_steps(int64_t steps);

  /// Computes the gradients of `loss`, a scalar where `options` have no gradient to
  /// begin with, and on a synchronising micro-step brings them together. Collective.
  ///
  /// In `match_single_device`, and wherever it is a distributed tensor, it is
  /// the loss of the whole batch, and gradients are summed from what each
  /// process has computed of them. Elsewhere it is the mean over this process's
  /// batch, and gradients are averaged. There the loss counts 1 /
  /// `gradient_accumulation_steps`; in `match_single_device` an optimizer's step
  /// divides by the real length of its window, also for a last one that is shorter.
  ///
  /// What `loss.backward()` throws comes through. A program that catches it goes on when
  /// all processes have failed at the same place, and gradients are zeroed before the next
  /// backward; else that one throws, or is out of step. Inside of a backward, in the one of
  /// a `torch::autograd::Function` or in a hook, it is `loss.backward()`.
  void backward(const torch::Tensor& loss, BackwardOptions options = {});

  /// For a mean over something other than samples, such as the tokens that
  /// count: `weight` is how many this process has. The gradient is that of the
  /// mean over all processes' units. Collective, with one message more. Throws
  /// where `weight` is negative, or 0 on all processes. Where the loss is that
  /// of the whole batch (see above), `weight` is not used.
  void backward(
      const torch::Tensor& loss,
      double weight,
      BackwardOptions options = {});

  /// `torch::nn::utils::clip_grad_norm_` for gradients that were brought
  /// together; returns the total norm before clipping. On other micro-steps it
  /// clips nothing and returns the norm of what this process has accumulated.
  /// One tensor, several in braces, or a vector. Collective. Throws where a
  /// gradient was not brought together: without `match_single_device`, of a
  /// tensor that was not prepared.
  double clip_grad_norm_(
      at::TensorList parameters,
      double max_norm,
      double norm_type = 2.0,
      bool error_if_nonfinite = false);

  /// `torch::nn::utils::clip_grad_value_`; nothing on micro-steps that do not
  /// synchronise. Collective; throws as `clip_grad_norm_` does.
  void clip_grad_value_(at::TensorList parameters, double clip_value);

  /// Divides gradients by the scale of fp16's gradient scaler; once per step,
  /// `clip_grad_norm_` and `step` do it where it has not been done.
  void unscale_gradients();

  /// The gradient scaler; null unless the mixed precision is fp16.
  GradScaler* scaler() const;

  /// Whether fp16 has left out the last step of a prepared optimizer because a
  /// gradient was infinite or undefined.
  bool optimizer_step_was_skipped() const;

  /// Mixed precision outside of an accumulation step (evaluation), or with
  /// other options than `AcceleratorOptions::autocast`: `enabled(false)` is for
  /// parts of a model that need full precision. Does nothing without mixed
  /// precision.
  [[nodiscard]] AutocastGuard autocast() const;
  [[nodiscard]] AutocastGuard autocast(const AutocastOptions& options) const;

  /// For loops in which the processes have different numbers of batches
  /// (accel/accumulate.h), while the guard lives. Not collective; every process
  /// must call it.
  [[nodiscard]] JoinUnevenGuard join_uneven_inputs(
      std::optional<bool> even_batches = std::nullopt);

  /// Records what the process does, for chrome://tracing or Perfetto, until
  /// what it returns is stopped or destroyed; docs/profiling.md. Collective,
  /// and so is the end.
  [[nodiscard]] Profile profile(const ProfileOptions& options = {}) const;

  // ==== Batches that no loader makes (accel/distributed/, utils/split.h)

  /// A batch that every process has made in full, cut between the samples, which
  /// dimension 0 counts, so that the processes share the work on it: a
  /// distributed tensor with the same sizes, values and gradients
  /// (accel/distributed/tensor.h). The tensor itself on one process, where it has
  /// fewer samples than there are processes, where it is undefined, has no
  /// dimension or is sparse, and where it is cut already, in whatever dimension.
  /// The same tensor, unchanged and without gradients, is given the same distributed
  /// tensor again (`is_same`) while that lives. Differentiable. Collective. Where the processes have different
  /// tensors, `backward` or what uses values of all before throws (unless
  /// `ACCEL_CHECK_BATCHES=0`).
  ///
  ///     auto x = accelerator.distribute(points.index({ids}));
  torch::Tensor distribute(const torch::Tensor& tensor) const;

  /// The same along dimension `dim`; a distributed tensor is cut anew. Throws
  /// where there is no such dimension.
  torch::Tensor distribute(const torch::Tensor& tensor, int64_t dim) const;

  /// The whole tensor, on every process: of a distributed one what one device
  /// has, any other tensor itself. For what reads memory (`data_ptr`,
  /// `accessor`, other libraries), prints or saves tensors. Differentiable.
  /// Collective where the tensor is distributed.
  torch::Tensor full(const torch::Tensor& tensor) const;

  /// The whole tensor, which `tensor` and all that share its memory (views, detached
  /// tensors) share from there on: for what writes into memory, so that they see it.
  /// They are whole then, and what is calculated of them is not shared out. Each
  /// process has to write the same. Differentiable. Collective where the tensor is
  /// distributed.
  ///
  ///     auto rows = accelerator.full_(output.detach());
  ///     rows.data_ptr<float>()[0] = 0; // and output has it
  torch::Tensor full_(const torch::Tensor& tensor) const;

  /// `distribute` and `full` for each tensor in a vector, pair, tuple, map,
  /// `Example` or struct of your own (`TensorsOf`, accel/operations.h).
  ///
  ///     auto [x, y] = accelerator.distribute(next_batch(points));
  template <typename T, if_holds_tensors<T> = 0>
  T distribute(const T& value) const;
  template <typename T, if_holds_tensors<T> = 0>
  T full(const T& value) const;

  /// `distribute` for each of two tensors or more.
  ///
  ///     std::tie(x, y) = accelerator.distribute(x, y);
  template <typename... Tensors>
  std::tuple<torch::Tensor, torch::Tensor, Tensors...> distribute(
      const torch::Tensor& first,
      const torch::Tensor& second,
      const Tensors&... more) const;

  /// While what it returns lives, `buffers` are shared out along their sequences,
  /// between the processes of the axis cp (or sp), in place: buffer i along dimension
  /// `buffer_seq_dims[i]`. Then all are whole again but `no_restore_buffers`, which are
  /// among them. For inputs that no loader of accel and no `distribute` has made, whose
  /// batches are shared out anyway. It decides about speed only. Buffers keep their
  /// sizes and values; where the processes are more than a buffer's positions, and
  /// where another tensor shares its memory (a view), it stays whole. Without such an axis it
  /// warns once and does nothing. Throws `c10::Error` for lists that do not fit each
  /// other and for buffers that require gradients. Collective, and so is the end.
  ///
  ///     auto context = accelerator.maybe_context_parallel({points, labels}, {1, 1});
  [[nodiscard]] ContextParallelGuard maybe_context_parallel(
      const std::vector<torch::Tensor>& buffers = {},
      const std::vector<int64_t>& buffer_seq_dims = {},
      const std::vector<torch::Tensor>& no_restore_buffers = {}) const;

  /// This process's part of a vector, of a tensor's rows, or of each value of a
  /// map of such: for inference, where nothing is averaged. With
  /// `apply_padding` shorter parts are filled up with the last element; throws
  /// where there is none.
  template <typename Inputs>
  auto split_between_processes(
      const Inputs& inputs,
      bool apply_padding = false) const;

  /// The value with its tensors on `device()`; not collective. `non_blocking`
  /// (by default the option of that name): the host goes on while a GPU gets its
  /// copy; what is not in pinned memory is copied into such memory first.
  template <typename T>
  T send_to_device(
      const T& value,
      std::optional<bool> non_blocking = std::nullopt) const;

  // ==== Checkpoints (accel/checkpoint/, docs/checkpoints.md)

  /// Saves all that the run needs to go on: what was prepared and registered,
  /// random numbers, and how far each data loader is. Returns the directory,
  /// which is complete or not there; without one
  /// (`automatic_checkpoint_naming`) it is the next
  /// `project_dir`/checkpoints/checkpoint_{i}. Collective; call it between two
  /// epochs, or at the end of a loop body where `sync_gradients()`, behind the
  /// optimizer's step. Throws on all processes where one fails; the earlier
  /// checkpoint is still there then.
  std::string save_state(
      const std::string& directory = "",
      const SaveStateOptions& options = {});

  /// Returns when a checkpoint that is saved asynchronously is complete, and
  /// what saves have replaced is gone. Collective. Throws on all processes
  /// where one could not save it.
  void wait_for_checkpoint();

  /// Goes on where a run that called `save_state` was (without a directory, at
  /// the newest). Collective; call it when everything was made and prepared as
  /// in that run, before the loops begin. All processes compare everything
  /// before anything is changed, and throw where something differs.
  void load_state(
      const std::string& directory = "",
      const LoadStateOptions& options = {});

  /// `load_state` where `accel launch --resume auto` asks for it and there is a
  /// checkpoint that is not damaged; otherwise nothing. Returns whether
  /// something was loaded. Collective.
  bool resume(const std::string& directory = "");

  /// Whether SIGTERM or SIGUSR1 has come to any process (accel/stop.h has an
  /// example). From its first call on the two do not end the process, unless a
  /// second one comes more than two seconds after the first. Collective, with
  /// one small message; to be called where the state can be saved.
  bool stop_requested();

  /// Makes objects part of checkpoints, in this order: numbers, strings,
  /// tensors, and classes that can be saved (`checkpoint::custom_object`). They
  /// must live until the last checkpoint.
  template <typename... Objects>
  void register_for_checkpointing(Objects&... objects);

  /// `save_state` calls the hook on every process before files are written,
  /// with the models and the directory; accel/checkpoint/hooks.h. It stays until
  /// the handle's `remove`. Call it on every process.
  CheckpointHookHandle register_save_state_pre_hook(CheckpointHook hook);
  /// The same for `load_state`, before anything is compared.
  CheckpointHookHandle register_load_state_pre_hook(CheckpointHook hook);

  /// Writes the model's parameters and buffers into a directory, for inference
  /// or for Python: `model.safetensors`, or several shards of at most
  /// `max_shard_size` ("500MB", "10GB") with an index. Collective.
  template <typename Model>
  void save_model(
      const Model& model,
      const std::string& directory,
      const std::string& max_shard_size = "10GB");

  /// The parameters and buffers with Python's names, not copied, unless they are
  /// divided between the processes (`fsdp_plugin`): then they are put together,
  /// which is collective.
  template <typename Model>
  checkpoint::StateDict get_state_dict(const Model& model) const;

  /// The model itself: `prepare` wraps nothing.
  template <typename Model>
  Model& unwrap_model(Model& model) const;

  /// The next pass over `loader` (as `accel::data::make_data_loader` makes
  /// them) leaves its first `batches` batches of this process out, without
  /// loading them. They count from the beginning of the pass: one that `load_state`
  /// lets go on, goes on at the later of the two places, and of several calls the
  /// last one counts. Every process must call it.
  template <typename Loader>
  void skip_first_batches(Loader& loader, int64_t batches) const;

  /// How many batches `loader` (as `accel::data::make_data_loader` makes them)
  /// hands this process in a whole pass: `len(loader)` in Accelerate, for the steps
  /// of a schedule. The same on all processes but for `even_batches(false)`. Empty
  /// where only a pass can tell: for stateful data sets, streams and samplers of
  /// your own. Draws no random numbers; takes the time of a pass of the sampler.
  template <typename Loader>
  std::optional<int64_t> num_batches(Loader& loader) const;

  /// The loop over `loader` was left early, and its pass will not go on; where
  /// `save_state` cannot see it, because something still holds a tensor of the
  /// last batch, or accel does not know the tensors of its type (`TensorsOf`).
  template <typename Loader>
  void leave(Loader& loader) const;

  /// Forgets what was prepared and registered, and which data loaders were made and
  /// are gone, and gives unused memory of the device back: between two trainings in one
  /// program. `free_memory` is the
  /// same under Accelerate's other name. Call it on every process.
  void clear();
  void free_memory();

  // ==== Recording of the run (option `log_with`; accel/tracking/,
  // ==== docs/tracking.md). Every process makes these calls, process 0 records.

  /// Starts the trackers and records the configuration. `init_kwargs` holds
  /// options per tracker name.
  void init_trackers(
      const std::string& project_name,
      const LogValues& config = {},
      const std::map<std::string, LogValues>& init_kwargs = {});

  /// Passes values to all trackers. Throws on process 0 before `init_trackers`.
  void log(const LogValues& values, std::optional<int64_t> step = std::nullopt);

  /// The tracker of that name; on other processes one that ignores every call,
  /// or null in the form that names its type. Throws where there is none.
  GeneralTracker& get_tracker(const std::string& name);
  template <typename Tracker>
  Tracker* get_tracker(const std::string& name);

  /// Finishes all trackers, and a checkpoint that is saved asynchronously.
  /// Collective. The Accelerator's end does it too, but prints an error of a
  /// tracker instead of throwing it.
  void end_training();

 private:
  /// Compares the program's headers with the library before it looks at what
  /// they describe.
  Accelerator(
      const detail::BuiltWith& program,
      const AcceleratorOptions& options);

  /// `accel::accelerator(options)`.
  static Accelerator& of_program(
      const detail::BuiltWith& program,
      const AcceleratorOptions& options);
  friend Accelerator& accelerator(const AcceleratorOptions& options);

  // What the templates are made of.
  void begin_prepare();
  void prepare_model(torch::nn::Module* module);
  void prepare_optimizer(torch::optim::Optimizer* optimizer);
  void place_states(torch::optim::Optimizer& optimizer);
  void prepare_scheduler(torch::optim::LRScheduler* scheduler);
  AccumulateGuard begin_micro_step();
  void add_for_checkpointing(checkpoint::CustomObject object);
  checkpoint::StateDict whole_state_dict(const torch::nn::Module& model) const;
  void save_module(
      const torch::nn::Module& model,
      const std::string& directory,
      const std::string& max_shard_size);

  /// For `accelerator()` behind the end of the last one.
  explicit Accelerator(detail::AfterTheEnd);
  static Accelerator* after_the_end();
  friend ACCEL_API Accelerator& accelerator();

  struct Own; // what several Accelerators do not share
  detail::RuntimePointer runtime_;
  std::unique_ptr<TrackerSet> trackers_;
  std::unique_ptr<Own> own_;
};

/// The program's Accelerator; throws `c10::Error` where there is none. Behind the
/// end of the last one (in the destructor of a global variable, behind `main`) it
/// is one that still knows which process this is, and prints and writes on process 0
/// alone; all else throws.
ACCEL_API Accelerator& accelerator();

/// The program's Accelerator, whatever its options are; where there is none, one
/// is made with these options, which lives to the end of the program. For code
/// whose `main` is elsewhere: a library, tests.
///
///     accel::accelerator(accel::AcceleratorOptions().match_single_device(true))
///         .prepare(model);
///
/// Where it makes one it is collective and throws what the constructor throws.
/// That one ends behind `main`, or in `exit`, before what was made before it is
/// destroyed; behind that this is what `accelerator()` is then. It leaves the other
/// processes as they leave at the end of `main`: waits a bounded time for those that
/// still run, and a process that ends in another way (`_exit`, a signal) makes the
/// others stop.
inline Accelerator& accelerator(const AcceleratorOptions& options) {
  return Accelerator::of_program(
      detail::built_with<AcceleratorOptions>(), options);
}

} // namespace accel

#include <accel/accelerator-inl.h>
