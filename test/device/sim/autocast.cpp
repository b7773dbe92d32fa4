// Autocast, by LibTorch's own lists.

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace at::autocast {
namespace {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define ACCEL_SIM_KERNEL(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(ACCEL_SIM_KERNEL)
#undef ACCEL_SIM_KERNEL
#define ACCEL_SIM_KERNEL(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(ACCEL_SIM_KERNEL)
#undef ACCEL_SIM_KERNEL
#define ACCEL_SIM_KERNEL(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(ACCEL_SIM_KERNEL)
#undef ACCEL_SIM_KERNEL
#define ACCEL_SIM_KERNEL(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(ACCEL_SIM_KERNEL)
#undef ACCEL_SIM_KERNEL
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(
      KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
}

} // namespace
} // namespace at::autocast
