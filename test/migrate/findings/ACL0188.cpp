// The memory of weights is written, or kept: said once. What only reads is given a copy.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --check train.cpp > %t/out 2>&1
// RUN: FileCheck %s --input-file %t/out --implicit-check-not=ACL0188
// RUN: sed 's|update(w, d, weight.numel());|for (int i = 0; i < 4; ++i) sum += w[i];|' %s > %t/reads.cpp
// RUN: cd %t && not %accel_migrate --check reads.cpp 2>&1 | FileCheck --check-prefix READS --implicit-check-not=ACL0188 %s
// READS: [ACL0174]

#include <torch/torch.h>

static void update(float* w, const float* d, int64_t n) {
  for (int64_t i = 0; i < n; ++i) w[i] -= 0.1f * d[i];
}

int main() {
  torch::nn::Linear net(4, 1);
  float sum = 0;
  for (int step = 0; step < 10; ++step) {
    net->zero_grad();
    auto x = torch::rand({12, 4});
    torch::mse_loss(net->forward(x), x.sum(1, true)).backward();
    torch::Tensor weight = net->weight;
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: note: {{.*}} [ACL0188]
    float* w = weight.data_ptr<float>();
    const float* d = net->weight.grad().data_ptr<float>();
    update(w, d, weight.numel());
  }
}
