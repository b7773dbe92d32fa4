#include "momentum.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace accel::optim::detail {
namespace {

/// Calls `function` with the number's place in the options, however the
/// optimizer calls it; false where there is none.
template <typename Function>
bool visit(torch::optim::OptimizerOptions& options, Function&& function) {
  using namespace torch::optim;
  if (auto* sgd = dynamic_cast<SGDOptions*>(&options)) {
    function(sgd->momentum());
  } else if (auto* rmsprop = dynamic_cast<RMSpropOptions*>(&options)) {
    function(rmsprop->momentum());
  } else if (auto* adam = dynamic_cast<AdamOptions*>(&options)) {
    function(std::get<0>(adam->betas()));
  } else if (auto* adamw = dynamic_cast<AdamWOptions*>(&options)) {
    function(std::get<0>(adamw->betas()));
  } else {
    return false;
  }
  return true;
}

} // namespace

bool has_momentum(const torch::optim::OptimizerOptions& options) {
  return visit(
      const_cast<torch::optim::OptimizerOptions&>(options), [](double&) {});
}

double get_momentum(const torch::optim::OptimizerOptions& options) {
  double momentum = 0;
  const bool found = visit(
      const_cast<torch::optim::OptimizerOptions&>(options),
      [&](double& place) { momentum = place; });
  TORCH_CHECK(found, "The optimizer has no momentum.");
  return momentum;
}

void set_momentum(torch::optim::OptimizerOptions& options, double momentum) {
  TORCH_CHECK(
      visit(options, [&](double& place) { place = momentum; }),
      "The optimizer has no momentum.");
}

} // namespace accel::optim::detail
