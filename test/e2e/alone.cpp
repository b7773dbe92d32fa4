// Steps that stand in no loop: a lesson's, or a program's that is called once for
// each step. Original and migrated must print the same numbers on any number of
// processes.

#include <torch/torch.h>

#include <iomanip>
#include <iostream>

namespace {

/// One network's output is another one's input.
void two_models() {
  torch::nn::Sequential maker(
      torch::nn::Linear(torch::nn::LinearOptions(3, 5).bias(false)), torch::nn::BatchNorm1d(5), torch::nn::Tanh(),
      torch::nn::Linear(5, 4));
  torch::nn::Linear judge(4, 1);
  maker->to(torch::kDouble);
  judge->to(torch::kDouble);
  torch::optim::SGD making(maker->parameters(), 0.1);
  torch::optim::SGD judging(judge->parameters(), 0.1);
  auto noise = torch::randn({7, 3}, torch::kDouble);
  auto made = maker->forward(noise);
  auto verdict = judge->forward(made);
  auto loss = torch::softmax(verdict, 0).pow(2).sum() + made.var();
  making.zero_grad();
  judging.zero_grad();
  loss.backward();
  making.step();
  judging.step();
  std::cout << loss.item<double>() << ' ' << judge->weight.grad().sum().item<double>() << '\n';
  for (const auto& p : maker->parameters()) std::cout << p.pow(2).sum().item<double>() << '\n';
}

/// A gradient to begin with, beside a backward without one.
void gradients_to_begin_with() {
  torch::nn::Linear critic(3, 1);
  critic->to(torch::kDouble);
  torch::optim::SGD optimizer(critic->parameters(), 0.1);
  auto rows = torch::randn({7, 3}, torch::kDouble);
  auto scores = critic->forward(rows);
  optimizer.zero_grad();
  scores.backward(torch::full({7, 1}, -0.5, torch::kDouble), /*retain_graph=*/true);
  scores.pow(2).mean().backward();
  optimizer.step();
  for (const auto& p : critic->parameters()) std::cout << p.pow(2).sum().item<double>() << '\n';
}

} // namespace

int main() {
  torch::manual_seed(3);
  std::cout << std::setprecision(17);
  gradients_to_begin_with();
  torch::nn::Linear linear(3, 2);
  linear->to(torch::kDouble);
  torch::nn::MSELoss criterion;
  torch::optim::SGD optimizer(linear->parameters(), 0.1);
  auto x = torch::randn({10, 3}, torch::kDouble);
  auto y = torch::randn({10, 2}, torch::kDouble);
  auto pred = linear->forward(x);
  auto loss = criterion(pred, y);
  std::cout << "loss " << loss.item<double>() << '\n';
  loss.backward();
  std::cout << linear->weight.grad() << '\n' << linear->bias.grad() << '\n';
  optimizer.step();
  pred = linear->forward(x);
  loss = criterion(pred, y);
  std::cout << "after " << loss.item<double>() << '\n';
  two_models();
}
