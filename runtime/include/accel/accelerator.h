#pragma once

#include <accel/accumulate.h>
#include <accel/autocast.h>
#include <accel/backward.h>
#include <accel/checkpoint/custom_object.h>
#include <accel/checkpoint/hooks.h>
#include <accel/checkpoint/load_options.h>
#include <accel/checkpoint/save_options.h>
#include <accel/checkpoint/state_dict.h>
#include <accel/data/cursor.h>
#include <accel/detail/alone.h>
#include <accel/detail/call_model.h>
#include <accel/detail/preparable.h>
#include <accel/export.h>
#include <accel/last_batch.h>
#include <accel/operations.h>
#include <accel/options.h>
#include <accel/process_first.h>
#include <accel/profile.h>
#include <accel/state.h>
#include <accel/stop.h>
#include <accel/utils/split.h>
#include <accel/version.h>

#include <torch/serialize.h>
#include <torch/types.h>

#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel {

class GradScaler;

namespace detail {
class Runtime;
} // namespace detail

/// The program's way to the other processes: made at the top of `main`, it
/// must outlive everything that uses it. Elsewhere `accel::accelerator()`
/// reaches it.
///
/// *Collective* below means: every process must call it, in the same order.
/// With one process nothing is sent, copied or changed.
class ACCEL_API Accelerator {
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

  // ---- This process among the others.

  const AcceleratorState& state() const;
  torch::Device device() const {
    return state().device();
  }
  DistributedType distributed_type() const {
    return state().distributed_type();
  }
  int64_t num_processes() const {
    return state().num_processes();
  }
  int64_t process_index() const {
    return state().process_index();
  }
  int64_t local_process_index() const {
    return state().local_process_index();
  }
  bool is_main_process() const {
    return state().is_main_process();
  }
  bool is_local_main_process() const {
    return state().is_local_main_process();
  }
  bool is_last_process() const {
    return state().is_last_process();
  }
  bool use_distributed() const {
    return state().use_distributed();
  }
  MixedPrecision mixed_precision() const {
    return state().mixed_precision();
  }

  /// What is in force, for people: the processes, and each option with its
  /// value and who has said so. With `ACCEL_PRINT_PLAN=1` in the environment
  /// process 0 writes it to standard error when the Accelerator is made.
  ///
  ///     accelerator.print(accelerator.plan());
  std::string plan() const;

  /// Returns when every process has called it. Collective.
  void wait_for_everyone() const;

  /// Calls `f(args...)` on process 0 only. Returns its result there and an
  /// empty optional elsewhere; nothing where `f` returns nothing. What needs all
  /// processes (collective calls, operators that communicate) throws in it.
  template <typename F, typename... Args>
  auto on_main_process(F&& f, Args&&... args) const {
    return call_if(
        is_main_process(),
        "on_main_process, which only process 0 runs",
        std::forward<F>(f),
        std::forward<Args>(args)...);
  }
  /// The same on the first process of each machine, on the last one, and on
  /// that of an index among all or among those of each machine.
  template <typename F, typename... Args>
  auto on_local_main_process(F&& f, Args&&... args) const {
    return call_if(
        is_local_main_process(),
        of_one_each("on_local_main_process, which one process of each machine "
                    "runs"),
        std::forward<F>(f),
        std::forward<Args>(args)...);
  }
  template <typename F, typename... Args>
  auto on_last_process(F&& f, Args&&... args) const {
    return call_if(
        is_last_process(),
        "on_last_process, which only the last process runs",
        std::forward<F>(f),
        std::forward<Args>(args)...);
  }
  template <typename F, typename... Args>
  auto on_process(int64_t index, F&& f, Args&&... args) const {
    return call_if(
        process_index() == index,
        "on_process, which only one process runs",
        std::forward<F>(f),
        std::forward<Args>(args)...);
  }
  template <typename F, typename... Args>
  auto on_local_process(int64_t index, F&& f, Args&&... args) const {
    return call_if(
        local_process_index() == index,
        of_one_each("on_local_process, which one process of each machine runs"),
        std::forward<F>(f),
        std::forward<Args>(args)...);
  }

  /// Process 0 does the rest of the scope first, then the others do it: for
  /// work whose result stays on disk. Collective; nobody waits longer than the
  /// options' `timeout`.
  ///
  ///     {
  ///       auto first = accelerator.main_process_first();
  ///       download_if_missing();
  ///     }
  [[nodiscard]] ProcessFirstGuard main_process_first() const {
    return ProcessFirstGuard(is_main_process());
  }
  /// The same with the first process of each machine. Collective over all.
  [[nodiscard]] ProcessFirstGuard local_main_process_first() const {
    return ProcessFirstGuard(is_local_main_process());
  }

