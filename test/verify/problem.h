#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

/// What the original and the migrated test program have in common: the model,
/// the data and the sizes. 69 rows in batches of 16: the fifth batch of each
/// epoch has 5 rows.
namespace problem {

constexpr int64_t kRows = 69;
constexpr int64_t kBatch = 16;
constexpr int64_t kBatches = 5;
constexpr int kEpochs = 3;
constexpr double kRate = 0.1;
constexpr double kMomentum = 0.9;
/// Small enough that the first gradients are clipped.
constexpr double kMaxNorm = 0.2;

/// A small network with batch norm and dropout that also keeps a running mean
/// of its inputs. Users of it update that buffer.
struct Net : torch::nn::Module {
  explicit Net(double dropout) {
    hidden = register_module("hidden", torch::nn::Linear(4, 12));
    norm = register_module("norm", torch::nn::BatchNorm1d(12));
    drop = register_module("drop", torch::nn::Dropout(dropout));
    output = register_module("output", torch::nn::Linear(12, 1));
    mean = register_buffer("mean", torch::zeros({4}));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return output->forward(
        drop->forward(norm->forward(torch::tanh(hidden->forward(x)))));
  }

  void update_mean(const torch::Tensor& batch_mean) {
    const torch::NoGradGuard no_grad;
    mean.mul_(0.9).add_(batch_mean, 0.1);
  }

  torch::nn::Linear hidden{nullptr}, output{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::Tensor mean;
};

/// A moving average of a layer's weights, which no backward reaches.
struct Average : torch::nn::Module {
  explicit Average(
      const torch::nn::Linear& layer, const std::string& name = "weight") {
    weight = register_parameter(
        name, layer->weight.detach().clone(), /*requires_grad=*/false);
  }
  void follow(const torch::Tensor& other) {
    const torch::NoGradGuard no_grad;
    weight.mul_(0.8).add_(other, 0.2);
  }
  torch::Tensor weight;
};

/// Two models of which no step makes anything. `reused`: the first one lies where a
/// model of another kind has been before.
class Scales {
 public:
  explicit Scales(bool reused) {
    { make<Shift>(0); }
    first = make<Scale>(reused ? 0 : 1);
    second = make<Scale>(2);
  }
  void change() {
    const torch::NoGradGuard no_grad;
    first->scale.fill_(1);
    second->scale.fill_(2);
  }

 private:
  struct Shift : torch::nn::Module {
    Shift() {
      register_parameter("shift", torch::zeros({1}));
    }
  };
  struct Scale : torch::nn::Module {
    Scale() {
      scale = register_parameter("scale", torch::zeros({1}));
    }
    torch::Tensor scale;
  };
  template <typename Model>
  std::shared_ptr<Model> make(int place) {
    static_assert(sizeof(Model) <= sizeof(Scale));
    return {new (places[place]) Model(), [](Model* model) { model->~Model(); }};
  }

