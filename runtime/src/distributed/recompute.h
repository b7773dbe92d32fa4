#pragma once

#include "distributed/recipes.h"

#include <accel/export.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace accel::distributed {

/// Whether autograd is calling operators on this thread.
bool in_backward();

/// Activation checkpointing without a change of the program: what autograd saves in the
/// forward pass of a unit (a layer, a block) is let go when the next unit begins, and
/// computed again by the same operators when backward asks for it.
///
/// Autograd asks its engine what is to be done with a tensor that it saves, and gets it
/// back from there: the one made here keeps the number of the tensor among the unit's
/// recipes instead of the tensor. Below autograd every operator of the thread comes to
/// the library, on plain tensors and on distributed ones, and is noted as a recipe. A
/// unit begins with the first operator that reads one of its parameters. The last one
/// before backward is kept: it would be computed again at once.
///
/// The same operators run on the same inputs, and random numbers are drawn as they were:
/// as one process numbers are the same bits, on several the same within rounding. What
/// cannot be made again is kept, as without: what operators make that no gradient goes
/// through, what other libraries' operators make, what a later write would change.
/// Parameters are read again, and must be as they were.
///
/// One for each thread at a time; belongs to it. Backward may run on other threads.
class ACCEL_API Recompute {
 public:
  /// Throws where another library has taken over autograd's engine (Python has).
  Recompute();
  ~Recompute();
  Recompute(const Recompute&) = delete;
  Recompute& operator=(const Recompute&) = delete;

  /// The thread's, where it has one and no operator is being noted or made again.
  static Recompute* listening();
  /// Likewise, whatever goes on.
  static Recompute* of_thread();

  /// Parameters that are used at the same time. Nothing for one that is in a unit.
  void add_unit(const std::vector<at::Tensor>& parameters);

  /// A unit begins; where none has been added tests say so.
  void begin();
  /// Forward is over: what is open is kept.
  void end();

  /// How often something was made again, in all threads: for tests.
  static uint64_t times();

  /// What autograd has saved.
  struct Saved;
  std::shared_ptr<Saved> save(const at::Tensor& tensor);
  static at::Tensor saved(const Saved& saved);
  /// Whether autograd's tensors are saved here at this time.
  bool saves() const {
    return open_ != nullptr;
  }

  /// One operator that is about to run, and has run.
  class Noted {
   public:
    Noted(
        Recompute& recompute,
        const c10::OperatorHandle& op,
        const OperatorInfo& info,
        const torch::jit::Stack& stack);
    ~Noted();
    Noted(const Noted&) = delete;
    Noted& operator=(const Noted&) = delete;
    /// The results are on the stack.
    void done(const torch::jit::Stack& stack);

   private:
    Recompute& recompute_;
    const OperatorInfo& info_;
    std::shared_ptr<Recipes> recipes_;
    std::unique_ptr<Recipes::Step> step_;
  };

 private:
  /// What the operator that is about to run has saved is held as it is; of one value, or
  /// all.
  void hold_recent(std::optional<int32_t> number = std::nullopt);
  void look_for_unit(const OperatorInfo& info, const torch::jit::Stack& stack);
  /// Before a write; false where the operator cannot be a recipe.
  bool before_write(const at::Tensor& tensor, bool can_be_noted, bool copies);
  void keep_open();

  bool was_included_;
  using WeakTensor =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  ska::flat_hash_map<const c10::TensorImpl*, std::pair<WeakTensor, uint32_t>> units_;
  uint32_t count_ = 0;
  uint32_t unit_ = 0;
  std::shared_ptr<Recipes> open_;
  std::vector<std::weak_ptr<Recipes>> closed_;
  /// Saved since the last operator has run: by the one that is about to.
  std::vector<std::weak_ptr<Saved>> recent_;
};

} // namespace accel::distributed
