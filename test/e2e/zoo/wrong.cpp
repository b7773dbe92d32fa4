// Models that are not alike in the two programs: the comparison has to find each
// of them. They run only where they are asked for by name.

#include "zoo.h"

#include <chrono>
#include <stdexcept>
#include <thread>

namespace zoo::wrong {

Rows samples() {
  auto x = torch::randn({17, 6});
  return {x, x.slice(1, 0, 2)};
}

template <typename Loss>
void train(Run& run, const Loss& loss) {
  nn::Linear net(6, 2);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.1);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  for (auto& batch : *loader) {
    auto step = run.accumulate(net);
    run.update(*optimizer, loss(net, batch.data, batch.target));
  }
  run.finish(net);
}

// The mean over this process's rows, taken for that of all.
ZOO_WRONG_MODEL(wrong_part_for_the_whole) {
  train(run, [&](nn::Linear& net, const Tensor& x, const Tensor& y) {
    return F::mse_loss(
        net(accel::distributed::to_local(x)), accel::distributed::to_local(y));
  });
}

// A little more on the last process only, and not in the loss.
ZOO_WRONG_MODEL(wrong_on_one_process) {
  train(run, [&](nn::Linear& net, const Tensor& x, const Tensor& y) {
    return F::mse_loss(net(x), y);
  });
  const bool last =
      run.accelerator() != nullptr && run.accelerator()->is_last_process();
  run.note("result", last ? 1 + 1e-8 : 1);
}

// One random number more.
ZOO_WRONG_MODEL(wrong_random_numbers) {
  if (run.accelerator() != nullptr) {
    torch::rand({1});
  }
}

// A shape that only looks alike, and one note less.
ZOO_WRONG_MODEL(wrong_shape) {
  run.note("value", torch::ones({2, 1}).view({run.accelerator() ? 1 : 2, -1}));
}
ZOO_WRONG_MODEL(wrong_count) {
  for (int i = 0; i < (run.accelerator() ? 3 : 4); ++i) {
    run.note("value", 1);
  }
}

// An error on one process, and one that does not come.
ZOO_WRONG_MODEL(wrong_error) {
  if (run.accelerator() != nullptr && run.accelerator()->is_last_process()) {
    throw std::runtime_error("this process has had enough");
  }
  if (run.accelerator() != nullptr) {
    run.accelerator()->wait_for_everyone();
  }
}
ZOO_WRONG_MODEL(wrong_hang) {
  if (run.accelerator() != nullptr) {
    std::this_thread::sleep_for(std::chrono::minutes(10));
  }
}

} // namespace zoo::wrong
