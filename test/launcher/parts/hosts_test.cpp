// Which ranks each host has, from options and from schedulers.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "command_line.h"
#include "error.h"
#include "launch_command.h"

namespace accel::launcher {
namespace {

/// Sets variables of the environment for as long as it lives.
class Variables {
 public:
  using Values = std::vector<std::pair<const char*, const char*>>;

  explicit Variables(Values values)
      : values_(std::move(values)) {
    for (const auto& [name, value] : values_) {
      ::setenv(name, value, 1);
    }
  }
  ~Variables() {
    for (const auto& [name, value] : values_) {
      ::unsetenv(name);
    }
  }

 private:
  Values values_;
};

TEST(Hosts, EachTakesItsShareOfTheRanks) {
  const auto options = parse_launch(
      {"--num-machines", "3", "--machine-rank", "2", "--main-process-ip", "a",
       "--main-process-port", "99", "-n", "6", "./train"});
  EXPECT_EQ(options->num_processes, 2);
  EXPECT_EQ(options->world_size, 6);
  EXPECT_EQ(options->first_rank, 4);
  const Lines result = environment(*options, {});
  for (const char* entry :
       {"RANK=5", "LOCAL_RANK=1", "WORLD_SIZE=6", "LOCAL_WORLD_SIZE=2",
        "GROUP_RANK=2", "GROUP_WORLD_SIZE=3", "MASTER_ADDR=a"}) {
    EXPECT_TRUE(has(result, entry)) << entry;
  }
  EXPECT_EQ(
      parse_launch({"--nnodes", "2", "--node_rank", "1", "--master_addr", "a",
                    "--master_port", "9", "--nproc_per_node", "4", "./a"})
          ->world_size,
      8);
}

TEST(Hosts, ContradictionsAreRefused) {
  const auto says = [](Lines arguments, const std::string& text) {
    arguments.emplace_back("./a");
    const std::string message = usage_error(arguments);
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  const Lines two{"--num-machines", "2"};
  const auto with = [&](const Lines& more) {
    Lines all = two;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  says(two, "give --machine-rank, too");
  says(with({"--machine-rank", "1"}), "give --main-process-ip, too");
  const Lines place{"--machine-rank", "1", "--main-process-ip", "a"};
  const auto placed = [&](Lines more) {
    more.insert(more.end(), place.begin(), place.end());
    return with(more);
  };
  says(placed({}), "give --main-process-port");
  says(placed({"-n", "3", "--main-process-port", "9"}), "cannot be shared");
  says(
      placed({"-n", "4", "--nproc-per-node", "4", "--main-process-port", "9"}),
      "give one of the two");
  says(
      placed({"--min-processes", "1", "--main-process-port", "9"}),
      "give --max-restarts, too");
  says(
      placed(
          {"--min-processes", "3", "--max-restarts", "1",
           "--main-process-port", "9"}),
      "3 are more than the 2 processes");
  says(
      with({"--machine-rank", "2", "--main-process-ip", "a"}),
      "2 is no host of 2");
  says({"--machine-rank", "1"}, "give --num-machines, too");
  says({"--main-process-ip", "a"}, "give --num-machines, too");
}

TEST(Hosts, AreThoseOfSlurmsStep) {
  const Variables variables(
      {{"SLURM_STEP_NUM_TASKS", "2"},
       {"SLURM_STEP_NUM_NODES", "2"},
       {"SLURM_NODEID", "1"},
       {"SLURM_STEP_NODELIST", "node[007-008,11]-ib"},
       {"SLURM_JOB_ID", "123"},
       {"SLURM_STEP_ID", "0"}});
  const auto options = parse_launch({"--nproc-per-node", "4", "./a"});
  EXPECT_EQ(options->num_machines, 2);
  EXPECT_EQ(options->first_rank, 4);
  EXPECT_EQ(options->main_process_ip, "node007-ib");
  EXPECT_GE(options->main_process_port.value(), 15000);
  EXPECT_LT(options->main_process_port.value(), 32000);
  const Variables twice(Variables::Values{{"SLURM_STEP_NUM_TASKS", "4"}});
  EXPECT_NE(usage_error({"./a"}).find("several times"), std::string::npos);
}

TEST(Hosts, AreThoseOfOpenMpi) {
  const Variables variables(
      {{"OMPI_COMM_WORLD_SIZE", "2"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
       {"OMPI_COMM_WORLD_RANK", "1"},
       {"PMIX_NAMESPACE", "prterun-1"}});
  const auto options = parse_launch(
      {"--main-process-ip", "a", "--nproc-per-node", "2", "./a"});
  EXPECT_EQ(options->first_rank, 2);
  EXPECT_TRUE(options->main_process_port);
}

} // namespace
} // namespace accel::launcher
