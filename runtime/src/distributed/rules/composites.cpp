#include "distributed/rules/composites.h"

#include "core/libtorch_releases.h"
#include "distributed/collectives.h"
#include "distributed/part.h"
#include "distributed/rules/packed.h"
#include "distributed/rules/recurrent.h"
#include "distributed/sequence.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/index_select_backward_native.h>
#include <ATen/ops/layer_norm_native.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/matmul_native.h>
#include <ATen/ops/one_hot_native.h>
#include <ATen/ops/value_selecting_reduction_backward_native.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

// Composite operators run above the fallback, on the tensors as the program
// passed them. Those that read their memory are registered anew for the keys of
// autograd: for plain tensors they are LibTorch's own, for distributed ones they
// are made of operators that do not, or the tensor that is read is made whole.
// So are those that fold dimensions in a way that would gather a cut tensor, and
// those that sequence parallelism begins or ends with.

namespace accel::distributed {
namespace {

/// Of the kinds of devices that device/accelerator.h tells apart.
constexpr std::array<c10::DispatchKey, 5> kAutograd{
    c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA,
    c10::DispatchKey::AutogradXPU, c10::DispatchKey::AutogradMPS,
    c10::DispatchKey::AutogradPrivateUse1};

bool any_distributed(const torch::jit::Stack& stack, size_t arguments) {
  for (size_t i = stack.size() - arguments; i < stack.size(); ++i) {
    if (stack[i].isTensor() && stack[i].toTensor().defined() &&
        part_of(stack[i].toTensor()) != nullptr) {
      return true;
    }
  }
  return false;
}

void composite(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.callBoxedForDispatchKey(
      c10::DispatchKey::CompositeImplicitAutograd, *stack);
}

/// Without gradients LibTorch has a kernel of its own for it on the CPU, whose result
/// is in the order of its dimensions.
void max_pool1d(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!any_distributed(*stack, op.schema().arguments().size())) {
    composite(op, stack);
    return;
  }
  static const auto with_indices =
      c10::Dispatcher::singleton().findSchemaOrThrow(
          "aten::max_pool1d_with_indices", "");
  with_indices.callBoxed(*stack);
  stack->pop_back(); // the indices
  const at::Tensor result = stack->back().toTensor();
  if (result.is_cpu() && !result.requires_grad()) {
    stack->back() = result.contiguous();
  }
}

/// Operators that read their arguments `First` to `Last`: lengths, positions, or
/// (quantiles) all that they take.
template <size_t First, size_t Last>
void reads(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t arguments = op.schema().arguments().size();
  if (any_distributed(*stack, arguments)) {
    const size_t base = stack->size() - arguments;
    for (size_t i = base + First; i <= base + Last; ++i) {
      if ((*stack)[i].isTensor() && (*stack)[i].toTensor().defined()) {
        (*stack)[i] = full_tensor((*stack)[i].toTensor());
      }
    }
  }
  composite(op, stack);
}

/// `out=` forms that write into the memory of `out`, which is the last argument:
/// `kron` through a view that does not say to be one, `nanmean` with a kernel
/// that it calls itself (in LibTorch 2.7).
void computed_then_written(
    const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!any_distributed(*stack, op.schema().arguments().size())) {
    composite(op, stack);
    return;
  }
  const at::Tensor out = torch::jit::pop(*stack).toTensor();
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(op.schema().name().c_str(), "")
      .callBoxed(*stack);
  const at::Tensor result = torch::jit::pop(*stack).toTensor();
  if (out.sizes() != result.sizes()) {
    out.resize_(result.sizes());
  }
  out.copy_(result);
  stack->emplace_back(out);
}

/// The dimension along which `tensor` is cut, where that is neither the first
/// nor the last one, and no other is cut; else 0. Rows of a sequence-first
/// layout, `[time, batch, features]`, are cut so.
int64_t inner_cut(const at::Tensor& tensor) {
  int64_t cut = 0;
  at::Tensor local = tensor;
  while (const Part* part = part_of(local)) {
    if (part->placement.is_shard()) {
      const int64_t dim = part->placement.dim();
      if ((cut != 0 && cut != dim) || dim == 0 || dim + 1 == tensor.dim()) {
        return 0;
      }
      cut = dim;
    }
    local = part->local;
  }
  return cut;
}

/// Whether LibTorch copies `tensor` where it folds all dimensions but the last one
/// into rows.
bool is_copied_as_rows(const at::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  const int64_t columns = sizes.back();
  const int64_t rows = c10::multiply_integers(sizes.slice(0, sizes.size() - 1));
  return !at::detail::computeStride(sizes, tensor.strides(), Sizes{rows, columns});
}

