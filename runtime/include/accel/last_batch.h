#pragma once

#include <accel/backward.h>
#include <accel/export.h>

#include <torch/types.h>

namespace accel {

class Accelerator;

/// What is read behind a loop of tensors that the last batch left: the numbers
/// of one device. Made by `Accelerator::last_batch`.
///
///     for (auto& batch : *loader) {
///       ...
///       loss = torch::nll_loss(net->forward(batch.data), batch.target);
///       ...
///     }
///     auto last = accelerator.last_batch().reduce_for_metrics(loss);
///
/// Only with `match_single_device`. The batch is the one that this program
/// worked on last, in whatever loop; before the first one, and on one process,
/// tensors are given as they are.
class ACCEL_API LastBatch {
 public:
  explicit LastBatch(Accelerator& accelerator) : accelerator_(accelerator) {}

  /// `Accelerator::gather_for_metrics` for rows of the last batch: its rows on
  /// all processes, in their order, without what was only filled up. Collective.
  /// Throws `c10::Error` where `tensor` has no rows of that batch, and without
  /// `match_single_device` on several processes.
  torch::Tensor gather_for_metrics(const torch::Tensor& tensor);

  /// `Accelerator::reduce_for_metrics` for a number that was calculated from the
  /// last batch. Collective; throws like the above.
  torch::Tensor reduce_for_metrics(
      const torch::Tensor& tensor,
      Reduction reduction = torch::kMean);

 private:
  Accelerator& accelerator_;
};

} // namespace accel
