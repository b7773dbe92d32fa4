// A hand-written training program in which one process dies in the way that
// its arguments say:  faulty RANK STEP exit|exception|caught|abort|kill|segv
//
// Every process writes its id to faulty.RANK.pid first, so that the test can
// see that none is left.

#include <accel/accel.h>

#include <torch/torch.h>

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>

static void die(const std::string& how) {
  if (how == "exit") {
    std::exit(7);
  } else if (how == "exception" || how == "caught") {
    throw std::runtime_error("the data set is on fire");
  } else if (how == "abort") {
    std::abort();
  } else if (how == "kill") {
    raise(SIGKILL);
  } else if (how == "segv") {
    raise(SIGSEGV);
  }
}

static void train(int64_t rank, int64_t step_of_death, const std::string& how) {
  auto& accelerator = accel::accelerator();
  std::ofstream("faulty." + std::to_string(accelerator.process_index()) + ".pid") << getpid() << std::endl;

  torch::nn::Linear net(4, 1);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(net->parameters(), 0.1);
  accelerator.prepare(net, optimizer);
  for (int64_t i = 0; i < 1000; ++i) {
    auto step = accelerator.accumulate(net);
    if (accelerator.process_index() == rank && i == step_of_death) {
      die(how);
    }
    auto x = accelerator.distribute(torch::ones({8, 4}));
    auto loss = net->forward(x).pow(2).mean();
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
  }
  accelerator.print("done");
}

int main(int argc, char** argv) {
  const int64_t rank = std::atoll(argv[1]);
  const int64_t step_of_death = std::atoll(argv[2]);
  const std::string how = argv[3];

  accel::Accelerator accelerator(accel::AcceleratorOptions().match_single_device(true));
  if (how != "caught") {
    train(rank, step_of_death, how);
    return 0;
  }
  // What many programs do: the message, and out of main as if all were well.
  try {
    train(rank, step_of_death, how);
  } catch (const std::runtime_error& e) {
    std::cerr << e.what() << std::endl;
  }
}
