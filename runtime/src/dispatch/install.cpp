#include "dispatch/install.h"

#include "dispatch/kernels.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

namespace accel::detail {
namespace {

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
  auto& autograd = open(c10::DispatchKey::AutogradCPU);
  add_batch_norm(autograd);
  add_dropout(autograd);
  auto& cpu = open(c10::DispatchKey::CPU);
  add_random_numbers(cpu);
  for (auto* library : {&autograd, &cpu}) {
    add_class_losses(*library);
    add_scaled_tables(*library);
  }
  add_row_checks(autograd, cpu);
  if (at::hasCUDA()) {
    auto& autograd_cuda = open(c10::DispatchKey::AutogradCUDA);
    add_batch_norm(autograd_cuda);
    auto& cuda = open(c10::DispatchKey::CUDA);
    for (auto* library : {&autograd_cuda, &cuda}) {
      add_class_losses(*library);
      add_scaled_tables(*library);
    }
  }
  return true;
}

bool install_tables() {
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  add_shortened_tables(open(c10::DispatchKey::CPU));
  if (at::hasCUDA()) {
    add_shortened_tables_cuda(open(c10::DispatchKey::AutogradCUDA));
  }
  return true;
}

} // namespace

void install_dispatch_kernels() {
  [[maybe_unused]] static const bool installed = install();
}

void install_table_kernels() {
  [[maybe_unused]] static const bool installed = install_tables();
}

} // namespace accel::detail
