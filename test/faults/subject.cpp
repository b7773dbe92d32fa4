// The program to which faults happen: trains a tiny model and saves its state
// after every step. Its first argument says what goes wrong.
//
//   train [STEPS]    nothing; prints what came out
//   kill KILLS [STEPS]  processes kill themselves at random moments, also while
//                    they save, until the file `kills` has KILLS lines; the
//                    file `log` says where it starts and what it does. With
//                    FAULTS_WIDTH the layer has so many features, so that steps are
//                    mostly its weight on the way; FAULTS_EVERY: steps per save
//   saving STEPS     as train, but slowly, and saves after every step
//   stop             as train, but slowly; returns 75 on SIGTERM or SIGUSR1
//   no-resume        saves without having called resume()
//   main-only        process 0 enters a barrier that the others do not
//   fewer-batches    the last process leaves its loop early
//   slow SECONDS     the last process computes for so long, all else is well
//   shapes           the last process adds a longer tensor than the others
//   die [HOW]        the last process ends while the others wait for it: kill,
//                    segv, exit, throw, memory (more than the system gives),
//                    oom (more than it turns out to have)
//   doomed STEPS     as saving, but of three processes the last one never comes
//                    further than three steps
//   meet             meets, says what it found, and waits for the file `go`
//   agent            hosts a store as torchrun's agent does: writes its port
//   into
//                    the file `port`, and waits for the file `go`
//   shared-out       trains on shared out batches, and does one operator on a
//                    whole one; with a second argument nothing is distributed
//   loaded           trains on the batches of a loader, whose data set computes
//   large LAYERS     trains layers of 4 MiB, and prints the losses
//   sum              adds numbers over the processes until `seconds` are over

#include <accel/accel.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kSteps = 300;

int64_t lines_in(const char* name) {
  std::ifstream file(name);
  int64_t count = 0;
  for (std::string line; std::getline(file, line); ++count) {
  }
  return count;
}

void append(const char* name, const std::string& line) {
  const int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (write(fd, line.data(), line.size()) < 0) {
    std::abort();
  }
  close(fd);
}

void sleep_ms(int64_t milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// At some moment within the next `most` milliseconds this process is gone.
void die_soon(int64_t kills, int64_t most) {
  if (lines_in("kills") >= kills) {
    return;
  }
  std::thread([most] {
    std::random_device random;
    std::this_thread::sleep_for(std::chrono::microseconds(
        random() % static_cast<unsigned>(most * 1000)));
    append("kills", "x\n");
    std::raise(SIGKILL);
  }).detach();
}

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

int train(
    accel::Accelerator& accelerator,
    int64_t kills,
    bool stoppable,
    int64_t steps = kSteps,
    bool saving = false,
    bool doomed = false) {
  torch::manual_seed(1);
  const int64_t width = from_environment("FAULTS_WIDTH", 8);
  const int64_t every = from_environment("FAULTS_EVERY", 1);
  torch::nn::Linear net(width, width);
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(
      net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  int64_t step = 0;
  double sum = 0;
  accelerator.register_for_checkpointing(step, sum);
  accelerator.resume();
  if (accelerator.is_main_process()) {
    append("log", "start " + std::to_string(step) + "\n");
  }
  const int64_t begin = step;
  if (kills > 0) {
    die_soon(kills, 300);
  }
  while (step < steps) {
    {
      auto guard = accelerator.accumulate(net);
      auto x = torch::randn({6, width});
      x = accelerator.distribute(x);
      const auto loss = net->forward(x).pow(2).mean();
      optimizer.zero_grad();
      accelerator.backward(loss);
      optimizer.step();
      sum += loss.item<double>();
    }
    ++step;
    if (kills > 0 && accelerator.is_main_process()) {
      append("log", "step " + std::to_string(step) + "\n");
    }
    if (doomed && accelerator.num_processes() == 3 &&
        accelerator.is_last_process() && step == begin + 3) {
      std::raise(SIGKILL);
    }
    if (stoppable || saving) {
      sleep_ms(doomed ? 0 : 20);
      if (step == 5 && accelerator.is_main_process()) {
        append("begun", "x\n");
      }
    }
    if (stoppable) {
      if (accelerator.stop_requested()) {
        accelerator.save_state();
        return accel::kExitStopped;
      }
      if (step >= 40) {
        break;
      }
    } else if ((kills > 0 || saving) && step % every == 0) {
      accelerator.save_state();
    }
  }
  const torch::NoGradGuard no_grad;
  accelerator.printf(
      "after %d steps: %a %a\n",
      static_cast<int>(step),
      sum,
      net->weight.sum().item<double>());
  return 0;
}

accel::AcceleratorOptions options() {
  return accel::AcceleratorOptions()
      .cpu(true)
      .match_single_device(true)
      .project_dir("run")
      .automatic_checkpoint_naming(true)
      .total_limit(2);
}

[[gnu::noinline]] void enter_barrier(accel::Accelerator& accelerator) {
  accelerator.wait_for_everyone(); // The line that messages name.
}

[[gnu::noinline]] double add(accel::Accelerator& accelerator, double value) {
  return accelerator.reduce(torch::full({2}, value)).sum().item<double>();
}

/// No operator that has to see all of the rows at once.
[[gnu::noinline]] torch::Tensor invert(const torch::Tensor& matrix) {
  return torch::linalg_inv(matrix); // The line that the report names.
}

void train_shared_out(accel::Accelerator& accelerator, bool distributed) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(8, 8), torch::nn::Tanh());
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  for (int i = 0; i < 5; ++i) {
    auto x = torch::randn({8, 8});
    x = distributed ? accelerator.distribute(x) : x;
    if (i == 0 && !accelerator.is_main_process()) {
      ::usleep(300000); // Process 0 waits in what comes next.
    }
    const auto inverse = invert(x); // before the step
    auto step = accelerator.accumulate(net);
    optimizer.zero_grad();
    accelerator.backward((net->forward(x) - inverse).pow(2).mean());
    optimizer.step();
  }
}