  /// Raises a flag that `check_trigger` shows to all processes: to stop
  /// together when one of them has seen a reason to.
  void set_trigger() {
    trigger_ = true;
  }
  /// Whether a process has raised its flag since the last check. Collective.
  bool check_trigger();

  // ---- Models, optimizers, schedulers.

  /// Makes models and optimizers take part: models move to `device()` (with
  /// `device_placement`) and get process 0's parameters and buffers; gradients
  /// of their parameters, and of those that only an optimizer has, are averaged
  /// from now on. Any order, any number; what has been prepared is skipped.
  ///
  /// Takes `torch::nn::Module`s, module holders, `AnyModule`s, optimizers,
  /// schedulers, and (smart) pointers to them. Collective. Throws where a
  /// holder is empty or the processes have different models.
  template <typename... Objects>
  void prepare(Objects&&... objects) {
    begin_prepare();
    (detail::visit_preparable(
         objects,
         [this](torch::nn::Module* module) { prepare_model(module); },
         [](torch::optim::Optimizer*) {},
         [](torch::optim::LRScheduler*) {}),
     ...);
    (detail::visit_preparable(
         objects,
         [](torch::nn::Module*) {},
         [this](torch::optim::Optimizer* o) { prepare_optimizer(o); },
         [this](torch::optim::LRScheduler* s) { prepare_scheduler(s); }),
     ...);
  }

  // ---- The training step.

  /// Begins a micro-step; to be kept until the end of the loop body:
  ///
  ///     for (auto& batch : *loader) {
  ///       auto step = accelerator.accumulate(model);
  ///
  /// Gradients are synchronised, and the optimizer steps, every
  /// `gradient_accumulation_steps` times and (with `sync_with_dataloader`) at
  /// the loader's last batch. Pass the models that the body trains.
  template <typename... Models>
  [[nodiscard]] AccumulateGuard accumulate(const Models&... /*models*/) {
    return begin_micro_step();
  }

  /// For loops over a data loader that do not train and may be left early:
  ///
  ///     for (auto& batch : *loader) {
  ///       auto body = accelerator.loop_body();
  ///       ...
  ///       if (++batches == limit) break;
  ///
  /// A loader cannot see that its loop was left. Without this it would stay the
  /// active one (`end_of_dataloader`, a checkpoint's cursor) until it begins
  /// another pass or is destroyed. `accumulate` does the same.
  [[nodiscard]] LoopBodyGuard loop_body() {
    return {};
  }

  /// Without `even_batches` the processes get different numbers of batches, and
  /// those that have more would wait for ever for those that have run out. In
  /// loops that begin while the guard lives, a process that has run out goes on
  /// with two samples that do not count (`backward` adds nothing for them, and
  /// `gather_for_metrics` and `reduce_for_metrics` leave them out; `gather` and
  /// `reduce` do not), so that optimizers and schedulers stay alike; gradients
  /// are divided by the number of all processes, as torch's `Join` does. Keep
  /// the body's guard (`accumulate`, `loop_body`).
  ///
  /// `even_batches` overrides the option while the guard lives. Does nothing
  /// with `even_batches`, with one process, and in `match_single_device`, which
  /// shares batches of any size. Not collective; every process must call it.
  ///
  ///     auto join = accelerator.join_uneven_inputs(/*even_batches=*/false);
  [[nodiscard]] JoinUnevenGuard join_uneven_inputs(
      std::optional<bool> even_batches = std::nullopt) {
    return JoinUnevenGuard(even_batches);
  }

  /// Whether this micro-step averages gradients and steps the optimizer.
  bool sync_gradients() const;

  /// Whether fp16 has left out the last step of a prepared optimizer because a
  /// gradient was infinite or undefined.
  bool optimizer_step_was_skipped() const;

  /// Computes the gradients of the loss, and on a synchronising micro-step
  /// brings them together. Collective.
  ///
  /// `loss` is a scalar. In `match_single_device`, and wherever it is a
  /// distributed tensor, it is the loss of the whole batch, and gradients are
  /// summed from what each process has computed of them. Elsewhere it is the
  /// mean over this process's batch, and gradients are averaged. `reduction` is
  /// not looked at.
  ///
  /// The loss counts 1 / `gradient_accumulation_steps`; in
  /// `match_single_device`, 1 / the real length of the window, also for a last
  /// one that is shorter.
  void backward(
      const torch::Tensor& loss,
      Reduction reduction = torch::kMean,
      BackwardOptions options = {});
  void backward(const torch::Tensor& loss, BackwardOptions options);

