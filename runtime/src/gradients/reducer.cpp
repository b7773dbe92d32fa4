#include "gradients/reducer.h"

#include "core/operation_log.h"

#include <accel/detail/phase.h>
#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace accel::detail {

/// Tells the reducer that a gradient is there. Tensors have room for one hook
/// of this kind; one that was there before is called first.
class GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(
      Reducer& reducer,
      const Reducer::Slot& slot,
      std::unique_ptr<torch::autograd::PostAccumulateGradHook> previous)
      : reducer_(reducer), slot_(slot), previous_(std::move(previous)) {}

  void operator()(const torch::autograd::Variable& tensor) override {
    if (previous_) {
      (*previous_)(tensor);
    }
    reducer_.on_gradient(slot_);
  }

  std::unique_ptr<torch::autograd::PostAccumulateGradHook> take_previous() {
    return std::move(previous_);
  }

 private:
  Reducer& reducer_;
  const Reducer::Slot& slot_;
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> previous_;
};

namespace {

std::unique_ptr<torch::autograd::PostAccumulateGradHook>& hook_of(
    const at::Tensor& tensor) {
  return torch::autograd::impl::post_acc_grad_hooks(tensor);
}

} // namespace

Reducer::Reducer(
    Communicator& main,
    Communicator& gradients,
    const ReducerOptions& options)
    : main_(main), gradients_(gradients), options_(options) {}

Reducer::~Reducer() {
  remove_hooks();
}

void Reducer::prune() {
  const auto unused = parameters_.prune();
  if (!unused.empty()) {
    rebuild(); // while what the old slots point at still exists
  }
}

std::vector<at::Tensor> Reducer::add(
    const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  prune();
  std::vector<at::Tensor> added;
  for (const auto& [name, tensor] : parameters) {
    if (parameters_.add(tensor, name)) {
      added.push_back(tensor);
    }
  }
  groups_ += added.empty() ? 0 : 1;
  return added;
}

void Reducer::expect_sparse(const at::Tensor& tensor) {
  auto* parameter = parameters_.find(tensor);
  // One that is in use already has shown what its gradients are.
  if (parameter != nullptr && !parameter->bucketed) {
    parameter->sparse = true;
  }
}

void Reducer::watch() {
  if (!distributed() || options_.plain_is_whole) {
    return;
  }
  std::unordered_set<const Parameter*> seen;
  for (const auto& slot : slots_) {
    seen.insert(slot->parameter);
  }
  for (const auto& parameter : parameters_.all()) {
    const auto& tensor = parameter->tensor;
    if (seen.count(parameter.get()) == 0 && tensor.requires_grad() &&
        !accel::distributed::is_distributed(tensor)) {
      add_slot(parameter.get(), Slot::kNoBucket, 0);
      layouts_changed_ = true; // Buckets are made when a backward needs them.
    }
  }
}

void Reducer::backward(
    const BackwardPlan& plan,
    const std::function<void()>& run) {
  TORCH_INTERNAL_ASSERT(!inside_);
  if (failed_) {
    recover();
  }
  if (plan.hold) {
    parameters_.forget_kept(); // Another window.
  } else {
    parameters_.bring_back_kept();
  }
  parameters_.release();
  struct Inside {
    bool& flag;
    ~Inside() {
      flag = false;
    }
  };
  const Inside inside{inside_ = true};
  if (!distributed()) {
    run();
  } else {
    begin(plan);
    failed_ = true; // Unless it comes to its end.
    const auto leave = [&] {
      running_ = false;
      if (aside_) {
        parameters_.bring_back(ghost_);
      }
    };
    try {
      run();
    } catch (...) {
      leave();
      for (auto& bucket : buckets_) {
        if (bucket.in_flight()) {
          bucket.spoil();
        }
      }
      throw;
    }
    leave();
    if (armed_) {
      finish();
    }
    failed_ = false;
  }
  if (plan.hold) {
    parameters_.hold(/*hooks=*/distributed());
  } else {
    parameters_.keep_unreached(/*hooks=*/distributed());
  }
}

