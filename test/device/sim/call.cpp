// Any operator on a device: the CPU's kernel, later.

#include "allocator.h"
#include "generator.h"
#include "kernels.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_set>

namespace accel::sim {
namespace {

using at::Tensor;
using torch::jit::Stack;

std::atomic<uint64_t> waited{0};

} // namespace

Tensor borrowed(const Tensor& tensor, void* base) {
  // Threads of other modes write in it.
  const c10::InferenceMode as_usual(false);
  auto storage = c10::Storage(
      c10::Storage::use_byte_size_t(),
      tensor.storage().nbytes(),
      c10::DataPtr(base, c10::kCPU),
      /*allocator=*/nullptr,
      /*resizable=*/false);
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(c10::DispatchKey::CPU),
      tensor.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(
      tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) {
    result._set_conj(true);
  }
  if (tensor.is_neg()) {
    result._set_neg(true);
  }
  return result;
}

Tensor kernel_view(const Tensor& tensor) {
  return borrowed(
      tensor, kernel_address(tensor.storage().unsafeGetStorageImpl()->data()));
}

uint64_t calls_that_waited() {
  return waited;
}

namespace {

Tensor like(const Tensor& shape, c10::Device device) {
  return at::empty_strided(
      shape.sizes(), shape.strides(), at::TensorOptions(shape.dtype()).device(device));
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// Runs the kernel of another key on the arguments, which become its results.
void redispatch(const c10::OperatorHandle& op, c10::DispatchKey key, Stack& stack) {
  const KernelMode mode;
  // LibTorch drops the arguments before it takes the results, which may be
  // references to them.
  const Stack kept = stack;
  op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
}

/// One call of an operator.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack)
      : op_(op),
        stack_(stack),
        arguments_(op.schema().arguments()),
        returns_(op.schema().returns()),
        begin_(stack->size() - arguments_.size()) {}

  void run() {
    find_device();
    const c10::DeviceGuard guard(device_);
    check_device(device_.index());
    stream_ = &queue(current_stream(device_.index()));
    if (key_ == c10::DispatchKey::CPU && is_view()) {
      view();
    } else if (key_ != c10::DispatchKey::CPU || !later()) {
      now();
    }
  }

 private:
  const char* name() const {
    return op_.schema().name().c_str();
  }

  /// Of all tensors, one; those of the host have no dimensions or are indices.
  void find_device() {
    std::optional<c10::Device> found;
    std::optional<c10::Device> other;
    const auto look = [&](const Tensor& tensor, bool indices) {
      if (on_device(tensor)) {
        key_ = std::max(key_, host_key(tensor));
        if (found && *found != tensor.device()) {
          other = tensor.device();
        }
        found = found ? found : tensor.device();
      } else if (tensor.defined() && tensor.dim() > 0 && !indices) {
        other = tensor.device();
      }
    };
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const auto& value = argument(i);
      if (value.isTensor()) {
        look(value.toTensor(), false);
      } else if (value.isTensorList()) {
        for (const Tensor& tensor : value.toTensorVector()) {
          look(tensor, false);
        }
      } else if (value.isOptionalTensorList()) {
        for (const std::optional<Tensor>& tensor : value.toOptionalTensorVector()) {
          look(tensor.value_or(Tensor()), true);
        }
      } else if (value.isDevice() && value.toDevice().type() == kSim) {
        found = found ? found : value.toDevice();
      } else if (value.isGenerator() && value.toGenerator().device().type() == kSim) {
        found = found ? found : value.toGenerator().device();
      }
    }
    TORCH_CHECK(
        !other || !found,
        "Expected all tensors to be on the same device, but found at least two "
        "devices, ",
        *found,
        " and ",
        *other,
        "! (in operator ",
        op_.operator_name(),
        ")");
    device_ = found.value_or(sim::device(current_device()));
    if (!device_.has_index()) {
      device_.set_index(current_device());
    }
  }