  /// For losses that are a mean over something other than samples, such as the
  /// tokens that count: `weight` is how many of them this process has. The
  /// gradient is that of the mean over all processes' units. Collective, with
  /// one message more. In `match_single_device`, and for distributed losses, the
  /// mean is over all units already, and `weight` is not looked at.
  void backward(
      const torch::Tensor& loss,
      double weight,
      BackwardOptions options = {});

  /// `torch::nn::utils::clip_grad_norm_` for averaged gradients; returns the
  /// total norm before clipping. On a micro-step that does not synchronise it
  /// clips nothing and returns the norm of what this process has accumulated.
  double clip_grad_norm_(
      const std::vector<torch::Tensor>& parameters,
      double max_norm,
      double norm_type = 2.0,
      bool error_if_nonfinite = false);
  double clip_grad_norm_(
      std::initializer_list<torch::Tensor> parameters,
      double max_norm,
      double norm_type = 2.0,
      bool error_if_nonfinite = false);
  double clip_grad_norm_(
      const torch::Tensor& parameter,
      double max_norm,
      double norm_type = 2.0,
      bool error_if_nonfinite = false);

  /// `torch::nn::utils::clip_grad_value_`, on synchronising micro-steps.
  void clip_grad_value_(
      const std::vector<torch::Tensor>& parameters,
      double clip_value);
  void clip_grad_value_(
      std::initializer_list<torch::Tensor> parameters,
      double clip_value);
  void clip_grad_value_(const torch::Tensor& parameter, double clip_value);

  /// Divides gradients by the gradient scaler's scale (fp16); once per step,
  /// `clip_grad_norm_` and `step` do it where it has not been done.
  void unscale_gradients();

  /// The gradient scaler; null unless the mixed precision is fp16.
  GradScaler* scaler() const;

  /// Mixed precision outside of an accumulation step (evaluation). Does nothing
  /// without mixed precision.
  [[nodiscard]] AutocastGuard autocast() const;
  /// The same with other options than `AcceleratorOptions::autocast`; with
  /// `enabled(false)` also inside of a training step: for parts of a model that
  /// need full precision.
  [[nodiscard]] AutocastGuard autocast(const AutocastOptions& options) const;

  /// Records what the process does, for chrome://tracing or Perfetto, until what
  /// it returns is stopped or destroyed; docs/profiling.md. Collective, and so
  /// is the end.
  [[nodiscard]] Profile profile(const ProfileOptions& options = {}) const {
    return Profile(options);
  }

  // ---- Batches that no loader makes.

  /// A tensor that every process has in full, cut along dimension `dim`, so that
  /// the processes share the work on it: a distributed tensor with the same
  /// sizes, values and gradients (accel/distributed/tensor.h). Whatever is
  /// computed from it is what one device computes. The tensor itself on one
  /// process, and where the dimension has fewer entries than there are processes.
  /// Differentiable. Collective: that all processes have the same tensor is
  /// checked while the step runs; where they have not, `backward`, or what comes
  /// first that uses values of all, throws `c10::Error` (`ACCEL_CHECK_BATCHES=0`
  /// leaves the check out).
  ///
  ///     auto x = accelerator.distribute(data.index({rows}));
  torch::Tensor distribute(const torch::Tensor& tensor, int64_t dim = 0) const;

  /// The whole tensor, on every process: of a distributed one what one device
  /// has, any other tensor itself. For what reads memory (`data_ptr`,
  /// `accessor`, other libraries), prints or saves tensors. Differentiable.
  /// Collective where the tensor is distributed.
  torch::Tensor full(const torch::Tensor& tensor) const;

  /// `distribute` for each of several tensors of a batch.
  torch::Tensor shard_batch(const torch::Tensor& tensor) {
    return shard(0, {tensor})[0];
  }
  torch::Tensor shard_batch(int64_t dim, const torch::Tensor& tensor) {
    return shard(dim, {tensor})[0];
  }
  template <typename... Tensors>
  auto shard_batch(
      const torch::Tensor& first,
      const torch::Tensor& second,
      const Tensors&... rest) {
    return as_tuple<2 + sizeof...(Tensors)>(shard(0, {first, second, rest...}));
  }
  template <typename... Tensors>
  auto shard_batch(
      int64_t dim,
      const torch::Tensor& first,
      const torch::Tensor& second,
      const Tensors&... rest) {
    return as_tuple<2 + sizeof...(Tensors)>(
        shard(dim, {first, second, rest...}));
  }

