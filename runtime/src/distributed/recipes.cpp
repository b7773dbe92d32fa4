#include "distributed/recipes.h"

#include "distributed/draws.h"
#include "distributed/each_tensor.h"

#include "core/tensor_version.h"
#include "distributed/collectives.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>

namespace accel::distributed {
namespace {

/// References to given tensors lie below this one, those to values from 0 on.
constexpr int32_t kFirstGiven = -2;

bool is_given(int32_t reference) {
  return reference <= kFirstGiven;
}

bool is_value(int32_t reference) {
  return reference >= 0;
}

template <typename F>
void exchange_tensors(c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    value = f();
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> list(value.toListRef().size());
    std::generate(list.begin(), list.end(), f);
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (size_t i = value.toListRef().size(); i > 0; --i) {
      const at::Tensor tensor = f();
      list.push_back(tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt);
    }
    value = std::move(list);
  }
}

/// The same list without tensors, of the same length.
c10::IValue without_tensors(const c10::IValue& value) {
  c10::IValue copy = value;
  exchange_tensors(copy, [] { return at::Tensor(); });
  return copy;
}

/// Running statistics are written, and what is computed does not depend on what was
/// there: each call is given a copy.
bool writes_statistics(const c10::OperatorHandle& op) {
  return op.schema().name().find("batch_norm") != std::string::npos;
}

} // namespace

namespace {

/// Of a plain tensor; null where it has none.
c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  return !impl->key_set().has(kKey) && impl->has_storage() &&
          impl->layout() == at::kStrided
      ? impl->unsafe_storage().unsafeGetStorageImpl()
      : nullptr;
}

} // namespace

uint64_t memory_of(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!impl->key_set().has(kKey)) {
    return reinterpret_cast<uintptr_t>(storage_of(tensor));
  }
  if (impl->layout() != at::kStrided) {
    return 0;
  }
  // No address: parts are used again. Odd, as no address is.
  static std::atomic<uint64_t> last{1};
  Part* const root = root_of(static_cast<Part*>(impl->get_backend_meta()));
  if (root->family == 0) {
    root->family = last += 2;
  }
  return root->family;
}

Recipes::Recipes() = default;
Recipes::~Recipes() = default;

Recipes::Known Recipes::find(const at::Tensor& tensor) const {
  const auto found = numbers_.find(tensor.unsafeGetTensorImpl());
  if (found == numbers_.end()) {
    return {};
  }
  const int32_t number = found->second.second;
  if (is_given(number)) {
    return {number, false, true};
  }
  return {number, true, memories_[values_[number].memory].given};
}

bool Recipes::reads(uint64_t memory) const {
  const auto found = in_memory_.find(memory);
  return found != in_memory_.end() && memories_[found->second.second].given;
}

bool Recipes::makes(uint64_t memory) const {
  const auto found = in_memory_.find(memory);
  return found != in_memory_.end() && !memories_[found->second.second].given;
}

bool Recipes::has_parameter(const at::Tensor& tensor) const {
  return std::any_of(given_.begin(), given_.end(), [&](const Given& one) {
    return one.itself && one.tensor.is_same(tensor);
  });
}

const at::Tensor& Recipes::given(int32_t reference) const {
  return given_[kFirstGiven - reference].tensor;
}

/// Nobody's graph is held: that would lead back to what holds this. A parameter is the
/// program's tensor itself, whose memory may be another one later.
int32_t Recipes::give(const at::Tensor& tensor) {
  Given given;
  given.itself = tensor.is_leaf() && tensor.requires_grad();
  if (given.itself) {
    given.tensor = tensor;
  } else {
    auto* impl = tensor.unsafeGetTensorImpl();
    given.tensor = at::Tensor(impl->shallow_copy_and_detach(
        tensor.is_inference() ? c10::VariableVersion()
                              : impl->version_counter(),
        /*allow_tensor_metadata_change=*/true));
    if (tensor.requires_grad()) {
      given.tensor.set_requires_grad(true);
    }
  }
  given.version = accel::detail::version_of(tensor);
  const auto reference = kFirstGiven - static_cast<int32_t>(given_.size());
  given_.push_back(std::move(given));
  numbers_.insert_or_assign(
      tensor.unsafeGetTensorImpl(),
      std::make_pair(WeakTensor(tensor.getIntrusivePtr()), reference));
  const auto memory = memory_of(tensor);
  if (memory != 0 && in_memory_.find(memory) == in_memory_.end()) {
    memories_.push_back({/*given=*/true});
    settle_memory(static_cast<uint32_t>(memories_.size() - 1), tensor);
  }
  return reference;
}

