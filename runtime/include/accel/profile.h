#pragma once

#include <accel/export.h>

#include <c10/core/DeviceType.h>
#include <torch/arg.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace accel {

/// What `Accelerator::profile` records: operators on the host, or kernels and
/// copies on devices of one kind.
enum class ProfileActivity {
  kCPU, ///< operators on the host
  kCUDA, ///< on GPUs
  kXPU, ///< on Intel's GPUs
  kHPU, ///< on Habana's devices
  kMTIA, ///< on Meta's devices
  kPrivateUse1, ///< on devices that a library registers
};

/// Which steps are recorded: `skip_first` steps are left out, then cycles of
/// `wait` steps that are left out, `warmup` that are recorded and thrown away
/// (the first recorded operations are slow), and `active` that are kept. After
/// `repeat` cycles nothing is recorded any more; 0: until the end. Counterpart
/// of `torch.profiler.schedule`.
struct ProfileSchedule {
  /// Steps at the start that are left out.
  TORCH_ARG(int64_t, skip_first) = 0;
  /// Steps of a cycle that are left out.
  TORCH_ARG(int64_t, wait) = 0;
  /// Steps of a cycle that are recorded and thrown away.
  TORCH_ARG(int64_t, warmup) = 0;
  /// Steps of a cycle that are kept.
  TORCH_ARG(int64_t, active) = 1;
  /// Cycles; 0: until the end.
  TORCH_ARG(int64_t, repeat) = 0;
};

/// Counterpart of Accelerate's `ProfileKwargs`.
struct ProfileOptions {
  /// Empty: the CPU, and the device where the process computes on one.
  TORCH_ARG(std::vector<ProfileActivity>, activities);
  /// Empty: everything is one recording, and `step` only marks steps.
  TORCH_ARG(std::optional<ProfileSchedule>, schedule) = std::nullopt;
  /// Where process r writes `profile_{r}.json`, and for the cycles behind the
  /// first one `profile_{r}_{cycle}.json`. Made if it is missing.
  TORCH_ARG(std::string, output_trace_dir);
  /// Called with the path of each file when it is there, and without
  /// `output_trace_dir` with that of a temporary file, which is removed
  /// afterwards.
  TORCH_ARG(std::function<void(const std::string&)>, on_trace_ready);
  /// Record the shapes of operations' inputs. With `match_single_device` and several
  /// processes nothing is recorded of them, and a warning says so: LibTorch's profiler
  /// notes the memory of each input, which a distributed tensor does not have.
  TORCH_ARG(bool, record_shapes) = false;
  /// Record allocations.
  TORCH_ARG(bool, profile_memory) = false;
  /// Estimate the floating-point operations of products and convolutions: a list
  /// `flops` at the end of the file, with the sum of each operation's. Needs shapes, and
  /// is left out where these are.
  TORCH_ARG(bool, with_flops) = false;
};

/// A recording that is under way (`Accelerator::profile`). One at a time.
///
///     auto profile = accelerator.profile(
///         accel::ProfileOptions().output_trace_dir("trace").schedule(
///             accel::ProfileSchedule().wait(1).warmup(1).active(3).repeat(1)));
///     for (auto& batch : *loader) {
///       ...
///       profile.step();
///     }
class ACCEL_API Profile {
 public:
  Profile(Profile&& other) noexcept;
  Profile& operator=(Profile&&) = delete;
  /// As `stop`, but prints an error instead of throwing it, and does not wait
  /// for the other processes while an exception is on its way.
  ~Profile();

  /// The end of a step.
  void step();

  /// Writes what is being recorded, and waits for the other processes. Steps of
  /// an unfinished cycle are written too, but for warm-ups. Collective.
  void stop();

  /// The files that were written.
  const std::vector<std::string>& files() const;

 private:
  friend class Accelerator;
  Profile(const ProfileOptions& options, c10::DeviceType device);

  struct Recording;
  std::unique_ptr<Recording> recording_;
};

} // namespace accel
