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
/// Only with `match_single_device`, where a distributed tensor knows what it is
/// behind the loop, too: the same as the Accelerator's functions of these names.
class ACCEL_API LastBatch {
 public:
  explicit LastBatch(Accelerator& accelerator) : accelerator_(accelerator) {}

  /// `Accelerator::gather_for_metrics`. Collective. Throws `c10::Error` on several
  /// processes without `match_single_device`.
  torch::Tensor gather_for_metrics(const torch::Tensor& tensor);

  /// `Accelerator::reduce_for_metrics`. Collective; throws like the above.
  torch::Tensor reduce_for_metrics(
      const torch::Tensor& tensor,
      Reduction reduction = torch::kMean);

 private:
  Accelerator& accelerator_;
};

} // namespace accel
