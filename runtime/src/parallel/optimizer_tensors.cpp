#include "parallel/optimizer_tensors.h"

#include "checkpoint/optimizer_fields.h"

#include <torch/optim/optimizer.h>

#include <deque>

namespace accel::parallel {
namespace {

using Visit = std::function<void(at::Tensor&, const at::Tensor&)>;

struct Tensors {
  const Visit& visit;
  const at::Tensor& parameter;

  void operator()(const char*, at::Tensor& tensor) const {
    if (tensor.defined()) {
      visit(tensor, parameter);
    }
  }
  void operator()(const char*, std::deque<at::Tensor>& list) const {
    for (auto& tensor : list) {
      visit(tensor, parameter);
    }
  }
  template <typename T>
  void operator()(const char*, T&) const {}
};

template <typename State>
bool visit_as(
    torch::optim::OptimizerParamState& state,
    const Visit& visit,
    const at::Tensor& parameter) {
  auto* own = dynamic_cast<State*>(&state);
  if (own != nullptr) {
    checkpoint::state_of(*own, Tensors{visit, parameter});
  }
  return own != nullptr;
}

} // namespace

void each_state_tensor(
    torch::optim::Optimizer& optimizer,
    const Visit& visit) {
  namespace optim = torch::optim;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto found =
          optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer.state().end() || found->second == nullptr) {
        continue;
      }
      auto& state = *found->second;
      (void)(visit_as<optim::SGDParamState>(state, visit, parameter) ||
             visit_as<optim::AdamParamState>(state, visit, parameter) ||
             visit_as<optim::AdamWParamState>(state, visit, parameter) ||
             visit_as<optim::AdagradParamState>(state, visit, parameter) ||
             visit_as<optim::RMSpropParamState>(state, visit, parameter) ||
             visit_as<optim::LBFGSParamState>(state, visit, parameter));
    }
  }
}

void move_beside_parameters(torch::optim::Optimizer& optimizer) {
  each_state_tensor(optimizer, [](at::Tensor& tensor, const at::Tensor& parameter) {
    if (tensor.device() != parameter.device()) {
      tensor = tensor.to(parameter.device());
    }
  });
}

} // namespace accel::parallel
