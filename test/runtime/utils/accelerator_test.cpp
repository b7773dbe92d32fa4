// What an Accelerator makes of the trackers, schedulers and utilities, with
// real processes.

#include "multiprocess.h"
#include "support.h"

#include <accel/accel.h>
#include <accel/optim/schedulers.h>
#include <accel/tracking.h>
#include <accel/utils/local_sgd.h>
#include <accel/utils/logging.h>
#include <accel/utils/random.h>

#include <torch/torch.h>

using accel::test::run_and_expect_success;

namespace {

std::string directory() {
  return std::getenv("ACCEL_TEST_DIRECTORY");
}

} // namespace

ACCEL_RANK_FUNCTION(tracks_on_the_main_process) {
  accel::Accelerator accelerator(accel::AcceleratorOptions()
                                     .cpu(true)
                                     .log_with({"csv", "tensorboard"})
                                     .project_dir(directory()));
  accelerator.init_trackers("run", {{"lr", 0.1}});
  accelerator.log({{"rank", accelerator.process_index()}}, 1);
  accelerator.get_tracker("csv").log({{"rank", 7}}, 2);
  auto* typed =
      accelerator.get_tracker<accel::TensorBoardTracker>("tensorboard");
  EXPECT_EQ(typed != nullptr, accelerator.is_main_process());
  accelerator.end_training();
}

TEST(AcceleratorUtils, TracksOnTheMainProcess) {
  const test::TemporaryDirectory temporary;
  accel::test::RunOptions options;
  options.environment["ACCEL_TEST_DIRECTORY"] = temporary.path().string();
  run_and_expect_success("tracks_on_the_main_process", 2, options);
  std::istringstream table(
      test::read_file(temporary.path() / "run" / "metrics.csv"));
  std::vector<std::string> steps, ranks;
  for (std::string line; std::getline(table, line);) {
    steps.push_back(line.substr(0, line.find(',')));
    ranks.push_back(line.substr(line.rfind(',') + 1));
  }
  EXPECT_EQ(steps, (std::vector<std::string>{"step", "1", "2"}));
  EXPECT_EQ(ranks, (std::vector<std::string>{"rank", "0", "7"}));
  int event_files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(temporary.path() / "run")) {
    event_files += file.path().filename().string().rfind("events.", 0) == 0;
  }
  EXPECT_EQ(event_files, 1);
}

TEST(AcceleratorUtils, UnknownTrackerIsAnErrorBeforeTheProcessesMeet) {
  EXPECT_THROWS_WITH(
      accel::Accelerator(
          accel::AcceleratorOptions().cpu(true).log_with({"wandb"})),
      "no tracker 'wandb'");
  // And leaves nothing behind.
  EXPECT_THROWS_WITH(accel::accelerator(), "Accelerator");
}

ACCEL_RANK_FUNCTION(splits_seeds_and_averages) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  const auto rank = accelerator.process_index();
  const std::vector<std::string> inputs{"A", "B", "C"};
  EXPECT_EQ(
      accelerator.split_between_processes(inputs),
      (rank == 0 ? std::vector<std::string>{"A", "B"}
                 : std::vector<std::string>{"C"}));
  EXPECT_EQ(
      accelerator.split_between_processes(inputs, true),
      (rank == 0 ? std::vector<std::string>{"A", "B"}
                 : std::vector<std::string>{"C", "C"}));

  accel::set_seed(42, accel::SetSeedOptions().device_specific(true));
  const auto drawn = torch::rand({3});
  torch::manual_seed(42 + rank);
  EXPECT_TRUE(torch::rand({3}).equal(drawn));

  // w <- w - 0.1 * gradient, with gradient rank + 1, averaged every 2 steps.
  auto weight = torch::zeros({1}, torch::kDouble).set_requires_grad(true);
  {
    torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(0.1));
    accel::LocalSGD local_sgd({weight}, 2);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      (weight * (rank + 1)).sum().backward();
      optimizer.step();
      local_sgd.step();
    }
    EXPECT_NEAR(weight.item<double>(), -0.3 - 0.1 * (rank + 1), 1e-12);
  }
  EXPECT_NEAR(weight.item<double>(), -0.45, 1e-12);

  accel::get_logger("test", "INFO")
      .info(
          "hello", accel::LogOptions().main_process_only(false).in_order(true));
  accel::get_logger("test").info("main only");
}