void Recipes::settle_memory(uint32_t memory, const at::Tensor& tensor) {
  if (const auto key = memory_of(tensor)) {
    auto* const storage = storage_of(tensor);
    in_memory_.insert_or_assign(
        key,
        std::make_pair(
            storage != nullptr
                ? WeakStorage(
                      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage))
                : WeakStorage(c10::intrusive_ptr<c10::StorageImpl>()),
            memory));
  }
}

int32_t Recipes::refer(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return kUndefined;
  }
  const auto known = find(tensor);
  if (known.number == kUndefined) {
    return give(tensor);
  }
  if (known.is_value && tensor.requires_grad()) {
    values_[known.number].requires_grad = true;
  }
  return known.number;
}

std::unique_ptr<Recipes::Step> Recipes::before(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    const torch::jit::Stack& stack) {
  const size_t base = stack.size() - info.arguments;
  for (const auto i : info.tensors) {
    bool followed = true;
    each_tensor(stack[base + i], [&](const at::Tensor& tensor) {
      followed = followed && (!tensor.defined() || memory_of(tensor) != 0);
    });
    if (!followed) {
      return nullptr;
    }
  }
  auto step = std::make_unique<Step>(op);
  step->is_view = info.is_view;
  step->device = device_of(info, stack);
  step->blank = op.schema().name() == "aten::empty_like";
  const bool copies = writes_statistics(op);
  at::Generator generator;
  for (size_t i = base; i < stack.size(); ++i) {
    const auto& argument = stack[i];
    if (argument.isGenerator()) {
      generator = argument.toGenerator();
    }
    const auto number = static_cast<uint32_t>(i - base);
    if (std::find(info.tensors.begin(), info.tensors.end(), number) ==
        info.tensors.end()) {
      step->arguments.push_back(argument);
      continue;
    }
    const bool writes =
        std::find(info.writes.begin(), info.writes.end(), number) != info.writes.end();
    each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.defined() && writes && copies) {
        Given own;
        own.tensor = tensor.clone();
        own.own = true;
        given_.push_back(std::move(own));
        step->inputs.push_back(kFirstGiven - static_cast<int32_t>(given_.size() - 1));
        return;
      }
      const int32_t reference = refer(tensor);
      step->inputs.push_back(reference);
      if (tensor.defined() && writes) {
        if (is_value(reference)) {
          values_[reference].blank = false;
        }
        step->written.push_back(tensor);
        step->memory_of_written.push_back(memory_of(tensor));
      }
    });
    step->arguments.push_back(without_tensors(argument));
  }
  if (step->is_view && !step->inputs.empty()) {
    const int32_t first = step->inputs.front();
    if (is_value(first)) {
      step->memory_of_first = values_[first].memory;
    } else if (is_given(first)) {
      const auto found = in_memory_.find(memory_of(given(first)));
      if (found != in_memory_.end()) {
        step->memory_of_first = found->second.second;
      }
    }
  }
  if (info.draws || generator.defined()) {
    step->random.emplace(step->device, generator);
  }
  return step;
}