  alignas(Scale) unsigned char places[3][sizeof(Scale)];
  std::shared_ptr<Scale> first, second;
};

struct Data {
  /// With --blob: the program has its data in memory of its own, as floats; with
  /// --fill-float it writes them into a tensor that names no dtype.
  explicit Data(const std::set<std::string>& flags)
      : nan_from(
            flags.count("--nan") != 0               ? 0
                : flags.count("--nan-at-last") != 0 ? kEpochs - 1
                                                    : kEpochs),
        astray(flags.count("--astray") != 0) {
    check_float_meets_whole_numbers();
    if (flags.count("--blob") != 0) {
      numbers.reserve(kRows * 4);
      double sum = 0;
      for (int64_t i = 0; i < kRows * 4; ++i) {
        numbers.push_back(static_cast<float>(i * 7 % 19 - 9) / 4);
        sum += numbers.back();
      }
      inputs = torch::from_blob(numbers.data(), {kRows, 4});
      targets = torch::sin(inputs.sum(1, /*keepdim=*/true));
      TORCH_CHECK(inputs.sum().item<double>() == sum, "the blob is misread");
      return;
    }
    if (flags.count("--fill-float") != 0) {
      inputs = torch::zeros({kRows, 4});
      auto elements = inputs.accessor<float, 2>();
      for (int64_t i = 0; i < kRows * 4; ++i) {
        elements[i / 4][i % 4] = static_cast<float>(i * 7 % 19 - 9) / 3;
      }
      targets = torch::sin(inputs.sum(1, /*keepdim=*/true));
      return;
    }
    if (flags.count("--float") != 0) { // float32 that the program names
      inputs = torch::randint(-9, 10, {kRows, 4}, torch::kFloat).div(3) +
          torch::arange(4, torch::kFloat).div(7);
      targets = torch::sin(inputs.sum(1, /*keepdim=*/true))
                    .to(torch::kFloat32);
      if (flags.count("--read-float") != 0) { // and whose elements it reads
        const float* first = inputs.data_ptr<float>();
        TORCH_CHECK(first[0] == inputs[0][0].item<float>());
      }
      return;
    }
    // Whole numbers that become float32 by name, as in LibTorch's MNIST.
    inputs = torch::randint(-9, 10, {kRows, 4}, torch::kInt)
                 .to(torch::kFloat32)
                 .div(3);
    targets = torch::sin(inputs.sum(1, /*keepdim=*/true));
  }
  /// What operators make of whole numbers for a float32 tensor is theirs,
  /// however the program is run.
  static void check_float_meets_whole_numbers() {
    const auto ones = torch::ones({3}, torch::kFloat32);
    const auto is = [](const torch::Tensor& value, double expected) {
      TORCH_CHECK(
          value.item<double>() == expected,
          value.item<double>(),
          " in the place of ",
          expected);
    };
    is((ones / 2)[0], 0.5);
    is((ones + torch::arange(3))[2], 3);
    is((ones * (ones > 0))[0], 1);
    is((ones < 2)[0], 1);
    is(ones.clone().add_(1)[0], 2);
    is(torch::max(ones, torch::tensor(5))[0], 5);
    is(torch::tensor({1, 1, 1}).sum(torch::kFloat32), 3);
    is(torch::tensor({1, 1, 4}).mean(torch::kFloat32), 2);
    is(torch::softmax(torch::tensor({1, 1}), 0, torch::kFloat32)[0], 0.5);
  }

  /// The loss; with --nan NaN, with --nan-at-last in the last epoch; with
  /// --astray its last digits have a part in it, which rounding decides on.
  torch::Tensor spoiled(const torch::Tensor& loss, int epoch) const {
    if (astray) {
      return loss * (1 + 0.1 * (loss.detach() * 1e12).frac());
    }
    return epoch < nan_from
        ? loss
        : loss * std::numeric_limits<double>::quiet_NaN();
  }

  torch::Tensor inputs, targets;
  std::vector<float> numbers;
  int nan_from;
  bool astray;
};

/// With --fill-float: a program that takes elements for float takes those of
/// weights so, too, and with --write-float writes into them.
inline void take_as_float(
    const torch::Tensor& weight, const std::set<std::string>& flags) {
  if (flags.count("--fill-float") == 0) {
    return;
  }
  const torch::NoGradGuard no_grad;
  const float first = weight[0][1].item<float>();
  TORCH_CHECK(weight.data_ptr<float>()[1] == first);
  TORCH_CHECK(weight.const_data_ptr<float>()[1] == first);
  TORCH_CHECK(weight.mutable_data_ptr<float>()[1] == first);
  TORCH_CHECK((weight.accessor<const float, 2>()[0][1]) == first);
  const auto turned = weight.t();
  TORCH_CHECK((turned.accessor<float, 2>()[1][0]) == first);
  weight.add_(1);
  TORCH_CHECK(weight.data_ptr<float>()[1] == weight[0][1].item<float>());
  if (flags.count("--write-float") != 0) {
    weight.data_ptr<float>()[1] = 0.5;
  }
}

inline void save(const torch::nn::Module& module, const std::string& path) {
  torch::serialize::OutputArchive archive;
  module.save(archive);
  archive.save_to(path);
}

/// With --backbone: a layer that has gradients, and no optimizer.
inline torch::nn::Linear backbone_of(const std::set<std::string>& flags) {
  return flags.count("--backbone") != 0 ? torch::nn::Linear(4, 4) : nullptr;
}

inline double dropout_of(const std::set<std::string>& flags) {
  return flags.count("--no-dropout") != 0 ? 0 : 0.25;
}

} // namespace problem
