#pragma once

#include "checkpoint/load_plan.h"

#include <accel/checkpoint/optimizer_state.h>
#include <accel/checkpoint/pieces.h>

#include <functional>
#include <string>

/// What `save_state` and `load_state` need of optimizers beyond
/// accel/checkpoint/optimizer_state.h: tensors that are divided between processes.
namespace accel::checkpoint {

/// `optimizer_state`, with tensors as they are: divided ones, and such that share
/// memory.
OptimizerState collect_optimizer_state(
    const torch::optim::Optimizer& optimizer, const ParameterNames& names);

/// Every state tensor is of its own memory, unless somebody has made it otherwise:
/// then what is saved is what each one reads. Of plain tensors.
void separate(StateDict& tensors);

/// `prepare_optimizer_state` from files. State of parameters that `piece_of` says are
/// divided is divided like them. `what` begins errors.
std::function<void()> prepare_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const std::string& json,
    const TensorSources& sources,
    const ParameterNames& names,
    const PieceOf& piece_of,
    const std::string& what);

} // namespace accel::checkpoint
