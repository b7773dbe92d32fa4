// Reinforcement learning: environments that are played in the loop, policies that
// learn from what they did, and from what they remember.

#include "zoo.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>

namespace zoo::reinforcement {

/// A cart on a line that is pushed to the left or to the right; it should stay
/// near the middle.
struct Cart {
  std::vector<double> reset(double start) {
    place = start;
    speed = 0;
    time = 0;
    return {place, speed, 1};
  }
  /// What it sees, its reward, and whether the game is over.
  std::tuple<std::vector<double>, double, bool> step(double push) {
    speed = 0.9 * speed + 0.3 * push;
    place += speed;
    ++time;
    const bool over = std::abs(place) > 2 || time == 12;
    return {{place, speed, 1}, 1 - place * place, over};
  }
  double place = 0, speed = 0;
  int time = 0;
};

Tensor seen(const std::vector<double>& state) {
  return torch::tensor(state);
}

nn::Sequential dense(int64_t from, int64_t to) {
  return nn::Sequential(nn::Linear(from, 8), nn::Tanh(), nn::Linear(8, to));
}

// One game after another, each with its returns (REINFORCE).
ZOO_MODEL(reinforce) {
  auto policy = dense(3, 2);
  auto optimizer = run.optimizer<optim::Adam>(policy->parameters(), optim::AdamOptions(2e-2));
  run.prepare(policy, *optimizer);
  Cart cart;
  double baseline = 0;
  for (int game = 0; game < 5; ++game) {
    auto state = cart.reset(0.5 * std::sin(game));
    std::vector<Tensor> log_chances, states;
    std::vector<double> rewards;
    for (bool over = false; !over;) {
      auto chances = torch::softmax(policy->forward(seen(state).unsqueeze(0)), 1);
      const auto action = chances.multinomial(1).item<int64_t>();
      log_chances.push_back(chances[0][action].log());
      states.push_back(seen(state));
      double reward = 0;
      std::tie(state, reward, over) = cart.step(action == 0 ? -1 : 1);
      rewards.push_back(reward);
    }
    std::vector<double> returns(rewards.size());
    double sum = 0;
    for (size_t t = rewards.size(); t-- > 0;) {
      sum = rewards[t] + 0.9 * sum;
      returns[t] = sum;
    }
    auto worth = torch::tensor(returns);
    worth = (worth - worth.mean()) / (worth.std() + 1e-3);
    auto loss = -(torch::stack(log_chances) * worth).sum();
    // Again on all states together, which are shared out.
    auto all = run.distribute(torch::stack(states));
    auto scores = policy->forward(all).log_softmax(1);
    auto entropy = -(scores.exp() * scores).sum(1).mean();
    baseline = 0.9 * baseline + 0.1 * returns[0];
    run.update(*optimizer, loss - 0.1 * entropy);
    run.note("length", static_cast<double>(rewards.size()));
    run.note("baseline", baseline);
  }
  run.finish(policy);
}

// Rollouts, advantages that are summed backwards (GAE), several passes over
// shuffled pieces with a clipped ratio (PPO).
ZOO_MODEL(proximal_policy) {
  auto trunk = nn::Linear(3, 8);
  auto actor = nn::Linear(8, 2), critic = nn::Linear(8, 1);
  const auto all = parameters(trunk, actor, critic);
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(1e-2).eps(1e-5));
  run.prepare(trunk, actor, critic, *optimizer);
  const auto judge = [&](const Tensor& x) {
    auto h = torch::tanh(trunk(x));
    return std::make_pair(actor(h), critic(h).squeeze(-1));
  };
  Cart cart;
  for (int round = 0; round < 2; ++round) {
    std::vector<Tensor> states, actions, chances, values;
    std::vector<double> rewards;
    std::vector<bool> overs;
    {
      torch::NoGradGuard no_grad;
      auto state = cart.reset(0.3);
      for (int t = 0; t < 19; ++t) {
        auto [scores, value] = judge(seen(state));
        auto log_chances = scores.log_softmax(-1);
        auto action = log_chances.exp().multinomial(1);
        states.push_back(seen(state));
        actions.push_back(action);
        chances.push_back(log_chances.gather(0, action));
        values.push_back(value);
        double reward = 0;
        bool over = false;
        std::tie(state, reward, over) = cart.step(action.item<int64_t>() * 2 - 1);
        rewards.push_back(reward);
        overs.push_back(over);
        if (over) {
          state = cart.reset(-0.2);
        }
      }
      values.push_back(judge(seen(state)).second);
    }
    auto advantages = torch::zeros({19});
    Tensor sum = torch::zeros({});
    for (int64_t t = 18; t >= 0; --t) {
      const double goes_on = overs[t] ? 0 : 1;
      auto delta = rewards[t] + 0.95 * goes_on * values[t + 1] - values[t];
      sum = delta + 0.95 * 0.9 * goes_on * sum;
      advantages[t] = sum;
    }
    auto targets = advantages + torch::stack(values).slice(0, 0, 19);
    auto all_states = torch::stack(states);
    auto all_actions = torch::cat(actions), all_chances = torch::cat(chances);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const auto& rows : torch::randperm(19).split(7)) {
        auto x = run.distribute(all_states.index({rows}));
        auto taken = run.distribute(all_actions.index({rows}));
        auto advantage = run.distribute(advantages.index({rows}));
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8);
        auto [scores, value] = judge(x);
        auto log_chances = scores.log_softmax(1);
        auto now = log_chances.gather(1, taken.unsqueeze(1)).squeeze(1);
        // The old ones in full: only some of the batch is shared out.
        auto ratio = (now - all_chances.index({rows})).exp();
        auto policy_loss = -torch::min(
                                ratio * advantage,
                                torch::clamp(ratio, 0.9, 1.1) * advantage)
                                .mean();
        auto value_loss = F::mse_loss(value, targets.index({rows}));
        auto entropy = -(log_chances * log_chances.exp()).sum(-1).mean();
        optimizer->zero_grad();
        auto loss = policy_loss + 0.5 * value_loss - 0.01 * entropy;
        run.backward(loss);
        run.note("norm", run.clip_grad_norm_(all, 0.5));
        optimizer->step();
        run.note("loss", loss);
        run.note("clipped", ((ratio - 1).abs() > 0.1).to(torch::kDouble).mean());
      }
    }
  }
  run.finish(trunk, actor, critic);
}

