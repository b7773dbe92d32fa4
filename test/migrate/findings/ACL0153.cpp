// The data set draws random numbers of the host that are other ones in each run.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --check train.cpp > %t/out 2>&1
// RUN: FileCheck %s --input-file %t/out --implicit-check-not=refused: --implicit-check-not=ACL0186
//
// Where no main is seen the option of ACL0186 cannot be relied on.
//
// RUN: sed 's|^int main|void fit|; s|generator()|std::rand()|; /random_device/d' %s > %t/fit.cpp
// RUN: cd %t && not %accel_migrate --check fit.cpp 2>&1 | FileCheck --check-prefix FIT --implicit-check-not=refused: --implicit-check-not=ACL0186 %s
// FIT: fit.cpp:{{.*}}: warning: the data set draws random numbers that are not LibTorch's: {{.*}} [ACL0153]

#include <torch/torch.h>

#include <cstdlib>
#include <random>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t) override {
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: warning: {{.*}} [ACL0153]
    static std::mt19937 generator(std::random_device{}());
    const double noise = generator() / 1e10;
    return {torch::rand({4}) + noise, torch::rand({1})};
  }
  torch::optional<size_t> size() const override { return 100; }
};

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto loader = torch::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), 10);
  for (auto& batch : *loader) {
    auto output = net->forward(batch.data);
    auto loss = torch::mse_loss(output, batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