namespace {

/// 5 steps of w <- w - 0.1 * gradient, with gradient rank + 1, averaged every 2 steps.
/// `ours`: with the Accelerator's backward and optimizer, of what it has prepared.
void train_locally(bool ours) {
  accel::Accelerator accelerator;
  const auto rank = static_cast<double>(accelerator.process_index());
  torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
  net->to(torch::kDouble);
  {
    const torch::NoGradGuard no_grad;
    net->weight.zero_();
  }
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(net->parameters(), 0.1);
  if (ours) {
    accelerator.prepare(net, optimizer);
  }
  const auto step_once = [&] {
    optimizer.zero_grad();
    const auto loss = net->forward(torch::ones({1, 1}, torch::kDouble) * (rank + 1)).sum();
    ours ? accelerator.backward(loss) : loss.backward();
    optimizer.step();
  };
  {
    accel::LocalSGD local_sgd(net->parameters(), 2);
    for (int step = 0; step < 5; ++step) {
      step_once();
      local_sgd.step();
    }
    EXPECT_NEAR(net->weight.item<double>(), -0.6 - 0.1 * (rank + 1), 1e-12);
  }
  EXPECT_NEAR(net->weight.item<double>(), -0.75, 1e-12);
  if (ours) {
    step_once(); // Gradients are averaged again.
    EXPECT_NEAR(net->weight.item<double>(), -0.9, 1e-12);
  }
}

} // namespace

ACCEL_RANK_FUNCTION(local_sgd_of_a_prepared_model) {
  train_locally(/*ours=*/true);
}
ACCEL_RANK_FUNCTION(local_sgd_of_a_plain_model) {
  train_locally(/*ours=*/false);
}
ACCEL_RANK_FUNCTION(local_sgd_of_one_batch) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().match_single_device(true));
  try {
    const accel::LocalSGD local_sgd({torch::zeros({1})}, 2);
    FAIL() << "LocalSGD has taken one batch";
  } catch (const c10::Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("With match_single_device all"), std::string::npos);
  }
}

TEST(LocalSGD, ProcessesTrainOnTheirOwnInBetween) {
  for (const char* name :
       {"local_sgd_of_a_prepared_model", "local_sgd_of_a_plain_model",
        "local_sgd_of_one_batch"}) {
    accel::test::run_and_expect_success(name, 2);
  }
}

TEST(AcceleratorUtils, SplitsSeedsLogsAndAverages) {
  const auto results = run_and_expect_success("splits_seeds_and_averages", 2);
  EXPECT_NE(
      results[0].error.find("INFO:test:[RANK 0] hello\nINFO:test:main only\n"),
      std::string::npos)
      << results[0].error;
  EXPECT_NE(
      results[1].error.find("INFO:test:[RANK 1] hello\n"), std::string::npos);
  EXPECT_EQ(results[1].error.find("main only"), std::string::npos);
}

namespace {

/// One recorded trace: a scheduler stepped after each of 7 micro-steps.
template <typename Scheduler, typename... Args>
void expect_trace(
    const nlohmann::json& record, double lr, const Args&... args) {
  accel::Accelerator accelerator(
      accel::AcceleratorOptions()
          .cpu(true)
          .split_batches(record.at("split").get<bool>())
          .step_scheduler_with_optimizer(record.at("with_opt").get<bool>())
          .gradient_accumulation_steps(record.at("k").get<int64_t>())
          .adjust_scheduler(record.at("adjust").get<bool>()));
  torch::nn::Linear model(1, 1);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      model->parameters(), torch::optim::SGDOptions(lr).momentum(0.9));
  accel::AcceleratedScheduler<Scheduler> scheduler(optimizer, args...);
  accelerator.prepare(model, optimizer, scheduler);
  for (const auto& expected : record.at("lr_stepcount")) {
    const auto step = accelerator.accumulate(model);
    accelerator.backward(model->forward(torch::ones({1, 1})).sum());
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
    EXPECT_NEAR(
        optimizer.param_groups()[0].options().get_lr(),
        expected.at(0).get<double>(),
        1e-9)
        << record.dump();
    EXPECT_EQ(scheduler.inner().step_count(), expected.at(1).get<int64_t>())
        << record.dump();
  }
}

} // namespace

ACCEL_RANK_FUNCTION(steps_schedulers_as_recorded) {
  const auto recorded = test::golden(std::getenv("TEST_FILE"));
  size_t traces = 0;
  for (const auto& record : recorded.at("schedulers")) {
    const std::string kind = record.at("kind");
    if (kind == "lambda") {
      expect_trace<accel::optim::LambdaLR>(
          record, 1.0, accel::optim::LRLambda([](int64_t n) { return n; }));
    } else if (kind == "onecycle") {
      expect_trace<accel::optim::OneCycleLR>(
          record, 1.0, accel::optim::OneCycleLROptions(1.0).total_steps(12));
    } else {
      ASSERT_EQ(kind, "step");
      expect_trace<accel::optim::StepLR>(record, 1.0, 3, 0.5);
    }
    ++traces;
  }
  EXPECT_GT(traces, 0u);
}

TEST(AcceleratorUtils, StepsSchedulersAsRecorded) {
  for (const auto& name : test::golden_files("mp", ".json")) {
    accel::test::RunOptions options;
    options.environment["TEST_FILE"] = name;
    run_and_expect_success(
        "steps_schedulers_as_recorded",
        test::golden(name).at("P").get<int>(),
        options);
  }
}
