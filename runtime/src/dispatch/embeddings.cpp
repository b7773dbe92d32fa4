// Look-ups that do more with the batch than look up.
//
// `max_norm` shortens the rows that are looked up, before they are, in the
// table itself. Which rows these are is what all processes look up together:
// they exchange their indices, and each shortens all of them in its table, as
// one device does.
//
// `scale_grad_by_freq` divides by how often a row was looked up in the batch.
// What is looked up may be rows of the batch (counts add up) or the same on all
// processes (positions; they do not), and nothing here says which: an error.

#include "dispatch/kernels.h"
#include "dispatch/share.h"

#include <accel/data/whole_batch.h>
#include <accel/detail/communicator.h>

#include <ATen/ATen.h>
#include <ATen/CPUFunctions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_embedding_bag_backward_native.h>
#include <ATen/ops/embedding_backward_native.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace accel::detail {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// The different indices of all processes, those of ghost rows left out.
Tensor of_all_processes(const Tensor& indices, bool ghost) {
  auto& processes = communicator(Channel::kStatistics);
  const auto own = ghost ? at::empty({0}, indices.options().dtype(at::kLong))
                         : std::get<0>(at::_unique(indices.to(at::kLong)));
  const auto sizes = processes.all_gather(
      at::full({1}, own.numel(), own.options()));
  std::vector<int64_t> counts;
  for (const auto& size : sizes) {
    counts.push_back(size.item<int64_t>());
  }
  // As many from each; what fills them up is cut off again.
  auto padded =
      at::zeros({*std::max_element(counts.begin(), counts.end())}, own.options());
  if (padded.numel() == 0) {
    return own;
  }
  padded.narrow(0, 0, own.numel()).copy_(own);
  auto all = processes.all_gather(padded);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    all[rank] = all[rank].narrow(0, 0, counts[rank]);
  }
  return at::cat(all);
}

/// What `embedding_renorm_` is to be called with.
Tensor rows_to_shorten(const Tensor& table, const Tensor& indices) {
  if (match_single_device()) {
    const auto share = active_share();
    return share ? of_all_processes(indices, share->ghost()) : indices;
  }
  // Other tables, and those of models that are not trained, are nobody else's.
  TORCH_CHECK(
      !distributed() || !table.requires_grad() || !table.is_leaf() ||
          WholeBatchGuard::active(),
      "accel: an embedding with max_norm shortens the rows that are looked up, "
      "and each process looks up others: their tables would part. Leave "
      "max_norm out, and shorten the rows behind optimizer.step(), on all "
      "processes alike; or train with match_single_device, where the processes "
      "tell each other which rows these are.");
  return indices;
}

Tensor& embedding_renorm_cpu(
    Tensor& self,
    const Tensor& indices,
    double max_norm,
    double norm_type) {
  return at::cpu::embedding_renorm_(
      self, rows_to_shorten(self, indices), max_norm, norm_type);
}

/// Above autograd, where LibTorch's own kernel cannot be named.
Tensor& embedding_renorm_cuda(
    Tensor& self,
    const Tensor& indices,
    double max_norm,
    double norm_type) {
  const auto rows = rows_to_shorten(self, indices);
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    at::embedding_renorm_(self, rows, max_norm, norm_type);
  }
  if (!self.is_inference()) {
    self.unsafeGetTensorImpl()->bump_version();
  }
  return self;
}

void check_scaling(bool scale_grad_by_freq) {
  TORCH_CHECK(
      !scale_grad_by_freq || !active_share(),
      "accel: an embedding with scale_grad_by_freq counts how often a row is "
      "looked up in the batch, and this process has only a part of it. Leave "
      "scale_grad_by_freq out, or train without match_single_device.");
}

Tensor embedding_backward(
    const Tensor& grad,
    const Tensor& indices,
    c10::SymInt num_weights,
    c10::SymInt padding_idx,
    bool scale_grad_by_freq,
    bool sparse) {
  check_scaling(scale_grad_by_freq);
  return at::native::embedding_backward_symint(
      grad, indices, num_weights, padding_idx, scale_grad_by_freq, sparse);
}

Tensor embedding_bag_backward(
    const Tensor& grad,
    const Tensor& indices,
    const Tensor& offsets,
    const Tensor& offset2bag,
    const Tensor& bag_size,
    const Tensor& maximum_indices,
    c10::SymInt num_weights,
    bool scale_grad_by_freq,
    int64_t mode,
    bool sparse,
    const OptionalTensor& per_sample_weights,
    int64_t padding_idx) {
  check_scaling(scale_grad_by_freq);
  return at::native::_embedding_bag_backward_symint(
      grad,
      indices,
      offsets,
      offset2bag,
      bag_size,
      maximum_indices,
      num_weights,
      scale_grad_by_freq,
      mode,
      sparse,
      per_sample_weights,
      padding_idx);
}

} // namespace

void add_shortened_tables(torch::Library& cpu) {
  cpu.impl("embedding_renorm_", TORCH_FN(embedding_renorm_cpu));
}

void add_shortened_tables_cuda(torch::Library& autograd) {
  autograd.impl("embedding_renorm_", TORCH_FN(embedding_renorm_cuda));
}

void add_scaled_tables(torch::Library& library) {
  library.impl("embedding_backward", TORCH_FN(embedding_backward));
  library.impl("_embedding_bag_backward", TORCH_FN(embedding_bag_backward));
}

} // namespace accel::detail
