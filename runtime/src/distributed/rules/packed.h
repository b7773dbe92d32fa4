#pragma once

#include "distributed/axis.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace accel::distributed {

/// A recurrent layer of packed sequences, `(data, batch_sizes, states, weights,
/// has_biases, num_layers, dropout, train, ...)`, whose states are whole: each process
/// of the axis computes the sequences that are dealt to it, and what comes out is
/// whole. False, having changed nothing, where that cannot be: there are fewer sequences
/// than processes, or random numbers are drawn between layers. Collective.
bool run_packed_in_parts(
    const c10::OperatorHandle& op, torch::jit::Stack* stack, Axis& axis);

} // namespace accel::distributed
