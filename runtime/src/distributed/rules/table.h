#pragma once

#include "distributed/call.h"

#include <vector>

namespace accel::distributed {

/// One row: operators and what does them in parts. docs/operators.md is made of
/// all rows.
struct RuleRow {
  /// "aten::add" for all overloads, "aten::add.Tensor" for one.
  const char* op;
  Rule rule;
  /// In which placements it stays in parts, for people: "S(any) of rows, P".
  const char* places;
  /// What it communicates, for people: "nothing", "all-reduce of the total
  /// weight".
  const char* communicates;
};

/// The rows of a family. Each file of this folder has one.
using Family = std::vector<RuleRow>;
const Family& pointwise_family();
const Family& matrix_family();
const Family& reduction_family();
const Family& view_family();
const Family& indexing_family();
const Family& joining_family();
const Family& shapes_family();
const Family& factories_family();
const Family& random_family();
const Family& softmax_family();
const Family& normalization_family();
const Family& loss_family();
const Family& ordering_family();
const Family& linalg_family();
const Family& convolution_family();
const Family& pooling_family();
const Family& attention_family();
const Family& recurrent_family();
const Family& optimizer_family();

/// The families by name, in the order of docs/operators.md.
struct NamedFamily {
  const char* name;
  const Family& (*rows)();
};
const std::vector<NamedFamily>& families();

/// The rule for pointwise operators that no row names: they have LibTorch's tag
/// and return one tensor.
bool pointwise(Call& call);

/// The rule of an operator, null where there is none.
Rule rule_of(const c10::OperatorHandle& op);

/// All that never changes about an operator.
OperatorInfo describe(const c10::OperatorHandle& op);

} // namespace accel::distributed
