// accel-self-test: sees whether programs can run as several processes on this
// machine. Started by `accel test`; every process runs all of it.

#include <accel/accel.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

namespace {

/// As the weights of a global model are.
const torch::Tensor drawn_before_main = torch::rand({4});

/// Something that was computed wrongly.
class Wrong : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void expect(bool condition, const std::string& what) {
  if (!condition) {
    throw Wrong(what);
  }
}

std::string text_of(const torch::Tensor& tensor) {
  std::ostringstream text;
  text << tensor;
  return text.str();
}

void expect_equal(
    const torch::Tensor& got, const torch::Tensor& wanted, const char* what) {
  expect(
      torch::equal(got, wanted),
      std::string(what) + " gave " + text_of(got) + " instead of " +
          text_of(wanted));
}

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(4, 16))),
        norm(register_module("norm", torch::nn::BatchNorm1d(16))),
        last(register_module("last", torch::nn::Linear(16, 1))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return last->forward(torch::tanh(norm->forward(first->forward(x))));
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;
};
TORCH_MODULE(Net);

constexpr int64_t kSteps = 20;
// Batch norm needs two rows on each process, also of the last batch, which
// is shorter and does not divide by most numbers of processes.
constexpr int64_t kSamples = 645;
constexpr int64_t kBatch = 256;
constexpr int64_t kMostProcesses = 64;

torch::Tensor inputs(torch::ScalarType dtype) {
  return torch::arange(kSamples * 4, torch::kDouble)
      .mul(0.37)
      .sin()
      .reshape({kSamples, 4})
      .to(dtype);
}

torch::Tensor targets(torch::ScalarType dtype) {
  return inputs(torch::kDouble).pow(2).sum(1, /*keepdim=*/true).to(dtype);
}

/// The batch of a step; the last one of each pass is shorter.
std::pair<int64_t, int64_t> rows_of(int64_t step) {
  const int64_t per_pass = (kSamples + kBatch - 1) / kBatch;
  const int64_t begin = step % per_pass * kBatch;
  return {begin, std::min(begin + kBatch, kSamples)};
}

/// Plain LibTorch on one process: what the others must reproduce.
std::vector<double> train_alone() {
  torch::manual_seed(3);
  Net net;
  net->to(torch::kDouble);
  torch::optim::SGD optimizer(
      net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const auto x = inputs(torch::kDouble);
  const auto y = targets(torch::kDouble);
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto [begin, end] = rows_of(step);
    const auto loss =
        torch::mse_loss(net->forward(x.slice(0, begin, end)), y.slice(0, begin, end));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

/// The same on all processes.
std::vector<double> train_together(
    accel::Accelerator& accelerator, torch::ScalarType dtype) {
  torch::manual_seed(3);
  Net net;
  net->to(dtype);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  accelerator.prepare(net, optimizer);
  const auto x = inputs(dtype).to(accelerator.device());
  const auto y = targets(dtype).to(accelerator.device());
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    auto guard = accelerator.accumulate(net);
    const auto [begin, end] = rows_of(step);
    auto data = x.slice(0, begin, end);
    auto target = y.slice(0, begin, end);
    data = accelerator.distribute(data);
    target = accelerator.distribute(target);
    const auto loss =
        torch::mse_loss(net->forward(data).to(target.scalar_type()), target);
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  for (const auto& parameter : net->parameters()) {
    const auto first = accelerator.broadcast(parameter.detach().clone());
    expect_equal(parameter.detach(), first, "training: a parameter");
  }
  return losses;
}

void try_collectives(accel::Accelerator& accelerator) {
  const int64_t count = accelerator.num_processes();
  const int64_t rank = accelerator.process_index();
  const double sum = static_cast<double>(count * (count + 1)) / 2;
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kLong}) {
    const auto options =
        torch::TensorOptions().dtype(dtype).device(accelerator.device());
    const auto mine = torch::full({3}, rank + 1, options);
    expect_equal(
        accelerator.reduce(mine), torch::full({3}, sum, options), "reduce");
    expect_equal(
        accelerator.gather(mine.slice(0, 0, 1)),
        torch::arange(1, count + 1, options),
        "gather");
    expect_equal(
        accelerator.broadcast(mine.clone(), count - 1),
        torch::full({3}, count, options),
        "broadcast");
  }
  const auto words = accelerator.gather_object(
      std::vector<std::string>{"process " + std::to_string(rank)});
  expect(
      static_cast<int64_t>(words.size()) == count &&
          words.back() == "process " + std::to_string(count - 1),
      "gather_object lost something");
  // Larger than what one message of a buffer holds.
  const auto large = accelerator.reduce(
      torch::ones({1 << 20}, accelerator.device()), "mean");
  expect(large.eq(1).all().item<bool>(), "reduce of 4 MiB");
  accelerator.wait_for_everyone();
}

