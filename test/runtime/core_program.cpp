// The Accelerator that is made at its first use and lives to the program's end.

#include "expectations.h"

#include <accel/accelerator.h>
#include <accel/optim/optimizer.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>

using accel::Accelerator;
using accel::AcceleratorOptions;

namespace {

const auto kLikeOneDevice = AcceleratorOptions().match_single_device(true);

/// As a function of a library would: nobody has made an Accelerator.
double train_in_library() {
  auto& accelerator = accel::accelerator(kLikeOneDevice);
  torch::manual_seed(1);
  // They live longer than the function, and end before the Accelerator.
  static torch::nn::Linear model(3, 1);
  static accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      model->parameters(), 0.1);
  accelerator.prepare(model, optimizer);
  const auto x = accelerator.distribute(torch::rand({6, 3}));
  double last = 0;
  for (int i = 0; i < 3; ++i) {
    auto step = accelerator.accumulate(model);
    const auto loss = model->forward(x).pow(2).mean();
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
    last = loss.item<double>();
  }
  for (const double other : accelerator.gather_object(std::vector{last})) {
    EXPECT_EQ(other, last);
  }
  return last;
}

/// Ends after the program's Accelerator: process 0 may still print, and nobody
/// needs the others.
struct AsksTooLate {
  ~AsksTooLate() {
    auto& ended = accel::accelerator(kLikeOneDevice);
    const auto error = accel::test::error_of([&] { ended.device_mesh(); });
    if (!accel::test::contains(error, "has ended already")) {
      std::cout << "no error but " << error;
    }
    if (ended.num_processes() > 1 &&
        accel::test::error_of([&] { ended.wait_for_everyone(); }) == "no error") {
      std::cout << "nobody waited";
    }
    accel::accelerator().cout() << "by the main process, " << std::flush;
    ended.printf("%s", "too");
    std::cout << "refused";
  }
};

} // namespace

ACCEL_RANK_FUNCTION(made_at_first_use) {
  EXPECT_TRUE(accel::test::contains(
      accel::test::error_of([] { accel::accelerator(); }),
      "there is no Accelerator"));
  static AsksTooLate late;
  auto& made = accel::accelerator(kLikeOneDevice);
  EXPECT_EQ(&accel::accelerator(), &made);
  EXPECT_EQ(&accel::accelerator(AcceleratorOptions()), &made);
  EXPECT_TRUE(made.state().match_single_device());
  train_in_library();
}

ACCEL_RANK_FUNCTION(ends_by_exit) {
  static AsksTooLate late;
  train_in_library();
  std::exit(
      ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0);
}

TEST(ProgramsAccelerator, EndsWithTheProgram) {
  for (const char* const function : {"made_at_first_use", "ends_by_exit"}) {
    for (const int processes : {1, 2, 3}) {
      std::vector<std::string> printed;
      for (const auto& result :
           accel::test::run_and_expect_success(function, processes)) {
        printed.push_back(result.output);
        EXPECT_LT(result.elapsed.count(), 20000);
      }
      std::vector<std::string> expected(processes, "refused");
      expected[0] = "by the main process, toorefused";
      EXPECT_EQ(printed, expected);
    }
  }
}

ACCEL_RANK_FUNCTION(one_exits_early) {
  train_in_library();
  auto& accelerator = accel::accelerator();
  if (accelerator.process_index() == 1) {
    std::exit(3);
  }
  const auto error =
      accel::test::error_of([&] { accelerator.wait_for_everyone(); });
  EXPECT_NE(error, "no error");
}

TEST(ProgramsAccelerator, AProcessThatExitsEarlyStopsTheOthers) {
  const auto results = accel::test::run("one_exits_early", 3);
  for (size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].exit_code, rank == 1 ? 3 : 0)
        << results[rank].output << results[rank].error;
    EXPECT_FALSE(results[rank].timed_out);
  }
}

ACCEL_RANK_FUNCTION(made_in_main) {
  {
    Accelerator accelerator;
    EXPECT_EQ(&accel::accelerator(kLikeOneDevice), &accelerator);
    EXPECT_FALSE(accel::accelerator(kLikeOneDevice).state().match_single_device());
  }
  EXPECT_NE(
      accel::test::error_of([] { accel::accelerator().device_mesh(); }),
      "no error");
  EXPECT_TRUE(accel::accelerator(kLikeOneDevice).state().match_single_device());
  train_in_library();
  // With the same options, one may be made beside it.
  Accelerator beside(kLikeOneDevice);
  EXPECT_EQ(beside.num_processes(), accel::accelerator().num_processes());
}

TEST(ProgramsAccelerator, IsTheOneOfMainWhereThereIsOne) {
  accel::test::run_all("made_in_main");
}

ACCEL_RANK_FUNCTION(cannot_be_made) {
  auto wrong = AcceleratorOptions(kLikeOneDevice).gradient_accumulation_steps(0);
  EXPECT_TRUE(accel::test::contains(
      accel::test::error_of([&] { accel::accelerator(wrong); }),
      "gradient_accumulation_steps is 0"));
  train_in_library();
}

TEST(ProgramsAccelerator, MayBeMadeAfterOneThatCouldNotBe) {
  accel::test::run_and_expect_success("cannot_be_made", 2);
}
