// Who asks for an optimizer's very class, and accessors that are given away.
//
// RUN: rm -rf %t && mkdir %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate train.cpp 2> err && FileCheck --input-file err --implicit-check-not refused: %s
// RUN: cmp %s %t/train.cpp
#include <torch/torch.h>

#include <iostream>
#include <type_traits>
#include <typeinfo>

template <class O> struct Warmup { static constexpr double factor = 1; };
// CHECK: train.cpp:[[#@LINE+1]]:20: refused: a specialisation is for torch::optim::Adam itself{{.*}}AcceleratedOptimizer<torch::optim::Adam>{{.*}} [ACL0187]
template <> struct Warmup<torch::optim::Adam> { static constexpr double factor = 2; };
template <class O> struct Counter { inline static int steps = 0; };

// Named for the class wherever it is used, and not for what an optimizer is.
template <class O> struct Decay { static constexpr double rate = 1; };
template <> struct Decay<torch::optim::Adam> { static constexpr double rate = 0.5; };
const double rate = Decay<torch::optim::Adam>::rate;
template <class O> struct Loop {
  explicit Loop(O& optimizer) : optimizer(optimizer) {}
  inline static int passes = 0;
  O& optimizer;
};

template <class O> const char* kind(O&) { return "other"; }
// CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: beside a template, an overload is for torch::optim::Adam itself{{.*}} [ACL0187]
const char* kind(torch::optim::Adam&) { return "adam"; }
// Any other function takes what derives from it, too, and a template of something else.
const char* name(torch::optim::Adam&) { return "adam"; }
template <class Loader> void pass(Loader& loader, torch::optim::Adam& optimizer) {
  for (auto& batch : loader) (void)batch;
  optimizer.zero_grad();
}

// CHECK: train.cpp:[[#@LINE+2]]:{{[0-9]+}}: refused: an accessor is kept of what becomes a tensor of this place only{{.*}} [ACL0187]
at::TensorAccessor<float, 2> table(const torch::Tensor& t) {
  return t.accessor<float, 2>();
}
at::TensorAccessor<float, 2> own_table(torch::Tensor& t) {
  return t.accessor<float, 2>();
}

template <class O> void train(O& optimizer, torch::nn::Linear& net) {
  double weight = Warmup<O>::factor;
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: std::is_same asks for torch::optim::Adam itself{{.*}} [ACL0187]
  if constexpr (std::is_same_v<O, torch::optim::Adam>) weight *= 2;
  if constexpr (std::is_same_v<O, torch::optim::SGD>) weight *= 3;
  if constexpr (std::is_base_of_v<torch::optim::Adam, O>) weight *= 4;
  auto out = net->forward(torch::rand({8, 4}));
  auto loss = weight * out.mean();
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
  ++Counter<O>::steps;
  auto all = table(out), own = own_table(out);
  std::cout << all[0][0] << own[0][0] << std::endl;
}

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::Adam optimizer(net->parameters(), 0.1);
  for (int i = 0; i < 4; ++i)
    train(optimizer, net);
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: a member is that of the template for torch::optim::Adam itself{{.*}} [ACL0187]
  std::cout << Counter<torch::optim::Adam>::steps << kind(optimizer) << name(optimizer);
  Loop loop(optimizer);
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: a member is that of the template for torch::optim::Adam itself{{.*}} [ACL0187]
  std::cout << Loop<torch::optim::Adam>::passes << rate;
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: typeid tells torch::optim::Adam itself{{.*}} [ACL0187]
  std::cout << typeid(optimizer).name();
}
