#pragma once

#include <accel/detail/communicator.h>

#include "core/call_site.h"

#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace accel::detail {

/// What the collectives of this thread are for, while it lives: an operator on
/// distributed tensors. It is compared on all processes, and named in errors.
class PurposeGuard {
 public:
  /// `name`: "aten::sort", which must live as long as the program. `sizes`: of
  /// the whole tensor that is put together or summed. `detail`: a number for
  /// what else must be the same on all processes (where it is cut, how it is
  /// reduced).
  PurposeGuard(const char* name, at::IntArrayRef sizes, uint64_t detail);
  ~PurposeGuard();
  PurposeGuard(const PurposeGuard&) = delete;
  PurposeGuard& operator=(const PurposeGuard&) = delete;

 private:
  friend class OperationLog;
  const char* name_;
  at::IntArrayRef sizes_;
  uint64_t detail_;
  const PurposeGuard* previous_;
};

/// Numbers that travel with an operation and are compared on all processes, at no
/// cost where the operation goes through shared memory; nowhere else.
struct Enclosed {
  static constexpr size_t kCount = 10;

  std::array<int64_t, kCount> numbers{};
  /// Whether an operation has carried them, and which are not the same on all
  /// processes. Equal on all processes.
  bool compared = false;
  std::array<bool, kCount> differ{};
};

/// While it lives, operations that this thread begins carry these. Null: none.
class EncloseGuard {
 public:
  explicit EncloseGuard(std::shared_ptr<Enclosed> enclosed);
  ~EncloseGuard();
  EncloseGuard(const EncloseGuard&) = delete;
  EncloseGuard& operator=(const EncloseGuard&) = delete;
};

/// Some of the program's processes, which do what the others do not: one line of
/// them along an axis of a mesh.
struct OperationGroup {
  /// Equal on its processes, and another one for every other group.
  std::string key;
  /// What messages call it: "axis 'tp' of accel::DeviceMesh(dp=2, tp=2)".
  std::string name;
  /// Their ranks in the program, by their rank in the group.
  std::vector<int64_t> processes;
};
using OperationGroupPtr = std::shared_ptr<const OperationGroup>;

/// One collective operation as this process sees it.
struct Operation {
  Channel channel = Channel::kMain;
  /// Null for operations of all processes.
  OperationGroupPtr group;
  /// From 1, in its channel or group: the processes' operations of equal number belong
  /// together.
  uint64_t number = 0;
  const char* name = "";
  /// What it was given, or, with a purpose, the whole tensor; nothing for a
  /// barrier.
  std::optional<at::ScalarType> dtype;
  c10::SmallVector<int64_t, 5> sizes;
  /// The operator that it is done for; empty where it is none.
  const char* purpose = "";
  /// Of what must be the same on all processes: the name, the dtype, the sizes
  /// and the purpose. Equal on all machines.
  uint64_t fingerprint = 0;
  std::shared_ptr<Enclosed> enclosed;
  /// Empty where finding it would cost too much.
  CallSite site;

  /// "all_reduce #12 of Float [10, 3]", "all_gather #3 of Float [8, 2] for
  /// aten::sort".
  std::string describe() const;
};

/// Is thrown on all processes where they have met in different operations;
/// `what` names them.
struct OutOfStep : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The message of `OutOfStep`: `operations` are what the processes were in, by
/// rank in the group (null: of all processes), with the places in the source.
std::string describe_out_of_step(
    const std::vector<std::string>& operations,
    const OperationGroupPtr& group);
/// One of these: the operation and where the program has called it. Takes some
/// time; to be called by the thread that is in the operation.
std::string describe_with_place(const Operation& operation);

/// What a process is doing, for the others.
struct ProcessStatus {
  enum class Kind {
    /// It has not answered.
    kSilent,
    /// It is in none of the operations.
    kElsewhere,
    kWaiting,
    /// It has ended, or is about to.
    kLeft,
  };
  Kind kind = Kind::kSilent;
  int64_t channel = 0;
  /// The group's key; empty for operations of all processes.
  std::string group;
  uint64_t number = 0;
  /// Of the operation that it waits in, else of its last one.
  std::string operation;
  std::string site;
  /// For how long.
  double seconds = 0;
  /// Which of its waits this is: where it is the same at two moments, the process
  /// has waited all the time between them.
  uint64_t wait = 0;
  /// The newest question of the watchdogs that it had heard when it said this.
  int64_t question = 0;
  /// How many operations it has begun, by channel.
  std::array<uint64_t, 3> begun{};
  /// The same of the groups that it belongs to, by their keys.
  std::map<std::string, uint64_t> begun_in_groups;

  std::string to_text() const;
  static ProcessStatus from_text(const std::string& text);
};

/// Which operations this process has begun, and in which it waits. Thread-safe.
class OperationLog {
 public:
  using Clock = std::chrono::steady_clock;

  /// This process belongs to a group, whose operations are counted from now on.
  void add_group(const OperationGroupPtr& group);

  /// Counts an operation. `tensor` may be undefined; `group` is null, or was added.
  Operation begin(
      Channel channel,
      const OperationGroupPtr& group,
      const char* name,
      const at::Tensor& tensor);

  /// While it lives, this process waits in the operation.
  class Waiting {
   public:
    Waiting(OperationLog& log, const Operation& operation);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    OperationLog& log_;
    size_t slot_;
  };

  /// The operation that waits in a channel or a group was called from `site`: for
  /// those that turn out to wait long.
  void add_site(
      Channel channel, const OperationGroupPtr& group, const CallSite& site);

  /// No more operations will come.
  void leave();

  /// Since when this process has been waiting in an operation, the longest.
  std::optional<Clock::time_point> waiting_since() const;

  /// Takes some time, for the call site.
  ProcessStatus status() const;

 private:
  struct Slot {
    OperationGroupPtr group;
    uint64_t begun = 0;
    bool waiting = false;
    Operation operation;
    Clock::time_point since;
    uint64_t wait = 0;
  };

  const Slot* longest() const;
  /// To be called with the mutex held.
  size_t slot_of(Channel channel, const OperationGroupPtr& group) const;

  mutable std::mutex mutex_;
  /// The channels', then the groups'.
  std::deque<Slot> slots_ = std::deque<Slot>(3);
  size_t last_ = 0;
  uint64_t waits_ = 0;
  bool left_ = false;
  /// The place that was looked up last, which takes a process of its own.
  mutable CallSite described_site_;
  mutable std::string description_;
};

/// What the processes' statuses say, a line for each.
std::string describe(const std::vector<ProcessStatus>& processes);

/// True where the processes wait in operations that can never meet: one has
/// ended without having come to the operation that another one waits in, two
/// are in different operations of the same number, or all wait, but in none are
/// all that belong to it. For the last two a process counts as waiting when it has done so for
/// `stuck` seconds: that they were asked at different moments does not confuse
/// it.
bool out_of_step(const std::vector<ProcessStatus>& processes, double stuck);

} // namespace accel::detail
