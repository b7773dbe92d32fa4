#include "distributed/watch.h"

#include <accel/detail/phase.h>

#include "core/environment.h"
#include "core/shared_memory.h"
#include "distributed/check.h"
#include "distributed/collectives.h"
#include "distributed/report.h"
#include "distributed/rules/recurrent.h"

#include <ATen/SequenceNumber.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel::distributed {
namespace {

using Clock = std::chrono::steady_clock;

Watch from_environment() {
  Watch watch;
  watch.check =
      accel::detail::get_environment_flag("ACCEL_CHECK_PLACEMENTS").value_or(false);
  const char* const name = "ACCEL_PLACEMENT_REPORT";
  const auto text = accel::detail::get_environment(name).value_or("");
  const std::string suffix = ".json";
  if (text.size() > suffix.size() &&
      text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0) {
    watch.report = true;
    watch.report_file = text;
  } else {
    try {
      watch.report = accel::detail::get_environment_flag(name).value_or(false);
    } catch (const c10::Error&) {
      TORCH_CHECK(
          false, "accel: ", name, " is '", text,
          "'. It is 1 for a report on stderr, or a file that ends with .json.");
    }
  }
  watch.any = watch.check || watch.report;
  return watch;
}

/// How deep this thread is in operators that are looked at: on a mesh of two
/// axes an operator on parts is one on distributed tensors again.
struct Depth {
  int64_t depth = 0;
  /// One of the inner ones ran whole.
  bool whole = false;
};
thread_local Depth nesting;

/// What is on a device runs there later than the call returns.
void finish_device(const torch::jit::Stack& stack) {
  for (const auto& value : stack) {
    if (value.isTensor() && value.toTensor().defined()) {
      const auto device = value.toTensor().device();
      if (!device.is_cpu() && device.type() != at::kMeta) {
        c10::impl::getDeviceGuardImpl(device.type())
            ->synchronizeDevice(device.index());
      }
      return;
    }
  }
}

int64_t since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             Clock::now() - begin)
      .count();
}

/// Process 0 reports: the first one along every axis.
bool is_first(const OperatorInfo& info, const torch::jit::Stack& stack) {
  const size_t base = stack.size() - info.arguments;
  for (const auto i : info.tensors) {
    if (!stack[base + i].isTensor()) {
      continue;
    }
    at::Tensor inner = stack[base + i].toTensor();
    while (inner.defined()) {
      const Part* part = part_of(inner);
      if (part == nullptr) {
        break;
      }
      if (part->axis->rank() != 0) {
        return false;
      }
      inner = part->local;
    }
  }
  return true;
}

/// `loss.item()`, where the loss is a sum of which every process has a part.
bool reads_sum(const OperatorInfo& info, const torch::jit::Stack& stack) {
  if (!info.reads_value) {
    return false;
  }
  at::Tensor inner =
      stack[stack.size() - info.arguments + info.tensors.front()].toTensor();
  while (const Part* part = inner.defined() ? part_of(inner) : nullptr) {
    if (part->placement.is_partial()) {
      return true;
    }
    inner = part->local;
  }
  return false;
}

/// The graph's nodes that were made in PartScopes: ranges of numbers, in their order.
struct PartNodes {
  std::mutex mutex;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;

  void add(uint64_t first, uint64_t end) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (first != end) {
      ranges.emplace_back(first, end);
    }
  }
  bool have(uint64_t number) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto behind = std::upper_bound(
        ranges.begin(), ranges.end(), std::pair(number, ~uint64_t{0}));
    return behind != ranges.begin() && number < std::prev(behind)->second;
  }
  static PartNodes& get() {
    static PartNodes nodes;
    return nodes;
  }
};

thread_local int part_scopes = 0;

bool is_part() {
  if (part_scopes > 0) {
    return true;
  }
  const auto node = torch::autograd::get_current_node();
  return node != nullptr && PartNodes::get().have(node->sequence_nr());
}

Way way_of_plain() {
  if (is_part()) {
    return Way::kInParts;
  }
  switch (accel::detail::PhaseScope::current()) {
    case accel::detail::Phase::kLoading:
      return Way::kLoading;
    case accel::detail::Phase::kUpdating:
      return Way::kUpdating;
    case accel::detail::Phase::kTraining:
    case accel::detail::Phase::kOwn:
      break;
  }
  return Way::kPlain;
}

thread_local PlainOperators* followed_by = nullptr;
/// In all threads.
std::atomic<int> followers{0};
/// Threads that note operators.
std::atomic<int> listeners{0};

void look_again() {
  auto& all = watch();
  all.any = followers > 0 || listeners > 0 || all.check || all.report ||
      all.place != nullptr;
}

/// Set once a distributed tensor was seen, so that plain operators are counted
/// by process 0 only, too.
thread_local bool reports_plain = false;

} // namespace

Watch& watch() {
  static Watch watch = from_environment();
  return watch;
}

PartScope::PartScope() : first_(at::sequence_number::peek()) {
  ++part_scopes;
}

