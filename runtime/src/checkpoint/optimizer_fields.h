#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

/// The fields of LibTorch's optimizers with Python's names, for a visitor that
/// is called as `visit(name, reference)`.
namespace accel::checkpoint {

template <typename Visitor>
void options_of(torch::optim::SGDOptions& options, Visitor&& visit) {
  visit("lr", options.lr());
  visit("momentum", options.momentum());
  visit("dampening", options.dampening());
  visit("weight_decay", options.weight_decay());
  visit("nesterov", options.nesterov());
}

template <typename Visitor>
void state_of(torch::optim::SGDParamState& state, Visitor&& visit) {
  visit("momentum_buffer", state.momentum_buffer());
}

template <typename Options, typename Visitor>
void adam_options_of(Options& options, Visitor&& visit) {
  visit("lr", options.lr());
  visit("betas", options.betas());
  visit("eps", options.eps());
  visit("weight_decay", options.weight_decay());
  visit("amsgrad", options.amsgrad());
}

template <typename State, typename Visitor>
void adam_state_of(State& state, Visitor&& visit) {
  visit("step", state.step());
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}

template <typename Visitor>
void options_of(torch::optim::AdamOptions& options, Visitor&& visit) {
  adam_options_of(options, visit);
}

template <typename Visitor>
void state_of(torch::optim::AdamParamState& state, Visitor&& visit) {
  adam_state_of(state, visit);
}

template <typename Visitor>
void options_of(torch::optim::AdamWOptions& options, Visitor&& visit) {
  adam_options_of(options, visit);
}

template <typename Visitor>
void state_of(torch::optim::AdamWParamState& state, Visitor&& visit) {
  adam_state_of(state, visit);
}

template <typename Visitor>
void options_of(torch::optim::AdagradOptions& options, Visitor&& visit) {
  visit("lr", options.lr());
  visit("lr_decay", options.lr_decay());
  visit("weight_decay", options.weight_decay());
  visit("initial_accumulator_value", options.initial_accumulator_value());
  visit("eps", options.eps());
}

template <typename Visitor>
void state_of(torch::optim::AdagradParamState& state, Visitor&& visit) {
  visit("step", state.step());
  visit("sum", state.sum());
}

template <typename Visitor>
void options_of(torch::optim::RMSpropOptions& options, Visitor&& visit) {
  visit("lr", options.lr());
  visit("alpha", options.alpha());
  visit("eps", options.eps());
  visit("weight_decay", options.weight_decay());
  visit("momentum", options.momentum());
  visit("centered", options.centered());
}

template <typename Visitor>
void state_of(torch::optim::RMSpropParamState& state, Visitor&& visit) {
  visit("step", state.step());
  visit("square_avg", state.square_avg());
  visit("momentum_buffer", state.momentum_buffer());
  visit("grad_avg", state.grad_avg());
}

template <typename Visitor>
void options_of(torch::optim::LBFGSOptions& options, Visitor&& visit) {
  visit("lr", options.lr());
  visit("max_iter", options.max_iter());
  visit("max_eval", options.max_eval());
  visit("tolerance_grad", options.tolerance_grad());
  visit("tolerance_change", options.tolerance_change());
  visit("history_size", options.history_size());
  visit("line_search_fn", options.line_search_fn());
}

/// Without `al`, which every step fills before it reads it.
template <typename Visitor>
void state_of(torch::optim::LBFGSParamState& state, Visitor&& visit) {
  visit("func_evals", state.func_evals());
  visit("n_iter", state.n_iter());
  visit("t", state.t());
  visit("prev_loss", state.prev_loss());
  visit("d", state.d());
  visit("H_diag", state.H_diag());
  visit("prev_flat_grad", state.prev_flat_grad());
  visit("old_dirs", state.old_dirs());
  visit("old_stps", state.old_stps());
  visit("ro", state.ro());
}

} // namespace accel::checkpoint