void compare_early_draws(accel::Accelerator& accelerator) {
  auto of_main = drawn_before_main.to(accelerator.device(), /*non_blocking=*/false, /*copy=*/true);
  accelerator.broadcast(of_main);
  expect_equal(drawn_before_main, of_main.cpu(), "what is drawn before main");
}

void compare_training(accel::Accelerator& accelerator, const std::vector<double>& alone) {
  const auto losses = train_together(accelerator, torch::kDouble);
  for (int64_t step = 0; step < kSteps; ++step) {
    const double wanted = alone[static_cast<size_t>(step)];
    const double got = losses[static_cast<size_t>(step)];
    expect(
        std::abs(got - wanted) <= 1e-9 * std::max(1.0, std::abs(wanted)),
        "training: step " + std::to_string(step) + " has the loss " +
            std::to_string(got) + ", one process has " + std::to_string(wanted));
  }
}

void try_checkpoint(accel::Accelerator& accelerator) {
  namespace fs = std::filesystem;
  std::string folder;
  if (accelerator.is_main_process()) {
    folder = (fs::temp_directory_path() / "accel-self-test-XXXXXX").string();
    expect(::mkdtemp(folder.data()) != nullptr, "cannot make " + folder);
  }
  folder = accelerator.broadcast_object(folder);
  auto net = std::make_shared<NetImpl>();
  accelerator.prepare(net);
  const auto before = net->last->weight.detach().clone();
  accelerator.save_state(folder + "/state");
  {
    const torch::NoGradGuard no_grad;
    net->last->weight.add_(1);
  }
  accelerator.load_state(folder + "/state");
  const auto after = net->last->weight.detach();
  accelerator.wait_for_everyone();
  if (accelerator.is_main_process()) {
    fs::remove_all(folder);
  }
  expect_equal(after, before, "a checkpoint");
}

int failures = 0;

/// Runs `part` and says how it went, once.
void run(
    accel::Accelerator& accelerator,
    const char* name,
    const std::function<void()>& part) {
  const auto start = std::chrono::steady_clock::now();
  accelerator.cout() << name << " ... " << std::flush;
  std::string wrong;
  try {
    part();
  } catch (const Wrong& error) {
    wrong = error.what();
  }
  const auto all =
      accelerator.gather_object(std::vector<std::string>{wrong});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  bool good = true;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) {
      accelerator.cout() << (good ? "WRONG\n" : "") << "  process " << rank
                         << ": " << all[rank] << "\n";
      good = false;
    }
  }
  if (good) {
    accelerator.printf("ok (%.2f s)\n", seconds);
  }
  failures += good ? 0 : 1;
}

/// Returns the exit code.
int test() {
  const auto alone = train_alone();
  std::string what;
  {
    accel::Accelerator accelerator(
        accel::AcceleratorOptions().match_single_device(true).mixed_precision(
            accel::MixedPrecision::kNo));
    if (accelerator.num_processes() > kMostProcesses) {
      accelerator.cerr() << "the test takes at most " << kMostProcesses
                         << " processes" << std::endl;
      return 2;
    }
    what = std::to_string(accelerator.num_processes()) + " process" +
           (accelerator.num_processes() == 1 ? "" : "es") + " on " +
           accelerator.device().str();
    accelerator.cout() << what << ", LibTorch " << TORCH_VERSION << ", "
                       << torch::get_num_threads() << " threads each\n";
    run(accelerator, "collectives", [&] { try_collectives(accelerator); });
    run(accelerator, "numbers drawn before main", [&] { compare_early_draws(accelerator); });
    run(accelerator, "training as one process does", [&] {
      if (!accelerator.device().is_mps()) {
        compare_training(accelerator, alone);
      } else { // which has no float64
        train_together(accelerator, torch::kFloat);
      }
    });
    run(accelerator, "checkpoint", [&] { try_checkpoint(accelerator); });
  }
  {
    accel::Accelerator accelerator(
        accel::AcceleratorOptions().match_single_device(true).mixed_precision(
            accel::MixedPrecision::kBF16));
    run(accelerator, "mixed precision (bf16)", [&] {
      const auto losses = train_together(accelerator, torch::kFloat);
      expect(
          std::isfinite(losses.back()) && losses.back() < losses.front(),
          "the loss went from " + std::to_string(losses.front()) + " to " +
              std::to_string(losses.back()));
    });
    accelerator.cout() << (failures == 0 ? "all is well: " : "something is wrong: ")
                       << what << std::endl;
  }
  return failures == 0 ? 0 : 1;
}

} // namespace

int main() {
  try {
    return test();
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
  }
  return 1;
}