  const c10::IValue& argument(size_t i) const {
    return (*stack_)[begin_ + i];
  }

  bool is_view() const {
    for (const auto& result : returns_) {
      if (result.alias_info() != nullptr && !writes(result)) {
        return true;
      }
    }
    return false;
  }

  /// What a CPU kernel is given: tensors over the memory, values of the host's.
  Stack for_kernel(bool with_generator = true) {
    const auto convert = [](const Tensor& tensor) {
      return !tensor.defined()      ? tensor
          : !on_device(tensor) ? tensor.clone()
          : is_dense(tensor)   ? kernel_view(tensor)
                               : layout_view(tensor);
    };
    return converted(c10::kCPU, convert, [&](const c10::IValue& value) {
      return !with_generator ? value
                             : c10::IValue(draw(
                                   value.isGenerator()
                                       ? value.toGenerator()
                                       : default_generator(device_.index())));
    });
  }

  bool draws(size_t i) const {
    auto type = arguments_[i].type();
    if (const auto optional = type->cast<c10::OptionalType>()) {
      type = optional->getElementType();
    }
    return type->kind() == c10::TypeKind::GeneratorType;
  }

  Stack for_shapes() const {
    auto stack = converted(
        c10::kMeta,
        [](const Tensor& tensor) {
          return tensor.defined() ? like(tensor, c10::kMeta) : tensor;
        },
        [](const c10::IValue&) { return c10::IValue(); });
    // Results that the caller has made may have any size yet.
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (writes(arguments_[i]) && arguments_[i].kwarg_only() &&
          argument(i).isTensor()) {
        stack[i] = at::empty({0}, argument(i).toTensor().options().device(c10::kMeta));
      }
    }
    return stack;
  }