  // What accel-migrate writes for batches and does nothing of its own any more:
  // one line each over `distribute` and what all processes have.

  torch::Tensor shard_state(const torch::Tensor& state, int64_t dim) const {
    return distribute(state, dim);
  }
  int64_t global_batch_size(const torch::Tensor& tensor) const {
    return tensor.size(0);
  }
  int64_t local_batch_size(int64_t global) const {
    return global;
  }
  torch::Tensor squeeze(const torch::Tensor& tensor) const {
    return tensor.squeeze();
  }
  template <typename Model, typename... Inputs>
  auto data_parallel(Model&& model, const Inputs&... inputs)
      -> detail::ForwardOf<Model, Inputs...> {
    return detail::call_model(model, distributed_each(inputs)...);
  }
  template <typename Function>
  auto replicated(Function&& function) const -> decltype(function()) {
    return std::forward<Function>(function)();
  }
  template <typename Model>
  Model row_wise(Model model) const {
    return model;
  }

  /// This process's part of a vector, of a tensor's rows, or of each value of a
  /// map of such: for inference, where nothing is averaged. With
  /// `apply_padding` shorter parts are filled up with the last element.
  template <typename Inputs>
  auto split_between_processes(
      const Inputs& inputs,
      bool apply_padding = false) const {
    return accel::split_between_processes(
        inputs, process_index(), num_processes(), apply_padding);
  }

  // ---- Values of all processes. All collective; inputs stay as they are;
  // ---- with several processes results require no gradients.

  /// The rows of all processes, in rank order: tensors of equal shape,
  /// concatenated on dimension 0 (a scalar becomes a vector with an element for
  /// each process). Throws where shapes or types differ.
  torch::Tensor gather(const torch::Tensor& tensor);

  /// The rows that one device would have: what metrics are computed from. In
  /// `match_single_device`, and of distributed tensors, `full`: a tensor that
  /// all processes have is itself, so that a call too many changes nothing, not
  /// even a gradient. Otherwise `gather`, and at the end of a loader without its
  /// repeated samples.
  torch::Tensor gather_for_metrics(const torch::Tensor& tensor) {
    return gather_rows({tensor})[0];
  }
  template <typename... Tensors>
  auto gather_for_metrics(
      const torch::Tensor& first,
      const torch::Tensor& second,
      const Tensors&... rest) {
    return as_tuple<2 + sizeof...(Tensors)>(
        gather_rows({first, second, rest...}));
  }

  /// The global value of a number (or of several, elementwise). In
  /// `match_single_device`, and of distributed tensors, `full`. Otherwise the
  /// mean (all processes weigh the same) or the sum of what the processes have
  /// computed from their batches; same shape and dtype, computed in float64.
  torch::Tensor reduce_for_metrics(
      const torch::Tensor& tensor,
      Reduction reduction = torch::kMean);

  /// The same behind the loop, for what its last batch has left.
  LastBatch last_batch() {
    return LastBatch(*this);
  }

  /// "sum", "mean", "max" or "min" over the processes, elementwise.
  torch::Tensor reduce(
      const torch::Tensor& tensor,
      const std::string& reduction = "sum");

  /// Process `from_process`'s tensor, in place; returns it.
  torch::Tensor broadcast(torch::Tensor tensor, int64_t from_process = 0);

  /// Process `from_process`'s value on all processes: for decisions by a clock,
  /// seeds, and whatever else differs between processes and must not. Numbers,
  /// enumerations, `std::string`, and structs of plain numbers. Collective.
  ///
  ///     torch::manual_seed(accelerator.broadcast_object(time(nullptr)));
  ///     if (accelerator.broadcast_object(elapsed() > limit)) break;
  template <typename T>
  T broadcast_object(T value, int64_t from_process = 0) const {
    if constexpr (std::is_same_v<T, std::string>) {
      uint64_t size = value.size();
      broadcast_bytes(&size, sizeof(size), from_process);
      value.resize(size);
      broadcast_bytes(value.data(), value.size(), from_process);
    } else {
      static_assert(
          std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>,
          "accel: broadcast_object takes numbers, enumerations, std::string and structs of plain numbers");
      broadcast_bytes(&value, sizeof(value), from_process);
    }
    return value;
  }

