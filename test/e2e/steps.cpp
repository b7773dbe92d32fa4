// Training steps of many forms, each in a few batches and in float64: what they
// print must be the same on any number of processes.

#include <torch/torch.h>

#include <cmath>
#include <iomanip>
#include <iostream>
#include <vector>

namespace {

/// 37 samples, so that the last batch is short and parts differ in size.
struct Waves : torch::data::datasets::Dataset<Waves> {
  torch::data::Example<> get(size_t index) override {
    const double i = static_cast<double>(index);
    auto input = torch::arange(4, torch::kDouble).mul(0.3).add(0.1 * i).sin();
    auto target = torch::full({1}, std::cos(0.2 * i), torch::kDouble);
    return {input, target};
  }
  torch::optional<size_t> size() const override {
    return 37;
  }
};

auto waves(int64_t batch_size) {
  return torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Waves().map(torch::data::transforms::Stack<>()), batch_size);
}

/// Two networks against each other, with batch norm, dropout and noise.
void adversaries() {
  torch::nn::Sequential maker(
      torch::nn::Linear(3, 8),
      torch::nn::BatchNorm1d(8),
      torch::nn::ReLU(),
      torch::nn::Linear(8, 4));
  torch::nn::Sequential judge(
      torch::nn::Linear(4, 8),
      torch::nn::LeakyReLU(),
      torch::nn::Dropout(0.3),
      torch::nn::Linear(8, 1));
  maker->to(torch::kDouble);
  judge->to(torch::kDouble);
  torch::optim::Adam maker_optimizer(
      maker->parameters(), torch::optim::AdamOptions(1e-2).betas({0.5, 0.9}));
  torch::optim::Adam judge_optimizer(judge->parameters(), 1e-2);
  auto loader = waves(10);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      const auto rows = batch.data.size(0);
      judge->zero_grad();
      auto genuine = torch::empty({rows, 1}, torch::kDouble).uniform_(0.8, 1.0);
      auto on_genuine = torch::binary_cross_entropy_with_logits(
          judge->forward(batch.data), genuine);
      on_genuine.backward();
      auto noise = torch::randn({rows, 3}, torch::kDouble);
      auto made = maker->forward(noise);
      auto on_made = torch::binary_cross_entropy_with_logits(
          judge->forward(made.detach()), torch::zeros({rows, 1}, torch::kDouble));
      on_made.backward();
      auto judge_loss = on_genuine + on_made;
      judge_optimizer.step();

      maker->zero_grad();
      auto maker_loss = torch::binary_cross_entropy_with_logits(
          judge->forward(made), torch::ones({rows, 1}, torch::kDouble));
      maker_loss.backward();
      maker_optimizer.step();
      std::cout << "adversaries " << judge_loss.item<double>() << ' '
                << maker_loss.item<double>() << '\n';
    }
  }
}

/// A trunk and two heads, with two losses and one optimizer for all.
void two_heads() {
  torch::nn::Linear trunk(4, 6), actor(6, 3), critic(6, 1);
  trunk->to(torch::kDouble);
  actor->to(torch::kDouble);
  critic->to(torch::kDouble);
  std::vector<torch::Tensor> parameters = trunk->parameters();
  for (const auto& p : actor->parameters()) {
    parameters.push_back(p);
  }
  torch::optim::SGD optimizer(
      parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  optimizer.add_param_group(critic->parameters());
  torch::optim::StepLR scheduler(optimizer, 2, 0.5);
  auto loader = waves(8);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : *loader) {
      auto features = torch::tanh(trunk->forward(batch.data));
      auto choice = torch::log_softmax(actor->forward(features), 1);
      auto value = critic->forward(features);
      auto value_loss = torch::mse_loss(value, batch.target);
      auto choice_loss =
          -(choice.select(1, 0) * (batch.target - value.detach()).squeeze(1)).mean();
      optimizer.zero_grad();
      value_loss.backward({}, /*retain_graph=*/true);
      choice_loss.backward();
      optimizer.step();
      std::cout << "two_heads " << value_loss.item<double>() << ' '
                << choice_loss.item<double>() << '\n';
    }
    scheduler.step();
  }
}

/// Steps every three batches and once more for what is left.
void accumulation() {
  torch::nn::Linear net(4, 1);
  net->to(torch::kDouble);
  torch::optim::AdamW optimizer(net->parameters(), 1e-2);
  auto loader = waves(5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    int count = 0;
    optimizer.zero_grad();
    for (auto& batch : *loader) {
      auto loss = torch::l1_loss(net->forward(batch.data), batch.target) / 3;
      loss.backward();
      if (++count % 3 == 0) {
        optimizer.step();
        optimizer.zero_grad();
      }
      std::cout << "accumulation " << loss.item<double>() << '\n';
    }
    if (count % 3 != 0) {
      optimizer.step();
    }
    std::cout << "accumulation " << net->weight.detach().abs().sum().item<double>()
              << '\n';
  }
}

/// The optimizer calls for the loss as often as it likes.
void closure() {
  torch::nn::Sequential net(
      torch::nn::Linear(4, 5), torch::nn::Tanh(), torch::nn::Linear(5, 1));
  net->to(torch::kDouble);
  torch::optim::LBFGS optimizer(
      net->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(4));
  auto loader = waves(20);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto evaluate = [&] {
        optimizer.zero_grad();
        auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
        loss.backward();
        return loss;
      };
      auto loss = optimizer.step(evaluate);
      std::cout << "closure " << loss.item<double>() << '\n';
    }
  }
}

double train_step(
    torch::nn::Linear& net,
    torch::optim::Optimizer& optimizer,
    const torch::Tensor& input,
    const torch::Tensor& target) {
  optimizer.zero_grad();
  auto loss = torch::mse_loss(net->forward(input), target, torch::Reduction::Sum);
  loss.backward();
  // Clipped by hand, by the norm of all gradients.
  double square = 0;
  for (auto& p : net->parameters()) {
    square += p.grad().pow(2).sum().item<double>();
  }
  const double scale = std::min(1.0, 2.0 / std::sqrt(square));
  for (auto& p : net->parameters()) {
    p.mutable_grad().mul_(scale).add_(p.detach(), 1e-3);
  }
  optimizer.step();
  std::cout << "by_hand " << std::sqrt(square) << '\n';
  return loss.item<double>();
}

/// Gradients changed by hand in a function of its own, a moving average of the
/// parameters, several steps on a batch, and an optimizer for each epoch.
void by_hand() {
  torch::nn::Linear net(4, 1), average(4, 1);
  net->to(torch::kDouble);
  average->to(torch::kDouble);
  auto loader = waves(9);
  for (int epoch = 0; epoch < 2; ++epoch) {
    torch::optim::SGD optimizer(net->parameters(), 0.05 / (epoch + 1));
    double sum = 0;
    for (auto& batch : *loader) {
      for (int repeat = 0; repeat < 2; ++repeat) {
        sum += train_step(net, optimizer, batch.data, batch.target);
      }
      torch::NoGradGuard no_grad;
      auto target = average->parameters();
      auto source = net->parameters();
      for (size_t i = 0; i < target.size(); ++i) {
        target[i].mul_(0.9).add_(source[i], 0.1);
      }
    }
    std::cout << "by_hand " << sum << ' '
              << average->weight.sum().item<double>() << '\n';
  }
}

} // namespace

int main() {
  torch::manual_seed(7);
  std::cout << std::setprecision(17);
  adversaries();
  two_heads();
  accumulation();
  closure();
  by_hand();
}