void Reducer::recover() {
  // Where only some have failed, the others are elsewhere, which the log of operations
  // finds.
  const PurposeGuard purpose("backward behind one that has failed", {}, 0);
  const auto launched =
      std::count_if(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) {
        return bucket.in_flight();
      });
  const auto all =
      gradients_.all_gather(at::full({1}, static_cast<int64_t>(launched), at::kLong));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    TORCH_CHECK(
        all[rank].equal(all[0]),
        "accel: an earlier backward has failed, on process ", rank, " behind ",
        all[rank].item<int64_t>(), " buckets of gradients, on process 0 behind ",
        all[0].item<int64_t>(),
        ": the processes' gradients no longer agree. End the program, or keep the "
        "processes from failing at different places.");
  }
  for (auto& bucket : buckets_) {
    if (bucket.in_flight()) {
      bucket.abandon();
    }
  }
  for (const auto& parameter : parameters_.all()) {
    const auto& grad = parameter->tensor.grad();
    TORCH_CHECK(
        !std::exchange(parameter->fired, false) || is_zeroed(grad),
        "accel: an earlier backward has failed, and '", parameter->name,
        "' still has the gradient that it has left. Call zero_grad of the optimizer before "
        "the next backward.");
  }
  failed_ = false;
}

void Reducer::note_step(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (auto* parameter = parameters_.find(tensor)) {
      parameter->kept.reset();
    }
  }
}

void Reducer::begin(const BackwardPlan& plan) {
  reject_foreign();
  for (const auto& parameter : parameters_.all()) {
    parameter->sharded = accel::distributed::is_distributed(parameter->tensor);
  }
  if (!up_to_date()) {
    rebuild();
  }
  for (const auto& parameter : parameters_.all()) {
    parameter->fired = false;
  }
  next_ = 0;
  armed_ = plan.synchronize;
  ghost_ = plan.ghost;
  enclosed_ = plan.enclosed;
  aside_ = ghost_ || (armed_ && options_.plain_is_whole);
  if (armed_) {
    selective_ = groups_ > 1;
    for (auto& bucket : buckets_) {
      bucket.arm();
    }
    for (const auto& slot : slots_) {
      selective_ = selective_ || !slot->parameter->tensor.requires_grad();
    }
  }
  if (aside_) {
    parameters_.set_aside();
  }
  running_ = true;
}

void Reducer::on_gradient(const Slot& slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const at::NoGradGuard no_grad;
  const PhaseScope own(Phase::kOwn);
  auto& parameter = *slot.parameter;
  auto& grad = parameter.tensor.mutable_grad();
  if (!running_) {
    // Where plain gradients are whole, parts know that they are.
    parameter.foreign = !options_.plain_is_whole && !local_;
    if (parameter.foreign && grad.defined()) {
      parameter.foreign_grad.emplace(grad.getIntrusivePtr());
    }
    return;
  }
  TORCH_CHECK(
      grad.defined(),
      "accel: a hook has taken the gradient of '",
      parameter.name,
      "' before it was averaged over the processes.");
  TORCH_CHECK(
      grad.layout() == at::kStrided || grad.layout() == at::kSparse,
      "accel: the gradient of '",
      parameter.name,
      "' has the layout ",
      grad.layout(),
      ", which is not supported with several processes. Strided and sparse "
      "(COO) gradients are.");
  TORCH_CHECK(
      !aside_ || !parameter.fired,
      "accel: the gradient of '",
      parameter.name,
      "' changed twice in one backward. Backward passes inside of backward "
      "passes are not supported with several processes.");
  if (ghost_) {
    // What a row that does not count has produced, NaN included, goes away.
    auto before = std::exchange(parameter.before, at::Tensor());
    if (before.defined()) {
      grad = std::move(before);
    } else {
      grad.zero_();
    }
  }
  parameter.used = true;
  if (armed_ && options_.plain_is_whole && grad.is_sparse()) {
    // Whole already, on all processes.
    const auto before = std::exchange(parameter.before, at::Tensor());
    if (before.defined()) {
      grad = before.is_sparse() ? before.add(grad) : grad.add(before);
    }
  }
  const bool complete = armed_ && slot.bucket != Slot::kNoBucket &&
      buckets_[slot.bucket].receive(
          slot.index, gradients_.rank(), gradients_.size());
  parameter.fired = true;
  parameter.ever_fired = true;
  if (complete) {
    launch_complete();
  }
}

