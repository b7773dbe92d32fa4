#pragma once

#include "distributed/call.h"
#include "distributed/pool.h"

#include <accel/detail/communicator.h>

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

// What distributed tensors were computed from: the numbers and plain tensors that enter
// operators with them must be the same on all processes, and nothing that the processes
// send each other shows it where they are not (a loss that is scaled by the process's
// number). So every distributed tensor has a lineage: a checksum of the operator that made
// it, of its numbers, and of the lineages of its tensors. `ReadValues` compares those of
// losses, and of what becomes a plain tensor or a value, with the other processes'.
//
// What one process computes alone, and nobody trains with, has no part in it.

namespace accel::distributed {

/// Whether lineages are kept: in match_single_device, with several processes, while
/// ACCEL_CHECK_VALUES is not 0 and nothing but rounding has been found different.
inline bool keeps_lineages = false;

/// An operator of this thread has its lineage noted: what it calls has not.
inline ACCEL_QUICK_THREAD_LOCAL bool noting_lineage = false;

struct NotingLineage {
  NotingLineage() {
    noting_lineage = true;
  }
  ~NotingLineage() {
    noting_lineage = false;
  }
  NotingLineage(const NotingLineage&) = delete;
  NotingLineage& operator=(const NotingLineage&) = delete;
};

/// The lineage of a distributed tensor; 0 of a plain one, and of one that was distributed
/// and of which no operator has made anything.
uint64_t lineage_of(const at::Tensor& tensor);

/// For the same values in another place; 0 for those of which it does not matter any more.
void inherit_lineage(const at::Tensor& to, uint64_t lineage);

/// That of a tensor which is cut from a plain one that all processes have.
uint64_t lineage_of_plain(const at::Tensor& whole);

inline uint64_t mixed(uint64_t one, uint64_t other) {
  one = (one ^ other) * 0x9e3779b97f4a7c15ULL;
  return one ^ (one >> 32);
}

/// The lineage of what one call of an operator makes.
class Lineage {
 public:
  /// `op`: "aten::mul", which lives as long as the program; `id`: a number for it and its
  /// overload that all processes have alike.
  Lineage(const char* op, uint64_t id) : op_(op), value_(id) {}

  void add(const at::Tensor& tensor);
  void add(const at::Scalar& number);
  void add(double number);
  void add(int64_t number) {
    mix(static_cast<uint64_t>(number));
    note(static_cast<double>(number));
  }
  void add(bool flag) {
    mix(flag ? 1 : 2);
  }
  void add(at::ScalarType) {}
  void add(c10::string_view) {}
  void add(c10::IntArrayRef numbers) {
    for (const int64_t number : numbers) {
      add(number);
    }
  }
  void add(at::OptionalIntArrayRef numbers) {
    if (numbers.has_value()) {
      add(*numbers);
    }
  }
  template <typename T>
  void add(const std::optional<T>& value) {
    if (value.has_value()) {
      add(*value);
    }
  }
  void add(const c10::IValue& value);

  /// All arguments were added. The operator is kept for the messages.
  void end();
  uint64_t value() const {
    return value_;
  }
  /// A result, or what was written; end was called.
  void give(const at::Tensor& tensor, bool written, uint64_t number = 0) const;

 private:
  void mix(uint64_t number) {
    value_ = mixed(value_, number);
  }
  void note(double number) {
    if (count_++ == 0) {
      first_ = number;
    }
    // What differs by rounding differs so here.
    all_ = all_ * 0.75 + number;
  }
  void add_values(const at::Tensor& plain);

  const char* op_;
  uint64_t value_;
  /// A distributed tensor is among the arguments.
  bool from_parts_ = false;
  int64_t count_ = 0;
  double first_ = 0;
  double all_ = 0;
};

/// Around one call of an operator whose arguments are on the stack.
class NotedCall {
 public:
  NotedCall(
      const c10::OperatorHandle& op,
      const OperatorInfo& info,
      const torch::jit::Stack& stack);
  /// Its results are on the stack.
  void done(const torch::jit::Stack& stack) const;

 private:
  Lineage lineage_;
  const OperatorInfo& info_;
  /// Of what is copied, and of its view alone.
  uint64_t copied_ = 0;
  uint64_t own_ = 0;
  c10::SmallVector<PartPtr, 4> arguments_;
  c10::SmallVector<at::Tensor, 2> written_;
  NotingLineage noting_;
};

/// Lineages are kept from here on, or no more; the thread that calls is the program's.
void keep_lineages(bool keep);

/// A comparison: the operators that come belong to the next one.
void begin_lineage_window();

/// Where lineages were found different, which is collective: the error, an operator of
/// each process with its numbers. Empty where they are no more than rounding apart, from
/// where on lineages are not kept.
std::string lineage_difference(accel::detail::Communicator& communicator);

// ---- Kernels with a signature of their own.

/// A number for an operator that all machines have alike; the same for one in place, as
/// autograd's engine adds either way, as it comes.
uint64_t id_of(const char* name, const char* overload);

template <typename T>
bool is_part_of(const at::Tensor& result, const T& argument) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return argument.unsafeGetTensorImpl()->get_backend_meta() ==
        result.unsafeGetTensorImpl()->get_backend_meta();
  }
  return false;
}

/// `kernel(arguments...)`, which does `Op`. Where it returns a reference the first argument
/// is written.
template <typename Op, typename Result, typename Kernel, typename First, typename... Rest>
Result with_lineage(const Kernel& kernel, First&& first, Rest&&... rest) {
  constexpr bool kWrites = std::is_lvalue_reference_v<Result>;
  static const uint64_t id = id_of(Op::name, Op::overload_name);
  Lineage lineage(Op::name, id);
  lineage.add(first);
  (lineage.add(rest), ...);
  lineage.end();
  const NotingLineage noting;
  Result result = kernel();
  if (kWrites || !(is_part_of(result, first) || ... || is_part_of(result, rest))) {
    lineage.give(result, kWrites);
  }
  return result;
}

/// What such a kernel is registered as.
template <typename Op, auto* kKernel, typename Function = decltype(kKernel)>
struct WithLineage;

template <typename Op, auto* kKernel, typename Result, typename... Args>
struct WithLineage<Op, kKernel, Result (*)(c10::DispatchKeySet, Args...)> {
  static Result call(c10::DispatchKeySet keys, Args... args) {
    if (C10_LIKELY(!keeps_lineages || noting_lineage)) {
      return kKernel(keys, args...);
    }
    return with_lineage<Op, Result>(
        [&]() -> Result { return kKernel(keys, args...); }, args...);
  }
};

template <typename Op, auto* kKernel, typename Result, typename... Args>
struct WithLineage<Op, kKernel, Result (*)(Args...)> {
  static Result call(Args... args) {
    if (C10_LIKELY(!keeps_lineages || noting_lineage)) {
      return kKernel(args...);
    }
    return with_lineage<Op, Result>(
        [&]() -> Result { return kKernel(args...); }, args...);
  }
};

} // namespace accel::distributed
