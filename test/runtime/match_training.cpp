#include "match_training.h"

#include "data_sets.h"

#include <accel/accelerator.h>
#include <accel/data/data_loader.h>
#include <accel/distributed/tensor.h>
#include <accel/optim/optimizer.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace accel::test::match {
namespace {

using torch::data::DataLoaderOptions;

/// Draws in `next`, for every batch.
struct WithReplacement : torch::data::samplers::Sampler<> {
  explicit WithReplacement(size_t size) : size(size) {}
  void reset(std::optional<size_t> = std::nullopt) override {
    given = 0;
  }
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    std::vector<size_t> indices;
    for (; indices.size() < batch_size && given < size; ++given) {
      indices.push_back(
          torch::randint(static_cast<int64_t>(size), {1}).item<int64_t>());
    }
    return indices.empty() ? std::nullopt : std::make_optional(indices);
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  size_t size;
  size_t given = 0;
};

struct Step {
  double loss;
  double norm;
  std::vector<std::pair<std::string, Tensor>> tensors;
};

template <typename Optimizer, typename Loader>
std::vector<Step> train(
    const std::shared_ptr<Model>& model,
    Optimizer& optimizer,
    Loader& loader,
    const Training& training,
    Accelerator* accelerator) {
  std::vector<Step> steps;
  torch::manual_seed(8);
  const int64_t batches =
      (training.size + training.batch - 1) / training.batch;
  for (int epoch = 0; epoch < 2; ++epoch) {
    int64_t i = 0;
    for (auto& batch : loader) {
      std::optional<accel::AccumulateGuard> guard;
      if (accelerator != nullptr) {
        guard.emplace(accelerator->accumulate(model));
        const auto world = accelerator->num_processes();
        EXPECT_EQ(
            accel::distributed::is_distributed(batch.data),
            world > 1 && batch.data.size(0) >= world);
      }
      const int64_t first = i / training.window * training.window;
      const bool last = ++i == batches || i == first + training.window;
      if (accelerator != nullptr || i == first + 1) {
        optimizer.zero_grad();
      }
      const auto loss = model->loss(batch.data, batch.target);
      double norm = 0;
      if (accelerator != nullptr) {
        accelerator->backward(loss);
      } else {
        const auto length = std::min(training.window, batches - first);
        (loss / static_cast<double>(length)).backward();
      }
      if (training.clip > 0 && last) {
        norm = accelerator != nullptr
            ? accelerator->clip_grad_norm_(model->parameters(), training.clip)
            : torch::nn::utils::clip_grad_norm_(
                  model->parameters(), training.clip);
      }
      if (accelerator != nullptr || last) {
        optimizer.step();
      }
      Step step{loss.template item<double>(), norm, {}};
      for (const auto& all :
           {model->named_parameters(), model->named_buffers()}) {
        for (const auto& item : all) {
          step.tensors.emplace_back(
              item.key(),
              accel::distributed::full_tensor(item.value().detach()).clone());
        }
      }
      steps.push_back(std::move(step));
    }
    EXPECT_EQ(i, batches);
  }
  return steps;
}

void expect_same_steps(
    const std::vector<Step>& actual, const std::vector<Step>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const auto near = [](double is, double should) {
      EXPECT_NEAR(is, should, 1e-9 * std::max(1.0, std::abs(should)));
    };
    near(actual[i].loss, expected[i].loss);
    near(actual[i].norm, expected[i].norm);
    ASSERT_EQ(actual[i].tensors.size(), expected[i].tensors.size());
    for (size_t t = 0; t < actual[i].tensors.size(); ++t) {
      const auto& is = actual[i].tensors[t].second;
      const auto& should = expected[i].tensors[t].second;
      EXPECT_EQ(is.sizes(), should.sizes());
      EXPECT_TRUE(torch::allclose(is, should, 1e-9, 1e-10))
          << actual[i].tensors[t].first << "\nis " << is << "\nnot " << should;
    }
  }
  EXPECT_GT(expected.size(), 4U);
}

/// `make(data set, options)`.
template <typename Make>
auto loader_of(const Training& training, const Make& make) {
  return make(
      Samples(static_cast<size_t>(training.size), training.augments)
          .map(torch::data::transforms::Stack<>()),
      DataLoaderOptions(static_cast<size_t>(training.batch))
          .workers(training.workers));
}

template <typename Optimizer>
std::vector<Step> plain_steps(
    const std::shared_ptr<Model>& model,
    Optimizer& optimizer,
    const Training& training) {
  return loader_of(training, [&](auto data, auto options) {
    if (training.with_replacement) {
      auto loader = torch::data::make_data_loader(
          data, WithReplacement(static_cast<size_t>(training.size)), options);
      return train(model, optimizer, *loader, training, nullptr);
    }
    auto loader = torch::data::make_data_loader(data, options);
    return train(model, optimizer, *loader, training, nullptr);
  });
}

template <typename Optimizer>
std::vector<Step> accelerated_steps(
    const std::shared_ptr<Model>& model,
    Optimizer& optimizer,
    const Training& training,
    Accelerator& accelerator) {
  return loader_of(training, [&](auto data, auto options) {
    if (training.with_replacement) {
      auto loader = accel::data::make_data_loader(
          data, WithReplacement(static_cast<size_t>(training.size)), options);
      return train(model, optimizer, *loader, training, &accelerator);
    }
    auto loader = accel::data::make_data_loader(data, options);
    return train(model, optimizer, *loader, training, &accelerator);
  });
}

} // namespace

Tensor cross_entropy(torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
  return F::cross_entropy(net->forward(x), y);
}

Tensor as_images(const Tensor& x) {
  return x.view({x.size(0), 3, 2, 2});
}

void follows_one_device(
    const std::string& name,
    const MakeModel& make,
    const Training& training) {
  SCOPED_TRACE(name);
  const auto options = torch::optim::SGDOptions(0.05).momentum(training.momentum);
  torch::manual_seed(4);
  const auto plain = make();
  torch::optim::SGD plain_optimizer(plain->parameters(), options);
  const auto expected = plain_steps(plain, plain_optimizer, training);
  const auto state = generator_state();

  Accelerator accelerator(AcceleratorOptions()
                              .match_single_device(true)
                              .gradient_accumulation_steps(training.window));
  torch::manual_seed(4);
  const auto model = make();
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      model->parameters(), options);
  accelerator.prepare(model, optimizer);
  expect_same_steps(
      accelerated_steps(model, optimizer, training, accelerator), expected);
  EXPECT_TRUE(torch::equal(generator_state(), state))
      << "as many random numbers as on one device";
  accelerator.clear();
}

} // namespace accel::test::match
