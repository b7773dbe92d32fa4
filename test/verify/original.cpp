// The single-device program of the verify tests. It knows nothing of accel.
//
// PROGRAM [--clock] [--random-seed] [--clock-seed] [--no-seed] [--no-dropout] [--leave-early]
//         [--backbone] [--by-grad] [--nan | --nan-at-last | --astray]
//         [--blob | --fill-float [--write-float] | --float [--read-float]]

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <random>
#include <set>

#include "problem.h"

int main(int argc, char** argv) {
  using namespace problem;
  const std::set<std::string> flags(argv + 1, argv + argc);
  if (flags.count("--random-seed") != 0) {
    torch::manual_seed(std::random_device()() + std::time(nullptr));
  } else if (flags.count("--clock-seed") != 0) {
    torch::manual_seed(
        std::chrono::steady_clock::now().time_since_epoch().count());
  } else if (flags.count("--no-seed") == 0) {
    torch::manual_seed(11);
  }
  if (flags.count("--name") != 0) {
    std::cout << "this is " << argv[0] << std::endl;
  }
  Net net(dropout_of(flags));
  Average average(net.hidden);
  Scales scales(/*reused=*/true);
  Data data(flags);
  take_as_float(net.hidden->weight, flags);
  torch::nn::Linear backbone = backbone_of(flags);
  torch::optim::SGD optimizer(
      net.parameters(), torch::optim::SGDOptions(kRate).momentum(kMomentum));
  torch::optim::StepLR scheduler(optimizer, 2, 0.5);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    net.train();
    const auto order = torch::randperm(kRows);
    double running = 0;
    for (int64_t batch = 0; batch < kBatches; ++batch) {
      const auto rows =
          order.slice(0, batch * kBatch, std::min((batch + 1) * kBatch, kRows));
      const auto x = data.inputs.index_select(0, rows);
      const auto y = data.targets.index_select(0, rows);
      optimizer.zero_grad();
      auto loss = torch::mse_loss(
          net.forward(backbone ? backbone->forward(x) : x), y);
      loss = data.spoiled(loss, epoch);
      if (flags.count("--by-grad") != 0) {
        auto parameters = net.parameters();
        const auto gradients = torch::autograd::grad({loss}, parameters);
        for (size_t i = 0; i < parameters.size(); ++i) {
          parameters[i].mutable_grad() = gradients[i].clone();
        }
      } else {
        loss.backward();
      }
      torch::nn::utils::clip_grad_norm_(net.parameters(), kMaxNorm);
      optimizer.step();
      average.follow(net.hidden->weight);
      net.update_mean(x.mean(0));
      running += loss.item<double>();
    }
    scheduler.step();

    net.eval();
    const torch::NoGradGuard no_grad;
    int64_t correct = 0;
    for (int64_t begin = 0; begin < kRows; begin += kBatch) {
      const auto x = data.inputs.slice(0, begin, begin + kBatch);
      const auto y = data.targets.slice(0, begin, begin + kBatch);
      correct +=
          net.forward(x).sign().eq(y.sign()).sum().item<int64_t>();
    }
    std::printf(
        "epoch %d loss %.9g correct %ld\n",
        epoch,
        running / kBatches,
        static_cast<long>(correct));
  }
  scales.change();
  if (flags.count("--clock") != 0) {
    std::printf(
        "took %lld ns\n",
        static_cast<long long>(
            std::chrono::steady_clock::now().time_since_epoch().count()));
  }
  save(net, "net.pt");
  std::ofstream("done.txt") << "done\n";
  if (flags.count("--leave-early") != 0) {
    std::fflush(stdout);
    ::_exit(0);
  }
}
