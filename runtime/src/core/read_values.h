#pragma once

#include "core/call_site.h"
#include "core/operation_log.h"

#include <accel/detail/communicator.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace accel::detail {

/// Whether the program has read the same values on all processes
/// (`match_single_device`): what `item()` of a distributed tensor gave, and the
/// losses that `backward` was given as plain tensors, which count as those of the
/// whole batch. Where they differ the processes would go different ways, or train
/// different models.
///
/// Each process keeps a checksum. It is compared in the backwards that
/// synchronise, and once more when the program ends: numbers that travel
/// with the gradients, or in a message of their own while these do.
///
/// Kernels of GPUs may add in any order, so that processes that compute alike differ
/// in the last digits: of values from a device only what is more than rounding is
/// an error.
///
/// A process that has read more values than another (process 0 under
/// `is_main_process()`, a value that needs nobody else) makes no error: its reads
/// up to the next comparison are left out, its losses are not. So are the batches where
/// one was given more of them.
class ReadValues {
 public:
  /// Of the program.
  static ReadValues& get();
  /// False with ACCEL_CHECK_VALUES=0, which all processes must have alike.
  static bool enabled();

  /// An operator on distributed tensors has returned a number or a bool, read from a
  /// tensor of this device and dtype. Thread-safe.
  void add_read(
      const char* op,
      const c10::IValue& value,
      c10::Device device,
      at::ScalarType dtype);
  /// A distributed tensor of this lineage (distributed/lineage.h) has become a plain one,
  /// or a value. Thread-safe.
  void add_read_lineage(uint64_t lineage);
  /// `backward` was given a distributed loss of this lineage.
  void add_lineage(uint64_t lineage);
  /// `backward` was given this plain loss. A loss on a GPU is read when the next
  /// one comes, for which nobody has to wait.
  void add_loss(const at::Tensor& loss);

  /// The program was given a batch of which each process loads rows: the name of its
  /// sampler, and what all must have drawn alike.
  /// `has_workers`: where the data set draws from the default generator they do so in any
  /// order, on one device, too, so that other draws are a warning from here on.
  void add_batch(
      const std::string& sampler, uint64_t fingerprint, bool has_workers);

  /// An operator on distributed tensors has drawn random numbers from a generator in this
  /// state, a number for it. Thread-safe.
  void add_draw(uint64_t state);

  /// Whether the next synchronising backward is to compare. Always where
  /// backwards meet the other processes anyway (`met_others`: the last one has);
  /// where every process computes everything itself, of the first ones each,
  /// then one of eight: waiting for the others would be the only wait. To be
  /// asked once in each such backward.
  bool is_due(bool met_others);

  /// Starts the comparison of what came since the last one, and of one more number.
  /// Every process must call it. `enclose`: returns what the gradients are to carry;
  /// otherwise null, and it is a message of its own.
  std::shared_ptr<Enclosed> begin(
      Communicator& communicator, bool enclose, uint64_t more);
  /// Waits for it. Returns whether `more` was the same on all processes; where it was
  /// not, the rest is compared by `end`. Does nothing when none is under way.
  /// Every process must call it, or none.
  bool wait(Communicator& communicator);
  /// Throws `c10::Error` on all processes where the values differ. Every process must
  /// call it, or none, behind `wait`.
  void end(Communicator& communicator);

  /// What came since the last comparison, for the other processes.
  std::string to_text();
  /// The error that the processes' texts, by rank, are; empty where there is
  /// none. Takes no text for a process that says nothing.
  std::string difference(const std::vector<std::string>& texts) const;

  /// Forgets all: another Accelerator begins.
  void restart();

 private:
  /// Reads of which the value is kept, and of these those with their place.
  static constexpr size_t kKept = 64;
  static constexpr size_t kPlaces = 8;
  /// Finding a place takes longer than reading a value: it is done for the first
  /// comparisons, then for some of them. Programs read in the same places.
  static constexpr int64_t kAlways = 8;
  static constexpr int64_t kSometimes = 32;
  /// Backwards to a comparison where processes do not meet otherwise.
  static constexpr int64_t kSkips = 8;

  struct Value {
    const char* op = "";
    int64_t bits = 0;
    c10::Scalar number;
    /// How far it may be away from another process's, relative to it; 0 for not at
    /// all.
    double rounding = 0;
    /// Whether `places_` has been found for this one.
    bool placed = false;
  };
  struct Values {
    int64_t count = 0;
    uint64_t checksum = 0;
    /// The first ones.
    std::vector<Value> kept;

    void add(Value value);
  };
  struct Window {
    Values reads;
    Values losses;
    int64_t batch_count = 0;
    uint64_t batches = 0;
    /// Of the last one.
    std::string sampler;
    uint64_t draws = 0;
    /// Of the losses, and of what was read and how often.
    uint64_t lineages = 0;
    uint64_t read_lineages = 0;
    int64_t lineage_count = 0;

    /// What is compared: how many reads, which, which losses, how many batches, and
    /// which, what was drawn from, and what all was computed from.
    std::array<int64_t, Enclosed::kCount - 1> digest() const;
  };
  /// A loss that a GPU is still to compute.
  struct PendingLoss {
    at::Tensor host;
    c10::Device device;
    c10::Event done;
  };

  std::string place_of(const std::vector<Value>& kept, size_t index) const;
  std::array<int64_t, Enclosed::kCount> numbers() const;
  void send(Communicator& communicator);
  /// An error of one process and another, or a warning where the workers of a data loader
  /// draw the numbers that differ.
  void fail(const std::string& error, const Communicator& communicator) const;
  void settle_loss();
  /// Where checksums differ: throws unless it is by rounding.
  void look_closer(
      Communicator& communicator,
      const Values& mine,
      bool losses);

  std::mutex mutex_;
  Window window_;
  /// How many comparisons there were, and where the first reads before one are.
  int64_t windows_ = 0;
  int64_t backwards_ = 0;
  std::array<CallSite, kPlaces> places_;
  std::optional<PendingLoss> pending_loss_;
  /// What is being compared.
  Window compared_;
  int64_t more_ = 0;
  bool has_workers_ = false;
  std::shared_ptr<Enclosed> enclosed_;
  at::Tensor sum_;
  Communicator::Waiter wait_;
};

/// The program's exit status becomes 1 where it would be 0.
void fail_at_exit();

/// The exit code of a process that ends with `status`: 1 after fail_at_exit where
/// that is 0. For who ends a process past the handlers of exit.
ACCEL_API int exit_code_at_end(int status);

} // namespace accel::detail
