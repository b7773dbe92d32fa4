// Trainings that live in classes: models and optimizers in members, behind
// pointers, from factories, made in constructors, by reset() and by assignment;
// a module that trains itself. Original and migrated must print the same numbers
// on any number of processes.

#include <torch/torch.h>

#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

torch::TensorOptions real() {
  return torch::TensorOptions().dtype(torch::kDouble);
}

/// 22 points: batches of 5 leave a last one of 2.
struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t index) override {
    auto x = torch::linspace(-1, 1, 3, real()) * (static_cast<double>(index % 7) - 3.0);
    return {x, torch::sin(x.sum() + static_cast<double>(index)).view({1})};
  }
  torch::optional<size_t> size() const override { return 22; }
};

auto points() {
  return torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Points().map(torch::data::transforms::Stack<>()), 5);
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width)
      : first(register_module("first", torch::nn::Linear(3, width))),
        last(register_module("last", torch::nn::Linear(width, 1))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(torch::Tensor x) {
    return last(torch::dropout(torch::tanh(first(x)), 0.1, is_training()));
  }
  torch::nn::Linear first, last;
};
TORCH_MODULE(Net);

/// One optimizer in a member by value, one behind a pointer to the base class.
class Trainer {
 public:
  Trainer(int64_t width, double rate)
      : net_(width), critic_(width + 1), optimizer_(net_->parameters(), torch::optim::SGDOptions(rate).momentum(0.5)) {
    second_ = std::make_unique<torch::optim::Adam>(critic_->parameters(), torch::optim::AdamOptions(rate));
  }

  void fit(int64_t epochs) {
    auto loader = points();
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      sum_ = 0;
      net_->train();
      for (auto& batch : *loader) {
        optimizer_.zero_grad();
        auto loss = torch::mse_loss(net_->forward(batch.data), batch.target);
        loss.backward();
        optimizer_.step();
        sum_ += loss.item<double>() * static_cast<double>(batch.data.size(0));
        ++steps_;
      }
      report(epoch);
    }
  }

  void fit_critic() {
    auto loader = points();
    for (auto& batch : *loader) {
      second_->zero_grad();
      auto loss = torch::nn::functional::l1_loss(critic_->forward(batch.data), batch.target);
      loss.backward();
      torch::nn::utils::clip_grad_norm_(critic_->parameters(), 0.05);
      second_->step();
      std::cout << "critic " << loss.item<double>() << '\n';
    }
  }

 private:
  void report(int64_t epoch) const {
    std::cout << "epoch " << epoch << ' ' << steps_ << ' ' << sum_ / 22 << '\n';
  }

  Net net_, critic_;
  torch::optim::SGD optimizer_;
  std::unique_ptr<torch::optim::Optimizer> second_;
  double sum_ = 0;
  int64_t steps_ = 0;
};

/// What has no constructor of its own.
struct Small {
  double fit() {
    double correct = 0;
    auto loader = points();
    for (auto& batch : *loader) {
      auto out = net(batch.data);
      auto loss = torch::mse_loss(out, batch.target, at::Reduction::Sum);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      correct += (out * batch.target > 0).sum().item<double>();
    }
    return correct;
  }
  Net net{4};
  torch::optim::RMSprop optimizer{net->parameters(), 0.01};
};

/// A module that trains itself.
struct Learner : torch::nn::Module {
  Learner() {
    fc = register_module("fc", torch::nn::Linear(3, 1));
    to(torch::kDouble);
  }
  torch::Tensor forward(torch::Tensor x) { return fc(x); }
  template <typename Loader>
  void fit(Loader& loader) {
    torch::optim::SGD optimizer(parameters(), 0.1);
    for (auto& batch : loader) {
      auto loss = torch::mse_loss(forward(batch.data), batch.target);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      std::cout << "learner " << loss.template item<double>() << '\n';
    }
  }
  torch::nn::Linear fc{nullptr};
};

template <typename Model>
struct Fitter {
  void init(double rate) { optimizer.reset(new torch::optim::SGD(model->parameters(), rate)); }
  void fit() {
    init(0.05);
    auto loader = points();
    for (auto& batch : *loader) {
      auto loss = torch::mse_loss(model->forward(batch.data), batch.target);
      optimizer->zero_grad();
      loss.backward();
      optimizer->step();
      last = loss.template item<double>();
    }
  }
  std::shared_ptr<Model> model = std::make_shared<Model>();
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  double last = 0;
};

std::unique_ptr<torch::optim::Optimizer> choose(Net& net, bool adam) {
  if (adam)
    return std::make_unique<torch::optim::Adam>(net->parameters(), 0.02);
  return std::make_unique<torch::optim::SGD>(net->parameters(), 0.02);
}

/// Blocks with a shortcut in a container, which might hold such blocks again.
struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t in, int64_t out)
      : conv(register_module(
            "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(out))) {
    if (in != out)
      shortcut = register_module("shortcut", torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 1))));
  }
  torch::Tensor forward(torch::Tensor x) {
    auto out = norm->forward(conv->forward(x));
    return torch::relu(out + (shortcut ? shortcut->forward(x) : x));
  }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Block);

/// A container of its own, with functions as modules.
struct StackImpl : torch::nn::SequentialImpl {
  StackImpl() {
    torch::ExpandingArray<2> flat({-1, 16});
    push_back(Block(1, 2));
    push_back(Block(2, 4));
    push_back(torch::nn::Functional(torch::max_pool2d, 2, 2, 0, 1, false));
    push_back(torch::nn::Functional(torch::reshape, flat));
    push_back(torch::nn::Linear(16, 1));
    push_back(torch::nn::Functional([](torch::Tensor x) { return torch::tanh(x); }));
  }
};
TORCH_MODULE(Stack);

/// The last batch of 22 has a row or two for each process, and squeeze() must
/// keep them apart.
void blocks(int64_t size) {
  Stack stack;
  stack->to(torch::kDouble);
  auto images = torch::rand({22, 1, 4, 4}, real());
  auto sums = images.sum(torch::IntArrayRef({1, 2, 3}));
  torch::optim::SGD optimizer(stack->parameters(), 0.05);
  for (int64_t at = 0; at < 22; at += size) {
    auto x = images.slice(0, at, std::min<int64_t>(at + size, 22));
    auto y = sums.slice(0, at, std::min<int64_t>(at + size, 22));
    auto out = stack->forward(x).squeeze();
    auto loss = torch::mse_loss(out, y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::cout << "blocks " << loss.item<double>() << ' ' << out.max().item<double>() << '\n';
  }
}

} // namespace

int main() {
  torch::manual_seed(11);
  std::cout << std::setprecision(17);
  Trainer trainer(6, 0.05);
  trainer.fit(2);
  trainer.fit_critic();
  trainer.fit(1);
  Small small;
  std::cout << "small " << small.fit() << ' ' << small.fit() << '\n';
  auto loader = points();
  Learner learner;
  learner.fit(*loader);
  Fitter<Learner> fitter;
  fitter.fit();
  std::cout << "fitter " << fitter.last << '\n';
  for (bool adam : {true, false}) {
    Net net(4);
    auto optimizer = choose(net, adam);
    for (auto& batch : *loader) {
      auto loss = torch::mse_loss(net(batch.data), batch.target);
      optimizer->zero_grad();
      loss.backward();
      optimizer->step();
      std::cout << "chosen " << loss.item<double>() << '\n';
    }
  }
  blocks(5);
  blocks(2);
  blocks(3);
}
