// A run that was interrupted and goes on prints what one that was not prints:
// every loss and every learning rate, bit for bit. Real processes, killed in
// between as far as the library can tell.

#include "multiprocess.h"
#include "support.h"

#include <accel/accel.h>
#include <accel/optim/schedulers.h>

#include <cstdio>
#include <cstdlib>

namespace {

using accel::test::RunOptions;

/// Samples that are different in every pass: the data set draws noise.
class NoisyNumbers : public torch::data::Dataset<NoisyNumbers> {
 public:
  explicit NoisyNumbers(size_t size) : size_(size) {}
  torch::data::Example<> get(size_t index) override {
    const auto x = torch::arange(3, torch::kDouble) * 0.1 +
        static_cast<double>(index) / static_cast<double>(size_);
    return {x + 0.01 * torch::randn({3}, torch::kDouble), x.sum(0, "late")};
  }
  torch::optional<size_t> size() const override {
    return size_;
  }

 private:
  size_t size_;
};

struct NetImpl : torch::nn::Module {
  NetImpl()
      // Without a bias: batch norm takes it out again, so that its gradient is
      // rounding alone, which Adam would blow up.
      : first(register_module(
            "first", torch::nn::Linear(torch::nn::LinearOptions(3, 6).bias(false)))),
        norm(register_module("norm", torch::nn::BatchNorm1d(6))),
        drop(register_module("drop", torch::nn::Dropout(0.25))),
        last(register_module("last", torch::nn::Linear(6, 1))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last->forward(
        drop->forward(torch::relu(norm->forward(first->forward(x)))));
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear last;
};
TORCH_MODULE(Net);

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Trains for 3 epochs of 6 batches. RUN_STOP: the number of batches after
/// which it saves and ends; with RUN_GOES_ON it saves in the background and
/// trains on. RUN_LOAD: loads first; "early": before the loaders are made.
/// RUN_MODE: how the work is shared.
void train() {
  const std::string mode = variable("RUN_MODE");
  accel::Accelerator accelerator(
      accel::AcceleratorOptions()
          .cpu(true)
          .match_single_device(mode == "match")
          .split_batches(mode != "")
          .gradient_accumulation_steps(2)
          .project_dir(variable("RUN_DIRECTORY"))
          .automatic_checkpoint_naming(true)
          .total_limit(2));
  torch::manual_seed(
      mode == "match" ? 7 : 7 + accelerator.process_index());
  Net net;
  accel::AcceleratedOptimizer<torch::optim::AdamW> optimizer(
      net->parameters(), torch::optim::AdamWOptions(0.02));
  accel::AcceleratedScheduler<accel::optim::CosineAnnealingLR> cosine(
      optimizer, 40);
  accel::AcceleratedScheduler<torch::optim::StepLR> step_lr(
      optimizer, 3, 0.9);
  accelerator.prepare(net, optimizer, cosine, step_lr);
  int64_t epoch = 0;
  int64_t batches = 0;
  double best = 1e30;
  accelerator.register_for_checkpointing(epoch, batches, best);
  if (variable("RUN_LOAD") == "early") {
    accelerator.load_state();
  }
  auto loader = accel::data::make_data_loader(
      NoisyNumbers(44).map(torch::data::transforms::Stack<>()), 8);
  auto evaluation =
      accel::data::make_data_loader<torch::data::samplers::SequentialSampler>(
          NoisyNumbers(7).map(torch::data::transforms::Stack<>()), 4);
  if (variable("RUN_LOAD") == "late") {
    accelerator.load_state();
  }
  const int64_t stop = std::atoll(variable("RUN_STOP").c_str());
  for (; epoch < 3; ++epoch) {
    net->train();
    for (auto& batch : *loader) {
      auto step = accelerator.accumulate(net);
      const auto loss =
          torch::mse_loss(net->forward(batch.data), batch.target);
      optimizer.zero_grad();
      accelerator.backward(loss);
      optimizer.step();
      cosine.step();
      step_lr.step();
      ++batches;
      accelerator.printf(
          "%d %d %a %a\n",
          static_cast<int>(epoch),
          static_cast<int>(batches),
          accelerator.reduce(loss, "mean").item<double>(),
          optimizer.param_groups()[0].options().get_lr());
      // A loop that is left leaves nothing that a checkpoint would stumble over.
      for (auto& sample : *evaluation) {
        accelerator.printf(
            "look %a\n", accelerator.full(sample.target).sum().item<double>());
        break;
      }
      if (batches == stop) {
        if (!variable("RUN_GOES_ON").empty()) {
          accelerator.save_state(
              "", accel::SaveStateOptions().asynchronous(true));
          continue;
        }
        accelerator.save_state();
        return;
      }
    }
    net->eval();
    torch::NoGradGuard no_grad;
    double sum = 0;
    for (auto& batch : *evaluation) {
      auto [output, target] = accelerator.gather_for_metrics(
          net->forward(batch.data), batch.target);
      sum += (output - target).abs().sum().item<double>();
    }
    best = std::min(best, sum);
    accelerator.printf("evaluation %a best %a\n", sum, best);
    if (100 + epoch == stop) {
      ++epoch;
      accelerator.save_state();
      return;
    }
  }
  accelerator.printf(
      "end %a\n", net->first->weight.abs().sum().item<double>());
}

std::string run_training(
    int processes,
    const std::string& mode,
    const std::string& directory,
    int stop,
    const char* load = "",
    bool goes_on = false) {
  RunOptions options;
  options.environment["RUN_GOES_ON"] = goes_on ? "1" : "";
  options.environment["RUN_MODE"] = mode;
  options.environment["RUN_DIRECTORY"] = directory;
  options.environment["RUN_STOP"] = std::to_string(stop);
  options.environment["RUN_LOAD"] = load;
  return accel::test::run_and_expect_success(
             "train_for_resume", processes, options)[0]
      .output;
}

/// Runs once in one go, and once with a stop after each of `stops`.
void expect_same_output(
    int processes,
    const std::string& mode,
    const std::vector<int>& stops,
    const char* load = "late") {
  SCOPED_TRACE(mode + " on " + std::to_string(processes));
  const accel::checkpoint::test::TemporaryDirectory directory;
  const std::string expected =
      run_training(processes, mode, directory.path(), 0);
  std::string pieces;
  for (const int stop : stops) {
    pieces += run_training(
        processes, mode, directory.path(), stop, stop == stops[0] ? "" : load);
  }
  pieces += run_training(processes, mode, directory.path(), 0, load);
  EXPECT_EQ(pieces, expected);
  EXPECT_NE(expected.find("end "), std::string::npos);
}

} // namespace

ACCEL_RANK_FUNCTION(train_for_resume) {
  train();
}

// In the middle of an epoch, at its last batch, and between two epochs.
TEST(Resume, OneProcessPrintsTheSameBits) {
  expect_same_output(1, "match", {4, 6, 101});
}

// Between epochs the loaders need not be there: making them draws what had been drawn.
TEST(Resume, LoadersThatAreMadeBehindItPrintTheSameBits) {
  expect_same_output(2, "match", {101}, "early");
  expect_same_output(2, "", {101}, "early");
}

TEST(Resume, MatchSingleDevicePrintsTheSameBits) {
  expect_same_output(3, "match", {8, 12});
}

TEST(Resume, BatchPerProcessPrintsTheSameBits) {
  // 3 batches in an epoch of 2 processes; the last one ends its window.
  expect_same_output(2, "", {5, 102});
}

TEST(Resume, SplitBatchesPrintTheSameBits) {
  expect_same_output(2, "split", {4});
}

// Saved in the background in the middle of an epoch, while training went on.
TEST(Resume, FromACheckpointThatWasSavedInTheBackground) {
  for (const int processes : {1, 3}) {
    const accel::checkpoint::test::TemporaryDirectory directory;
    const std::string whole = run_training(
        processes, "match", directory.path(), 8, "", /*goes_on=*/true);
    const std::string rest =
        run_training(processes, "match", directory.path(), 0, "late");
    EXPECT_NE(whole.find("end "), std::string::npos);
    EXPECT_NE(rest.find("1 9 "), std::string::npos);
    // It prints what the first run printed after it had saved.
    ASSERT_GT(whole.size(), rest.size());
    EXPECT_EQ(whole.substr(whole.size() - rest.size()), rest);
    EXPECT_EQ(rest.substr(0, 4), "1 9 ");
  }
}

// What 3 processes have begun, 2 finish, and then 1: within rounding the same.
TEST(Resume, OnOtherNumbersOfProcesses) {
  const accel::checkpoint::test::TemporaryDirectory directory;
  const std::string expected =
      run_training(1, "match", directory.path(), 0);
  std::string pieces = run_training(3, "match", directory.path(), 4);
  pieces += run_training(2, "match", directory.path(), 10, "late");
  pieces += run_training(1, "match", directory.path(), 0, "late");
  std::istringstream expected_words(expected), words(pieces);
  std::string expected_word, word;
  int numbers = 0;
  while (expected_words >> expected_word) {
    ASSERT_TRUE(words >> word);
    char* end = nullptr;
    const double number = std::strtod(expected_word.c_str(), &end);
    if (*end == '\0') {
      EXPECT_NEAR(
          std::strtod(word.c_str(), nullptr),
          number,
          1e-9 * std::max(1.0, std::abs(number)));
      ++numbers;
    } else {
      EXPECT_EQ(word, expected_word);
    }
  }
  EXPECT_FALSE(words >> word);
  EXPECT_GT(numbers, 70);
}
