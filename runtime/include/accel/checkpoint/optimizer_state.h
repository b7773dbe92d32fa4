#pragma once

#include <accel/checkpoint/safetensors.h>
#include <accel/export.h>

#include <functional>
#include <string>
#include <unordered_map>

namespace torch::optim {
class LRScheduler;
class Optimizer;
} // namespace torch::optim

namespace accel::checkpoint {

/// What an optimizer needs to go on: options and counters as JSON, the rest as
/// tensors named "state.{parameter}.{field}", with Python's names. Parameters
/// are numbered through all groups, as Python does it.
struct OptimizerState {
  /// Options and counters.
  std::string json;
  /// Moments and other tensors of the parameters.
  StateDict tensors;
};

/// Names of parameters (by `unsafeGetTensorImpl()`). With them the state also
/// says which parameter is which, and loading into a model whose parameters
/// come in another order is an error instead of a mix-up.
using ParameterNames = std::unordered_map<const void*, std::string>;

/// The state of `optimizer`; its tensors are the optimizer's own, not copies.
///
/// SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS, accelerated or not, have named
/// fields (and may be exchanged: what `AcceleratedOptimizer<SGD>` saved loads
/// into `SGD`). Of any other class, derived ones included, what its own `save`
/// writes is kept as one tensor of bytes (a LibTorch archive); a class whose
/// `save` writes nothing is an error.
ACCEL_API OptimizerState optimizer_state(
    const torch::optim::Optimizer& optimizer, const ParameterNames& names = {});

/// Puts a state back into an optimizer of the same class that was constructed
/// with the same parameters, options included (learning rate, …). Everything
/// is compared and converted to the parameters' devices first; a
/// `c10::Error` says what differs and leaves the optimizer as it was.
ACCEL_API void load_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const OptimizerState& state,
    const ParameterNames& names = {});

/// The first half of `load_optimizer_state`: compares, and returns what makes
/// the change.
ACCEL_API std::function<void()> prepare_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const OptimizerState& state,
    const ParameterNames& names = {});

/// The step counter of LibTorch's schedulers as JSON, and back. `StepLR` has no
/// other state, since the learning rates are in the optimizer's. A class of
/// one's own that has more must save it itself; the schedulers of
/// `accel::optim` do.
ACCEL_API std::string scheduler_state(
    const torch::optim::LRScheduler& scheduler);
/// Sets the step counter from that JSON. Throws `c10::Error` for other JSON.
ACCEL_API void load_scheduler_state(
    torch::optim::LRScheduler& scheduler, const std::string& json);

/// Reads `optimizer.bin`, which Accelerate writes (`torch.save` of an
/// optimizer's state_dict), for `load_optimizer_state` into `optimizer`. Only
/// data is read: tensors, numbers, texts, lists and dicts. Throws for options
/// that LibTorch does not have (`maximize`).
ACCEL_API OptimizerState read_python_optimizer(
    const std::string& path, const torch::optim::Optimizer& optimizer);

} // namespace accel::checkpoint