/// LibTorch folds all dimensions but the last one into rows, and a cut that is
/// not along the first of them would be lost. So that one comes first, in what
/// `product` is given. Called for every product of a program, plain ones too:
/// not boxed, and nothing is done unless the input is cut so.
template <typename Product>
at::Tensor rows_times_matrix(
    const at::Tensor& input, const at::Tensor& matrix, const Product& product) {
  const int64_t cut =
      input.dim() > 2 && matrix.dim() <= 2 && part_of(input) != nullptr
      ? inner_cut(input)
      : 0;
  if (cut == 0) {
    return product(input);
  }
  auto rows = input.transpose(0, cut);
  if (is_copied_as_rows(input) && !is_copied_as_rows(rows)) {
    // What autograd keeps is a copy, as it is there: the program may write into
    // `input` before backward.
    rows = rows.clone();
  }
  const auto result = product(rows).transpose(0, cut);
  return has_usual_strides(result) ? result
                                   : result.clone(at::MemoryFormat::Contiguous);
}

/// With sequence parallelism, of a weight that is cut along its axis: nothing where
/// there is none.
std::optional<at::Tensor> linear_beside_positions(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias) {
  if (C10_LIKELY(SequenceParallel::get().axis() == nullptr) ||
      input.dim() < 3 || weight.dim() != 2) {
    return {};
  }
  const auto place = place_along_sequence_axis(weight);
  if (place.is_shard(0)) {
    // The input is gathered in the order that it has (or the weight is).
    return at::native::linear(input, weight, bias);
  }
  if (!place.is_shard(1)) {
    return {};
  }
  // Positions of the sum, and the bias of these.
  auto sum = rows_times_matrix(input, weight, [&](const at::Tensor& rows) {
    return at::native::linear(rows, weight, {});
  });
  if (place_along_sequence_axis(sum).is_sum()) {
    sum = in_positions(sum);
  }
  return bias && bias->defined() ? sum + *bias : sum;
}

at::Tensor linear(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias) {
  if (auto result = linear_beside_positions(input, weight, bias)) {
    return std::move(*result);
  }
  return rows_times_matrix(input, weight, [&](const at::Tensor& rows) {
    return at::native::linear(rows, weight, bias);
  });
}

at::Tensor matmul(const at::Tensor& input, const at::Tensor& other) {
  return rows_times_matrix(input, other, [&](const at::Tensor& rows) {
    return at::native::matmul(rows, other);
  });
}

/// The input of a norm of which sequence parallelism says that it takes positions.
bool takes_positions(
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias) {
  const auto& sequence = SequenceParallel::get();
  return C10_UNLIKELY(sequence.axis() != nullptr) &&
      ((weight && sequence.has(*weight)) || (bias && sequence.has(*bias)));
}

at::Tensor layer_norm(
    const at::Tensor& input,
    c10::SymIntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    double eps,
    bool cudnn_enable) {
  return at::native::layer_norm_symint(
      takes_positions(weight, bias) ? in_positions(input) : input,
      normalized_shape, weight, bias, eps, cudnn_enable);
}

/// `(input, normalized_shape, weight, eps)`.
void rms_norm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t base = stack->size() - op.schema().arguments().size();
  if (takes_positions((*stack)[base + 2].toOptional<at::Tensor>(), {})) {
    (*stack)[base] = in_positions((*stack)[base].toTensor());
  }
  composite(op, stack);
}

/// A state that is plain, `[layers, batch, features]`, cut as the samples of
/// `input` are.
at::Tensor cut_as_samples(
    const at::Tensor& state, const at::Tensor& input, int64_t samples) {
  if (!state.defined() || part_of(state) != nullptr || state.dim() != 3 ||
      state.size(1) != input.size(samples)) {
    return state;
  }
  std::vector<Placement> places = placements(input);
  for (auto& place : places) {
    place = place.is_shard(samples) ? Shard(1) : Replicate();
  }
  return distribute_tensor(state, mesh(input), places);
}

/// The input of a recurrent layer with its samples cut where its steps are: a step
/// needs the one before it, and nobody else's samples.
at::Tensor samples_for_steps(const at::Tensor& input, int64_t samples) {
  std::vector<Placement> places = placements(input);
  Placement* steps = nullptr;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].is_shard(samples)) {
      return input;
    }
    if (places[i].is_shard(1 - samples) && steps == nullptr &&
        input.size(samples) >= mesh(input).size(static_cast<int64_t>(i))) {
      steps = &places[i];
    }
  }
  if (steps == nullptr) {
    return input;
  }
  for (auto& place : places) {
    if (place.is_shard()) {
      place = Shard(place.dim()); // A cut of its own is one of the rows that were there.
    }
  }
  *steps = Shard(samples);
  return redistribute(input, places);
}