  /// The tensor with dimension `dim` filled up with `pad_index` to the greatest
  /// size that any process has.
  torch::Tensor pad_across_processes(
      const torch::Tensor& tensor,
      int64_t dim = 0,
      double pad_index = 0,
      bool pad_first = false);

  /// The elements of all processes' vectors, in rank order: numbers, plain
  /// structs and `std::string`s, any number from each. Collective.
  template <typename T>
  std::vector<T> gather_object(const std::vector<T>& objects) const {
    static_assert(
        std::is_same_v<T, std::string> ||
            (std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
             !std::is_same_v<T, bool>),
        "accel: gather_object takes vectors of numbers (no bool), enumerations, "
        "structs of plain numbers and std::string");
    std::string bytes;
    for (const auto& object : objects) {
      if constexpr (std::is_same_v<T, std::string>) {
        const uint64_t size = object.size();
        bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
        bytes += object;
      } else {
        bytes.append(reinterpret_cast<const char*>(&object), sizeof object);
      }
    }
    std::vector<T> result;
    for (const auto& part : exchange_bytes(bytes)) {
      for (size_t position = 0; position < part.size();) {
        if constexpr (std::is_same_v<T, std::string>) {
          uint64_t size = 0;
          part.copy(reinterpret_cast<char*>(&size), sizeof size, position);
          position += sizeof size;
          result.push_back(part.substr(position, size));
          position += size;
        } else {
          T object;
          part.copy(reinterpret_cast<char*>(&object), sizeof object, position);
          result.push_back(object);
          position += sizeof object;
        }
      }
    }
    return result;
  }

  // The same operations for each tensor in a vector, map, tuple, `Example` or
  // struct of your own (`TensorsOf`). Processes must give values with the same
  // tensors.

  template <typename T, if_holds_tensors<T> = 0>
  T gather(const T& value) {
    return map_tensors(
        value, [this](const torch::Tensor& t) { return gather(t); });
  }
  template <typename T, if_holds_tensors<T> = 0>
  T gather_for_metrics(const T& value) {
    // Together: what one of them says about the rows holds for all.
    std::vector<torch::Tensor> tensors;
    map_tensors(value, [&](const torch::Tensor& t) {
      tensors.push_back(t);
      return t;
    });
    if (tensors.empty()) {
      return value;
    }
    tensors = gather_rows(tensors);
    size_t next = 0;
    return map_tensors(
        value, [&](const torch::Tensor&) { return tensors[next++]; });
  }
  template <typename T, if_holds_tensors<T> = 0>
  T reduce(const T& value, const std::string& reduction = "sum") {
    return map_tensors(value, [&](const torch::Tensor& t) {
      return reduce(t, reduction);
    });
  }
  template <typename T, if_holds_tensors<T> = 0>
  T broadcast(const T& value, int64_t from_process = 0) {
    return map_tensors(value, [&](const torch::Tensor& t) {
      return broadcast(t, from_process);
    });
  }
  template <typename T, if_holds_tensors<T> = 0>
  T pad_across_processes(
      const T& value,
      int64_t dim = 0,
      double pad_index = 0,
      bool pad_first = false) {
    return map_tensors(value, [&](const torch::Tensor& t) {
      return pad_across_processes(t, dim, pad_index, pad_first);
    });
  }

  /// The value with its tensors on `device()`; not collective. `non_blocking`:
  /// as the option of that name where it is not given. On a GPU the host then
  /// goes on while the copy is made: from pinned memory directly, from other
  /// memory after a copy into pinned memory, which LibTorch keeps until the
  /// device has read it.
  template <typename T>
  T send_to_device(
      const T& value,
      std::optional<bool> non_blocking = std::nullopt) const {
    const bool ahead = non_blocking.value_or(state().options().non_blocking);
    return map_tensors(value, [&](const torch::Tensor& t) {
      // Without pinned memory "non-blocking" blocks.
      const bool pin = ahead && device().is_cuda() && t.defined() &&
          t.is_cpu() && t.layout() == torch::kStrided && !t.is_pinned();
      return (pin ? t.pin_memory() : t).to(device(), ahead);
    });
  }

  // ---- Output, on process 0 only. Arguments are evaluated everywhere.

  /// Writes the arguments with spaces between them and ends the line.
  template <typename... Args>
  void print(const Args&... args) {
    auto& out = cout();
    [[maybe_unused]] const char* separator = "";
    ((out << separator << args, separator = " "), ...);
    out << std::endl;
  }

  /// `std::printf`; returns what it returns on process 0, everywhere.
  int printf(const char* format, ...) __attribute__((format(printf, 2, 3)));