  /// The arguments with `tensor(t)` for each tensor, a list's too, this device for
  /// every device, and `generator(value)` where a generator is asked for.
  template <typename OfTensor, typename OfGenerator>
  Stack converted(
      c10::DeviceType device,
      const OfTensor& tensor,
      const OfGenerator& generator) const {
    Stack result;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const auto& value = argument(i);
      if (value.isTensor()) {
        result.emplace_back(tensor(value.toTensor()));
      } else if (value.isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor& one : value.toTensorVector()) {
          list.push_back(tensor(one));
        }
        result.emplace_back(std::move(list));
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<Tensor>> list;
        for (const std::optional<Tensor>& one : value.toOptionalTensorVector()) {
          list.push_back(
              one ? std::optional<Tensor>(tensor(*one)) : std::nullopt);
        }
        result.emplace_back(std::move(list));
      } else if (value.isDevice()) {
        result.emplace_back(c10::Device(device));
      } else if (draws(i)) {
        result.push_back(generator(value));
      } else {
        result.push_back(value);
      }
    }
    return result;
  }

  /// Looks at no value: the CPU's kernel is asked for the geometry.
  void view() {
    Stack stack = for_kernel();
    redispatch(op_, c10::DispatchKey::CPU, stack);
    const auto back = [&](const Tensor& result) {
      const auto& base = argument(0).toTensor();
      TORCH_CHECK(
          result.storage().unsafeGetStorageImpl()->data() ==
              kernel_address(base.storage().unsafeGetStorageImpl()->data()),
          "sim: ",
          name(),
          " made no view");
      auto made = at::detail::make_tensor<c10::TensorImpl>(
          c10::TensorImpl::VIEW,
          c10::Storage(base.storage()),
          base.key_set(),
          result.dtype());
      made.unsafeGetTensorImpl()->set_sizes_and_strides(
          result.sizes(), result.strides(), result.storage_offset());
      return made;
    };
    Stack results;
    for (auto& result : stack) {
      if (result.isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor& tensor : result.toTensorVector()) {
          list.push_back(back(tensor));
        }
        results.emplace_back(std::move(list));
      } else {
        results.emplace_back(back(result.toTensor()));
      }
    }
    finish(std::move(results));
  }

  /// Told so, which LibTorch's meta kernels do not look at.
  bool has_sparse_results() const {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i].name() == "sparse" && argument(i).isBool() &&
          argument(i).toBool()) {
        return true;
      }
    }
    return false;
  }

  /// The argument that a result is, or -1.
  int written_by(const c10::Argument& result) const {
    if (writes(result)) {
      for (size_t i = 0; i < arguments_.size(); ++i) {
        if (arguments_[i].alias_info() != nullptr &&
            *arguments_[i].alias_info() == *result.alias_info()) {
          return static_cast<int>(i);
        }
      }
    }
    return -1;
  }

  static void resize(const Tensor& tensor, c10::IntArrayRef sizes) {
    if (tensor.sizes() != sizes) {
      tensor.resize_(sizes);
    }
  }

  /// Gives the kernel to the stream, where the sizes of results are known.
  bool later() {
    bool fresh = false;
    for (const auto& result : returns_) {
      if (written_by(result) < 0) {
        fresh = true;
        const auto kind = result.type()->kind();
        if (kind != c10::TypeKind::TensorType &&
            !(kind == c10::TypeKind::ListType &&
              result.type()->castRaw<c10::ListType>()->getElementType()->kind() ==
                  c10::TypeKind::TensorType)) {
          return false;
        }
      }
    }
    if (has_sparse_results()) {
      return false;
    }
    const bool in_place = !fresh && name()[std::strlen(name()) - 1] == '_';
    Stack shapes;
    if (knows_shapes()) {
      shapes = for_shapes();
      try {
        redispatch(op_, c10::DispatchKey::Meta, shapes);
      } catch (const c10::NotImplementedError&) {
        learn_no_shapes();
        if (!in_place) {
          return false;
        }
        shapes.clear();
      }
    } else if (!in_place && !returns_.empty()) {
      return false;
    }
    for (const auto& shape : shapes) {
      if (shape.isTensor() && !is_dense(shape.toTensor())) {
        return false;
      }
    }
    Stack results;
    /// What the kernel's own results are copied to.
    std::vector<std::vector<Tensor>> targets(returns_.size());
    for (size_t i = 0; i < returns_.size(); ++i) {
      const int written = written_by(returns_[i]);
      if (written >= 0) {
        const auto& value = argument(static_cast<size_t>(written));
        if (!shapes.empty() && value.isTensor() && shapes[i].toTensor().defined()) {
          resize(value.toTensor(), shapes[i].toTensor().sizes());
        }
        results.push_back(value);
      } else if (shapes[i].isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor& shape : shapes[i].toTensorVector()) {
          list.push_back(shape.defined() ? like(shape, device_) : Tensor());
          targets[i].push_back(shape.defined() ? kernel_view(list.get(list.size() - 1)) : Tensor());
        }
        results.emplace_back(std::move(list));
      } else {
        const auto shape = shapes[i].toTensor();
        const auto made = shape.defined() ? like(shape, device_) : Tensor();
        targets[i].push_back(made.defined() ? kernel_view(made) : Tensor());
        results.emplace_back(made);
      }
    }
    stream_->push(
        name(),
        [op = op_, stack = for_kernel(), targets = std::move(targets)]() mutable {
          redispatch(op, c10::DispatchKey::CPU, stack);
          const KernelMode mode;
          for (size_t i = 0; i < targets.size(); ++i) {
            for (size_t j = 0; j < targets[i].size(); ++j) {
              if (targets[i][j].defined()) {
                targets[i][j].copy_(
                    stack[i].isTensorList() ? stack[i].toTensorVector().at(j)
                                            : stack[i].toTensor());
              }
            }
          }
        });
    finish(std::move(results));
    return true;
  }

  /// Waits for the stream and runs the kernel at once; what is copied to the
  /// device comes later all the same.
  void now() {
    if (!returns_.empty()) {
      ++waited;
    }
    synchronize(current_stream(device_.index()));
    Stack stack = for_kernel();
    // Results that the caller has made may have any size yet; with sparse
    // arguments they have theirs.
    const auto is_made_by_caller = [&](size_t i) {
      return key_ == c10::DispatchKey::CPU && writes(arguments_[i]) &&
          arguments_[i].kwarg_only() && argument(i).isTensor();
    };
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (is_made_by_caller(i)) {
        stack[i] = at::empty({0}, argument(i).toTensor().options().device(at::kCPU));
      }
    }
    const Stack given = stack;
    {
      const InKernel note(name());
      redispatch(op_, key_, stack);
    }
    const std::function<Tensor(const Tensor&)> to_device = [&](const Tensor& result) {
      if (!result.defined()) {
        return result;
      }
      if (!is_dense(result)) {
        return layout_on_device(result, device_, to_device);
      }
      const auto made = like(result, device_);
      fill(made, result);
      return made;
    };
    Stack results;
    for (size_t i = 0; i < returns_.size(); ++i) {
      const int written = written_by(returns_[i]);
      if (written >= 0) {
        const auto& value = argument(static_cast<size_t>(written));
        if (is_made_by_caller(static_cast<size_t>(written))) {
          const auto& made = given[static_cast<size_t>(written)].toTensor();
          resize(value.toTensor(), made.sizes());
          fill(value.toTensor(), made);
        } else if (value.isTensor() && !is_dense(value.toTensor())) {
          replace_parts(
              value.toTensor(),
              to_device(given[static_cast<size_t>(written)].toTensor()));
        }
        results.push_back(value);
      } else if (stack[i].isTensor()) {
        results.emplace_back(to_device(stack[i].toTensor()));
      } else if (stack[i].isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor& tensor : stack[i].toTensorVector()) {
          list.push_back(to_device(tensor));
        }
        results.emplace_back(std::move(list));
      } else {
        results.push_back(stack[i]);
      }
    }
    finish(std::move(results));
  }

  void fill(const Tensor& tensor, const Tensor& values) {
    stream_->push(name(), [to = kernel_view(tensor), values]() mutable {
      const KernelMode mode;
      to.copy_(values);
    });
  }

  void finish(Stack results) {
    torch::jit::drop(*stack_, arguments_.size());
    for (auto& result : results) {
      stack_->push_back(std::move(result));
    }
  }

  static std::mutex& mutex() {
    static auto* const made = new std::mutex;
    return *made;
  }
  static std::unordered_set<c10::OperatorName>& without_shapes() {
    static auto* const made = new std::unordered_set<c10::OperatorName>;
    return *made;
  }
  bool knows_shapes() const {
    const std::lock_guard<std::mutex> lock(mutex());
    return without_shapes().count(op_.operator_name()) == 0 &&
        op_.hasKernelForDispatchKey(c10::DispatchKey::Meta);
  }
  void learn_no_shapes() const {
    const std::lock_guard<std::mutex> lock(mutex());
    without_shapes().insert(op_.operator_name());
  }

  const c10::OperatorHandle& op_;
  Stack* stack_;
  const std::vector<c10::Argument>& arguments_;
  const std::vector<c10::Argument>& returns_;
  const size_t begin_;
  c10::Device device_{kSim, 0};
  /// The host's kernels of such arguments.
  c10::DispatchKey key_ = c10::DispatchKey::CPU;
  Queue* stream_ = nullptr;
};

} // namespace

void run_on_device(const c10::OperatorHandle& op, Stack* stack) {
  Call(op, stack).run();
}

namespace {

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_device>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  // Composite operators that ask for the kind of device, and would ask for
  // another kernel than the CPU's.
  for (const char* name : {"convolution", "convolution_backward"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_device>());
  }
}

} // namespace
} // namespace accel::sim
