#pragma once

#include "distributed/call.h"

#include "utils/random_replay.h"

#include <c10/core/StorageImpl.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

// How the tensors of a part of a forward pass are made, so that they can be made
// again: recompute.h.

namespace accel::distributed {

/// The memory that a tensor's values lie in: a number that it shares with its views. 0
/// where that is not one storage (sparse tensors). Of a distributed tensor the same
/// tensors share it on all processes, whatever their parts do.
uint64_t memory_of(const at::Tensor& tensor);

/// A part of a forward pass: the operators that were called, in their order, with what
/// they were given. A tensor that is made here is a *value*, known by a number; one that
/// was there before is *given*, and held. Values are held only while they are open, or
/// where autograd has saved them and they have been made again: the program's own
/// tensors are never touched.
///
/// It begins open: what autograd saves is held. `close` lets go of that; the first value
/// that is asked for makes all of them again (`value`). `keep` holds it for good and
/// forgets the operators.
class Recipes {
 public:
  static constexpr int32_t kUndefined = -1;

  /// Whether a tensor is a value, or one that was given; nothing of others.
  struct Known {
    int32_t number = kUndefined;
    bool is_value = false;
    /// It lies in memory that was there before.
    bool in_given = false;
  };
  Known find(const at::Tensor& tensor) const;

  /// Whether an operator here has read this memory, which was there before; or it is
  /// that of a value.
  bool reads(uint64_t memory) const;
  bool makes(uint64_t memory) const;
  /// Whether `tensor` itself is a parameter that was given: who writes it is found out
  /// by its version.
  bool has_parameter(const at::Tensor& tensor) const;

  /// A call of an operator that is about to run, and will be one of the recipes.
  struct Step;
  std::unique_ptr<Step> before(
      const c10::OperatorHandle& op,
      const OperatorInfo& info,
      const torch::jit::Stack& stack);
  /// It has run. False, and forgotten, where results are of a kind that is not followed.
  bool after(
      std::unique_ptr<Step> step,
      const OperatorInfo& info,
      const torch::jit::Stack& stack);

  /// The results of this call become tensors as any other.
  void forget_blank(const at::Tensor& tensor);
  /// Whether it is memory that nothing was written to yet.
  bool is_blank(const at::Tensor& tensor) const;

  /// Autograd saves a value: it will ask for it. Not for one that is no longer open.
  void save(int32_t value, const at::Tensor& tensor);
  /// It was saved for what is not part of this: once less. Returns what is held.
  at::Tensor unsave(int32_t value);
  /// Autograd needs it no more.
  void release(int32_t value);

  void close();
  void keep();
  bool is_closed() const {
    return state_ == State::kClosed;
  }
  bool is_open() const {
    return state_ == State::kOpen;
  }
  /// Makes all that was saved again, where it was let go. Collective where its
  /// operators are.
  void make_again();
  /// What was saved; makes it again.
  at::Tensor value(int32_t number);

  Recipes();
  ~Recipes();
  Recipes(const Recipes&) = delete;
  Recipes& operator=(const Recipes&) = delete;

 private:
  using WeakTensor =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  enum class State { kOpen, kClosed, kDone };

  /// Values in the same memory: a tensor and its views.
  struct Memory {
    bool given = false;
    bool needed = false;
  };
  struct Value {
    uint32_t memory = 0;
    bool blank = false;
    /// As it was when an operator read it: which kernel is taken depends on it.
    bool requires_grad = false;
    bool saved = false;
    bool needed = false;
    uint32_t holders = 0;
    uint32_t last_use = 0;
    at::Tensor held;
  };
  struct Given {
    at::Tensor tensor;
    int64_t version = 0;
    /// Is the program's tensor itself, a parameter.
    bool itself = false;
    /// A copy that nobody else has.
    bool own = false;
  };

  int32_t refer(const at::Tensor& tensor);
  int32_t give(const at::Tensor& tensor);
  void settle_memory(uint32_t memory, const at::Tensor& tensor);
  void choose_needed();
  void make_all();
  const at::Tensor& given(int32_t reference) const;

  State state_ = State::kOpen;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<Value> values_;
  std::vector<Given> given_;
  std::vector<Memory> memories_;
  /// Of tensors that may be gone: nobody else gets their address as long as there is a
  /// weak reference.
  ska::flat_hash_map<const c10::TensorImpl*, std::pair<WeakTensor, int32_t>> numbers_;
  ska::flat_hash_map<uint64_t, std::pair<WeakStorage, uint32_t>> in_memory_;
};

struct Recipes::Step {
  explicit Step(c10::OperatorHandle op) : op(std::move(op)) {}
  c10::OperatorHandle op;
  /// Tensors are left out.
  std::vector<c10::IValue> arguments;
  /// In the order of the arguments.
  std::vector<int32_t> inputs;
  /// Which of them are written.
  std::vector<at::Tensor> written;
  std::vector<uint64_t> memory_of_written;
  std::vector<int32_t> outputs;
  std::optional<uint32_t> memory_of_first;
  bool is_view = false;
  bool blank = false;
  bool needed = false;
  c10::Device device = at::kCPU;
  std::optional<accel::detail::RandomState> random;
};

} // namespace accel::distributed
