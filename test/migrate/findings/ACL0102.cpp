// A change would be needed inside of a macro, and cannot be made in its text: other
// places use it, too, and nothing has to change there; it is put together from an
// argument and other text; a parameter has a name that is needed.
//
// RUN: rm -rf %t %t.before && split-file %s %t
// RUN: sed '/return probe/d; s|steps.h|slope.h|' %t/train.cpp > %t/train2.cpp
// RUN: cp -r %t %t.before
// RUN: cd %t && not %accel_migrate --write differs.cpp 2>&1 | FileCheck %s --check-prefix=DIFFERS
// RUN: cd %t && not %accel_migrate --write unseen.cpp 2>&1 | FileCheck %s --check-prefix=UNSEEN
// RUN: cd %t && not %accel_migrate --write pieces.cpp 2>&1 | FileCheck %s --check-prefix=PIECES
// RUN: cd %t && not %accel_migrate --write parameter.cpp 2>&1 | FileCheck %s --check-prefix=PARAMETER
// RUN: cd %t && not %accel_migrate --write train.cpp probe.cpp 2>&1 | FileCheck %s --check-prefix=ELSEWHERE
// RUN: cd %t && not %accel_migrate --write train2.cpp slope.cpp 2>&1 | FileCheck %s --check-prefix=HEADER
// RUN: diff -r -x .accel* %t.before %t
// RUN: rm -rf %t.before
//
// DIFFERS: differs.cpp:15:5: refused: what must change here is written by the macro BACK, which is used at differs.cpp:19, too, where nothing has to change in it [ACL0102]
// UNSEEN: unseen.cpp:17:5: refused: {{.*}} macro BACK, which is used at unseen.cpp:6, too, {{.*}} [ACL0102]
// PIECES: pieces.cpp:13:{{[0-9]+}}: refused: what must change here is put together by macros [ACL0102]
// PARAMETER: parameter.cpp:12:5: refused: {{.*}} macro STEP, one of whose parameters has a name that is needed [ACL0102]
// ELSEWHERE: train.cpp:10:5: refused: {{.*}} macro BACK, which is used at probe.cpp:7, too, {{.*}} [ACL0102]
// HEADER: slope.h:4:{{[0-9]+}}: refused: the macro BACK must change here, and is used at slope.cpp:7, too, where nothing has to change in it [ACL0102]

//--- differs.cpp
#include <torch/torch.h>

#define BACK(l) l.backward()

struct Value {
  double at;
  double backward() const { return 2 * at; }
};

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int i = 0; i < 10; ++i) {
    auto loss = net->forward(torch::randn({8, 4})).mean();
    BACK(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  return BACK(Value{1}) > 3;
}
//--- unseen.cpp
#include <torch/torch.h>

#define BACK(l) l.backward()

// Never used.
template <typename T> void never(T loss) { BACK(loss); }

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int i = 0; i < 10; ++i) {
    auto input = torch::randn({8, 4});
    auto output = net->forward(input);
    auto loss = torch::mse_loss(output, input.sum(1, true));
    optimizer.zero_grad();

    BACK(loss);
    optimizer.step();
  }
}
//--- pieces.cpp
#include <torch/torch.h>

#define CALL(function) function()

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int i = 0; i < 10; ++i) {
    auto input = torch::randn({8, 4});
    auto loss = torch::mse_loss(net->forward(input), input.sum(1, true));
    optimizer.zero_grad();

    CALL(loss.backward);
    optimizer.step();
  }
}
//--- parameter.cpp
#include <torch/torch.h>

#define STEP(accel, l) accel.zero_grad(), l.backward(), accel.step()

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int i = 0; i < 10; ++i) {
    auto input = torch::randn({8, 4});
    auto loss = torch::mse_loss(net->forward(input), input.sum(1, true));

    STEP(optimizer, loss);
  }
}
//--- steps.h
#pragma once
#include <torch/torch.h>

#define BACK(l) l.backward()

double probe(double at);
//--- probe.cpp
#include "steps.h"

struct Value {
  double at;
  double backward() const { return 2 * at; }
};
double probe(double at) { return BACK(Value{at}); }
//--- train.cpp
#include "steps.h"

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int i = 0; i < 10; ++i) {
    auto input = torch::randn({8, 4});
    auto loss = torch::mse_loss(net->forward(input), input.sum(1, true));
    optimizer.zero_grad();
    BACK(loss);
    optimizer.step();
  }
  return probe(1) > 0;
}
//--- slope.h
#pragma once
#include <torch/torch.h>

#define BACK(l) l.backward()

//--- slope.cpp
#include "slope.h"

struct Value {
  double at;
  double backward() const { return 2 * at; }
};
int main(int count, char**) { return BACK(Value{1.0 * count}) > 3; }
