#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace accel::distributed::test {

/// docs/operators.md: all families and their rows, and what the tests compare of
/// each operator. Makes all sample calls on plain tensors; `table` and `recorded`
/// are samples.txt and the folder of recorded calls. But for the last column the
/// same for every LibTorch.
std::string operators_page(
    const std::string& table,
    const std::string& recorded);

/// What is known of one operator schema of this LibTorch.
struct ListedOperator {
  /// "aten::add.Tensor".
  std::string name;
  std::string schema;
  /// The family whose row names it, "Pointwise, by tag", or empty: it has no
  /// rule and runs on whole tensors.
  std::string family;
  bool pointwise_tag = false;
  /// Taken apart above autograd into other operators, so that no rule is asked.
  bool composite = false;
  /// Has a kernel of its own for a device, or one for all of them.
  bool has_kernel = false;
  /// Writes to a tensor that the caller hands over (`out=`).
  bool out = false;
};

/// The schemas of the aten namespace, by name.
std::vector<ListedOperator> listed_operators();

/// Rows whose operator this LibTorch does not have.
std::vector<std::string> unknown_rows();

} // namespace accel::distributed::test