PartScope::~PartScope() {
  --part_scopes;
  if (watch().report) {
    PartNodes::get().add(first_, at::sequence_number::peek());
  }
}

void Watch::listen(int more) {
  listeners += more;
  look_again();
}

void begin_watching() {
  if (watch().report || watch().place != nullptr) {
    c10::impl::tls_set_dispatch_key_included(kKey, true);
  }
}

PlainOperators::PlainOperators()
    : was_included_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  TORCH_INTERNAL_ASSERT(followed_by == nullptr);
  install();
  followed_by = this;
  ++followers;
  look_again();
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

PlainOperators::~PlainOperators() {
  c10::impl::tls_set_dispatch_key_included(kKey, was_included_);
  followed_by = nullptr;
  --followers;
  look_again();
}

bool PlainOperators::are_followed() {
  return followed_by != nullptr;
}

struct Watched::State {
  State(const c10::OperatorHandle& op, const OperatorInfo& info)
      : op(op), info(info) {}
  const c10::OperatorHandle& op;
  const OperatorInfo& info;
  std::optional<ShadowCheck> check;
  bool reports = false;
  /// A number is read that is a sum: its parts are added up, and no more.
  bool reads_sum = false;
  std::string arguments;
  Traffic before;
  std::chrono::nanoseconds waited{0};
  Clock::time_point begin;
};

Watched::Watched(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    const torch::jit::Stack& stack,
    Axis& axis)
    : state_(std::make_unique<State>(op, info)) {
  if (watch().check && !own_buffer(op).taken) {
    state_->check.emplace(op, info, stack);
  }
  if (nesting.depth++ == 0) {
    nesting.whole = false;
    state_->reports =
        watch().report && axis.rank() == 0 && is_first(info, stack);
  }
  if (state_->reports) {
    reports_plain = true;
    PlacementReport::instance().set_processes(axis.size());
    state_->arguments = describe_arguments(info, stack);
    state_->reads_sum = reads_sum(info, stack);
    finish_device(stack);
    state_->before = traffic();
    state_->waited = accel::detail::SharedMemory::waited();
    state_->begin = Clock::now();
  }
}

Watched::~Watched() {
  --nesting.depth;
}

void Watched::done(const torch::jit::Stack& stack, bool by_rule) {
  auto& state = *state_;
  nesting.whole = nesting.whole || !by_rule;
  if (state.reports) {
    finish_device(stack);
    ReportedCall call{state.op, Way::kInParts, since(state.begin)};
    // To wait for others is not to work.
    call.waited = std::chrono::nanoseconds(
                      accel::detail::SharedMemory::waited() - state.waited)
                      .count();
    call.nanoseconds -= std::min(call.nanoseconds, call.waited);
    const auto& now = traffic();
    call.collectives = now.gathers + now.reductions - state.before.gathers -
        state.before.reductions;
    call.bytes = now.bytes - state.before.bytes;
    call.has_rule = state.info.rule != nullptr;
    call.way = nesting.whole && !state.reads_sum ? Way::kWhole
        : call.collectives > 0                   ? Way::kInPartsWithTraffic
                                                 : Way::kInParts;
    auto& report = PlacementReport::instance();
    if (call.way == Way::kInParts) {
      report.add(call);
    } else {
      const auto site = accel::detail::CallSite::here();
      const auto describe = [&] { return state.arguments; };
      const int64_t reducing = std::min(
          call.nanoseconds,
          now.reduction_nanoseconds - state.before.reduction_nanoseconds);
      if (call.way == Way::kWhole && reducing > 0) {
        // To add up what the processes have computed in parts is communication; what
        // is then done with the sum, everyone does.
        ReportedCall sum = call;
        sum.way = Way::kInPartsWithTraffic;
        sum.nanoseconds = reducing;
        call.nanoseconds -= reducing;
        call.waited = 0; // It is counted there.
        if (now.gathers == state.before.gathers) {
          call.collectives = call.bytes = 0;
        } else {
          sum.collectives = sum.bytes = 0;
        }
        report.add(sum, site, describe);
      }
      report.add(call, site, describe);
    }
  }
  if (state.check) {
    state.check->compare(stack, by_rule);
  }
}

void run_plain(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    torch::jit::Stack& stack) {
  // Inside of another operator it is part of that.
  const bool reports =
      watch().report && reports_plain && nesting.depth == 0 &&
      accel::detail::PhaseScope::current() != accel::detail::Phase::kOwn;
  Clock::time_point begin;
  if (reports) {
    finish_device(stack);
    begin = Clock::now();
  }
  if (followed_by != nullptr) {
    followed_by->before();
  }
  op.callBoxed(stack);
  if (followed_by != nullptr) {
    followed_by->after(op, info, stack);
  }
  if (reports) {
    finish_device(stack);
    PlacementReport::instance().add({op, way_of_plain(), since(begin)});
  }
  if (watch().place != nullptr) {
    watch().place(op, info, stack);
  }
}

} // namespace accel::distributed
