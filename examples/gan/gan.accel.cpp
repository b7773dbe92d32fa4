// A Wasserstein GAN with gradient penalty (Gulrajani et al., 2017) that learns
// eight Gaussians on a ring. For one device.
//
//   ./gan [--steps N] [--double]

#include <torch/torch.h>
#include <accel/accel.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>

constexpr int64_t kBatchSize = 96;
constexpr int64_t kNoiseSize = 8;
constexpr int64_t kModes = 8;
constexpr int kCriticSteps = 3;
constexpr double kSpread = 0.05;
constexpr double kPenaltyWeight = 1;

struct GeneratorImpl : torch::nn::Module {
  GeneratorImpl()
      : layers(
            torch::nn::Linear(kNoiseSize, 64),
            torch::nn::BatchNorm1d(64),
            torch::nn::ReLU(),
            torch::nn::Linear(64, 64),
            torch::nn::BatchNorm1d(64),
            torch::nn::ReLU(),
            torch::nn::Linear(64, 2)) {
    register_module("layers", layers);
  }

  torch::Tensor forward(torch::Tensor noise) {
    return layers->forward(noise);
  }

  torch::nn::Sequential layers;
};
TORCH_MODULE(Generator);

struct CriticImpl : torch::nn::Module {
  CriticImpl() : hidden1(2, 64), hidden2(64, 64), score(64, 1) {
    register_module("hidden1", hidden1);
    register_module("hidden2", hidden2);
    register_module("score", score);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::leaky_relu(hidden1(x), 0.2);
    x = torch::leaky_relu(hidden2(x), 0.2);
    return score(x).squeeze(1);
  }

  torch::nn::Linear hidden1, hidden2, score;
};
TORCH_MODULE(Critic);

torch::Tensor centres(torch::Device device) {
  auto angle = torch::arange(kModes, torch::TensorOptions(device).dtype(torch::get_default_dtype())) *
      (2 * M_PI / kModes);
  return torch::stack({torch::cos(angle), torch::sin(angle)}, 1);
}

torch::Tensor sample_ring(int64_t count, torch::Device device) {
  auto mode = torch::randint(kModes, {count}, torch::TensorOptions(device).dtype(torch::kLong));
  return centres(device).index_select(0, mode) + kSpread * torch::randn({count, 2}, device);
}

// How far the norm of the critic's gradient is from 1, at points between real
// and generated ones.
torch::Tensor gradient_penalty(Critic& critic, const torch::Tensor& real, const torch::Tensor& fake) {
  auto mix = torch::rand({real.size(0), 1}, real.options());
  auto points = (mix * real + (1 - mix) * fake).detach().requires_grad_(true);
  auto scores = critic(points);
  auto gradient = torch::autograd::grad(
      {scores},
      {points},
      {torch::ones_like(scores)},
      /*retain_graph=*/true,
      /*create_graph=*/true)[0];
  return (gradient.norm(2, 1) - 1).pow(2).mean();
}

// How many of the modes the generator has found, and how far its points are from
// the nearest one.
void report(int step, Generator& generator, torch::Device device) {
  auto& accelerator = accel::accelerator();
  torch::NoGradGuard no_grad;
  generator->eval();
  auto points = generator(accelerator.distribute(torch::randn({1000, kNoiseSize}, device)));
  auto [distance, nearest] = torch::cdist(points, centres(device)).min(1);
  auto hits = torch::bincount(nearest.masked_select(distance < 4 * kSpread), {}, kModes);
  accelerator.printf(
      "step %4d: mean distance %.10f, %ld of %ld modes\n",
      step,
      distance.mean().item<double>(),
      static_cast<long>(hits.ge(20).sum().item<int64_t>()),
      static_cast<long>(kModes));
  generator->train();
}

int main(int argc, char** argv) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().match_single_device(true));
  int steps = 600;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--double") {
      torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    } else if (arg == "--steps" && i + 1 < argc) {
      steps = std::stoi(argv[++i]);
    } else {
      std::cerr << "usage: gan [--steps N] [--double]" << std::endl;
      return 2;
    }
  }
  torch::manual_seed(7);
  torch::Device device = accelerator.device();

  Generator generator;
  Critic critic;
  generator->to(device);
  critic->to(device);
  accel::AcceleratedOptimizer<torch::optim::Adam> generator_optimizer(
      generator->parameters(), torch::optim::AdamOptions(1e-3).betas({0.5, 0.9}));
  accel::AcceleratedOptimizer<torch::optim::Adam> critic_optimizer(
      critic->parameters(), torch::optim::AdamOptions(1e-3).betas({0.5, 0.9}));
  accelerator.prepare(generator, critic, generator_optimizer, critic_optimizer);

  for (int step = 1; step <= steps; ++step) {
    auto accumulation = accelerator.accumulate(generator);
    double critic_loss = 0;
    double penalty = 0;
    for (int i = 0; i < kCriticSteps; ++i) {
      auto inner_step = accelerator.accumulate(critic);
      auto real = accelerator.distribute(sample_ring(kBatchSize, device));
      auto fake = generator(accelerator.distribute(torch::randn({kBatchSize, kNoiseSize}, device))).detach();
      auto gp = gradient_penalty(critic, real, fake);
      auto loss = critic(fake).mean() - critic(real).mean() + kPenaltyWeight * gp;
      critic_optimizer.zero_grad();
      accelerator.backward(loss);
      critic_optimizer.step();
      critic_loss += loss.item<double>() / kCriticSteps;
      penalty += gp.item<double>() / kCriticSteps;
    }

    generator_optimizer.zero_grad();
    auto fake = generator(accelerator.distribute(torch::randn({kBatchSize, kNoiseSize}, device)));
    auto generator_loss = -critic(fake).mean();
    accelerator.backward(generator_loss);
    generator_optimizer.step();

    if (step % 25 == 0) {
      accelerator.printf(
          "step %4d: critic %.10f (penalty %.10f), generator %.10f\n",
          step,
          critic_loss,
          penalty,
          generator_loss.item<double>());
    }
    if (step % 100 == 0 || step == steps) {
      report(step, generator, device);
    }
  }

  accelerator.save(generator, "gan.pt");
  return 0;
}