void train_large(accel::Accelerator& accelerator, int64_t layers) {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int64_t i = 0; i < layers; ++i) {
    net->push_back(
        torch::nn::Linear(torch::nn::LinearOptions(1024, 1024).bias(false)));
  }
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(
      net->parameters(), 1e-3);
  accelerator.prepare(net, optimizer);
  for (int i = 0; i < 2; ++i) {
    optimizer.zero_grad();
    auto x = accelerator.distribute(torch::linspace(-1, 1, 4096).view({4, 1024}));
    for (auto& layer : *net) {
      x = x + layer.forward(x) / 8;
    }
    const auto loss = (x - 1).pow(2).mean();
    accelerator.backward(loss);
    optimizer.step();
    accelerator.printf("%a\n", loss.item<double>());
  }
}

struct Powers : torch::data::Dataset<Powers> {
  torch::data::Example<> get(size_t index) override {
    const auto x = torch::full({8}, static_cast<double>(index) / 32);
    return {x, x.pow(2)};
  }
  std::optional<size_t> size() const override {
    return 32;
  }
};

void train_loaded(accel::Accelerator& accelerator) {
  torch::nn::Linear net(8, 8);
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(
      net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  auto loader = accel::data::make_data_loader(
      Powers().map(torch::data::transforms::Stack<>()), 16);
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    accelerator.backward(torch::mse_loss(net->forward(batch.data), batch.target));
    optimizer.step();
  }
}

int host_store() {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.port = 0;
  const c10d::TCPStore store("127.0.0.1", options);
  append("port", std::to_string(store.getPort()) + "\n");
  while (access("go", F_OK) != 0) {
    sleep_ms(10);
  }
  return 0;
}

