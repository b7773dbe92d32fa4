// `max_norm` shortens the rows of an embedding that are looked up, before they
// are, in the table itself. Where each process has batches of its own, they look
// up different rows, and their tables would part: an error. In
// `match_single_device` the indices are a distributed tensor, whose operators
// see those of all processes.

#include "dispatch/install.h"

#include <accel/detail/communicator.h>

#include "device/accelerator.h"

#include <ATen/ATen.h>
#include <ATen/CPUFunctions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace accel::detail {
namespace {

using at::Tensor;

void check_tables_stay_alike(const Tensor& table) {
  // Other tables, and those of models that are not trained, are nobody else's.
  TORCH_CHECK(
      match_single_device() || !distributed() || !table.requires_grad() ||
          !table.is_leaf(),
      "accel: an embedding with max_norm shortens the rows that are looked up, "
      "and each process looks up others: their tables would part. Leave "
      "max_norm out, and shorten the rows behind optimizer.step(), on all "
      "processes alike; or train with match_single_device, where the processes "
      "tell each other which rows these are.");
}

Tensor& embedding_renorm_cpu(
    Tensor& self,
    const Tensor& indices,
    double max_norm,
    double norm_type) {
  check_tables_stay_alike(self);
  return at::cpu::embedding_renorm_(self, indices, max_norm, norm_type);
}

/// Above autograd, where LibTorch's own kernel cannot be named.
Tensor& embedding_renorm_on_device(
    Tensor& self,
    const Tensor& indices,
    double max_norm,
    double norm_type) {
  check_tables_stay_alike(self);
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    at::embedding_renorm_(self, indices, max_norm, norm_type);
  }
  if (!self.is_inference()) {
    self.unsafeGetTensorImpl()->bump_version();
  }
  return self;
}

/// LibTorch warns where a kernel takes the place of another. Here it is meant.
struct Silent : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

/// Never destroyed: the kernels stay to the end of the program.
torch::Library& open(c10::DispatchKey key) {
  return *new torch::Library(
      torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
}

bool install() {
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  open(c10::DispatchKey::CPU)
      .impl("embedding_renorm_", TORCH_FN(embedding_renorm_cpu));
  if (const auto type = accelerator_type()) {
    open(autograd_key(*type))
        .impl("embedding_renorm_", TORCH_FN(embedding_renorm_on_device));
  }
  return true;
}

} // namespace

void install_table_kernels() {
  [[maybe_unused]] static const bool installed = install();
}

} // namespace accel::detail
