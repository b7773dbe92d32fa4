// Memory that runs out while a unit of parameters in parts is gathered.

#include "training.h"

#include <malloc.h>
#include <sys/resource.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

namespace accel::test {
namespace {

/// Layers of 64 MiB in parts, of which the forward can gather none: it throws.
/// `here`: whether this process has no more memory.
void forward_without_memory(Accelerator& accelerator, bool here) {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 16); // What is freed is gone.
  torch::set_num_threads(1);
  nn::Sequential net;
  for (int i = 0; i < 2; ++i) {
    net->push_back(nn::Linear(nn::LinearOptions(4096, 4096).bias(false)));
  }
  AcceleratedOptimizer<optim::SGD> optimizer(net->parameters(), 1e-4);
  accelerator.prepare(net, optimizer);
  const auto x = accelerator.distribute(torch::ones({4, 4096}));
  if (here) {
    const auto room = static_cast<rlim_t>(megabytes("VmSize:") + 40) << 20;
    const rlimit limit{room, room};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  }
  net->forward(x);
  ADD_FAILURE() << "there was enough memory";
}

ACCEL_RANK_FUNCTION(memory_runs_out_everywhere) {
  Accelerator accelerator(sharded());
  try {
    forward_without_memory(accelerator, true);
  } catch (const c10::OutOfMemoryError& error) {
    const std::string said = error.what_without_backtrace();
    EXPECT_TRUE(contains(said, "no memory for 65 MiB on cpu, a unit of parameters"))
        << said;
    EXPECT_TRUE(contains(said, "--fsdp-min-num-params")) << said;
  }
}

ACCEL_RANK_FUNCTION(memory_runs_out_on_one) {
  Accelerator accelerator(sharded());
  const bool here = accelerator.process_index() == 1;
  try {
    forward_without_memory(accelerator, here);
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace();
    std::_Exit(1); // As who does not catch it.
  }
}

} // namespace

TEST(MemoryRunsOut, OneErrorOnEveryProcess) {
  run_and_expect_success("memory_runs_out_everywhere", 2);
}

TEST(MemoryRunsOut, TheOthersSayWhoIsGone) {
  const auto results = run("memory_runs_out_on_one", 2);
  EXPECT_EQ(results[1].exit_code, 1) << results[1].error;
  EXPECT_TRUE(contains(results[1].error, "--fsdp-min-num-params"))
      << results[1].error;
  EXPECT_EQ(results[0].exit_code, 1) << results[0].error;
  EXPECT_TRUE(contains(results[0].error, "another process has probably ended") ||
              contains(results[0].error, "process 1"))
      << results[0].error;
}

} // namespace accel::test
