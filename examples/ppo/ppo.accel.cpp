// Proximal policy optimization (Schulman et al., 2017) on cart-pole, which is
// simulated here. For one device.
//
//   ./ppo [--updates N] [--double]

#include <torch/torch.h>
#include <accel/accel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <random>
#include <string>
#include <tuple>
#include <vector>

constexpr int64_t kEnvironments = 8;
constexpr int64_t kSteps = 128; // of each environment, between two updates
constexpr int64_t kSamples = kEnvironments * kSteps;
constexpr int64_t kMinibatch = 256;
constexpr int kEpochs = 4;
constexpr double kDiscount = 0.99;
constexpr double kLambda = 0.95;
constexpr double kClip = 0.2;

// A pole on a cart that is pushed to the left or to the right: the equations of
// Barto, Sutton and Anderson (1983).
class CartPole {
 public:
  explicit CartPole(uint32_t seed) : random_(seed) {
    reset();
  }

  void reset() {
    std::uniform_real_distribution<double> uniform(-0.05, 0.05);
    for (auto& value : state_) {
      value = uniform(random_);
    }
    steps_ = 0;
  }

  // Whether the episode has ended: the pole has fallen, the cart has left the
  // track, or 300 steps are over.
  bool step(int64_t action) {
    auto& [x, speed, angle, turn] = state_;
    const double force = action == 1 ? 10 : -10;
    const double cosine = std::cos(angle);
    const double sine = std::sin(angle);
    const double push = (force + 0.05 * turn * turn * sine) / 1.1;
    const double turning = (9.8 * sine - cosine * push) /
        (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1));
    const double acceleration = push - 0.05 * turning * cosine / 1.1;
    x += 0.02 * speed;
    speed += 0.02 * acceleration;
    angle += 0.02 * turn;
    turn += 0.02 * turning;
    ++steps_;
    return std::abs(x) > 2.4 || std::abs(angle) > 0.2095 || steps_ >= 300;
  }

  const std::array<double, 4>& state() const {
    return state_;
  }
  int steps() const {
    return steps_;
  }

 private:
  std::mt19937 random_;
  std::array<double, 4> state_;
  int steps_ = 0;
};

struct ActorCriticImpl : torch::nn::Module {
  ActorCriticImpl()
      : actor(
            torch::nn::Linear(4, 64),
            torch::nn::Tanh(),
            torch::nn::Linear(64, 64),
            torch::nn::Tanh(),
            torch::nn::Linear(64, 2)),
        critic(
            torch::nn::Linear(4, 64),
            torch::nn::Tanh(),
            torch::nn::Linear(64, 64),
            torch::nn::Tanh(),
            torch::nn::Linear(64, 1)) {
    register_module("actor", actor);
    register_module("critic", critic);
  }

  // Logarithms of the actions' probabilities, and the value of each state.
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& states) {
    return {
        torch::log_softmax(actor->forward(states), 1),
        critic->forward(states).squeeze(1)};
  }

  torch::nn::Sequential actor, critic;
};
TORCH_MODULE(ActorCritic);

// What the environments have gone through between two updates: rows are steps,
// columns environments.
struct Rollout {
  explicit Rollout(torch::Device device) {
    auto options = torch::TensorOptions(device).dtype(torch::get_default_dtype());
    states = torch::zeros({kSteps, kEnvironments, 4}, options);
    actions = torch::zeros({kSteps, kEnvironments}, options.dtype(torch::kLong));
    log_probabilities = torch::zeros({kSteps, kEnvironments}, options);
    values = torch::zeros({kSteps + 1, kEnvironments}, options);
    rewards = torch::zeros({kSteps, kEnvironments}, options);
    goes_on = torch::zeros({kSteps, kEnvironments}, options);
  }

  // Generalized advantage estimation.
  torch::Tensor advantages() const {
    auto result = torch::zeros_like(rewards);
    auto last = torch::zeros_like(rewards[0]);
    for (int64_t t = kSteps - 1; t >= 0; --t) {
      auto error = rewards[t] + kDiscount * goes_on[t] * values[t + 1] - values[t];
      last = error + kDiscount * kLambda * goes_on[t] * last;
      result[t] = last;
    }
    return result;
  }

  torch::Tensor states, actions, log_probabilities, values, rewards, goes_on;
};

class Agent {
 public:
  explicit Agent(torch::Device device)
      : device_(device),
        optimizer_(model_->parameters(), torch::optim::AdamOptions(1.5e-3).eps(1e-5)) {
    auto& accelerator = accel::accelerator();
    model_->to(device);
    accelerator.prepare(model_, optimizer_);
    for (uint32_t i = 0; i < kEnvironments; ++i) {
      environments_.emplace_back(100 + i);
    }
  }