[[noreturn]] void die(const std::string& how) {
  if (how == "exit") {
    std::_Exit(7);
  }
  if (how == "throw") {
    throw std::runtime_error("the data set is on fire");
  }
  if (how == "memory") {
    // As where the system has set a limit; otherwise it kills.
    const rlimit limit{rlim_t{1} << 30, rlim_t{1} << 30};
    setrlimit(RLIMIT_AS, &limit);
    const at::Tensor all = torch::ones({int64_t{1} << 40}, torch::kByte);
  }
  if (how == "oom") {
    // Where the limit is not set nobody's machine is to suffer.
    constexpr int64_t kPiece = 16 << 20;
    std::vector<at::Tensor> all;
    for (int i = 0; i < 128; ++i) {
      all.push_back(torch::ones({kPiece}, torch::kByte));
    }
    std::fprintf(stderr, "there is no limit\n");
    std::_Exit(97);
  }
  std::raise(how == "segv" ? SIGSEGV : SIGKILL);
  std::abort();
}

} // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "train";
  const int64_t number = argc > 2 ? std::atoll(argv[2]) : 0;
  if (fault == "kill" && std::random_device()() % 4 == 0) {
    die_soon(number, 1000); // Perhaps before the processes have met.
  }
  if (fault == "agent") {
    return host_store();
  }
  accel::Accelerator accelerator(options());
  const bool last = accelerator.is_last_process();
  if (fault == "train") {
    return train(accelerator, 0, false, number > 0 ? number : kSteps);
  }
  if (fault == "saving" || fault == "doomed") {
    return train(
        accelerator, 0, false, number, /*saving=*/true, fault == "doomed");
  }
  if (fault == "kill" || fault == "stop") {
    return train(
        accelerator,
        fault == "kill" ? number : 0,
        fault == "stop",
        argc > 3 ? std::atoll(argv[3]) : kSteps);
  }
  if (fault == "no-resume") {
    torch::nn::Linear net(2, 2);
    accelerator.prepare(net);
    accelerator.save_state();
  } else if (fault == "large") {
    train_large(accelerator, number);
  } else if (fault == "main-only") {
    add(accelerator, 1);
    if (accelerator.is_main_process()) {
      enter_barrier(accelerator);
    }
    add(accelerator, 2);
  } else if (fault == "fewer-batches") {
    for (int i = 0; i < (last ? 3 : 5); ++i) {
      add(accelerator, i);
    }
  } else if (fault == "shapes") {
    add(accelerator, 1);
    accelerator.reduce(torch::ones({last ? 300000 : 2}));
    add(accelerator, 2);
  } else if (fault == "slow") {
    add(accelerator, 1);
    if (last) {
      sleep_ms(number * 1000);
    }
    accelerator.print("sum", add(accelerator, 2));
  } else if (fault == "die") {
    append("pids", std::to_string(getpid()) + "\n");
    if (last) {
      append("port", std::string(std::getenv("MASTER_PORT")) + "\n");
    }
    add(accelerator, 1);
    if (last) {
      sleep_ms(300);
      const auto now = std::chrono::system_clock::now().time_since_epoch();
      append("died", std::to_string(std::chrono::duration<double>(now).count()));
      die(argc > 2 ? argv[2] : "kill");
    }
    add(accelerator, 2);
  } else if (fault == "meet") {
    append("port", std::string(std::getenv("MASTER_PORT")) + "\n");
    if (accelerator.is_main_process()) {
      append("met", "x\n");
    }
    double sum = 0;
    do {
      sum = add(accelerator, 1);
      sleep_ms(10);
      // Together, or one would be a round ahead.
    } while (!accelerator.broadcast_object(access("go", F_OK) == 0));
    accelerator.print("sum", sum);
  } else if (fault == "shared-out") {
    train_shared_out(accelerator, argc <= 2);
  } else if (fault == "loaded") {
    train_loaded(accelerator);
  } else if (fault == "sum") {
    const auto end = std::chrono::steady_clock::now() +
        std::chrono::seconds(number);
    double sum = 0;
    int64_t rounds = 0;
    while (accelerator.broadcast_object(
        std::chrono::steady_clock::now() < end)) {
      sum = add(accelerator, static_cast<double>(accelerator.process_index()));
      if (++rounds == 5 && accelerator.is_main_process()) {
        append("begun", "x\n");
      }
    }
    accelerator.print("sum", sum);
  } else {
    std::fprintf(stderr, "what is %s?\n", fault.c_str());
    return 98;
  }
  return 0;
}
