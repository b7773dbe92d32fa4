#include "distributed/recompute.h"

#include "distributed/collectives.h"
#include "distributed/watch.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <algorithm>
#include <atomic>
#include <string_view>

namespace accel::distributed {

bool in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

struct Recompute::Saved {
  /// Null for a tensor that is held.
  std::shared_ptr<Recipes> recipes;
  int32_t number = Recipes::kUndefined;
  at::Tensor tensor;
  /// Autograd's own check of these is not done for what others save.
  c10::VariableVersion counter;
  uint32_t version = 0;
  ~Saved() {
    if (recipes) {
      recipes->release(number);
    }
  }
};

namespace {

using torch::autograd::SavedVariableHooks;

thread_local Recompute* of_this_thread = nullptr;
/// How deep the thread is in operators that are noted, or made again.
thread_local int busy = 0;
std::atomic<uint64_t> made_again{0};

struct Busy {
  Busy() {
    ++busy;
  }
  ~Busy() {
    --busy;
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
};

class Hooks final : public SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override {
    saved_ = Recompute::of_thread()->save(tensor);
  }
  at::Tensor call_unpack_hook() override {
    return Recompute::saved(*saved_);
  }

 private:
  std::shared_ptr<Recompute::Saved> saved_;
};

/// LibTorch's, but for what is saved.
class Engine final : public torch::autograd::Engine {
 public:
  Engine() = default;
  ~Engine() override {
    stop();
  }
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    const auto* recompute = Recompute::of_thread();
    return recompute != nullptr && recompute->saves() ? std::make_unique<Hooks>()
                                                      : nullptr;
  }

  static torch::autograd::Engine& get() {
    static Engine engine;
    return engine;
  }
};

/// Those whose results are kept: they write what their schema does not say, or make
/// another tensor of one.
bool can_be_recipe(const c10::OperatorHandle& op) {
  const std::string_view name = op.schema().name();
  if (name.substr(0, 6) != "aten::") {
    return false;
  }
  for (const std::string_view other :
       {"aten::_cudnn_rnn", "aten::miopen_rnn", "aten::set_", "aten::resize_",
        "aten::resize_as_", "aten::_resize_output_", "aten::zeros_like",
        "aten::ones_like", "aten::full_like", "aten::new_empty", "aten::new_zeros",
        "aten::new_ones", "aten::new_full", "aten::new_empty_strided",
        "aten::_cudnn_init_dropout_state"}) {
    if (name == other) {
      return false;
    }
  }
  return true;
}

template <typename F>
void each_defined(const c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      f(value.toTensor());
    }
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) {
        f(tensor);
      }
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList().vec()) {
      if (tensor && tensor->defined()) {
        f(*tensor);
      }
    }
  }
}

} // namespace

Recompute* Recompute::of_thread() {
  return of_this_thread;
}

Recompute* Recompute::listening() {
  return busy == 0 ? of_this_thread : nullptr;
}

uint64_t Recompute::times() {
  return made_again;
}

Recompute::Recompute()
    : was_included_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  TORCH_INTERNAL_ASSERT(of_this_thread == nullptr);
  auto& engine = torch::autograd::Engine::get_default_engine();
  TORCH_CHECK(
      &engine == &torch::autograd::Engine::get_base_engine() || &engine == &Engine::get(),
      "accel: activation_checkpointing needs autograd's engine, which another library "
      "has taken over (Python does). Leave it out, and give what is to be computed again "
      "to accel::checkpoint_activations.");
  install();
  torch::autograd::set_default_engine_stub(&Engine::get);
  of_this_thread = this;
  watch().listen(+1);
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

Recompute::~Recompute() {
  end();
  if (of_this_thread == this) {
    c10::impl::tls_set_dispatch_key_included(kKey, was_included_);
    of_this_thread = nullptr;
  }
  watch().listen(-1);
}

void Recompute::add_unit(const std::vector<at::Tensor>& parameters) {
  ++count_;
  for (const auto& parameter : parameters) {
    units_.emplace(
        parameter.unsafeGetTensorImpl(),
        std::make_pair(WeakTensor(parameter.getIntrusivePtr()), count_));
  }
}

void Recompute::hold_recent(std::optional<int32_t> number) {
  for (const auto& one : recent_) {
    if (const auto saved = one.lock();
        saved && saved->recipes == open_ && (!number || *number == saved->number)) {
      saved->tensor = open_->unsave(saved->number);
      saved->recipes.reset();
    }
  }
}

void Recompute::begin() {
  if (open_) {
    // What the operator that is about to run has saved is not of the unit that ends: the
    // next one has it, too.
    hold_recent();
    if (open_.use_count() > 1) {
      open_->close();
      closed_.erase(
          std::remove_if(
              closed_.begin(), closed_.end(),
              [](const std::weak_ptr<Recipes>& one) { return one.expired(); }),
          closed_.end());
      closed_.push_back(open_);
    }
  }
  recent_.clear();
  open_ = std::make_shared<Recipes>();
}

void Recompute::end() {
  if (open_) {
    open_->keep();
    open_.reset();
  }
  unit_ = 0;
  recent_.clear();
}

void Recompute::keep_open() {
  if (open_) {
    open_->keep();
    open_ = std::make_shared<Recipes>();
  }
}