bool Recipes::after(
    std::unique_ptr<Step> step,
    const OperatorInfo& info,
    const torch::jit::Stack& stack) {
  const size_t base = stack.size() - info.results;
  bool followed = true;
  size_t tensors = 0;
  for (size_t i = base; i < stack.size(); ++i) {
    each_tensor(stack[i], [&](const at::Tensor& tensor) {
      ++tensors;
      followed = followed && (!tensor.defined() || memory_of(tensor) != 0);
    });
  }
  // What has become of a written tensor's memory is not followed.
  for (size_t i = 0; i < step->written.size(); ++i) {
    followed =
        followed && memory_of(step->written[i]) == step->memory_of_written[i];
  }
  step->written.clear();
  if (!followed || tensors == 0) {
    return false;
  }
  for (size_t i = base; i < stack.size(); ++i) {
    each_tensor(stack[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) {
        step->outputs.push_back(kUndefined);
        return;
      }
      const auto known = find(tensor);
      if (known.number != kUndefined) {
        step->outputs.push_back(known.number);
        return;
      }
      Value value;
      value.blank = step->blank;
      const auto found = in_memory_.find(memory_of(tensor));
      if (step->is_view && step->memory_of_first) {
        value.memory = *step->memory_of_first;
      } else if (found != in_memory_.end()) {
        value.memory = found->second.second;
      } else {
        value.memory = static_cast<uint32_t>(memories_.size());
        memories_.emplace_back();
      }
      settle_memory(value.memory, tensor);
      const auto number = static_cast<int32_t>(values_.size());
      values_.push_back(std::move(value));
      numbers_.insert_or_assign(
          tensor.unsafeGetTensorImpl(),
          std::make_pair(WeakTensor(tensor.getIntrusivePtr()), number));
      step->outputs.push_back(number);
    });
  }
  steps_.push_back(std::move(step));
  return true;
}

bool Recipes::is_blank(const at::Tensor& tensor) const {
  const auto known = find(tensor);
  return known.is_value && values_[known.number].blank;
}

void Recipes::forget_blank(const at::Tensor& tensor) {
  const auto known = find(tensor);
  values_[known.number].blank = false;
  numbers_.erase(tensor.unsafeGetTensorImpl());
  in_memory_.erase(memory_of(tensor));
}

void Recipes::save(int32_t number, const at::Tensor& tensor) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Value& value = values_[number];
  if (!value.held.defined()) {
    value.held = tensor.tensor_data();
  }
  value.saved = true;
  ++value.holders;
}

at::Tensor Recipes::unsave(int32_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Value& value = values_[number];
  const auto held = value.held;
  if (--value.holders == 0) {
    value.held.reset();
    value.saved = false;
  }
  return held;
}

void Recipes::release(int32_t number) {
  at::Tensor freed; // behind the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  Value& value = values_[number];
  if (--value.holders == 0) {
    freed = std::move(value.held);
    value.held.reset();
  }
}

void Recipes::keep() {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_ = State::kDone;
  steps_.clear();
  given_.clear();
  numbers_.clear();
  in_memory_.clear();
}

/// Of all steps those that what was saved depends on, from the last one back: those that
/// make a tensor that is needed, and those that write memory of one.
void Recipes::choose_needed() {
  const auto need = [&](int32_t number) {
    values_[number].needed = true;
    memories_[values_[number].memory].needed = true;
  };
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].saved) {
      need(static_cast<int32_t>(i));
    }
  }
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    auto& one = **step;
    one.needed = std::any_of(
        one.outputs.begin(), one.outputs.end(), [&](int32_t output) {
          if (!is_value(output)) {
            return false;
          }
          const auto& memory = memories_[values_[output].memory];
          return values_[output].needed || (memory.needed && !memory.given);
        });
    if (one.needed) {
      for (const int32_t input : one.inputs) {
        if (is_value(input)) {
          need(input);
        }
      }
    }
  }
}

