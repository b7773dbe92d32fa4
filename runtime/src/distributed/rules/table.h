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

/// The rows of a family. Each file of this folder has one, in a namespace of its
/// own, so that the files can be compiled together.
using Family = std::vector<RuleRow>;
namespace pointwise_rules {
const Family& family();
/// The rule for pointwise operators that no row names: they have LibTorch's tag
/// and return one tensor.
bool pointwise(Call& call);
}
using pointwise_rules::pointwise;
namespace activation_rules {
const Family& family();
}
namespace matrix_rules {
const Family& family();
/// Whether a rule takes sparse tensors that all processes have.
bool takes_sparse(Rule rule);
}
namespace reduction_rules {
const Family& family();
}
namespace view_rules {
const Family& family();
}
namespace slicing_rules {
const Family& family();
}
namespace view_backward_rules {
const Family& family();
}
namespace indexing_rules {
const Family& family();
}
namespace index_rows_rules {
const Family& family();
}
namespace mask_rules {
const Family& family();
}
namespace embedding_rules {
const Family& family();
}
namespace embedding_bag_rules {
const Family& family();
}
namespace joining_rules {
const Family& family();
}
namespace shapes_rules {
const Family& family();
}
namespace factories_rules {
const Family& family();
}
namespace random_rules {
const Family& family();
}
namespace softmax_rules {
const Family& family();
}
namespace normalization_rules {
const Family& family();
}
namespace batch_norm_rules {
const Family& family();
}
namespace batch_norm_backward_rules {
const Family& family();
}
namespace sync_batch_norm_rules {
const Family& family();
}
namespace loss_rules {
const Family& family();
}
namespace ctc_loss_rules {
const Family& family();
}
namespace ordering_rules {
const Family& family();
}
namespace pair_rules {
const Family& family();
}
namespace linalg_rules {
const Family& family();
}
namespace convolution_rules {
const Family& family();
}
namespace pooling_rules {
const Family& family();
}
namespace attention_rules {
const Family& family();
}
namespace recurrent_rules {
const Family& family();
}
namespace optimizer_rules {
const Family& family();
}

/// The families by name, in the order of docs/operators.md.
struct NamedFamily {
  const char* name;
  const Family& (*rows)();
};
ACCEL_API const std::vector<NamedFamily>& families();

/// The rule of an operator, null where there is none.
ACCEL_API Rule rule_of(const c10::OperatorHandle& op);

/// Whether a row of the families is an operator's.
bool has_rule(const c10::FunctionSchema& schema);

/// Whether an operator's rule may be given tensors whose rows are cut in blocks:
/// it never asks which rows a process has, and gives the same for whatever rows.
bool takes_blocks(const c10::OperatorHandle& op, Rule rule);

/// All that never changes about an operator.
ACCEL_API OperatorInfo describe(const c10::OperatorHandle& op);

} // namespace accel::distributed
