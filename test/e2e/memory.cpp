// Small trainings that write into tensors, and read what they wrote by other names: the
// data set's, a list's, a module's. Original and migrated must print the same numbers on
// any number of processes.

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

torch::TensorOptions real() {
  return torch::TensorOptions().dtype(torch::kDouble);
}

/// Memory that is written through pointers, and read by other names.
void halve(torch::Tensor values) {
  auto* numbers = values.data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i)
    numbers[i] *= 0.5;
}

struct Bank {
  torch::Tensor kept;
  void decay() {
    auto rows = kept.accessor<double, 2>();
    for (int64_t i = 0; i < rows.size(0); ++i)
      rows[i][0] *= 0.9;
  }
};

void written_memory() {
  torch::nn::Linear net(4, 3);
  net->to(torch::kDouble);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto x = torch::rand({7, 4}, real());
  auto points = torch::rand({5, 4}, real()).requires_grad_(true);
  std::vector<torch::Tensor> kept;
  Bank bank;
  for (int64_t i = 0; i < 4; ++i) {
    auto out = net->forward(x);
    auto loss = (out - 1).square().mean() + net->forward(points).square().mean();
    if (bank.kept.defined())
      loss = loss + (out - bank.kept).square().mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    auto detached = out.detach();
    kept.push_back(detached);
    auto flat = detached.view({-1});
    auto* numbers = flat.data_ptr<double>();
    for (int64_t k = 0; k < flat.numel(); k += 2)
      numbers[k] += 0.25;
    halve(detached.slice(0, 0, 4));
    auto row = detached[5];
    row.data_ptr<double>()[1] = 3;
    bank.kept = detached;
    bank.decay();
    auto gradient = points.grad();
    gradient.data_ptr<double>()[2] = 1;
    std::cout << "written " << loss.item<double>() << ' ' << out.sum().item<double>() << ' '
              << kept.back().square().sum().item<double>() << ' ' << points.grad().sum().item<double>() << '\n';
  }
}

/// Batches that are views of what the data set keeps, and are written by the step.
struct Views : torch::data::datasets::BatchDataset<Views, torch::data::Example<>> {
  explicit Views(torch::Tensor all) : rows(std::move(all)) {}
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) override {
    auto part = rows.slice(0, static_cast<int64_t>(indices.front()), static_cast<int64_t>(indices.back()) + 1);
    return {part, part.sum(1, true)};
  }
  torch::optional<size_t> size() const override { return rows.size(0); }
  torch::Tensor rows;
};

void written_views() {
  auto all = torch::rand({14, 4}, real());
  auto loader = torch::data::make_data_loader(Views(all), torch::data::samplers::SequentialSampler(14), 5);
  torch::nn::Linear net(4, 1);
  net->to(torch::kDouble);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      batch.data.sub_(batch.data.mean(0), 0.1);
      auto second = batch.data[1];
      second.mul_(0.9);
      auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      std::cout << "views " << loss.item<double>() << ' ' << batch.data.norm().item<double>() << '\n';
    }
    std::cout << "rows " << all.norm().item<double>() << '\n';
  }
}

/// A module that writes into what it is given, and functions that write into views.
struct Cleaner : torch::nn::Module {
  Cleaner() : linear(register_module("linear", torch::nn::Linear(4, 3))) {}
  torch::Tensor forward(torch::Tensor x) {
    x.clamp_(-1, 1);
    return linear(x);
  }
  torch::nn::Linear linear;
};

void written_inputs() {
  const auto x = torch::randn({13, 4}, real()) * 2;
  const auto y = torch::randn({13, 3}, real());
  const auto z = torch::randn({13, 3}, real());
  Cleaner net;
  net.to(torch::kDouble);
  torch::nn::Sequential first(torch::nn::ReLU(torch::nn::ReLUOptions(true)), torch::nn::Linear(3, 3));
  first->to(torch::kDouble);
  auto parameters = net.parameters();
  for (const auto& parameter : first->parameters())
    parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, 0.05);
  std::map<std::string, torch::Tensor> views;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (int64_t from = 0; from < 13; from += 6) {
      auto rows = x.slice(0, from, std::min<int64_t>(13, from + 6));
      auto targets = y.slice(0, from, std::min<int64_t>(13, from + 6));
      views["targets"] = targets;
      auto out = net.forward(rows);
      auto loss = torch::mse_loss(out, targets) + first->forward(z.slice(0, from, from + 5)).square().mean();
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      views.at("targets").lerp_(out.detach(), 0.3);
      torch::lerp_out(targets, targets, out.detach(), 0.1);
      for (auto target : targets.unbind(0))
        target.mul_(0.95);
      auto parts = targets.split(2);
      parts.back().add_(0.01);
      torch::nn::init::constant_(rows.select(1, 0), 0.5);
      std::cout << "inputs " << loss.item<double>() << ' ' << x.norm().item<double>() << ' ' << y.norm().item<double>()
                << ' ' << z.norm().item<double>() << '\n';
    }
}

