#pragma once

#include "distributed/rules/common.h"

#include <vector>

// What the rules for views share (views.cpp, slicing.cpp, view_backward.cpp).

namespace accel::distributed::view_rules {

/// Whether argument 0 is a part, and no `out=` is given.
bool in_parts(const Call& call);

/// A view of the local tensor as a result; of operators that copy, a tensor.
at::Tensor placed_view(
    const Call& call,
    const at::Tensor& local,
    const Placement& place,
    c10::IntArrayRef sizes);

/// The operator on the local tensor; its result has this place and sizes.
bool run_view(Call& call, const Placement& place, c10::IntArrayRef sizes);

/// The same with the local result's sizes, but for the rows of the cut
/// dimension, which is now `result.dim()`.
bool run_view_to(Call& call, const Placement& result);

/// The result is `local`, a view of the local tensor that another operator has
/// made.
bool leave_view(
    Call& call,
    const at::Tensor& local,
    const Placement& place,
    c10::IntArrayRef sizes);

/// Whether no process has less than half of its fair share of the rows that
/// are cut at these points.
bool is_balanced(const std::vector<int64_t>& points);

} // namespace accel::distributed::view_rules