void Reducer::launch_complete() {
  while (next_ < buckets_.size() && buckets_[next_].complete() &&
         buckets_[next_].touched()) {
    const EncloseGuard carried(enclosed_);
    buckets_[next_++].launch(gradients_, options_.compression);
  }
}

void Reducer::finish() {
  const PhaseScope own(Phase::kOwn);
  std::vector<int32_t> wanted(buckets_.size(), 1);
  if (selective_ && !buckets_.empty()) {
    // A bucket that is under way here has been touched here, so everybody
    // wants it, and everybody starts the buckets in the same order.
    for (size_t i = 0; i < buckets_.size(); ++i) {
      wanted[i] = buckets_[i].touched() ? 1 : 0;
    }
    // Where plain gradients are whole, all processes have run the same backward.
    if (!options_.plain_is_whole) {
      auto sum = at::tensor(wanted, at::kInt);
      main_.all_reduce(sum);
      std::copy_n(sum.const_data_ptr<int32_t>(), wanted.size(), wanted.begin());
    }
  }
  for (; next_ < buckets_.size(); ++next_) {
    if (wanted[next_] != 0) {
      const EncloseGuard carried(enclosed_);
      buckets_[next_].launch(gradients_, options_.compression);
    }
  }
  std::vector<SparseGradient> sparse;
  for (auto* parameter : sparse_) {
    sparse.push_back({parameter, at::Tensor()});
  }
  if (options_.plain_is_whole) {
    for (auto* parameter : sparse_) {
      parameter->used = false;
    }
    sparse.clear();
  }
  met_others_ = false;
  for (auto& bucket : buckets_) {
    if (bucket.launched()) {
      met_others_ =
          met_others_ || bucket.in_parts() || !options_.plain_is_whole;
      bucket.finish(gradients_, sparse);
    }
  }
  if (!sparse.empty()) {
    finish_sparse(sparse);
  }
}

void Reducer::finish_sparse(const std::vector<SparseGradient>& gradients) {
  const auto layouts = average_sparse(gradients_, gradients);
  for (size_t i = 0; i < gradients.size(); ++i) {
    auto& parameter = *gradients[i].parameter;
    parameter.used = false;
    parameter.mixed =
        parameter.mixed || layouts[i] == AveragedLayout::kMixed;
    const bool sparse = !parameter.mixed &&
        (parameter.sparse || layouts[i] == AveragedLayout::kSparse);
    layouts_changed_ = layouts_changed_ || sparse != parameter.sparse;
    parameter.sparse = sparse;
  }
}

bool Reducer::up_to_date() const {
  if (layouts_changed_) {
    return false;
  }
  size_t trainable = 0;
  for (const auto& slot : slots_) {
    const auto& tensor = slot->parameter->tensor;
    if (slot->parameter->sharded || slot->options.dtype() != tensor.dtype() ||
        slot->options.device() != tensor.device() ||
        c10::IntArrayRef(slot->sizes) != tensor.sizes() ||
        hook_of(tensor).get() != slot->hook) {
      return false;
    }
    trainable += tensor.requires_grad() ? 1 : 0;
  }
  for (const auto& parameter : parameters_.all()) {
    trainable -=
        parameter->tensor.requires_grad() && !parameter->sharded ? 1 : 0;
  }
  return trainable == 0;
}

