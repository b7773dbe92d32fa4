// Containers of pointers are gone through in another order by each process.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck --implicit-check-not=refused: %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

struct ByName {
  bool operator()(const std::string* a, const std::string* b) const { return *a < *b; }
};

double worth(const torch::Tensor& loss) { return loss.item<double>(); }

int main() {
  torch::nn::Linear net(4, 1), other(4, 1);
  torch::optim::Adam optimizer(net->parameters(), 0.1);
  std::unordered_map<const torch::nn::Module*, torch::Tensor> losses;
  std::map<std::shared_ptr<torch::nn::LinearImpl>, torch::Tensor> shadow;
  std::map<std::string, torch::Tensor> named;
  std::map<const std::string*, torch::Tensor, ByName> sorted;
  for (int step = 0; step < 4; ++step) {
    auto x = torch::randn({32, 4});
    losses[net.get()] = net(x).pow(2).mean();
    losses[other.get()] = other(x).pow(2).mean();
    double most = 0;
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: the loop goes in the order of addresses, which is another one in each process, and what it does wants all of them [ACL0127]
    for (const auto& [module, loss] : losses)
      most = std::max(most, worth(loss));
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: the loop goes in the order of addresses
    for (auto it = shadow.begin(); it != shadow.end(); ++it)
      most += it->first->forward(x).numel();
    // Elements are changed, each by itself.
    for (auto& [layer, weight] : shadow)
      weight.mul_(0.9).add_(layer->weight);
    for (const auto& [name, loss] : named)
      most += loss.item<double>();
    for (const auto& [name, loss] : sorted)
      most += loss.item<double>();
    optimizer.zero_grad();
    losses[net.get()].backward();
    optimizer.step();
  }
  double size = 0;
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: the loop goes in the order of addresses
  for (const auto& [key, state] : optimizer.state())
    size += static_cast<torch::optim::AdamParamState&>(*state).exp_avg().norm().item<double>();
}
