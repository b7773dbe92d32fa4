// Launchers that are not ours, and who else may come to the store's port.

#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>

#include "subject_runs.h"

namespace {

// ---- Without a launcher of ours.

using Variables = std::map<std::string, std::string>;

/// Starts the program `processes` times in what a batch system's launcher says;
/// "%" in a value is the rank.
std::vector<Result> start_directly(
    int processes, const Variables& variables, const Strings& arguments) {
  const Folder folder;
  std::vector<std::unique_ptr<Running>> running;
  for (int rank = 0; rank < processes; ++rank) {
    Surroundings surroundings = in(folder);
    for (auto [name, value] : variables) {
      const size_t at = value.find('%');
      if (at != std::string::npos) {
        value.replace(at, 1, std::to_string(rank));
      }
      surroundings.environment[name] = value;
    }
    Strings all{build_paths::kFaultsSubject};
    all.insert(all.end(), arguments.begin(), arguments.end());
    running.push_back(std::make_unique<Running>(all, surroundings));
  }
  std::vector<Result> results;
  for (auto& process : running) {
    results.push_back(process->wait());
  }
  return results;
}

TEST(BatchSystem, ProcessesOfOpenMpiSlurmAndPmiMeet) {
  const std::vector<Variables> systems{
      {{"OMPI_COMM_WORLD_RANK", "%"},
       {"OMPI_COMM_WORLD_SIZE", "2"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "%"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
       {"PMIX_NAMESPACE", "prterun-" + std::to_string(getpid())}},
      {{"SLURM_PROCID", "%"},
       {"SLURM_NTASKS", "2"},
       {"SLURM_STEP_NUM_TASKS", "2"},
       {"SLURM_STEP_TASKS_PER_NODE", "2"},
       {"SLURM_NODEID", "0"},
       {"SLURM_LOCALID", "%"},
       {"SLURM_STEP_NODELIST", "node[03,07]"},
       {"SLURM_JOB_ID", std::to_string(getpid())}},
      {{"PMI_RANK", "%"},
       {"PMI_SIZE", "2"},
       {"MPI_LOCALRANKID", "%"},
       {"MPI_LOCALNRANKS", "2"},
       {"MASTER_PORT", std::to_string(20000 + getpid() % 10000)}}};
  for (const Variables& variables : systems) {
    const auto results = start_directly(2, variables, {"slow", "0"});
    EXPECT_EQ(results[0].status, 0) << results[0].err;
    EXPECT_EQ(results[1].status, 0) << results[1].err;
    EXPECT_EQ(results[0].out, "sum 8\n");
    EXPECT_EQ(results[1].out, "");
  }
}

TEST(Torchrun, ProcessesMeetAtItsAgentsStore) {
  const Folder folder;
  Running agent({build_paths::kFaultsSubject, "agent"}, in(folder));
  // The file is made before anything is in it.
  ASSERT_TRUE(eventually(
      [&] {
        return folder.has("port") && folder.read("port").find('\n') != std::string::npos;
      },
      30));
  Variables variables{
      {"RANK", "%"},
      {"LOCAL_RANK", "%"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", split_lines(folder.read("port")).at(0)},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  // The store, and what was written into it, is there after a restart.
  for (const char* restarts : {"0", "1"}) {
    variables["TORCHELASTIC_RESTART_COUNT"] = restarts;
    const auto results = start_directly(2, variables, {"slow", "0"});
    EXPECT_EQ(results[0].status, 0) << results[0].err;
    EXPECT_EQ(results[1].status, 0) << results[1].err;
    EXPECT_EQ(results[0].out, "sum 8\n");
  }
  std::ofstream(folder / "go") << "x";
  EXPECT_EQ(agent.wait().status, 0);
}

TEST(BatchSystem, ABatchScriptItselfIsOneProcess) {
  const auto results = start_directly(
      1,
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}},
      {"slow", "0"});
  EXPECT_EQ(results[0].status, 0) << results[0].err;
  EXPECT_EQ(results[0].out, "sum 4\n");
}

TEST(BatchSystem, WhatIsMissingIsNamed) {
  const auto says = [](const Variables& variables, const std::string& part) {
    const auto results = start_directly(1, variables, {"slow", "0"});
    EXPECT_NE(results[0].status, 0);
    expect_part(results[0].err, part);
  };
  const Variables open_mpi{
      {"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  says(open_mpi, "mpirun -x MASTER_ADDR=$(hostname)");
  Variables slurm{
      {"SLURM_PROCID", "2"},
      {"SLURM_STEP_NUM_TASKS", "5"},
      {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
      {"SLURM_NODEID", "1"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_STEP_NODELIST", "no-such-host-[007-008,11].invalid,other"},
      {"SLURM_JOB_ID", "1"}};
  says(slurm, "'no-such-host-007.invalid'");
  slurm["SLURM_STEP_TASKS_PER_NODE"] = "2(x";
  says(slurm, "SLURM_STEP_TASKS_PER_NODE is '2(x'");
  slurm["SLURM_STEP_TASKS_PER_NODE"] = "2";
  says(slurm, "does not say how many processes node 1 has");
  slurm.erase("SLURM_NODEID");
  says(slurm, "SLURM_NODEID is not");
}

// ---- Who else may come to the store's port.

TEST(Strangers, AtTheStoresPortDisturbNothing) {
  const Folder folder;
  Running running(
      command(launch({"--output", "main"}, {"meet"})), in(folder));
  ASSERT_TRUE(eventually([&] { return folder.has("met"); }, 30));
  const int port = std::stoi(folder.read("port"));
  // 127.0.0.1 and nothing else, byte order of the machine.
  EXPECT_EQ(listeners(port), Strings{"0100007F"});
  std::mt19937 random(5);
  Strings messages{
      "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
      std::string(1 << 20, '\xff'),
      std::string("\0\0\0\0\0\0\0\0", 8),
      ""};
  for (int i = 0; i < 20; ++i) {
    std::string bytes(1 + random() % 5000, '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random());
    }
    messages.push_back(bytes);
  }
  // Old clients: the first byte of a query and nothing behind it.
  for (char query = 0; query < 20; ++query) {
    messages.push_back(std::string(1, query));
  }
  std::vector<int> open;
  for (const std::string& message : messages) {
    const int fd = connect_to(port);
    ASSERT_GE(fd, 0);
    (void)!send(fd, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (open.size() < 5) {
      open.push_back(fd); // Some never go.
    } else {
      close(fd);
    }
  }
  usleep(200000);
  std::ofstream(folder / "go") << "x";
  const Result result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "sum 4\n");
  for (int fd : open) {
    close(fd);
  }
}

} // namespace