  Rollout collect() {
    auto& accelerator = accel::accelerator();
    torch::NoGradGuard no_grad;
    Rollout rollout(device_);
    lengths_.clear();
    for (int64_t t = 0; t < kSteps; ++t) {
      auto states = observe();
      auto [log_probabilities, values] = model_(states);
      auto actions = log_probabilities.exp().multinomial(1);
      rollout.states[t] = states;
      rollout.actions[t] = actions.squeeze(1);
      rollout.log_probabilities[t] = log_probabilities.gather(1, actions).squeeze(1);
      rollout.values[t] = values;
      auto chosen = accelerator.full(actions.to(torch::kCPU));
      auto action = chosen.accessor<int64_t, 2>();
      for (int64_t i = 0; i < kEnvironments; ++i) {
        const bool done = environments_[i].step(action[i][0]);
        rollout.rewards[t][i] = 1;
        rollout.goes_on[t][i] = done ? 0 : 1;
        if (done) {
          lengths_.push_back(environments_[i].steps());
          environments_[i].reset();
        }
      }
    }
    rollout.values[kSteps] = std::get<1>(model_(observe()));
    return rollout;
  }

  // The mean loss of the policy and that of the value function.
  std::pair<double, double> update(const Rollout& rollout) {
    auto& accelerator = accel::accelerator();
    auto advantages = rollout.advantages();
    auto returns = (advantages + rollout.values.slice(0, 0, kSteps)).reshape({-1});
    advantages = advantages.reshape({-1});
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8);
    auto states = rollout.states.reshape({-1, 4});
    auto actions = rollout.actions.reshape({-1, 1});
    auto old_log_probabilities = rollout.log_probabilities.reshape({-1});

    double policy_sum = 0;
    double value_sum = 0;
    int64_t minibatches = 0;
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      auto order = torch::randperm(kSamples).to(device_);
      for (int64_t begin = 0; begin < kSamples; begin += kMinibatch) {
        auto step = accelerator.accumulate(model_);
        auto rows = order.slice(0, begin, begin + kMinibatch);
        auto [log_probabilities, values] = model_(accelerator.distribute(states.index_select(0, rows)));
        auto chosen = log_probabilities.gather(1, actions.index_select(0, rows)).squeeze(1);
        auto ratio = (chosen - old_log_probabilities.index_select(0, rows)).exp();
        auto advantage = advantages.index_select(0, rows);
        auto policy_loss = -torch::min(
                                ratio * advantage,
                                ratio.clamp(1 - kClip, 1 + kClip) * advantage)
                                .mean();
        auto value_loss = torch::mse_loss(values, returns.index_select(0, rows));
        auto entropy = -(log_probabilities.exp() * log_probabilities).sum(1).mean();

        optimizer_.zero_grad();
        accelerator.backward(policy_loss + 0.5 * value_loss - 0.01 * entropy);
        accelerator.clip_grad_norm_(model_->parameters(), 0.5);
        optimizer_.step();

        policy_sum += policy_loss.item<double>();
        value_sum += value_loss.item<double>();
        ++minibatches;
      }
    }
    return {policy_sum / minibatches, value_sum / minibatches};
  }

  // Of the episodes that have ended in the last rollout.
  double mean_length() const {
    double sum = 0;
    for (int length : lengths_) {
      sum += length;
    }
    return lengths_.empty() ? 0 : sum / lengths_.size();
  }

  void save(const std::string& path) const {
    auto& accelerator = accel::accelerator();
    accelerator.save(model_, path);
  }

 private:
  torch::Tensor observe() const {
    std::vector<double> values;
    for (const auto& environment : environments_) {
      values.insert(values.end(), environment.state().begin(), environment.state().end());
    }
    return torch::tensor(values, torch::get_default_dtype()).view({kEnvironments, 4}).to(device_);
  }

  torch::Device device_;
  ActorCritic model_;
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer_;
  std::vector<CartPole> environments_;
  std::vector<int> lengths_;
};

int main(int argc, char** argv) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().match_single_device(true));
  int updates = 25;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--double") {
      torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    } else if (arg == "--updates" && i + 1 < argc) {
      updates = std::stoi(argv[++i]);
    } else {
      std::cerr << "usage: ppo [--updates N] [--double]" << std::endl;
      return 2;
    }
  }
  torch::manual_seed(2);
  torch::Device device = accelerator.device();

  Agent agent(device);
  for (int update = 1; update <= updates; ++update) {
    auto rollout = agent.collect();
    auto [policy_loss, value_loss] = agent.update(rollout);
    accelerator.printf(
        "update %2d: episodes of %.1f steps, policy %.10f, value %.10f\n",
        update,
        agent.mean_length(),
        policy_loss,
        value_loss);
  }
  agent.save("ppo.pt");
  return 0;
}
