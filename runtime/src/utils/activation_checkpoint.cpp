#include <accel/activation_checkpoint.h>

#include <accel/autocast.h>

#include "utils/random_replay.h"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace accel::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// What the second call needs.
struct Recorded : torch::CustomClassHolder {
  Recorded(Segment segment, at::Device device)
      : segment(std::move(segment)),
        device(device),
        generators(device),
        autocast(at::autocast::is_autocast_enabled(device.type())),
        dtype(at::autocast::get_autocast_dtype(device.type())) {}

  Segment segment;
  at::Device device;
  RandomState generators;
  bool autocast;
  at::ScalarType dtype;
  size_t inputs = 0;
  /// The parameters that the function uses.
  variable_list leaves;
};

variable_list detached(const variable_list& inputs) {
  variable_list leaves;
  for (const auto& input : inputs) {
    leaves.push_back(
        input.defined() ? input.detach().set_requires_grad(input.requires_grad())
                        : input);
  }
  return leaves;
}

bool is_among(const at::Tensor& tensor, const variable_list& all) {
  return std::any_of(all.begin(), all.end(), [&](const at::Tensor& other) {
    return other.defined() && other.is_same(tensor);
  });
}

/// The leaves that outputs depend on, but for the inputs. `begin`: the number of the
/// first operator of the function.
variable_list leaves_of(
    const variable_list& outputs,
    const variable_list& inputs,
    uint64_t begin) {
  variable_list leaves;
  std::unordered_set<Node*> seen;
  std::vector<Node*> open;
  const auto visit = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) {
      open.push_back(node);
    }
  };
  for (const auto& output : outputs) {
    if (output.defined() && output.grad_fn()) {
      visit(output.grad_fn().get());
    }
  }
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
      if (!is_among(leaf->variable, inputs)) {
        leaves.push_back(leaf->variable);
      }
      continue;
    }
    TORCH_CHECK(
        node->sequence_nr() >= begin,
        "accel: the function of checkpoint_activations uses a tensor that has a "
        "graph (", node->name(), ") and is not among the inputs. Pass it as an "
        "input, or detach it.");
    for (const auto& edge : node->next_edges()) {
      visit(edge.function.get());
    }
  }
  return leaves;
}

struct Recomputed : torch::autograd::Function<Recomputed> {
  static variable_list forward(
      AutogradContext* context,
      const c10::intrusive_ptr<Recorded>& recorded,
      const variable_list* outputs,
      at::TensorList variables) {
    context->saved_data["recorded"] = c10::IValue::make_capsule(recorded);
    context->save_for_backward(
        variable_list(variables.begin(), variables.begin() + recorded->inputs));
    variable_list results;
    variable_list constant;
    for (const auto& output : *outputs) {
      results.push_back(output.detach());
      if (!output.requires_grad()) {
        constant.push_back(results.back());
      }
    }
    context->mark_non_differentiable(constant);
    return results;
  }

  static variable_list backward(
      AutogradContext* context,
      variable_list gradients) {
    const auto recorded = c10::static_intrusive_pointer_cast<Recorded>(
        context->saved_data["recorded"].toCapsule());
    const auto inputs = detached(context->get_saved_variables());
    variable_list outputs;
    {
      RandomReplay replay(recorded->generators, recorded->device);
      const AutocastGuard autocast(
          recorded->device.type(), recorded->dtype, recorded->autocast);
      const at::AutoGradMode with_graph(true);
      outputs = recorded->segment(inputs);
    }
    variable_list reached;
    variable_list of_reached;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].defined() && outputs[i].requires_grad() &&
          gradients[i].defined()) {
        reached.push_back(outputs[i]);
        of_reached.push_back(gradients[i]);
      }
    }
    variable_list targets;
    for (const auto& input : inputs) {
      if (input.defined() && input.requires_grad()) {
        targets.push_back(input);
      }
    }
    targets.insert(
        targets.end(), recorded->leaves.begin(), recorded->leaves.end());
    variable_list found(targets.size());
    if (!reached.empty()) {
      found = torch::autograd::grad(
          reached, targets, of_reached, /*retain_graph=*/false,
          /*create_graph=*/false, /*allow_unused=*/true);
    }
    // One for each argument of forward.
    variable_list results{at::Tensor(), at::Tensor()};
    auto next = found.begin();
    for (const auto& input : inputs) {
      results.push_back(
          input.defined() && input.requires_grad() ? *next++ : at::Tensor());
    }
    results.insert(results.end(), next, found.end());
    return results;
  }
};

} // namespace

std::vector<torch::Tensor> checkpoint_segment(
    const Segment& segment,
    const std::vector<torch::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) {
    return segment(inputs);
  }
  for (const auto& input : inputs) {
    TORCH_CHECK(
        input.defined(),
        "accel: checkpoint_activations was given an undefined tensor. Leave it "
        "out.");
  }
  const auto device = inputs.empty() ? at::Device(at::kCPU) : inputs[0].device();
  auto recorded = c10::make_intrusive<Recorded>(segment, device);
  const auto own = detached(inputs);
  const auto begin = at::sequence_number::peek();
  const auto outputs = recorded->segment(own);
  recorded->inputs = inputs.size();
  recorded->leaves = leaves_of(outputs, own, begin);
  auto variables = inputs;
  variables.insert(
      variables.end(), recorded->leaves.begin(), recorded->leaves.end());
  return Recomputed::apply(recorded, &outputs, at::TensorList(variables));
}

} // namespace accel::detail