  /// `std::cout` and `std::cerr` on process 0; elsewhere streams that take
  /// everything, keep manipulators, and write nothing.
  std::ostream& cout();
  std::ostream& cerr();

  /// The same for C's functions: `stdout` on process 0, elsewhere a file that
  /// takes everything.
  ///
  ///     fmt::print(accelerator.c_stdout(), "{}", loss.item<float>());
  std::FILE* c_stdout() const;

  /// Where this process writes a file that one process should write: the path
  /// on process 0, the null device elsewhere. All processes run the same code,
  /// and what is written may be computed together.
  ///
  ///     std::ofstream log(accelerator.main_process_path("loss.csv"));
  const char* main_process_path(const char* path) const;
  std::string main_process_path(const std::string& path) const;
  std::filesystem::path main_process_path(
      const std::filesystem::path& path) const;

  /// Where this process reads a file that the program may have written through
  /// `main_process_path` before. For such a file all processes wait until
  /// process 0 has come here, so that each reads what one device would read
  /// (a stream that is still open, and not flushed, is as unfinished as there);
  /// and opening the file through `main_process_path` again waits until all
  /// have come there. For other files this is just the path. Collective; only
  /// on the thread that trains: elsewhere, a file that the program has written
  /// is a `c10::Error`.
  ///
  ///     std::ifstream words(accelerator.readable_path("words.txt"));
  const char* readable_path(const char* path) const;
  std::string readable_path(const std::string& path) const;
  std::filesystem::path readable_path(const std::filesystem::path& path) const;

  /// A command for `popen(command, "w")`, of which process 0 alone should be
  /// told something: the command on process 0, elsewhere one that takes
  /// everything and does nothing.
  ///
  ///     FILE* plot = popen(accelerator.main_process_command("gnuplot"), "w");
  const char* main_process_command(const char* command) const;

  /// `torch::save` on process 0, or on the first process of each host
  /// (`save_on_each_node`). The others do not wait.
  template <typename Value, typename... Args>
  void save(const Value& value, Args&&... args) {
    if (state().options().save_on_each_node ? is_local_main_process()
                                            : is_main_process()) {
      torch::save(value, std::forward<Args>(args)...);
    }
  }

  // ---- Checkpoints; docs/checkpoints.md.

  /// Saves everything that the run needs to go on: models and optimizers that
  /// were prepared, accelerated schedulers, registered objects, the gradient
  /// scaler, each process's random numbers, and how far each data loader is.
  /// Returns the directory, which is complete or not there. Collective; call
  /// it between two epochs, or at the end of a loop body, inside of what
  /// `accumulate` (or `loop_body`) returned and behind the optimizer's step:
  ///
  ///     if (accelerator.sync_gradients() && ++steps % 1000 == 0)
  ///       accelerator.save_state("checkpoint");
  ///
  /// All processes must see the directory. A module that no shared pointer holds
  /// must live as long as an optimizer has its parameters. Throws on all of them where one
  /// fails; the earlier checkpoint is still there then.
  ///
  /// Without a directory (`automatic_checkpoint_naming`): as the next
  /// `project_dir`/checkpoints/checkpoint_{i}, after which old ones are removed
  /// (`total_limit`).
  ///
  /// `asynchronous` returns when everything has been copied, and training goes
  /// on while it is written; the directory is there when that is done, and
  /// until then an earlier checkpoint of that name stays as it is. One save is
  /// under way at most: the next call waits for it, as `load_state`, `resume`,
  /// `end_training` and the Accelerator's end do. Where it has failed, the call
  /// that waits throws (but for the end, which prints):
  ///
  ///     accelerator.save_state("", accel::SaveStateOptions().asynchronous(true));
  ///
  /// It returns, and a save in the background completes, when everything is on
  /// the disk; with `sync(false)` when the system has it, as in Accelerate (see
  /// there what a machine that stops then leaves).
  std::string save_state(
      const std::string& directory = "",
      const SaveStateOptions& options = {});

  /// Returns when a checkpoint that is saved asynchronously is complete, and
  /// when those that saves have replaced are gone, of which large ones are
  /// removed while the program goes on; at once where there is nothing to wait
  /// for. Throws on all processes where one could not save
  /// it. Collective.
  void wait_for_checkpoint();

