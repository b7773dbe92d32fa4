#pragma once

#include "golden_calls.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace accel::distributed::test {

/// A call that plain tensors accept: what an operator is tested with.
struct SampleCall {
  /// "aten::add_.Tensor".
  std::string name;
  c10::OperatorHandle op;
  /// Where it comes from: "samples.txt:60 N=7", "form of calls.jsonl:12", and
  /// the dtype where it is another one.
  std::string origin;
  /// Plain tensors, not to be written: `arguments_of` copies them.
  torch::jit::Stack arguments;
  /// In float64, so that gradients are compared, too.
  bool first_dtype = true;
};

/// Samples of as many operators of LibTorch as can be had: the lines of
/// samples.txt; recorded calls of operators that have no line; and what is made
/// of both:
///  - forms of other operators with the same arguments: in place (`add_` of
///    `add`, and the other way round), `out=` with tensors of the right sizes,
///    copies of views (`select_copy` of `select`), `unsafe_` forms;
///  - the same call with tensors of half precision, integers and booleans.
/// Of the last two kinds only what plain tensors accept.
struct SampleCalls {
  std::vector<SampleCall> calls;
  /// Lines of the table that name no operator of this LibTorch, and those which
  /// plain tensors refuse, with the reason.
  std::vector<std::string> unknown;
  std::vector<std::string> refused_lines;
  /// Forms and dtypes that plain tensors refuse.
  int64_t refused = 0;
  /// Operators that have a sample in samples.txt or made of one.
  std::set<std::string> names;
  /// On a device: operators without a sample, and why it refuses them.
  std::map<std::string, std::string> refused_on_device;
};

struct SampleOptions {
  /// Forms of other operators, and the same calls in other dtypes, too.
  bool forms = true;
  bool dtypes = true;
  /// Tensors do not lie in the order of their dimensions: images channels-last,
  /// matrices by columns. Calls that plain tensors refuse so are left out.
  bool other_order = false;
  /// On a device: called before each call that is tried, with its number and name,
  /// and the numbers of those that are not to be tried.
  std::function<void(int64_t, const std::string&)> trying;
  std::set<int64_t> without;
};

/// Thrown where a call has left a device that computes nothing any more.
struct DeviceIsLost {};

/// Runs every call once on plain tensors, on the `device()`. What refuses a call
/// there is found out on the CPU first, where that knows the operator. Without
/// recorded calls where there are none.
SampleCalls sample_calls(
    const std::vector<std::string>& tables,
    const GoldenCalls* recorded,
    const SampleOptions& options = {});

/// Copies of a sample's arguments, ready for `callBoxed`; every tensor that is
/// defined goes through `place`.
torch::jit::Stack arguments_of(
    const SampleCall& sample,
    const std::function<at::Tensor(const at::Tensor&)>& place);

} // namespace accel::distributed::test
