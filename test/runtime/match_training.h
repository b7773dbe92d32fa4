#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

/// `match_single_device`: training on distributed batches against the same
/// program with LibTorch alone in one process, in float64: the loss of every
/// step, and all parameters and buffers after it. Batches of 5 of 17 samples:
/// unequal parts, and a last batch of 2, fewer than three processes.
namespace accel::test::match {

using torch::Tensor;
namespace F = torch::nn::functional;

constexpr int64_t kColumns = 12;
constexpr int64_t kClasses = 5;

/// Sample i is a row of 12 numbers and one of 5 classes.
struct Samples : torch::data::datasets::Dataset<Samples> {
  explicit Samples(size_t size, bool augments)
      : count(size), augments(augments) {}
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    auto data = torch::sin(
        torch::arange(kColumns, torch::kDouble) * (0.7 + 0.3 * i) + i);
    // Random numbers for some samples only, and so on some processes.
    if (augments && index % 3 == 0) {
      data = data + 0.1 * torch::randn({kColumns}, torch::kDouble);
    }
    return {data, torch::tensor(i * 7 % kClasses)};
  }
  std::optional<size_t> size() const override {
    return count;
  }
  size_t count;
  bool augments;
};

struct Model : torch::nn::Module {
  virtual Tensor loss(const Tensor& x, const Tensor& y) = 0;
};
using MakeModel = std::function<std::shared_ptr<Model>()>;

/// What is trained by default: layers and a loss that are given.
struct Layers : Model {
  using LossOf = std::function<
      Tensor(torch::nn::Sequential& net, const Tensor& x, const Tensor& y)>;
  Layers(torch::nn::Sequential layers, LossOf loss)
      : net(register_module("net", std::move(layers))),
        loss_of(std::move(loss)) {
    to(torch::kDouble);
  }
  Tensor loss(const Tensor& x, const Tensor& y) override {
    return loss_of(net, x, y);
  }
  torch::nn::Sequential net;
  LossOf loss_of;
};

template <typename... Modules>
MakeModel layers(const Layers::LossOf& loss, const Modules&... modules) {
  return [=]() -> std::shared_ptr<Model> {
    torch::nn::Sequential net;
    (net->push_back(modules()), ...);
    return std::make_shared<Layers>(net, loss);
  };
}

inline auto linear(int64_t from, int64_t to) {
  return [=] { return torch::nn::Linear(from, to); };
}
inline auto tanh_layer() {
  return [] { return torch::nn::Tanh(); };
}

Tensor cross_entropy(
    torch::nn::Sequential& net,
    const Tensor& x,
    const Tensor& y);

/// Samples as images of three channels.
Tensor as_images(const Tensor& x);

/// What is trained on, and how.
struct Training {
  int64_t size = 17;
  int64_t batch = 5;
  int64_t window = 1;
  double clip = 0;
  double momentum = 0.9;
  size_t workers = 0;
  bool augments = false;
  bool with_replacement = false;
};

/// Trains two epochs with SGD in both programs and expects the same steps, and
/// as many random numbers. Every process must call it.
void follows_one_device(
    const std::string& name,
    const MakeModel& make,
    const Training& training = Training());

} // namespace accel::test::match