// A memory, a network that follows slowly, and chance instead of the best move
// now and then.
ZOO_MODEL(deep_q) {
  auto net = dense(3, 3), target = dense(3, 3);
  const auto copy = [&] {
    torch::NoGradGuard no_grad;
    auto from = net->named_parameters();
    for (auto& item : target->named_parameters()) {
      item.value().copy_(from[item.key()]);
    }
  };
  auto optimizer = run.optimizer<optim::RMSprop>(net->parameters(), optim::RMSpropOptions(5e-3));
  run.prepare(net, target, *optimizer);
  copy();
  struct Step {
    Tensor state, next;
    int64_t action;
    double reward;
    bool over;
  };
  std::deque<Step> memory;
  std::mt19937 random(3);
  Cart cart;
  auto state = seen(cart.reset(0.4));
  int64_t learned = 0;
  for (int t = 0; t < 26; ++t) {
    int64_t action = 0;
    if (torch::rand({1}).item<double>() < std::max(0.1, 1 - t / 20.)) {
      action = torch::randint(3, {1}, torch::kLong).item<int64_t>();
    } else {
      torch::NoGradGuard no_grad;
      action = net->forward(state.unsqueeze(0)).argmax(1).item<int64_t>();
    }
    auto [next, reward, over] = cart.step(static_cast<double>(action - 1));
    memory.push_back({state, seen(next), action, reward, over});
    if (memory.size() > 16) {
      memory.pop_front();
    }
    state = over ? seen(cart.reset(-0.4)) : seen(next);
    if (memory.size() < 7 || t % 2 == 1) {
      continue;
    }
    std::vector<Tensor> states, nexts;
    std::vector<int64_t> actions;
    std::vector<double> rewards, goes_on;
    for (int i = 0; i < 7; ++i) {
      const auto& step = memory[random() % memory.size()];
      states.push_back(step.state);
      nexts.push_back(step.next);
      actions.push_back(step.action);
      rewards.push_back(step.reward);
      goes_on.push_back(step.over ? 0 : 1);
    }
    auto x = run.distribute(torch::stack(states));
    auto after = run.distribute(torch::stack(nexts));
    auto moves = run.distribute(torch::tensor(actions));
    auto value = net->forward(x).gather(1, moves.unsqueeze(1)).squeeze(1);
    Tensor goal;
    {
      torch::NoGradGuard no_grad;
      auto best = net->forward(after).argmax(1, /*keepdim=*/true); // double
      auto later = target->forward(after).gather(1, best).squeeze(1);
      goal = torch::tensor(rewards) + 0.95 * torch::tensor(goes_on) * later;
    }
    run.update(*optimizer, F::smooth_l1_loss(value, goal));
    if (++learned % 4 == 0) {
      copy();
    }
  }
  run.finish(net, target);
}