void Reducer::rebuild() {
  // What once took part stays: models that are frozen and unfrozen in turn
  // must not cost new buckets every time.
  std::vector<Parameter*> parameters;
  sparse_.clear();
  for (const auto& parameter : parameters_.all()) {
    if (!parameter->sharded &&
        (parameter->tensor.requires_grad() || parameter->bucketed)) {
      TORCH_CHECK(
          parameter->tensor.is_floating_point() || parameter->tensor.is_complex(),
          "accel: the parameter '",
          parameter->name,
          "' is ",
          parameter->tensor.scalar_type(),
          "; only floating-point and complex parameters can be trained with "
          "several processes.");
      parameter->bucketed = true;
      (parameter->sparse ? sparse_ : parameters).push_back(parameter.get());
    }
  }
  remove_hooks();
  slots_.clear();
  buckets_ = make_buckets(
      parameters,
      std::min(int64_t{1} << 20, options_.bucket_bytes),
      options_.bucket_bytes,
      options_.plain_is_whole);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const auto& members = buckets_[b].parameters();
    for (size_t i = 0; i < members.size(); ++i) {
      add_slot(members[i], b, i);
    }
  }
  for (auto* parameter : sparse_) {
    add_slot(parameter, Slot::kNoBucket, 0);
  }
  layouts_changed_ = false;
}

void Reducer::add_slot(Parameter* parameter, size_t bucket, size_t index) {
  auto& tensor = parameter->tensor;
  auto slot = std::make_unique<Slot>();
  slot->parameter = parameter;
  slot->bucket = bucket;
  slot->index = index;
  slot->options = tensor.options();
  slot->sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  auto hook = std::make_unique<GradientHook>(
      *this, *slot, std::move(hook_of(tensor)));
  slot->hook = hook.get();
  torch::autograd::impl::set_post_acc_grad_hooks(tensor, std::move(hook));
  slots_.push_back(std::move(slot));
}

void Reducer::remove_hooks() {
  for (const auto& slot : slots_) {
    auto& current = hook_of(slot->parameter->tensor);
    // Where somebody has set another hook since, ours is gone already.
    if (current.get() == slot->hook) {
      auto previous = slot->hook->take_previous();
      current = std::move(previous);
    }
  }
}

void Reducer::reject_foreign() {
  for (const auto& parameter : parameters_.all()) {
    if (!parameter->foreign) {
      continue;
    }
    parameter->foreign = false;
    auto grad = parameter->tensor.grad();
    const auto left = std::exchange(parameter->foreign_grad, std::nullopt);
    if (left && grad.unsafeGetTensorImpl() != left->_unsafe_get_target()) {
      continue;
    }
    if (grad.defined() && grad.is_sparse()) {
      grad = grad._values();
    }
    TORCH_CHECK(
        !grad.defined() || !at::any(grad.ne(0)).item<bool>(),
        "accel: the gradient of '",
        parameter->name,
        "' comes from a backward that accel was not told of, so it was not "
        "averaged over the processes. Call accelerator.backward(loss) instead "
        "of loss.backward(), or clear the gradient, or put the mean of all processes' "
        "there (mutable_grad() = accelerator.reduce(gradient, \"mean\")).");
  }
}

void Reducer::check_averaged(
    const std::vector<at::Tensor>& tensors, const char* who) {
  if (!distributed() || local_) {
    return;
  }
  reject_foreign();
  if (options_.plain_is_whole) {
    return; // The others know what they are parts of.
  }
  for (const auto& tensor : tensors) {
    TORCH_CHECK(
        !tensor.grad().defined() || parameters_.known(tensor) ||
            accel::distributed::is_distributed(tensor) ||
            accel::distributed::is_distributed(tensor.grad()),
        "accel: ",
        who,
        " a parameter of sizes ",
        tensor.sizes(),
        " that has not been prepared, so its gradient was not averaged over "
        "the processes. Call accelerator.prepare(model, optimizer) once all "
        "parameters exist.");
  }
}

void Reducer::note_added(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (auto* parameter = parameters_.find(tensor)) {
      parameter->used = true;
    }
  }
}

at::Tensor Reducer::accumulated(const at::Tensor& tensor) {
  const auto* parameter = parameters_.find(tensor);
  return parameter != nullptr && parameter->held.defined() ? parameter->held
                                                           : tensor.grad();
}

} // namespace accel::detail