std::shared_ptr<Recompute::Saved> Recompute::save(const at::Tensor& tensor) {
  auto saved = std::make_shared<Saved>();
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.is_inference()) {
    saved->counter = impl->version_counter();
    saved->version = saved->counter.current_version();
  }
  const auto known = open_ ? open_->find(tensor) : Recipes::Known();
  if (known.is_value && !in_backward()) {
    open_->save(known.number, tensor);
    saved->number = known.number;
    saved->recipes = open_;
    recent_.push_back(saved);
  } else {
    // Not with its graph, which may lead back here.
    saved->tensor = tensor.is_leaf() ? tensor : tensor.tensor_data();
  }
  return saved;
}

at::Tensor Recompute::saved(const Saved& saved) {
  TORCH_CHECK(
      !saved.counter.enabled() || saved.counter.current_version() == saved.version,
      "one of the variables needed for gradient computation has been modified by an "
      "inplace operation: it is at version ",
      saved.counter.enabled() ? saved.counter.current_version() : 0,
      "; expected version ", saved.version, " instead.");
  if (!saved.recipes) {
    return saved.tensor;
  }
  if (saved.recipes->is_closed()) {
    const Busy made;
    ++made_again;
    saved.recipes->make_again();
  }
  return saved.recipes->value(saved.number);
}

void Recompute::look_for_unit(
    const OperatorInfo& info,
    const torch::jit::Stack& stack) {
  if (units_.empty()) {
    return;
  }
  const size_t base = stack.size() - info.arguments;
  uint32_t unit = 0;
  for (const auto i : info.tensors) {
    each_defined(stack[base + i], [&](const at::Tensor& tensor) {
      const auto found = units_.find(tensor.unsafeGetTensorImpl());
      if (found != units_.end() && unit == 0) {
        unit = found->second.second;
      }
    });
  }
  if (unit != 0 && unit != unit_) {
    begin();
    unit_ = unit;
  }
}

bool Recompute::before_write(
    const at::Tensor& tensor,
    bool can_be_noted,
    bool copies) {
  const auto memory = memory_of(tensor);
  bool inside = false;
  if (open_) {
    const auto known = open_->find(tensor);
    inside = known.is_value && !known.in_given;
    if (inside ? !can_be_noted
               : (known.number != Recipes::kUndefined || memory == 0 ||
                  open_->makes(memory) || open_->reads(memory))) {
      keep_open();
      inside = false;
    }
  }
  if (inside || copies) {
    return true;
  }
  for (const auto& one : closed_) {
    const auto recipes = one.lock();
    if (recipes && recipes->is_closed() &&
        (memory == 0 || recipes->reads(memory)) &&
        !recipes->has_parameter(tensor)) {
      ++made_again;
      recipes->make_again();
    }
  }
  return false;
}

Recompute::Noted::Noted(
    Recompute& recompute,
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    const torch::jit::Stack& stack)
    : recompute_(recompute), info_(info) {
  ++busy;
  const InsideGuard inside;
  const bool backward = in_backward();
  const bool gradients = at::GradMode::is_enabled();
  if (backward) {
    recompute_.end();
  } else if (gradients && op.schema().name() != "aten::detach") {
    recompute_.look_for_unit(info, stack);
  }
  const size_t base = stack.size() - info.arguments;
  bool differentiable = false;
  if (recompute_.open_) {
    for (const auto i : info.tensors) {
      each_defined(stack[base + i], [&](const at::Tensor& tensor) {
        differentiable = differentiable || tensor.requires_grad();
      });
    }
  }
  bool can_be_noted =
      recompute_.open_ && gradients && can_be_recipe(op);
  // Memory that nobody has written to yet is a recipe only where the next operator fills
  // it with random numbers (dropout's): the program may write to any other.
  const bool fills = can_be_noted && info.is_in_place && info.draws;
  if (recompute_.open_) {
    for (const auto i : info.tensors) {
      each_defined(stack[base + i], [&](const at::Tensor& tensor) {
        if (!fills && recompute_.open_->is_blank(tensor)) {
          // Autograd may have saved it already: rrelu's noise, which rrelu fills.
          recompute_.hold_recent(recompute_.open_->find(tensor).number);
          recompute_.open_->forget_blank(tensor);
        }
      });
    }
  }
  bool writes_inside = false;
  bool writes_outside = false;
  const bool copies = can_be_noted &&
      op.schema().name().find("batch_norm") != std::string::npos;
  for (const auto i : info.writes) {
    each_defined(stack[base + i], [&](const at::Tensor& tensor) {
      (recompute_.before_write(tensor, can_be_noted, copies) ? writes_inside
                                                             : writes_outside) = true;
    });
  }
  if (writes_inside && writes_outside) {
    recompute_.keep_open();
  }
  can_be_noted = can_be_noted && !writes_outside;
  if (can_be_noted && (differentiable || writes_inside)) {
    recipes_ = recompute_.open_;
    step_ = recipes_->before(op, info, stack);
    if (!step_ && writes_inside) {
      recompute_.keep_open();
    }
  }
  recompute_.recent_.clear();
}

Recompute::Noted::~Noted() {
  --busy;
}

void Recompute::Noted::done(const torch::jit::Stack& stack) {
  if (!step_) {
    return;
  }
  const bool writes = !info_.writes.empty();
  if (recipes_->is_open() && !recipes_->after(std::move(step_), info_, stack) && writes &&
      recipes_ == recompute_.open_) {
    recompute_.keep_open();
  }
}

} // namespace accel::distributed
