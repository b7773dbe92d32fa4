#include "core/whole_archive.h"

#include "distributed/part.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace accel::detail {
namespace {

// An OutputArchive shows nothing of what was written into it. Explicit
// instantiations may name private members.
torch::jit::Module& module_of(torch::serialize::OutputArchive& archive);

template <torch::jit::Module torch::serialize::OutputArchive::*kModule>
struct Shown {
  friend torch::jit::Module& module_of(torch::serialize::OutputArchive& archive) {
    return archive.*kModule;
  }
};
template struct Shown<&torch::serialize::OutputArchive::module_>;

} // namespace

WholeArchive::WholeArchive(torch::serialize::OutputArchive& archive, bool keep)
    : keep_(keep) {
  const at::NoGradGuard no_grad;
  const auto object = module_of(archive)._ivalue();
  find_names(object);
  visit(object);
  for (const auto* only : held_here_) {
    whole_.erase(only);
  }
}

WholeArchive::~WholeArchive() {
  for (auto& value : replaced_) {
    value.object->setSlot(value.slot, std::move(value.before));
  }
}

void WholeArchive::find_names(const Object& object) {
  for (const auto& value : object->slots()) {
    if (value.isObject()) {
      find_names(value.toObject());
    } else if (value.isString()) {
      places_.emplace(value.toStringRef(), places_.size());
    }
  }
}

std::vector<size_t> WholeArchive::slots_of(const Object& object) const {
  std::vector<size_t> slots(object->slots().size());
  std::iota(slots.begin(), slots.end(), 0);
  const auto place = [&](size_t slot) {
    const auto found = places_.find(object->type()->getAttributeName(slot));
    return found == places_.end() ? 0 : found->second + 1;
  };
  std::stable_sort(slots.begin(), slots.end(), [&](size_t a, size_t b) {
    return place(a) < place(b);
  });
  return slots;
}

void WholeArchive::visit(const Object& object) {
  for (const size_t slot : slots_of(object)) {
    const c10::IValue value = object->getSlot(slot);
    c10::IValue now;
    if (value.isObject()) {
      visit(value.toObject());
    } else if (value.isTensor() && distributed::is_distributed(value.toTensor())) {
      // The slot and this copy.
      if (value.use_count() == 2) {
        held_here_.insert(value.toTensor().unsafeGetTensorImpl());
      }
      now = whole(value.toTensor());
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      bool any = false;
      for (auto& tensor : list) {
        if (distributed::is_distributed(tensor)) {
          tensor = whole(tensor);
          any = true;
        }
      }
      if (any) {
        now = std::move(list);
      }
    }
    if (keep_ && !now.isNone()) {
      replaced_.push_back({object.get(), slot, value});
      object->setSlot(slot, std::move(now));
    }
  }
}

at::Tensor WholeArchive::whole(const at::Tensor& tensor) {
  auto& found = whole_[tensor.unsafeGetTensorImpl()];
  if (!found.defined()) {
    auto& memory = memory_[distributed::part_of(tensor)];
    if (!memory.defined()) {
      memory = distributed::full_tensor(tensor.detach());
      if (!keep_) {
        // Known from here on, and not held.
        memory = at::empty({0}, tensor.options());
      }
    }
    found = memory.detach();
    found.set_requires_grad(tensor.requires_grad() && tensor.is_leaf());
  }
  return found;
}

} // namespace accel::detail
