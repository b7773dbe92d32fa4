// Trainings that no process can do with a part of the batch alone: losses in
// which all samples meet, batches that a data set leaves in pieces, a step
// outside of any loop. Original and migrated must print the same numbers on any
// number of processes.

#include <torch/torch.h>

#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

/// Batch norm and dropout are those of the whole batch. No bias in front of the
/// norm: its gradient is rounding, of which Adam makes steps.
struct DenseImpl : torch::nn::Module {
  explicit DenseImpl(int64_t outputs)
      : first(register_module("first", torch::nn::Linear(torch::nn::LinearOptions(4, 8).bias(false)))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        drop(register_module("drop", torch::nn::Dropout(0.2))),
        last(register_module("last", torch::nn::Linear(8, outputs))) {}
  torch::Tensor forward(torch::Tensor x) { return last(drop(torch::relu(norm(first(x))))); }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear last;
};
TORCH_MODULE(Dense);

torch::Tensor numbers(int64_t from, int64_t count) {
  return torch::sin(torch::arange(count, torch::kDouble) * 0.7 + static_cast<double>(from));
}

/// A picture, and as many boxes in it as there happen to be.
class Pictures : public torch::data::datasets::Dataset<Pictures> {
 public:
  explicit Pictures(size_t count) : count_(count) {}
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {numbers(i, 4), numbers(i, 2 * (1 + i % 3)).view({-1, 2})};
  }
  torch::optional<size_t> size() const override { return count_; }

 private:
  size_t count_;
};

/// Two numbers for each picture, and what each box is predicted from.
struct FinderImpl : torch::nn::Module {
  FinderImpl() : body(register_module("body", Dense(6))), head(register_module("head", torch::nn::Linear(6, 2))) {}
  std::vector<torch::Tensor> forward(torch::Tensor x) {
    auto features = body(x);
    auto boxes = head(torch::tanh(features));
    return {features, boxes};
  }
  Dense body;
  torch::nn::Linear head;
};
TORCH_MODULE(Finder);

/// A mean over the boxes of all pictures: pictures have different numbers of them.
torch::Tensor box_loss(const torch::Tensor& boxes, const std::vector<torch::Tensor>& targets, double& seen) {
  auto loss = torch::zeros({}, torch::kDouble);
  int64_t count = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto distance = (targets[i] - boxes[static_cast<int64_t>(i)]).pow(2).sum(1);
    loss = loss + distance.min() + distance.sum();
    count += targets[i].size(0);
    if (distance.min().item<double>() < 0.3) seen += 1;
  }
  return loss / count;
}

void boxes() {
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(Pictures(23), 8);
  auto others = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(Pictures(10), 4);
  Finder net;
  net->to(torch::kDouble);
  torch::optim::Adam optimizer(net->parameters(), 0.01);
  for (int epoch = 0; epoch < 2; ++epoch) {
    net->train();
    double seen = 0;
    for (auto& batch : *loader) {
      std::vector<torch::Tensor> images, targets;
      for (auto& example : batch) {
        images.push_back(example.data);
        targets.push_back(example.target);
      }
      auto data = torch::stack(images);
      optimizer.zero_grad();
      auto outputs = net->forward(data);
      auto loss = box_loss(outputs[1], targets, seen) + 0.1 * outputs[0].std();
      loss.backward();
      torch::nn::utils::clip_grad_norm_(net->parameters(), 2.0);
      optimizer.step();
      std::cout << "boxes " << epoch << ' ' << loss.item<double>() << '\n';
    }
    net->eval();
    torch::NoGradGuard no_grad;
    double found = 0, total = 0;
    for (auto& batch : *others) {
      std::vector<torch::Tensor> images, targets;
      for (auto& example : batch) {
        images.push_back(example.data);
        targets.push_back(example.target);
      }
      auto outputs = net->forward(torch::stack(images));
      total += box_loss(outputs[1], targets, found).item<double>();
    }
    std::cout << "seen " << seen << " found " << found << " of " << total << '\n';
  }
}

/// Rows of a batch that are to be told apart: each is compared with all.
class Pairs : public torch::data::datasets::Dataset<Pairs> {
 public:
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {numbers(i, 4), torch::full({}, i % 4, torch::kLong)};
  }
  torch::optional<size_t> size() const override { return 21; }
};

void contrast() {
  auto set = Pairs().map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(std::move(set), 6);
  Dense net(5);
  net->to(torch::kDouble);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (auto& batch : *loader) {
    auto z = torch::nn::functional::normalize(net->forward(batch.data));
    auto alike = torch::mm(z, z.t()) / 0.5;
    auto same = batch.target.unsqueeze(0).eq(batch.target.unsqueeze(1)).to(torch::kDouble);
    auto loss = -(torch::log_softmax(alike, 1) * same).sum() / same.sum();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::cout << "contrast " << loss.item<double>() << ' ' << alike.max().item<double>() << ' '
              << net->norm->running_mean.sum().item<double>() << '\n';
  }
}

} // namespace

int main() {
  torch::manual_seed(11);
  std::cout << std::setprecision(17);
  boxes();
  contrast();
}