// Two critics, an actor with noise, temperature, averaged targets (SAC).
ZOO_MODEL(soft_actor_critic) {
  auto actor = dense(3, 2);
  std::vector<nn::Sequential> critics = {dense(4, 1), dense(4, 1)};
  std::vector<nn::Sequential> targets = {dense(4, 1), dense(4, 1)};
  auto log_alpha = torch::zeros({1}).requires_grad_();
  auto actor_optimizer = run.optimizer<optim::Adam>(actor->parameters(), optim::AdamOptions(5e-3));
  auto critic_optimizer = run.optimizer<optim::Adam>(
      parameters(critics[0], critics[1]), optim::AdamOptions(5e-3));
  auto alpha_optimizer = run.optimizer<optim::Adam>(
      std::vector<Tensor>{log_alpha}, optim::AdamOptions(5e-3));
  run.prepare(
      actor, critics[0], critics[1], targets[0], targets[1], *actor_optimizer,
      *critic_optimizer, *alpha_optimizer);
  const auto act = [&](const Tensor& x) {
    auto parts = actor->forward(x).chunk(2, -1);
    auto spread = parts[1].clamp(-5, 1).exp();
    auto noise = torch::randn_like(parts[0]);
    auto raw = parts[0] + spread * noise;
    auto action = torch::tanh(raw);
    auto log_chance = (-0.5 * noise.pow(2) - spread.log() - 0.9189) -
        torch::log(1 - action.pow(2) + 1e-6);
    return std::make_pair(action, log_chance.sum(-1, true));
  };
  Cart cart;
  std::vector<Tensor> states, actions, rewards, nexts;
  auto state = seen(cart.reset(0.4));
  for (int t = 0; t < 16; ++t) {
    Tensor action;
    {
      torch::NoGradGuard no_grad;
      action = act(state.unsqueeze(0)).first.squeeze(0);
    }
    auto [next, reward, over] = cart.step(action.item<double>());
    states.push_back(state);
    actions.push_back(action);
    rewards.push_back(torch::full({1}, reward));
    nexts.push_back(seen(next));
    state = over ? seen(cart.reset(0.1 * t)) : seen(next);
    if (t < 8) {
      continue;
    }
    auto rows = torch::randint(static_cast<int64_t>(states.size()), {7}, torch::kLong);
    const auto drawn = [&](const std::vector<Tensor>& all) {
      return run.distribute(torch::stack(all).index({rows}));
    };
    auto x = drawn(states), a = drawn(actions), r = drawn(rewards), y = drawn(nexts);
    const auto alpha = log_alpha.exp().item<double>();
    Tensor goal;
    {
      torch::NoGradGuard no_grad;
      auto [later, chance] = act(y);
      auto pair = torch::cat({y, later}, 1);
      goal = r + 0.95 * (torch::min(targets[0]->forward(pair), targets[1]->forward(pair)) - alpha * chance);
    }
    auto pair = torch::cat({x, a}, 1);
    run.update(
        *critic_optimizer,
        F::mse_loss(critics[0]->forward(pair), goal) +
            F::mse_loss(critics[1]->forward(pair), goal));
    auto [action_now, chance] = act(x);
    auto pair_now = torch::cat({x, action_now}, 1);
    auto worth = torch::minimum(
        critics[0]->forward(pair_now), critics[1]->forward(pair_now));
    run.update(*actor_optimizer, (alpha * chance - worth).mean());
    run.update(*alpha_optimizer, -(log_alpha * (chance - 1).detach()).mean());
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < 2; ++i) {
      auto to = targets[i]->parameters(), from = critics[i]->parameters();
      for (size_t p = 0; p < to.size(); ++p) {
        to[p].data().lerp_(from[p].data(), 0.1);
      }
    }
  }
  run.note("alpha", log_alpha);
  run.finish(actor, critics[0], critics[1], targets[0], targets[1]);
}