  /// Goes on where a run that called `save_state` was. Collective; to be
  /// called when models, optimizers, schedulers, data loaders and registered
  /// objects were made and prepared as in that run, before the loops begin. A
  /// pass over a data loader that was interrupted goes on behind the batches
  /// that were done, when the loop over it begins; the program's own loop
  /// counters must be registered (`register_for_checkpointing`).
  ///
  /// Everything is compared on all processes before anything is changed, but
  /// for what registered objects refuse. Another number of processes than had
  /// saved may load; in the middle of a pass, with `match_single_device` or
  /// `split_batches`. Without `verify_checksums` damaged values are loaded as
  /// they are:
  ///
  ///     accelerator.load_state("", accel::LoadStateOptions().verify_checksums(false));
  void load_state(
      const std::string& directory = "",
      const LoadStateOptions& options = {});

  /// For programs that a launcher may start again: with `accel launch --resume
  /// auto` (the environment variable `ACCEL_RESUME`) goes on, as `load_state`
  /// does, at the newest complete checkpoint of `automatic_checkpoint_naming`,
  /// or at `directory` where one is given; otherwise, and where there is no
  /// checkpoint yet, it does nothing. Returns whether something was loaded.
  /// Newer checkpoints that are damaged are passed over with a warning.
  /// Collective. Where `--resume auto` was asked for, `save_state` refuses to
  /// save before this (or `load_state`) was called.
  bool resume(const std::string& directory = "");

  /// Whether SIGTERM or SIGUSR1 (which Slurm sends some time before the end)
  /// has come to any of the processes. Collective, with one small message; to
  /// be called where the state can be saved:
  ///
  ///     if (accelerator.sync_gradients() && accelerator.stop_requested()) {
  ///       accelerator.save_state();
  ///       return accel::kExitStopped;
  ///     }
  ///
  /// From its first call on the two signals do not end the process, unless a
  /// second one comes more than two seconds after the first; before, and where
  /// the program has handlers of its own, they do what they did.
  bool stop_requested();

  /// Makes objects part of checkpoints, in this order: numbers, strings,
  /// tensors, and classes that can be saved (`checkpoint::custom_object`). They
  /// must live until the last checkpoint.
  ///
  ///     int64_t epoch = 0;
  ///     accelerator.register_for_checkpointing(epoch);
  ///     accelerator.load_state();
  ///     for (; epoch < epochs; ++epoch)
  template <typename... Objects>
  void register_for_checkpointing(Objects&... objects) {
    (add_for_checkpointing(checkpoint::custom_object(objects)), ...);
  }

  /// Called on every process by `save_state` before files are written, with the
  /// models and the directory that becomes the checkpoint: files that are
  /// written there are part of it, models that are taken out of the list are
  /// not saved. Stays until the handle's `remove`.
  CheckpointHookHandle register_save_state_pre_hook(CheckpointHook hook);
  /// The same for `load_state`, before anything is compared.
  CheckpointHookHandle register_load_state_pre_hook(CheckpointHook hook);

  /// Writes the model's parameters and buffers into a directory, for inference
  /// or for Python: `model.safetensors`, or several shards of at most
  /// `max_shard_size` with an index. Collective.
  template <typename Model>
  void save_model(
      const Model& model,
      const std::string& directory,
      const std::string& max_shard_size = "10GB") {
    save_module(module_of(model), directory, max_shard_size);
  }

  /// The parameters and buffers with Python's names, not copied. Gradients are
  /// averaged outside of models, so there is nothing to gather or to unwrap.
  template <typename Model>
  checkpoint::StateDict get_state_dict(const Model& model) const {
    return checkpoint::state_dict(module_of(model));
  }

  /// The model itself: `prepare` wraps nothing.
  template <typename Model>
  Model& unwrap_model(Model& model) const {
    return model;
  }

  /// The next pass over `loader` (as `accel::data::make_data_loader` makes
  /// them) leaves its first `batches` batches of this process out, without
  /// loading them. Every process must call it.
  template <typename Loader>
  void skip_first_batches(Loader& loader, int64_t batches) const {
    detail::resumable(loader).skip_first_batches(batches);
  }

  /// The loop over `loader` was left early, and its pass will not go on; where
  /// `save_state` cannot see it.
  template <typename Loader>
  void leave(Loader& loader) const {
    detail::resumable(loader).leave();
  }

  /// Forgets what was prepared and registered, and gives unused memory of the
  /// device back: between two trainings in one program. Prepared objects do not
  /// take part in checkpoints any more; prepare what is still used again.
  void clear();
  void free_memory() {
    clear();
  }

  // ---- Recording of the run (`log_with`); docs/tracking.md. Every process
  // ---- makes these calls, process 0 records.

