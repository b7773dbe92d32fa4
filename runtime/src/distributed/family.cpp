#include "distributed/collectives.h"
#include "distributed/memory_order.h"

#include <ATen/ATen.h>

// Families of views: the gathered value that all members share, and how a family
// becomes replicated before a write that not every part could do by itself.

namespace accel::distributed {

at::Tensor ViewOf::of(const at::Tensor& tensor) const {
  torch::jit::Stack stack{tensor};
  if (integers) {
    stack.emplace_back(c10::IntArrayRef(*integers));
  } else {
    stack.insert(stack.end(), arguments.begin(), arguments.end());
  }
  op.callBoxed(stack);
  return stack.back().isTensor() ? stack.back().toTensor()
                                 : stack.back().toTensorVector()[output];
}

Sizes strides_of(const Part& root) {
  return root.strides.empty() ? usual_strides(root.sizes) : root.strides;
}

const at::Tensor& whole_of(Part* part, const char* operation) {
  if (part->view == nullptr) {
    if (!part->whole.defined()) {
      bring_if_away(*part);
      const auto whole = gather(
          *part->axis, part->local, part->placement, part->sizes, operation);
      // Views of it have the strides that views of a whole tensor would have.
      part->whole = laid_out(whole, strides_of(*part));
    }
    return part->whole;
  }
  if (!part->whole.defined()) {
    part->whole = part->view->of(whole_of(part->view->parent.get(), operation));
  }
  return part->whole;
}

at::Tensor kept_whole(Part* part, const char* operation) {
  if (part->view != nullptr) {
    return part->view->of(kept_whole(part->view->parent.get(), operation));
  }
  if (!part->kept.defined()) {
    bring_if_away(*part);
    part->kept = laid_out(
        gather(
            *part->axis, part->local, part->placement, part->sizes, operation),
        strides_of(*part));
  }
  return part->kept;
}

void follow(Part* part) {
  const InsideGuard inside;
  part->local = whole_of(part);
  part->placement = Replicate();
  part->settled = true;
}

bool is_worth_settling(Part& part) {
  const Part* root = root_of(&part);
  return part.placement.is_sum() && root->placement.is_sum() &&
      root->local.numel() == part.local.numel();
}

void settle(Part* part, const char* operation) {
  Part* root = root_of(part);
  if (!root->settled) {
    root->local = whole_of(root, operation);
    root->placement = Replicate();
    root->settled = true;
  }
  if (part != root && !part->settled) {
    follow(part);
  }
}

} // namespace accel::distributed
