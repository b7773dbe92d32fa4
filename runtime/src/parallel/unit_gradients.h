#pragma once

#include "distributed/axis.h"
#include "distributed/units.h"
#include "parallel/offload.h"

#include <accel/distributed/placement.h>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace accel::parallel {

/// Where a tensor lies along each of the axes; empty for one of another mesh.
std::vector<distributed::Placement> places_of(
    const std::vector<distributed::Axis*>& axes, const at::Tensor& tensor);
bool any_cut(const std::vector<distributed::Placement>& places);

/// A gradient where its parameter is, which may have gone: itself where that is
/// whole. Collective.
at::Tensor beside_parameter(
    const at::Tensor& gradient,
    const c10::weak_intrusive_ptr<at::TensorImpl>& parameter,
    const std::vector<distributed::Axis*>& axes);

/// One gradient that is summed: where this process's part of it goes.
struct GradientRows;

/// The gradients of a unit's parameters are summed, and each process keeps its
/// rows, in one message, as soon as backward has all of them: until then a
/// parameter's `grad` is a part of a sum.
///
/// When that is depends on the order in which backward comes to the parameters,
/// which is the same on all processes, for they run the same program. How many
/// gradients a unit gets is what it got in the last backward that came to it;
/// what it did not get in this one, and what comes later, is done at the end.
///
/// Where messages travel while this process computes, backward goes on with the next
/// unit meanwhile. Elsewhere, or by then, the gradients are there.
class UnitGradients {
 public:
  using Weak = c10::weak_intrusive_ptr<at::TensorImpl>;

  /// `shard`: the number of dp_shard among the axes. `memory`: what is gathered of a unit goes back to it when its
  /// gradients are there; null: it stays. `reduce_dtype`: in which type they are summed;
  /// nothing: in their own. `offload`: where they lie then.
  UnitGradients(
      std::vector<distributed::Axis*> axes,
      size_t shard,
      std::shared_ptr<distributed::UnitMemory> memory,
      std::optional<at::ScalarType> reduce_dtype = std::nullopt,
      std::optional<Offload> offload = std::nullopt)
      : axes_(std::move(axes)),
        shard_(shard),
        memory_(std::move(memory)),
        reduce_dtype_(reduce_dtype),
        offload_(std::move(offload)) {}

  /// While it lives a backward runs that ends with `finish`. Without that what
  /// is still put off is given up: an exception has ended it.
  class Backward {
   public:
    explicit Backward(UnitGradients* gradients);
    ~Backward();
    Backward(const Backward&) = delete;
    Backward& operator=(const Backward&) = delete;
    /// Collective.
    void finish();

   private:
    UnitGradients* gradients_;
  };

  /// A hook on a parameter of a unit was handed its gradient: true where the
  /// hook is to return it as it is.
  bool put_off(const at::Tensor& parameter, const at::Tensor& gradient);

  /// Before a backward: the unit's parameters that need a gradient.
  void expect(
      const distributed::UnitPtr& unit, const std::vector<at::Tensor>& parameters);

  /// Whether there is a `Backward`.
  bool running() const {
    return running_;
  }

  /// Sums the units that have all their gradients: at the next gradient, and
  /// before another unit is gathered. Collective.
  void sum_complete();

 private:
  struct Waiting {
    Weak parameter;
    /// What had been accumulated before this backward.
    at::Tensor before;
  };
  struct OfUnit {
    distributed::UnitPtr unit;
    /// Parameters that need a gradient; gradients in the last backward.
    size_t most = 0;
    size_t last = 0;
    /// In this one; of these, since the unit was summed.
    size_t seen = 0;
    size_t arrived = 0;
    std::vector<Waiting> waiting;
  };

  /// Gradients whose sums are on their way.
  struct Sum;

  void sum(OfUnit& of_unit);
  /// `gradients`: what those of `all` are along dp_shard and the axes behind. Collective.
  void set_rows(std::vector<GradientRows>& all, std::vector<at::Tensor> gradients) const;
  /// Waits for those on their way, and hands them to their parameters.
  void finish_sum();
  void give_up() noexcept;

  const std::vector<distributed::Axis*> axes_;
  const size_t shard_;
  const std::shared_ptr<distributed::UnitMemory> memory_;
  const std::optional<at::ScalarType> reduce_dtype_;
  const std::optional<Offload> offload_;
  bool running_ = false;
  bool summing_ = false;
  std::unordered_map<const distributed::Unit*, OfUnit> units_;
  /// Of this backward.
  std::unordered_map<const at::TensorImpl*, OfUnit*> unit_of_;
  /// Those of which a gradient has arrived, in the order of the first ones.
  std::vector<OfUnit*> order_;
  std::shared_ptr<Sum> on_the_way_;
};

} // namespace accel::parallel
