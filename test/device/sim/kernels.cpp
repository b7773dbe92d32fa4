// Operators on devices: the CPU's kernels, later.

#include "allocator.h"
#include "generator.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <unordered_set>

namespace accel::sim {
namespace {

using at::Tensor;
using torch::jit::Stack;

std::atomic<uint64_t> waited{0};

bool on_device(const Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kSim;
}

/// The same memory of the host without owning it.
Tensor borrowed(const Tensor& tensor, void* base) {
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

} // namespace

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

/// What CPU kernels are called with: no autograd, no other keys.
struct KernelMode {
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

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
    if (is_view()) {
      view();
    } else if (!later()) {
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
      return !tensor.defined()   ? tensor
          : on_device(tensor) ? kernel_view(tensor)
                              : tensor.clone();
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
    return converted(
        c10::kMeta,
        [](const Tensor& tensor) {
          return tensor.defined() ? like(tensor, c10::kMeta) : tensor;
        },
        [](const c10::IValue&) { return c10::IValue(); });
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
    // Results that the caller has made may have any size yet.
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (writes(arguments_[i]) && arguments_[i].kwarg_only() &&
          argument(i).isTensor()) {
        stack[i] = at::empty({0}, argument(i).toTensor().options().device(at::kCPU));
      }
    }
    const Stack given = stack;
    {
      const InKernel note(name());
      redispatch(op_, c10::DispatchKey::CPU, stack);
    }
    const auto to_device = [&](const Tensor& result) {
      if (!result.defined()) {
        return result;
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
        if (arguments_[static_cast<size_t>(written)].kwarg_only() && value.isTensor()) {
          const auto& made = given[static_cast<size_t>(written)].toTensor();
          resize(value.toTensor(), made.sizes());
          fill(value.toTensor(), made);
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
  Queue* stream_ = nullptr;
};

void fallback(const c10::OperatorHandle& op, Stack* stack) {
  Call(op, stack).run();
}

// ==== What has no kernel of the CPU's, or looks at memory

Tensor empty_memory_format(
    c10::IntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    std::optional<c10::MemoryFormat> format) {
  TORCH_CHECK(
      c10::layout_or_default(layout) == c10::kStrided &&
          !c10::pinned_memory_or_default(pin_memory),
      "sim: only dense tensors lie on devices, and only the CPU's are pinned");
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(
      size,
      &device_allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype),
      format);
}

Tensor empty_strided(
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> /*layout*/,
    std::optional<c10::Device> device,
    std::optional<bool> /*pin_memory*/) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_strided_generic(
      size,
      stride,
      &device_allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype));
}

const Tensor& resize_(
    const Tensor& self,
    c10::IntArrayRef size,
    std::optional<c10::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  if (format && *format != c10::MemoryFormat::Preserve) {
    impl->empty_tensor_restride(*format);
  }
  const auto bytes =
      static_cast<size_t>(self.storage_offset() + self.numel()) * self.itemsize();
  if (bytes > self.storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(
        self.storage(), bytes);
  }
  return self;
}

Tensor& set_storage_offset_(
    Tensor& self,
    c10::Storage storage,
    int64_t offset,
    c10::IntArrayRef size,
    c10::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  std::vector<int64_t> strides = stride.vec();
  if (strides.empty()) {
    strides.resize(size.size());
    int64_t next = 1;
    for (size_t i = size.size(); i-- > 0;) {
      strides[i] = next;
      next *= std::max<int64_t>(size[i], 1);
    }
  }
  impl->set_sizes_and_strides(size, strides, offset);
  return self;
}

Tensor& set_storage_(Tensor& self, c10::Storage storage) {
  const auto size = static_cast<int64_t>(storage.nbytes() / self.itemsize());
  return set_storage_offset_(self, std::move(storage), 0, {size}, {1});
}

Tensor& set_tensor_(Tensor& self, const Tensor& source) {
  return set_storage_offset_(
      self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor host_view(const Tensor& tensor) {
  return borrowed(tensor, tensor.storage().mutable_data());
}

Tensor copy_from(const Tensor& self, const Tensor& target, bool non_blocking) {
  const auto copy = [](const Tensor& from, const Tensor& to) {
    return [from, to]() mutable {
      const KernelMode mode;
      to.copy_(from);
    };
  };
  if (on_device(self) && on_device(target)) {
    auto& from = queue(current_stream(self.device().index()));
    auto& to = queue(current_stream(target.device().index()));
    check_device(self.device().index());
    check_device(target.device().index());
    order(to, to.given(), from);
    const auto number =
        from.push("copy_", copy(kernel_view(self), kernel_view(target)));
    order(from, number, to);
  } else if (on_device(target)) {
    const auto stream = current_stream(target.device().index());
    check_device(target.device().index());
    if (non_blocking && self.is_pinned()) {
      queue(stream).push(
          "copy_", copy(host_view(self), kernel_view(target)), /*late=*/true);
      note_use_of_pinned(self.storage().data(), stream);
    } else {
      // The driver copies what is not pinned before it returns.
      queue(stream).push("copy_", copy(self.clone(), kernel_view(target)));
    }
  } else {
    const auto stream = current_stream(self.device().index());
    check_device(self.device().index());
    const bool late = non_blocking && target.is_pinned();
    const auto number = queue(stream).push(
        "copy_", copy(kernel_view(self), host_view(target)), late);
    if (late) {
      note_use_of_pinned(target.storage().data(), stream);
    } else {
      queue(stream).wait(number);
      check_device(self.device().index());
    }
  }
  return target;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& target) {
  target.resize_(self.sizes());
  return copy_from(self, target, false);
}

at::Scalar local_scalar_dense(const Tensor& self) {
  synchronize(current_stream(self.device().index()));
  return kernel_view(self).item();
}

void record_stream(Tensor& self, c10::Stream stream) {
  device_allocator().recordStream(self.storage().data_ptr(), stream);
}

std::tuple<Tensor, Tensor> native_dropout(
    const Tensor& input,
    double p,
    std::optional<bool> train) {
  if (train && !*train) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  const auto mask =
      at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - p);
  return {input * mask * (p == 1 ? 0. : 1 / (1 - p)), mask};
}

Tensor native_dropout_backward(const Tensor& grad, const Tensor& mask, double scale) {
  return grad * mask * scale;
}

// The cells of LSTM and GRU, which LibTorch takes for devices.

std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& cx,
    const std::optional<Tensor>& input_bias,
    const std::optional<Tensor>& hidden_bias) {
  auto gates = input_gates + hidden_gates;
  if (input_bias && input_bias->defined()) {
    gates = gates + *input_bias + *hidden_bias;
  }
  const auto parts = gates.chunk(4, 1);
  const auto in = parts[0].sigmoid();
  const auto forget = parts[1].sigmoid();
  const auto cell = parts[2].tanh();
  const auto out = parts[3].sigmoid();
  const auto cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const std::optional<Tensor>& grad_hy,
    const std::optional<Tensor>& grad_cy,
    const Tensor& cx,
    const Tensor& cy,
    const Tensor& workspace,
    bool has_bias) {
  const bool has_hy = grad_hy && grad_hy->defined();
  const bool has_cy = grad_cy && grad_cy->defined();
  if (!has_hy && !has_cy) {
    return {};
  }
  const auto parts = workspace.chunk(4, 1);
  const auto& in = parts[0];
  const auto& forget = parts[1];
  const auto& cell = parts[2];
  const auto& out = parts[3];
  const auto tanh = cy.tanh();
  const auto hy = has_hy ? *grad_hy : at::zeros_like(cx);
  auto state = hy * out * (1 - tanh * tanh);
  if (has_cy) {
    state = state + *grad_cy;
  }
  const auto gates = at::cat(
      {state * cell * in * (1 - in),
       state * cx * forget * (1 - forget),
       state * in * (1 - cell * cell),
       hy * tanh * out * (1 - out)},
      1);
  return {gates, state * forget, has_bias ? gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& hx,
    const std::optional<Tensor>& input_bias,
    const std::optional<Tensor>& hidden_bias) {
  const bool biased = input_bias && input_bias->defined();
  const auto in = (biased ? input_gates + *input_bias : input_gates).chunk(3, 1);
  const auto hidden =
      (biased ? hidden_gates + *hidden_bias : hidden_gates).chunk(3, 1);
  const auto reset = (in[0] + hidden[0]).sigmoid();
  const auto keep = (in[1] + hidden[1]).sigmoid();
  const auto fresh = (in[2] + reset * hidden[2]).tanh();
  return {
      fresh + keep * (hx - fresh),
      at::cat({reset, keep, fresh, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad, const Tensor& workspace, bool has_bias) {
  const auto parts = workspace.chunk(5, 1);
  const auto& reset = parts[0];
  const auto& keep = parts[1];
  const auto& fresh = parts[2];
  const auto of_fresh = grad * (1 - keep) * (1 - fresh * fresh);
  const auto of_keep = grad * (parts[3] - fresh) * keep * (1 - keep);
  const auto of_reset = of_fresh * parts[4] * reset * (1 - reset);
  const auto in = at::cat({of_reset, of_keep, of_fresh}, 1);
  const auto hidden = at::cat({of_reset, of_keep, of_fresh * reset}, 1);
  return {
      in,
      hidden,
      grad * keep,
      has_bias ? in.sum(0) : Tensor(),
      has_bias ? hidden.sum(0) : Tensor()};
}

/// `Module::to` puts a parameter's new tensor into the old one, which LibTorch
/// allows between the devices that it knows.
bool has_compatible_type(const Tensor& self, const Tensor& from) {
  return self.layout() == at::kStrided && from.layout() == at::kStrided;
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_type));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage", TORCH_FN(set_storage_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset_));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor_));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("native_dropout_backward", TORCH_FN(native_dropout_backward));
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
  // Composite operators that ask for the kind of device, and would ask for
  // another kernel than the CPU's.
  for (const char* name : {"convolution", "convolution_backward"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

} // namespace
} // namespace accel::sim
