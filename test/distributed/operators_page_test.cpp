#include "build_paths.h"
#include "operators_page.h"

#include <gtest/gtest.h>

#include <torch/version.h>

#include <fstream>
#include <set>
#include <sstream>

namespace accel::distributed::test {
namespace {

#if !(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11)
/// The names in the first column. Other releases differentiate further or less
/// far, so that rows which share a line are others.
std::string operators_in(const std::string& page) {
  std::istringstream lines(page);
  std::string names;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| `", 0) == 0) {
      names += line.substr(2, line.find(" | ") - 2) + ", ";
    }
  }
  return names;
}
#endif

TEST(OperatorsPage, IsMadeFromTheTable) {
  std::ifstream file(std::string(build_paths::kSource) + "/docs/operators.md");
  ASSERT_TRUE(file) << "docs/operators.md is not there";
  std::ostringstream text;
  text << file.rdbuf();
  const auto page = operators_page(
      std::string(build_paths::kSource) + "/test/distributed/samples.txt", build_paths::kGoldenAten);
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11
  EXPECT_EQ(text.str(), page)
      << "make it again: accel_operator_table --page > docs/operators.md";
#else
  EXPECT_EQ(operators_in(text.str()), operators_in(page));
#endif
}

TEST(OperatorsPage, EveryRowIsAnOperatorOfLibTorch) {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11
  EXPECT_EQ(unknown_rows(), std::vector<std::string>());
#else
  // Other releases lack a few of them, and their rows wait for nothing.
  EXPECT_LE(unknown_rows().size(), 60u);
#endif
}

/// The promise of the page: at least 600 schemas of operators, `out=` forms not
/// counted.
TEST(OperatorsPage, RulesForSixHundredSchemas) {
  int with_rule = 0;
  for (const auto& op : listed_operators()) {
    with_rule += !op.family.empty() && !op.out && !op.composite ? 1 : 0;
  }
  EXPECT_GE(with_rule, 600);
}

/// What every program needs, by name, so that a row that is lost is missed.
TEST(OperatorsPage, EverydayOperatorsHaveRules) {
  std::set<std::string> without;
  for (const auto& op : listed_operators()) {
    if (op.family.empty()) {
      without.insert(op.name);
    }
  }
  for (const auto* op :
       {"aten::add.Tensor", "aten::mm", "aten::addmm", "aten::bmm", "aten::sum",
        "aten::sum.dim_IntList", "aten::mean.dim", "aten::view",
        "aten::transpose.int", "aten::select.int", "aten::cat",
        "aten::index_select", "aten::gather", "aten::embedding",
        "aten::embedding_dense_backward", "aten::_softmax",
        "aten::_log_softmax_backward_data", "aten::nll_loss_forward",
        "aten::native_layer_norm", "aten::native_layer_norm_backward",
        "aten::native_batch_norm", "aten::native_batch_norm_backward",
        "aten::cudnn_batch_norm", "aten::native_dropout", "aten::bernoulli_.float",
        "aten::convolution", "aten::convolution_backward",
        "aten::max_pool2d_with_indices", "aten::avg_pool2d",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention", "aten::_cudnn_rnn",
        "aten::_cudnn_rnn_backward", "aten::_foreach_add_.List",
        "aten::_fused_adam_", "aten::sort", "aten::topk", "aten::cumsum",
        "aten::copy_", "aten::zeros_like", "aten::_to_copy"}) {
    EXPECT_EQ(without.count(op), 0u) << op;
  }
}

} // namespace
} // namespace accel::distributed::test