/// A tensor, or a list of them.
void make_whole(c10::IValue& value) {
  if (value.isTensor()) {
    value = full_tensor(value.toTensor());
    return;
  }
  auto list = value.toTensorVector();
  for (auto& tensor : list) {
    tensor = full_tensor(tensor);
  }
  value = std::move(list);
}

/// Makes the weights of a recurrent layer, a list, whole where the layer looks at
/// where they lie in memory: on all devices but the CPU.
void make_weights_whole(const at::Tensor& input, c10::IValue& weights) {
  if (!input.is_cpu()) {
    make_whole(weights);
  }
}

/// What is made of all samples again, cut as they were before they were packed. Its
/// gradient is made whole at once: the steps of the layer, which ran whole, need it all.
void cut_again(c10::IValue& value, Axis* axis, int64_t samples) {
  const at::Tensor whole = value.toTensor();
  if (axis != nullptr && whole.defined() && part_of(whole) == nullptr) {
    if (whole.requires_grad()) {
      whole.register_hook(
          [](const at::Tensor& gradient) { return full_tensor(gradient); });
    }
    value = distribute_tensor(whole, DeviceMesh({axis}), {Shard(samples)});
  }
}

/// Of packed sequences, `(data, batch_sizes, states, weights, ...)`: the rows of each
/// step are read. Where they were made of samples in parts, each process computes some
/// of the sequences. Of the results, the states of the last steps have a column for
/// each sample.
void packed_recurrent_layer(
    const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t base = stack->size() - op.schema().arguments().size();
  Axis* axis = axis_of_packed((*stack)[base + 1].toTensor());
  make_whole((*stack)[base + 2]);
  if (axis == nullptr || !run_packed_in_parts(op, stack, *axis)) {
    make_weights_whole((*stack)[base].toTensor(), (*stack)[base + 3]);
    reads<1, 1>(op, stack);
  }
  const size_t results = op.schema().returns().size();
  for (size_t i = stack->size() - results + 1; i < stack->size(); ++i) {
    cut_again((*stack)[i], axis, 1);
  }
}

/// `(data, batch_sizes, batch_first, ...)`.
void pad_packed_sequence(
    const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t base = stack->size() - op.schema().arguments().size();
  Axis* axis = axis_of_packed((*stack)[base + 1].toTensor());
  const int64_t samples = (*stack)[base + 2].toBool() ? 0 : 1;
  reads<1, 1>(op, stack);
  cut_again((*stack)[stack->size() - 2], axis, samples);
}

/// Recurrent layers, `(input, states, weights, ..., batch_first)`. LibTorch adds to the
/// first state's product in place; where the states were whole and the samples
/// are cut, the layer would go on with whole tensors.
void recurrent_layer(
    const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t base = stack->size() - op.schema().arguments().size();
  at::Tensor input = (*stack)[base].toTensor();
  if (part_of(input) != nullptr && input.dim() == 3) {
    const int64_t samples = stack->back().toBool() ? 0 : 1;
    input = samples_for_steps(input, samples);
    (*stack)[base] = input;
    auto& states = (*stack)[base + 1];
    if (states.isTensor()) {
      states = cut_as_samples(states.toTensor(), input, samples);
    } else {
      c10::List<at::Tensor> cut;
      for (const at::Tensor& state : states.toTensorVector()) {
        cut.push_back(cut_as_samples(state, input, samples));
      }
      states = std::move(cut);
    }
  }
  make_weights_whole(input, (*stack)[base + 2]);
  composite(op, stack);
}

/// LibTorch scatters ones into zeros that it makes itself, which are whole: what
/// comes of a cut tensor would be whole, too, and so would be what follows. The
/// errors are LibTorch's, and those of all processes.
at::Tensor one_hot(const at::Tensor& self, int64_t num_classes) {
  if (part_of(self) == nullptr || self.scalar_type() != at::kLong ||
      self.numel() == 0) {
    return at::native::one_hot(self, num_classes);
  }
  TORCH_CHECK(
      self.min().item<int64_t>() >= 0, "Class values must be non-negative.");
  const auto largest = self.max().item<int64_t>();
  if (num_classes == -1) {
    num_classes = largest + 1;
  }
  TORCH_CHECK(
      num_classes > largest,
      "Class values must be smaller than num_classes.");
  return self.unsqueeze(-1)
      .eq(at::arange(num_classes, self.options()))
      .to(at::kLong);
}

