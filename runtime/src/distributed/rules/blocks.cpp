#include "distributed/rules/table.h"

#include <string>
#include <unordered_set>

// Rows in blocks: what a view of [time, batch, features] to rows makes of a cut
// along the batch. What a sequence model does with such rows, up to its loss and
// back, stays in parts.
//
// Attention has them, too: of [time, batch, heads * features], cut along the
// heads, each process has some heads of each sample in the batch of its products.
// The one projection of queries, keys and values is cut in three blocks, and what
// takes it apart and puts its gradient together again knows them.

namespace accel::distributed {

bool takes_blocks(const c10::OperatorHandle& op, Rule rule) {
  static const std::unordered_set<std::string> names{
      // Views, and copies.
      "aten::view", "aten::_unsafe_view", "aten::_reshape_alias",
      "aten::detach", "aten::alias", "aten::t", "aten::transpose",
      "aten::permute", "aten::unsqueeze", "aten::squeeze", "aten::expand",
      "aten::slice", "aten::slice_backward", "aten::split",
      "aten::split_with_sizes", "aten::unsafe_split",
      "aten::unsafe_split_with_sizes", "aten::cat",
      "aten::clone", "aten::_to_copy", "aten::copy_", "aten::fill_",
      "aten::zero_", "aten::empty_like", "aten::zeros_like",
      "aten::ones_like", "aten::full_like", "aten::new_empty_strided",
      // Products and reductions.
      "aten::mm", "aten::addmm", "aten::mv", "aten::dot", "aten::linear",
      "aten::bmm", "aten::baddbmm",
      "aten::sum", "aten::mean", "aten::count_nonzero", "aten::amax",
      "aten::amin", "aten::max", "aten::min", "aten::argmax", "aten::argmin",
      "aten::logsumexp", "aten::linalg_vector_norm", "aten::equal",
      // Layers and losses.
      "aten::_softmax", "aten::_log_softmax", "aten::_softmax_backward_data",
      "aten::_log_softmax_backward_data", "aten::native_layer_norm",
      "aten::native_layer_norm_backward", "aten::_fused_rms_norm",
      "aten::_fused_rms_norm_backward", "aten::nll_loss_forward",
      "aten::nll_loss_backward", "aten::mse_loss", "aten::smooth_l1_loss",
      "aten::huber_loss", "aten::binary_cross_entropy",
      "aten::binary_cross_entropy_with_logits", "aten::mse_loss_backward",
      "aten::smooth_l1_loss_backward", "aten::huber_loss_backward",
      "aten::binary_cross_entropy_backward", "aten::embedding",
      "aten::embedding_dense_backward", "aten::bernoulli_",
      "aten::bernoulli", "aten::native_dropout",
  };
  return rule != nullptr &&
      (rule == pointwise || names.count(op.schema().name()) != 0);
}

} // namespace accel::distributed