void Recipes::close() {
  std::vector<at::Tensor> freed;
  const std::lock_guard<std::mutex> lock(mutex_);
  choose_needed();
  steps_.erase(
      std::remove_if(
          steps_.begin(), steps_.end(),
          [](const std::unique_ptr<Step>& step) { return !step->needed; }),
      steps_.end());
  std::vector<char> used(given_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto now = static_cast<uint32_t>(i);
    for (const int32_t input : steps_[i]->inputs) {
      if (is_given(input)) {
        used[kFirstGiven - input] = 1;
      } else if (is_value(input)) {
        values_[input].last_use = now;
      }
    }
    for (const int32_t output : steps_[i]->outputs) {
      if (is_value(output)) {
        values_[output].last_use = std::max(values_[output].last_use, now);
      }
    }
  }
  for (size_t i = 0; i < given_.size(); ++i) {
    if (!used[i]) {
      freed.push_back(std::move(given_[i].tensor));
    }
  }
  for (auto& value : values_) {
    if (value.held.defined()) {
      freed.push_back(std::move(value.held));
      value.held.reset();
    }
  }
  // Tensors are looked up no more; memory that was given is.
  numbers_.clear();
  in_memory_.clear();
  for (const auto& given : given_) {
    if (given.tensor.defined() && !given.own) {
      settle_memory(0, given.tensor);
    }
  }
  memories_.assign(1, Memory{/*given=*/true});
  state_ = State::kClosed;
}

void Recipes::make_all() {
  const InsideGuard inside;
  // Autograd's part is done, and casts are recipes of their own. The kernel is chosen by
  // whether gradients are needed.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::AutoGradMode gradients(true);
  for (const auto& given : given_) {
    TORCH_CHECK(
        !given.tensor.defined() || given.own || given.tensor.is_inference() ||
            accel::detail::version_of(given.tensor) == given.version,
        "accel: one of the tensors needed to compute activations again has been modified "
        "by an inplace operation: [", given.tensor.toString(), " ", given.tensor.sizes(),
        "] is at version ", accel::detail::version_of(given.tensor),
        "; expected version ", given.version,
        " instead. Change parameters behind backward (with activation_checkpointing "
        "forward needs them again), or leave activation_checkpointing out.");
  }
  std::vector<at::Tensor> made(values_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = *steps_[i];
    torch::jit::Stack stack = step.arguments;
    size_t next = 0;
    const auto input = [&]() -> at::Tensor {
      const int32_t reference = step.inputs[next++];
      if (is_value(reference)) {
        auto& tensor = made[reference];
        if (values_[reference].requires_grad && !tensor.requires_grad() &&
            (at::isFloatingType(tensor.scalar_type()) ||
             at::isComplexType(tensor.scalar_type()))) {
          tensor.set_requires_grad(true);
        }
        return tensor;
      }
      if (!is_given(reference)) {
        return {};
      }
      const auto& own = given_[kFirstGiven - reference];
      return own.own ? own.tensor.clone() : own.tensor;
    };
    for (size_t a = 0; a < stack.size(); ++a) {
      exchange_tensors(stack[a], input);
    }
    {
      std::optional<accel::detail::RandomReplay> replay;
      if (step.random) {
        replay.emplace(*step.random, step.device);
      }
      step.op.callBoxed(stack);
    }
    size_t number = 0;
    for (const auto& result : stack) {
      each_tensor(result, [&](const at::Tensor& tensor) {
        const int32_t output = step.outputs[number++];
        if (is_value(output)) {
          made[output] = tensor;
          if (values_[output].saved) {
            values_[output].held = tensor;
          }
        }
      });
    }
    stack.clear();
    const auto drop = [&](int32_t reference) {
      if (is_value(reference) && values_[reference].last_use <= i) {
        made[reference].reset();
      }
    };
    std::for_each(step.inputs.begin(), step.inputs.end(), drop);
    std::for_each(step.outputs.begin(), step.outputs.end(), drop);
  }
}

void Recipes::make_again() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ != State::kClosed) {
    return;
  }
  make_all();
  state_ = State::kDone;
  steps_.clear();
  given_.clear();
  in_memory_.clear();
  for (auto& value : values_) {
    if (value.holders == 0) {
      value.held.reset();
    }
  }
}

at::Tensor Recipes::value(int32_t number) {
  make_again();
  const std::lock_guard<std::mutex> lock(mutex_);
  return values_[number].held;
}

} // namespace accel::distributed