/// The gradient of max, min, topk, sort along `dim`. LibTorch scatters into zeros that
/// it makes itself, which are whole; here they are cut as the gradient is.
at::Tensor value_selecting_reduction_backward(
    const at::Tensor& grad,
    int64_t dim,
    const at::Tensor& indices,
    c10::SymIntArrayRef sizes,
    bool keepdim) {
  const auto plainly = [&] {
    return at::native::value_selecting_reduction_backward_symint(
        grad, dim, indices, sizes, keepdim);
  };
  if (part_of(grad) == nullptr || sizes.empty() || grad.numel() == 0) {
    return plainly();
  }
  dim = at::maybe_wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  const auto selected = keepdim ? grad : grad.unsqueeze(dim);
  const auto places = placements(selected);
  const auto is_beside = [dim](const Placement& place) {
    return place.is_replicate() || (place.is_shard() && !place.is_shard(dim));
  };
  if (!std::all_of(places.begin(), places.end(), is_beside)) {
    return plainly();
  }
  return at::zeros_like(
             selected.narrow(dim, 0, 1).expand_symint(sizes),
             at::MemoryFormat::Contiguous)
      .scatter(dim, keepdim ? indices : indices.unsqueeze(dim), selected);
}

/// The gradient of rows that an index names along `dim`. LibTorch adds to zeros in
/// place, which stay whole; so that a process adds its rows alone, it is done out of
/// place.
at::Tensor index_select_backward(
    const at::Tensor& grad,
    c10::SymIntArrayRef sizes,
    int64_t dim,
    const at::Tensor& index) {
  const Part* part = part_of(grad);
  if (part == nullptr || sizes.empty() ||
      !part->placement.is_shard(
          at::maybe_wrap_dim(dim, static_cast<int64_t>(sizes.size())))) {
    return at::native::index_select_backward_symint(grad, sizes, dim, index);
  }
  return at::zeros_symint(sizes, grad.options()).index_add(dim, index, grad);
}

template <void (*kernel)(const c10::OperatorHandle&, torch::jit::Stack*)>
void add(torch::Library& library, const char* op) {
  for (const auto key : kAutograd) {
    library.impl(
        op,
        torch::dispatch(key, torch::CppFunction::makeFromBoxedFunction<kernel>()));
  }
}

} // namespace

void install_composites() {
  static torch::Library* const library = [] {
    auto* made = new torch::Library(
        torch::Library::IMPL, "aten", std::nullopt, __FILE__, __LINE__);
    add<max_pool1d>(*made, "max_pool1d");
    add<reads<1, 1>>(*made, "tensor_split.tensor_indices_or_sections");
    add<reads<2, 3>>(*made, "ctc_loss.Tensor");
    add<pad_packed_sequence>(*made, "_pad_packed_sequence");
    add<packed_recurrent_layer>(*made, "lstm.data");
    add<packed_recurrent_layer>(*made, "gru.data");
    add<packed_recurrent_layer>(*made, "rnn_tanh.data");
    add<packed_recurrent_layer>(*made, "rnn_relu.data");
    if (accel::detail::quantile_reads_memory()) {
      for (const char* op :
           {"quantile", "quantile.out", "quantile.scalar", "quantile.scalar_out",
            "nanquantile", "nanquantile.out", "nanquantile.scalar",
            "nanquantile.scalar_out"}) {
        add<reads<0, 1>>(*made, op);
      }
    }
    add<computed_then_written>(*made, "kron.out");
    add<computed_then_written>(*made, "nanmean.out");
    add<recurrent_layer>(*made, "lstm.input");
    add<recurrent_layer>(*made, "gru.input");
    add<recurrent_layer>(*made, "rnn_tanh.input");
    add<recurrent_layer>(*made, "rnn_relu.input");
    add<rms_norm>(*made, "rms_norm");
    for (const auto key : kAutograd) {
      made->impl("linear", torch::dispatch(key, TORCH_FN(linear)));
      made->impl("matmul", torch::dispatch(key, TORCH_FN(matmul)));
      made->impl("one_hot", torch::dispatch(key, TORCH_FN(one_hot)));
      made->impl(
          "index_select_backward",
          torch::dispatch(key, TORCH_FN(index_select_backward)));
      made->impl(
          "value_selecting_reduction_backward",
          torch::dispatch(key, TORCH_FN(value_selecting_reduction_backward)));
      made->impl("layer_norm", torch::dispatch(key, TORCH_FN(layer_norm)));
    }
    return made;
  }();
  (void)library;
}

} // namespace accel::distributed