// Arms of which one learns what they pay, by the least squares of each (LinUCB),
// and a network whose weights are moved at random (evolution strategies).
ZOO_MODEL(without_gradients) {
  torch::NoGradGuard no_grad;
  auto truth = torch::randn({3, 4});
  std::vector<Tensor> a(3), b(3);
  for (int64_t arm = 0; arm < 3; ++arm) {
    a[arm] = torch::eye(4) * (1 + 0.2 * arm);
    b[arm] = torch::zeros({4});
  }
  nn::Linear net(4, 3);
  run.prepare(net);
  auto loader = run.loader(Rows(torch::randn({17, 4}), torch::arange(17)), 5);
  for (auto& batch : *loader) {
    auto step = run.accumulate(net);
    const auto n = batch.data.size(0);
    std::vector<Tensor> bounds;
    for (int64_t arm = 0; arm < 3; ++arm) {
      auto inverse = torch::linalg_inv(a[arm]);
      auto spread = (batch.data.matmul(inverse) * batch.data).sum(1).sqrt();
      bounds.push_back(batch.data.mv(inverse.mv(b[arm])) + spread);
    }
    auto choice = torch::stack(bounds, 1).argmax(1);
    auto reward = (batch.data * truth.index({choice})).sum(1);
    for (int64_t i = 0; i < n; ++i) {
      const auto arm = choice[i].item<int64_t>();
      a[arm] += torch::outer(batch.data[i], batch.data[i]);
      b[arm] += reward[i] * batch.data[i];
    }
    run.note("reward", reward.sum());
    // Antithetic pairs.
    auto flat = nn::utils::parameters_to_vector(net->parameters());
    auto change = torch::zeros_like(flat);
    auto wanted = batch.data.matmul(truth.t()).argmax(1);
    for (int i = 0; i < 3; ++i) {
      auto noise = torch::randn_like(flat) * 0.1;
      double worth = 0;
      for (const double sign : {1., -1.}) {
        nn::utils::vector_to_parameters(flat + sign * noise, net->parameters());
        worth -= sign * F::cross_entropy(net(batch.data), wanted).item<double>();
      }
      change.add_(noise, worth);
    }
    nn::utils::vector_to_parameters(flat + 5 * change, net->parameters());
    run.note("loss", F::cross_entropy(net(batch.data), wanted));
  }
  for (int64_t arm = 0; arm < 3; ++arm) {
    run.note("arm", b[arm]);
  }
  run.finish(net);
}

} // namespace zoo::reinforcement