  /// Starts the trackers and records the configuration. `init_kwargs` holds
  /// options per tracker name.
  void init_trackers(
      const std::string& project_name,
      const LogValues& config = {},
      const std::map<std::string, LogValues>& init_kwargs = {}) {
    trackers_->init_trackers(project_name, config, init_kwargs);
  }
  /// Passes values to all trackers.
  void log(
      const LogValues& values,
      std::optional<int64_t> step = std::nullopt) {
    trackers_->log(values, step);
  }
  /// The tracker of that name; on other processes one that ignores every call.
  GeneralTracker& get_tracker(const std::string& name) {
    return trackers_->get_tracker(name);
  }
  /// The same with its own type; null on other processes.
  template <typename Tracker>
  Tracker* get_tracker(const std::string& name) {
    return trackers_->get_tracker<Tracker>(name);
  }
  /// Finishes all trackers. The Accelerator's end does it too, but prints an
  /// error of a tracker instead of throwing it.
  /// Waits for a checkpoint that is saved asynchronously, too. Collective.
  void end_training() {
    wait_for_checkpoint();
    trackers_->end_training();
  }

 private:
  /// Compares the program's headers with the library before it looks at what
  /// they describe.
  Accelerator(
      const detail::BuiltWith& program,
      const AcceleratorOptions& options);

  template <size_t N>
  static auto as_tuple(const std::vector<torch::Tensor>& tensors) {
    return as_tuple(tensors, std::make_index_sequence<N>());
  }
  template <size_t... I>
  static auto as_tuple(
      const std::vector<torch::Tensor>& tensors,
      std::index_sequence<I...>) {
    return std::make_tuple(tensors[I]...);
  }

  template <typename Model>
  static const torch::nn::Module& module_of(const Model& model) {
    const torch::nn::Module* found = nullptr;
    detail::visit_preparable(
        model,
        [&](const torch::nn::Module* module) { found = module; },
        [](const torch::optim::Optimizer*) {},
        [](const torch::optim::LRScheduler*) {});
    TORCH_CHECK(
        found != nullptr,
        "accel: a model was expected, but got an empty module holder, a null "
        "pointer or something that is no model.");
    return *found;
  }

  template <typename T>
  T distributed_each(const T& value) const {
    if constexpr (has_tensors<T>::value) {
      return map_tensors(value, [this](const torch::Tensor& t) {
        return t.defined() && t.dim() > 0 ? distribute(t) : t;
      });
    } else {
      return value;
    }
  }
  void add_for_checkpointing(checkpoint::CustomObject object);
  void save_module(
      const torch::nn::Module& model,
      const std::string& directory,
      const std::string& max_shard_size);
  template <typename F, typename... Args>
  static auto call_if(
      bool condition,
      const char* region,
      F&& f,
      Args&&... args) {
    using Result = std::invoke_result_t<F, Args...>;
    if constexpr (std::is_void_v<Result>) {
      if (condition) {
        const detail::AloneGuard alone(region);
        std::forward<F>(f)(std::forward<Args>(args)...);
      }
    } else {
      std::optional<std::decay_t<Result>> result;
      if (condition) {
        const detail::AloneGuard alone(region);
        result.emplace(std::forward<F>(f)(std::forward<Args>(args)...));
      }
      return result;
    }
  }

  /// The region, unless it is run by all processes.
  const char* of_one_each(const char* region) const {
    return state().local_num_processes() > 1 ? region : nullptr;
  }

  std::vector<std::string> exchange_bytes(const std::string& bytes) const;
  void broadcast_bytes(void* bytes, size_t size, int64_t from_process) const;
  void begin_prepare();
  void prepare_model(torch::nn::Module* module);
  void prepare_optimizer(torch::optim::Optimizer* optimizer);
  void prepare_scheduler(torch::optim::LRScheduler* scheduler);
  AccumulateGuard begin_micro_step();
  std::vector<torch::Tensor> shard(
      int64_t dim,
      const std::vector<torch::Tensor>& tensors);
  std::vector<torch::Tensor> gather_rows(
      const std::vector<torch::Tensor>& tensors);

  std::shared_ptr<detail::Runtime> runtime_;
  std::unique_ptr<TrackerSet> trackers_;
  struct {
    bool automatic;
    int64_t total_limit;
    std::string project_dir;
  } naming_;
  std::vector<OptionInForce> options_in_force_;
  int exceptions_at_start_;
  bool trigger_ = false;
};

/// The program's Accelerator; throws `c10::Error` where there is none.
ACCEL_API Accelerator& accelerator();

} // namespace accel
