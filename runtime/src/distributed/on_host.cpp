#include "distributed/on_host.h"

#include "core/tensor_version.h"
#include "distributed/collectives.h"
#include "distributed/part.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <unordered_set>
#include <utility>
#include <vector>

namespace accel::distributed {
namespace {

using accel::detail::version_of;

/// Those that have been brought. Never destroyed: parts may be, at the program's end,
/// after it.
std::unordered_set<OnHost*>& brought_parts() {
  static auto* parts = new std::unordered_set<OnHost*>();
  return *parts;
}

/// Whether somebody beside the part has its memory: a view, or whom `to_local` has given it.
bool is_shared(const at::Tensor& local) {
  return local.use_count() != 1 || local.storage().use_count() != 1;
}

bool is_as_brought(const Part& part) {
  return part.on_host->brought == part.local.unsafeGetTensorImpl();
}

bool is_written(const Part& part) {
  return part.on_host->written || part.on_host->version != version_of(part.local);
}

void replace(Part& part, at::Tensor host) noexcept {
  part.local = std::move(host);
  part.on_host->brought = nullptr;
  brought_parts().erase(part.on_host.get());
}

/// Copies below autograd, of tensors that outlive inference mode.
struct Copying {
  const InsideGuard inside;
  const c10::InferenceMode no_inference{false};
  const at::NoGradGuard no_grad;
};

} // namespace

OnHost::OnHost(Part& owner, at::Tensor host_memory)
    : part(owner), device(owner.local.device()), memory(std::move(host_memory)) {}

OnHost::~OnHost() {
  brought_parts().erase(this);
}

void keep_on_host(Part& part, at::Tensor memory) {
  part.on_host = std::make_unique<OnHost>(part, std::move(memory));
  replace(part, part.on_host->memory);
}

void put_away(Part& part) {
  if (part.on_host == nullptr || part.on_host->is_away()) {
    return;
  }
  if (!is_as_brought(part)) {
    part.on_host.reset(); // Its values are another tensor's now.
    return;
  }
  if (is_shared(part.local) || part.whole.defined()) {
    return;
  }
  if (is_written(part)) {
    const Copying copying;
    part.on_host->memory.copy_(part.local);
  }
  replace(part, part.on_host->memory);
}

void put_away_all() {
  const auto all = brought_parts();
  for (OnHost* on_host : all) {
    put_away(on_host->part);
  }
}

void put_away_unwritten(Part& part) noexcept {
  if (part.on_host != nullptr && !part.on_host->is_away() && is_as_brought(part) &&
      !is_written(part) && !is_shared(part.local)) {
    replace(part, part.on_host->memory);
  }
}

void bring(Part& part) {
  OnHost& on_host = *part.on_host;
  const Copying copying;
  auto local = at::empty_strided(
      on_host.memory.sizes(), on_host.memory.strides(),
      on_host.memory.options().device(on_host.device).pinned_memory(false));
  // From pinned memory, which is not written before the device has done this: what puts
  // the part away copies in the order of the device's work, and waits.
  local.copy_(on_host.memory, /*non_blocking=*/true);
  part.local = std::move(local);
  on_host.brought = part.local.unsafeGetTensorImpl();
  on_host.version = version_of(part.local);
  on_host.written = false;
  brought_parts().insert(&on_host);
}

} // namespace accel::distributed
