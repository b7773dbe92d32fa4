#include "support.h"

#include <accel/utils/environment.h>
#include <accel/utils/local_sgd.h>
#include <accel/utils/logging.h>
#include <accel/utils/progress.h>

#include <torch/torch.h>

#include <condition_variable>
#include <mutex>
#include <thread>

using accel::format_progress;
using accel::LogOptions;
using accel::ProgressBarOptions;

// tqdm's own form of these numbers.
TEST(Progress, Format) {
  EXPECT_EQ(
      format_progress(5, 10, 5.0, "train", "it", "loss=0.3"),
      "train:  50%|█████     | 5/10 [00:05<00:05,  1.00it/s, loss=0.3]");
  EXPECT_EQ(
      format_progress(0, 10, 0.0), "  0%|          | 0/10 [00:00<?, ?it/s]");
  EXPECT_EQ(
      format_progress(10, 10, 4000.0),
      "100%|██████████| 10/10 [1:06:40<00:00, 400.00s/it]");
  EXPECT_EQ(
      format_progress(1, 3, 0.5, "", "batch"),
      " 33%|███▎      | 1/3 [00:00<00:01,  2.00batch/s]");
  EXPECT_EQ(format_progress(7, std::nullopt, 2.0), "7it [00:02,  3.50it/s]");
  // More than was announced.
  EXPECT_EQ(format_progress(11, 10, 11.0), "11it [00:11,  1.00it/s]");
}

TEST(Progress, TerminalRedrawsOneLine) {
  std::ostringstream out;
  {
    accel::ProgressBar bar(
        3, ProgressBarOptions().stream(&out).terminal(true).min_interval(0.0));
    bar.set_postfix("a long text");
    bar.update();
    bar.set_postfix("");
    bar.update(2);
  }
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 3);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
  const size_t second = text.find('\r', 1);
  const size_t third = text.find('\r', second + 1);
  // The shorter line covers the longer one.
  EXPECT_EQ(third - second, second);
  EXPECT_NE(text.find("3/3", third), std::string::npos);
}

TEST(Progress, ElsewhereItPrintsFewLines) {
  std::ostringstream out;
  accel::ProgressBar bar(1000, ProgressBarOptions().stream(&out));
  for (int i = 0; i < 1000; ++i) {
    bar.update();
  }
  bar.close();
  bar.update();
  bar.close();
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_NE(text.find(" 1/1000 "), std::string::npos);
  EXPECT_NE(text.find(" 1000/1000 "), std::string::npos);
}

TEST(Progress, OnlyTheMainProcessPrints) {
  std::ostringstream out;
  {
    accel::ProgressBar bar(
        3, ProgressBarOptions().stream(&out).main_process(false));
    bar.update(3);
    EXPECT_EQ(bar.n(), 3);
  }
  EXPECT_EQ(out.str(), "");
}

TEST(Progress, AroundALoop) {
  std::ostringstream out;
  std::vector<int> values{1, 2, 3};
  for (int& value : accel::tqdm(values, 3, ProgressBarOptions().stream(&out))) {
    value *= 10;
  }
  EXPECT_EQ(values, (std::vector<int>{10, 20, 30}));
  EXPECT_NE(out.str().find("3/3"), std::string::npos);

  // And around a data loader, whose iterators are compared with a sentinel.
  auto loader =
      torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
          torch::data::datasets::TensorDataset(torch::arange(5)),
          torch::data::DataLoaderOptions(2));
  size_t samples = 0;
  for (auto& batch :
       accel::tqdm(*loader, 3, ProgressBarOptions().stream(&out))) {
    samples += batch.size();
  }
  EXPECT_EQ(samples, 5u);
}

namespace {

struct Processes {
  Processes(int64_t rank, int64_t world) {
    accel::set_log_processes({rank, world, [this] { ++barriers; }});
  }
  ~Processes() {
    accel::reset_log_processes();
  }
  int barriers = 0;
};

} // namespace

TEST(Logging, MainProcessOnlyUnlessAskedOtherwise) {
  std::ostringstream out;
  accel::Logger logger("train", accel::LogLevel::kInfo);
  logger.set_stream(&out);
  {
    const Processes main(0, 2);
    logger.info("hello");
    logger.debug("not shown");
    logger.error("all", LogOptions().main_process_only(false));
  }
  {
    const Processes other(1, 2);
    logger.warning("main only");
    logger.warning("all", LogOptions().main_process_only(false));
    logger.warning_once("once", LogOptions().main_process_only(false));
    logger.warning_once("once", LogOptions().main_process_only(false));
  }
  EXPECT_EQ(
      out.str(),
      "INFO:train:hello\n"
      "ERROR:train:[RANK 0] all\n"
      "WARNING:train:[RANK 1] all\n"
      "WARNING:train:[RANK 1] once\n");
}

TEST(Logging, InOrderWaitsForEveryProcess) {
  std::ostringstream out;
  accel::Logger logger("train", accel::LogLevel::kInfo);
  logger.set_stream(&out);
  std::string barrier_saw;
  accel::set_log_processes({1, 3, [&] { barrier_saw += out.str() + "|"; }});
  const auto in_order = LogOptions().main_process_only(false).in_order(true);
  logger.info("x", in_order);
  // Process 0's turn, then ours, then process 2's.
  EXPECT_EQ(barrier_saw, "|INFO:train:[RANK 1] x\n|INFO:train:[RANK 1] x\n|");
  // A level that is not shown takes part in the barriers all the same.
  barrier_saw = "";
  out.str("");
  logger.debug("x", in_order);
  EXPECT_EQ(barrier_saw, "|||");
  EXPECT_THROWS_WITH(
      logger.info("x", LogOptions().in_order(true)), "has no order");
  accel::reset_log_processes();
}

