#pragma once

#include <accel/detail/trace.h>

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "../trace_format.h"
#include "leaves.h"
#include "registry.h"

namespace accel::verify {

/// Writes down what this process computes (../trace_format.h).
///
/// Of a program that knows nothing of accel every `Tensor::backward` is
/// recorded as it is. In one that uses accel the runtime reports each of its
/// backwards with the global quantities, and the backward that it runs inside
/// of that is not recorded again.
class Recorder final : public detail::TraceSink {
 public:
  struct Options {
    std::string directory;
    /// End the program before backward number `max_steps`; 0: never.
    uint64_t max_steps = 0;
    int64_t rank = 0;
    int64_t world_size = 1;
    Widening widening = Widening::kNone;
    bool seeded = false;
    uint64_t seed = 0;
    /// Change gradients behind each backward by a rounding.
    bool noise = false;
  };

  /// Throws `c10::Error` where the file cannot be made.
  explicit Recorder(Options options);

  void registered(
      const void* module,
      const std::string& type,
      const std::string& name,
      const at::Tensor& tensor,
      TensorKind kind);

  // A backward that the program itself calls; `loss_value` for the record.
  void begin_plain(const std::vector<at::Tensor>& roots, double loss_value);
  /// `failed`: it has thrown, and is not recorded.
  void end_plain(bool failed);
  /// True while a backward is being recorded on this thread.
  bool busy() const;

  bool finished() const override;
  void leave() override;
  void begin(const at::Tensor& loss, double global_loss, int64_t rows)
      override;
  void end(bool averaged) override;
  void fail() override;
  void end_together() override;

  void note(const std::string& text);

  /// Writes the final values; what is called after it does nothing.
  void finish();
  /// The same where nothing has been recorded, at the program's end, when tensors
  /// may be gone.
  void finish_unused();

 private:
  void begin_record(
      const std::vector<at::Tensor>& roots,
      double loss,
      uint32_t flags,
      int64_t rows);
  void end_record();
  void write_tensor(const Registry::Entry& entry, const at::Tensor& tensor);
  void write_final_values();
  void change_by_rounding(const at::Tensor& gradient);
  void write(Record type, const std::string& bytes);
  void flush();

  /// The backward that is being recorded on a thread.
  struct Current {
    bool recording = false;
    double loss = 0;
    Dtype dtype = Dtype::kOther;
    uint32_t flags = 0;
    int64_t rows = 0;
    struct Leaf {
      uint32_t id;
      at::Tensor tensor;
      Fingerprint before;
    };
    std::vector<Leaf> leaves;
  };

  const Options options_;
  int file_ = -1;
  std::string buffer_;
  std::mutex mutex_;
  Registry registry_;
  LeafFinder finder_;
  /// Programs may call backward on several threads at a time. There is one
  /// Recorder in a process.
  static thread_local Current current_;
  Encoder encoder_;
  std::atomic<uint64_t> steps_{0};
  bool ended_ = false;
  bool uses_runtime_ = false;
  bool warned_about_plain_ = false;
};

} // namespace accel::verify
