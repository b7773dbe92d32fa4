#pragma once

#include <accel/distributed/placement.h>
#include <accel/export.h>

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <functional>
#include <string>
#include <vector>

namespace accel::distributed {

/// One way to calculate an operator in parts.
struct Sharding {
  /// Where each argument that may be a tensor has to be, in the order of the schema:
  /// `Shard(dim)`, `Partial()` or `Replicate()`, the last for lists of tensors and for
  /// tensors that may be left out. All dimensions that are cut have the same size, and
  /// every process is given the same rows of all of them.
  std::vector<Placement> inputs;
  /// Where each result is then.
  std::vector<Placement> outputs;
};

/// The ways for a call's arguments, all of them, in the order of the schema. Tensors have
/// their whole sizes and dtypes, and that is all that may be asked of them: it decides
/// by nothing that differs between processes. An empty list: all processes do the
/// operator on whole tensors.
using ShardingFunction =
    std::function<std::vector<Sharding>(c10::ArrayRef<c10::IValue> arguments)>;

/// Says how an operator of the program's own (`TORCH_LIBRARY`) is calculated in parts;
/// PyTorch's `torch.distributed.tensor.experimental.register_sharding`. Without it
/// such an operator gets whole tensors, which is right and is not shared out. The way is
/// taken that moves the fewest elements, of those that an argument's place asks for.
/// The operator's kernel is called with each process's parts; its backward is an operator
/// of its own, which needs ways, too.
///
/// A way that is wrong makes wrong numbers: `ACCEL_CHECK_PLACEMENTS=1` compares each
/// result with that of whole tensors.
///
/// `op` is "library::name" for all overloads, or "library::name.overload". Every process
/// calls this before it has called the operator with a distributed tensor; nothing is
/// communicated. Throws `c10::Error` where there is no such operator, where accel or
/// an earlier call has a rule for it, where it writes arguments or returns views of them, and
/// where it has been called already.
ACCEL_API void register_sharding(const std::string& op, ShardingFunction ways);

} // namespace accel::distributed

namespace accel {
using distributed::register_sharding;
} // namespace accel