TEST(Logging, LevelsAndFirstUse) {
  accel::Logger early("early");
  EXPECT_THROWS_WITH(
      early.warning("x"), "Construct the accel::Accelerator first");
  EXPECT_THROWS_WITH(accel::log_level("LOUD"), "'LOUD' is no log level");
  const auto environment =
      accel::patch_environment({{"ACCELERATE_LOG_LEVEL", "error"}});
  auto& logger = accel::get_logger("from_environment");
  EXPECT_FALSE(logger.is_enabled_for(accel::LogLevel::kWarning));
  EXPECT_TRUE(logger.is_enabled_for(accel::LogLevel::kError));
  EXPECT_EQ(&accel::get_logger("from_environment", "DEBUG"), &logger);
  EXPECT_TRUE(logger.is_enabled_for(accel::LogLevel::kDebug));
}

namespace {

/// Two processes as two threads, with the one collective that LocalSGD needs.
struct Exchange {
  std::mutex mutex;
  std::condition_variable changed;
  at::Tensor sum;
  int arrived = 0;
  int left = 0;
  int calls = 0;
};

class ThreadCommunicator : public accel::detail::Communicator {
 public:
  ThreadCommunicator(Exchange& exchange, int64_t rank)
      : exchange_(exchange), rank_(rank) {}
  int64_t rank() const override {
    return rank_;
  }
  int64_t size() const override {
    return 2;
  }
  void all_reduce(at::Tensor& tensor) override {
    std::unique_lock<std::mutex> lock(exchange_.mutex);
    exchange_.changed.wait(lock, [&] { return exchange_.left == 0; });
    exchange_.sum =
        exchange_.arrived == 0 ? tensor.clone() : exchange_.sum + tensor;
    if (++exchange_.arrived == 2) {
      exchange_.left = 2;
      ++exchange_.calls;
      exchange_.changed.notify_all();
    }
    exchange_.changed.wait(lock, [&] { return exchange_.left > 0; });
    tensor.copy_(exchange_.sum);
    if (--exchange_.left == 0) {
      exchange_.arrived = 0;
      exchange_.changed.notify_all();
    }
  }
  Waiter all_reduce_async(at::Tensor&) override {
    throw std::logic_error("not used");
  }
  std::vector<at::Tensor> all_gather(const at::Tensor&) override {
    throw std::logic_error("not used");
  }
  void broadcast(at::Tensor&, int64_t) override {
    throw std::logic_error("not used");
  }
  void barrier() override {
    throw std::logic_error("not used");
  }

 private:
  Exchange& exchange_;
  int64_t rank_;
};

} // namespace

TEST(LocalSGD, AveragesEveryKStepsAndAtTheEnd) {
  Exchange exchange;
  // After each step process r has added r + 1 to both parameters.
  const auto run = [&](int64_t rank, std::vector<double>* seen) {
    ThreadCommunicator communicator(exchange, rank);
    auto weight = torch::zeros({2, 3}).t().set_requires_grad(true);
    auto bias = torch::zeros({1}, torch::kFloat64);
    {
      accel::LocalSGD local_sgd(communicator, {weight, bias}, 2);
      for (int step = 0; step < 5; ++step) {
        {
          const torch::NoGradGuard no_grad;
          weight.add_(rank + 1);
          bias.add_(rank + 1);
        }
        local_sgd.step();
        seen->push_back(bias.item<double>());
        EXPECT_EQ(weight[2][1].item<float>(), seen->back());
      }
    }
    seen->push_back(bias.item<double>());
    EXPECT_TRUE(weight.requires_grad());
  };
  std::vector<double> first, second;
  std::thread other([&] { run(1, &second); });
  run(0, &first);
  other.join();
  // The means after steps 2, 4 and at the end: 3, 6, 7.5.
  EXPECT_EQ(first, (std::vector<double>{1, 3, 4, 6, 7, 7.5}));
  EXPECT_EQ(second, (std::vector<double>{2, 3, 5, 6, 8, 7.5}));
  // Two dtypes, three times.
  EXPECT_EQ(exchange.calls, 6);
}

TEST(LocalSGD, SendsNothingWhenDisabledOrLeftByAnException) {
  Exchange exchange;
  ThreadCommunicator communicator(exchange, 0);
  {
    accel::LocalSGD off(communicator, {torch::zeros({1})}, 1, false);
    off.step();
  }
  EXPECT_THROWS_WITH(
      {
        accel::LocalSGD on(communicator, {torch::zeros({1})}, 2);
        on.step();
        throw std::runtime_error("left");
      },
      "left");
  EXPECT_EQ(exchange.arrived, 0);
  EXPECT_THROWS_WITH(
      accel::LocalSGD(communicator, {}, 0), "local_sgd_steps must be");
  EXPECT_THROWS_WITH(
      accel::LocalSGD(communicator, {torch::zeros({1}, torch::kInt)}, 1),
      "floating-point parameters only");
}