/// Outputs that are kept, read through a pointer and written later.
class Monitor {
 public:
  void note(int64_t step, const torch::Tensor& out) {
    last_ = out.detach().softmax(1);
    history_[step % 2] = last_;
  }
  double largest() {
    double most = 0;
    for (int64_t i = 0; i < last_.size(0); ++i)
      most = std::max(most, last_[i].data_ptr<double>()[0]);
    return most;
  }
  void decay() { last_.mul_(0.9); }
  const torch::Tensor& soft(int64_t step) { return history_[step % 2]; }

 private:
  torch::Tensor last_;
  std::map<int64_t, torch::Tensor> history_;
};

void kept_outputs() {
  const auto x = torch::randn({8, 4}, real());
  torch::nn::Linear net(4, 3);
  net->to(torch::kDouble);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  std::vector<torch::Tensor> kept;
  Monitor monitor;
  for (int64_t step = 0; step < 6; ++step) {
    auto out = net->forward(x);
    auto loss = out.square().mean();
    if (step >= 2)
      loss = loss + torch::mse_loss(out.softmax(1), monitor.soft(step));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    monitor.note(step, out);
    const double largest = monitor.largest();
    monitor.decay();
    auto pred = out.detach();
    kept.push_back(pred);
    double sum = 0;
    for (int64_t i = 0; i < pred.size(0); ++i)
      sum += pred[i].data_ptr<double>()[1];
    pred.mul_(0.5);
    std::cout << "kept " << loss.item<double>() << ' ' << largest << ' ' << sum << ' '
              << kept.back().sum().item<double>() << '\n';
  }
}

/// Data sets that note what they gave, where the loop reads it.
struct Course {
  std::vector<double> hard = std::vector<double>(18, 1.0);
  std::vector<int64_t> given;
};

class Teacher : public torch::data::datasets::StatefulDataset<Teacher, torch::data::Example<>, size_t> {
 public:
  Teacher(torch::Tensor rows, std::shared_ptr<Course> course) : rows_(std::move(rows)), course_(std::move(course)) {}
  torch::optional<torch::data::Example<>> get_batch(size_t n) override {
    if (at_ >= rows_.size(0))
      return torch::nullopt;
    course_->given.clear();
    for (; course_->given.size() < n && at_ < rows_.size(0); ++at_)
      course_->given.push_back(at_);
    auto part = rows_.index_select(0, torch::tensor(course_->given));
    return torch::data::Example<>{part, part.sum(1, true)};
  }
  torch::optional<size_t> size() const override { return torch::nullopt; }
  void reset() override { at_ = 0; }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}

 private:
  torch::Tensor rows_;
  std::shared_ptr<Course> course_;
  int64_t at_ = 0;
};

std::set<size_t>& seen() {
  static std::set<size_t> all;
  return all;
}

struct Noted : torch::data::datasets::Dataset<Noted> {
  torch::data::Example<> get(size_t index) override {
    seen().insert(index);
    return {rows[static_cast<int64_t>(index)], rows[static_cast<int64_t>(index)].sum().reshape({1})};
  }
  torch::optional<size_t> size() const override { return 18; }
  torch::Tensor rows = torch::rand({18, 4}, real());
};

void noted() {
  const auto rows = torch::rand({18, 4}, real());
  auto course = std::make_shared<Course>();
  auto lessons = torch::data::make_data_loader(Teacher(rows, course), torch::data::DataLoaderOptions(5));
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Noted().map(torch::data::transforms::Stack<>()), 7);
  torch::nn::Linear net(4, 1);
  net->to(torch::kDouble);
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *lessons) {
      auto errors = (net->forward(batch.data) - batch.target).square().squeeze(1);
      auto weights = torch::empty({errors.size(0)}, real());
      for (size_t i = 0; i < course->given.size(); ++i)
        weights[static_cast<int64_t>(i)] = course->hard[static_cast<size_t>(course->given[i])];
      auto loss = (errors * weights).mean();
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      for (size_t i = 0; i < course->given.size(); ++i)
        course->hard[static_cast<size_t>(course->given[i])] += errors[static_cast<int64_t>(i)].item<double>();
      std::cout << "lesson " << loss.item<double>() << '\n';
    }
    for (auto& batch : *loader) {
      auto loss = torch::mse_loss(net->forward(batch.data), batch.target) * (1.0 + 0.1 * static_cast<double>(seen().size()));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      std::cout << "noted " << loss.item<double>() << ' ' << seen().size() << '\n';
    }
  }
}

} // namespace

int main() {
  torch::manual_seed(11);
  std::cout << std::setprecision(17);
  written_memory();
  written_views();
  written_inputs();
  kept_outputs();
  noted();
}
