#include "distributed/rules/composites.h"

#include "distributed/collectives.h"
#include "distributed/part.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

// Composite operators run above the fallback, on the tensors as the program
// passed them. Those that read their memory are registered anew for the keys of
// autograd: for plain tensors they are LibTorch's own, for distributed ones they
// are made of operators that do not, or the tensor that is read is made whole.

namespace accel::distributed {
namespace {

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

/// Without gradients LibTorch has a kernel of its own for it on the CPU.
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
}

/// Operators that read their arguments `First` to `Last`, which are lengths or
/// positions.
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

/// LibTorch writes through a view of `out` that does not say to be one.
void kron_out(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t arguments = op.schema().arguments().size();
  if (!any_distributed(*stack, arguments)) {
    composite(op, stack);
    return;
  }
  const size_t base = stack->size() - arguments;
  const at::Tensor out = (*stack)[base + 2].toTensor();
  const auto result =
      at::kron((*stack)[base].toTensor(), (*stack)[base + 1].toTensor());
  if (out.sizes() != result.sizes()) {
    out.resize_(result.sizes());
  }
  out.copy_(result);
  torch::jit::drop(*stack, arguments);
  stack->emplace_back(out);
}

template <void (*kernel)(const c10::OperatorHandle&, torch::jit::Stack*)>
void add(torch::Library& library, const char* op) {
  for (const auto key :
       {c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA}) {
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
    // The rows of each step of a packed sequence.
    add<reads<1, 1>>(*made, "_pad_packed_sequence");
    add<reads<1, 1>>(*made, "lstm.data");
    add<reads<1, 1>>(*made, "gru.data");
    add<reads<1, 1>>(*made, "rnn_tanh.data");
    add<reads<1, 1>>(*made, "rnn_relu.data");
    add<kron_out>(*made, "kron.out");
    return made;
  }();
  (void)library;
}

} // namespace accel::distributed
