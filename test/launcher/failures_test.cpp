// Processes that fail, and what is left of the others: nothing.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "harness.h"

namespace {

using Strings = std::vector<std::string>;

struct Death {
  const char* name;
  Strings actions;
  int status;
  const char* said;
};

void PrintTo(const Death& death, std::ostream* stream) {
  *stream << death.name;
}

class OneProcess : public testing::TestWithParam<Death> {};

TEST_P(OneProcess, ThatDiesEndsTheOthersAndIsNamed) {
  Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  // The last one to write its id is the one that dies.
  Strings actions{
      "pid",
      "probe",
      "if",
      "1",
      "err",
      "its last words\\n",
      "wait",
      "probe.0.pid",
      "wait",
      "probe.2.pid"};
  actions.insert(
      actions.end(), GetParam().actions.begin(), GetParam().actions.end());
  actions.insert(actions.end(), {"all", "forever"});
  const Result result =
      accel(launch_probe({"--num-processes", "3"}, actions), surroundings);
  EXPECT_EQ(result.status, GetParam().status);
  EXPECT_LT(result.seconds, 9); // The grace period is 10 s.
  const std::string named = "accel: rank 1 (pid " + folder.read("probe.1.pid") +
                            ") failed first: " + GetParam().said;
  EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("accel:   its last words"), std::string::npos)
      << result.err;
  EXPECT_NE(
      result.err.find("stopped because of that: rank 0, 2"), std::string::npos)
      << result.err;
  for (const char* name : {"probe.0.pid", "probe.1.pid", "probe.2.pid"}) {
    EXPECT_FALSE(alive(folder.wait_for_pid(name))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways,
    OneProcess,
    testing::Values(
        Death{"exit", {"exit", "3"}, 3, "exit code 3"},
        Death{
            "exception",
            {"throw", "no data"},
            134,
            "ended by SIGABRT (Aborted)"},
        Death{
            "segfault",
            {"raise", "11"},
            139,
            "ended by SIGSEGV (Segmentation fault)"},
        Death{"kill", {"raise", "9"}, 137, "ended by SIGKILL (Killed)"}),
    [](const auto& info) { return info.param.name; });

TEST(Failures, ShowTheMessageOfAnException) {
  const Result result = accel(
      launch_probe({"-n", "2"}, {"if", "0", "throw", "the data is on fire"}));
  EXPECT_EQ(result.status, 134);
  EXPECT_NE(result.err.find("the data is on fire"), std::string::npos);
}

TEST(Failures, AreNamedInTheOrderOfTheirTime) {
  const Result result = accel(launch_probe(
      {"-n", "3"},
      {"if",
       "2",
       "exit",
       "5",
       "all",
       "sleep",
       "0.1",
       "if",
       "1",
       "exit",
       "6",
       "all",
       "forever"}));
  EXPECT_EQ(result.status, 5);
  EXPECT_NE(result.err.find("failed first: exit code 5"), std::string::npos)
      << result.err;
  EXPECT_NE(
      result.err.find("rank 1 then failed too: exit code 6"), std::string::npos)
      << result.err;
  EXPECT_NE(
      result.err.find("stopped because of that: rank 0"), std::string::npos)
      << result.err;
}

TEST(Failures, AreBlamedOnTheCauseEvenWhereItEndsLast) {
  // As when main catches the exception, and its connections are gone before
  // the process is.
  const Result result = accel(launch_probe(
      {"-n", "3"},
      {"if",
       "1",
       "err",
       "bad row\\n",
       "sleep",
       "1",
       "exit",
       "5",
       "all",
       "note",
       "all_reduce: peer is gone",
       "exit",
       "3"}));
  EXPECT_EQ(result.status, 5);
  EXPECT_NE(result.err.find("accel:   bad row"), std::string::npos)
      << result.err;
  EXPECT_NE(
      result.err.find("could not go on without the others: rank 0 (exit code "
                      "3, in all_reduce), 2 (exit code 3, in all_reduce)"),
      std::string::npos)
      << result.err;
}

TEST(Failures, WithoutAKnownCauseAreQuoted) {
  const Result result = accel(launch_probe(
      {"-n", "2", "--grace-period", "1"},
      {"if",
       "0",
       "note",
       "barrier: timed out",
       "exit",
       "3",
       "all",
       "forever"}));
  EXPECT_EQ(result.status, 3);
  EXPECT_NE(
      result.err.find("accel: it says: barrier: timed out"), std::string::npos)
      << result.err;
  EXPECT_NE(
      result.err.find("stopped because of that: rank 1"), std::string::npos)
      << result.err;
}

TEST(Failures, AreNotHiddenByProcessesThatEndWell) {
  const Result result = accel(
      launch_probe({"-n", "3"}, {"if", "2", "sleep", "0.3", "exit", "4"}));
  EXPECT_EQ(result.status, 4);
  EXPECT_NE(
      result.err.find("ended with exit code 0: rank 0, 1"), std::string::npos)
      << result.err;
}

TEST(Failures, OfASingleProcessAreNamedWithoutRepeatingItsOutput) {
  const Result result =
      accel(launch_probe({}, {"err", "words\\n", "exit", "9"}));
  EXPECT_EQ(result.status, 9);
  EXPECT_EQ(result.err.find("words"), result.err.rfind("words"));
  EXPECT_NE(result.err.find("failed: exit code 9"), std::string::npos);
}

TEST(Failures, KillAfterTheGracePeriodWhoeverIgnoresSigterm) {
  Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  const Result result = accel(
      launch_probe(
          {"-n", "2", "--grace-period", "0.5"},
          {"ignore",
           "pid",
           "probe",
           "wait",
           "probe.0.pid",
           "if",
           "1",
           "exit",
           "3",
           "all",
           "forever"}),
      surroundings);
  EXPECT_EQ(result.status, 3);
  EXPECT_GE(result.seconds, 0.5);
  EXPECT_LT(result.seconds, 9); // The grace period is 10 s.
  EXPECT_NE(
      result.err.find("killed, since it did not end when asked to: rank 0"),
      std::string::npos)
      << result.err;
  EXPECT_FALSE(alive(folder.wait_for_pid("probe.0.pid")));
}

TEST(Failures, EndGrandchildrenToo) {
  Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  const Result result = accel(
      launch_probe(
          {"-n", "2"},
          {"child",
           "child",
           "daemon",
           "daemon",
           "wait",
           "child.0.pid",
           "wait",
           "child.1.pid",
           "wait",
           "daemon.0.pid",
           "wait",
           "daemon.1.pid",
           "if",
           "0",
           "exit",
           "3",
           "all",
           "forever"}),
      surroundings);
  EXPECT_EQ(result.status, 3);
  EXPECT_LT(result.seconds, 9); // The grace period is 10 s.
  for (const char* name :
       {"child.0.pid", "child.1.pid", "daemon.0.pid", "daemon.1.pid"}) {
    EXPECT_FALSE(alive(folder.wait_for_pid(name))) << name;
  }
}

TEST(Failures, LeaveNothingBehindASuccess) {
  Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  const Result result = accel(
      launch_probe(
          {"-n", "2"},
          {"daemon", "daemon", "wait", "daemon.0.pid", "wait", "daemon.1.pid"}),
      surroundings);
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.err.find("left processes running"), std::string::npos);
  EXPECT_FALSE(alive(folder.wait_for_pid("daemon.0.pid")));
  EXPECT_FALSE(alive(folder.wait_for_pid("daemon.1.pid")));
}

TEST(Failures, LetAGrandchildFinishItsOutput) {
  const Result result = accel(
      {"launch", "-n", "2", "sh", "-c", "(sleep 0.3; echo late) & exit 0"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(split_lines(result.out).size(), 2u) << result.out;
}

TEST(Failures, OfTheLauncherItselfEndEverything) {
  Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  Strings command = launch_probe(
      {"-n", "2"}, {"ignore", "pid", "probe", "child", "child", "forever"});
  command.insert(command.begin(), accel_path());
  Running running(command, surroundings);
  Strings names{"probe.0.pid", "probe.1.pid", "child.0.pid", "child.1.pid"};
  std::vector<pid_t> pids;
  for (const std::string& name : names) {
    pids.push_back(folder.wait_for_pid(name));
    EXPECT_TRUE(alive(pids.back())) << name;
  }
  running.signal(SIGKILL);
  EXPECT_EQ(running.wait().status, -SIGKILL);
  for (size_t i = 0; i < pids.size(); ++i) {
    EXPECT_TRUE(eventually([&] { return !alive(pids[i]); })) << names[i];
  }
}

TEST(Program, ThatIsMissingIsAnExitCodeOfItsOwn) {
  const Result result = accel({"launch", "-n", "2", "--", "./no-such-program"});
  EXPECT_EQ(result.status, 127);
  EXPECT_EQ(result.err, "accel: ./no-such-program: no such program\n");
  EXPECT_EQ(accel({"launch", "no-such-program-anywhere"}).status, 127);
}

TEST(Program, ThatLiesHereIsPointedAt) {
  Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  std::ofstream(folder / "trainer") << "x";
  const Result result = accel({"launch", "trainer"}, surroundings);
  EXPECT_EQ(result.status, 127);
  EXPECT_NE(result.err.find("Did you mean ./trainer?"), std::string::npos);
}

TEST(Program, ThatCannotBeExecutedIsRefused) {
  Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  std::ofstream(folder / "data.csv") << "1,2\n";
  Result result = accel({"launch", "-n", "2", "./data.csv"}, surroundings);
  EXPECT_EQ(result.status, 126);
  EXPECT_EQ(split_lines(result.err).size(), 1u) << result.err;
  // Executable, but nothing that the kernel knows.
  EXPECT_EQ(chmod((folder / "data.csv").c_str(), 0755), 0);
  result = accel({"launch", "-n", "2", "./data.csv"}, surroundings);
  EXPECT_EQ(result.status, 126);
  EXPECT_NE(result.err.find("Exec format error"), std::string::npos);
  EXPECT_EQ(split_lines(result.err).size(), 1u) << result.err;
  EXPECT_EQ(accel({"launch", "/"}, surroundings).status, 126);
}

TEST(MainProcessPort, ThatIsTakenIsOneMessageBeforeAnythingStarts) {
  Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  const int holder = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(holder, generic, size), 0);
  ASSERT_EQ(listen(holder, 1), 0);
  ASSERT_EQ(getsockname(holder, generic, &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const Strings command = launch_probe(
      {"-n", "2", "--main-process-port", port},
      {"pid", "probe", "env", "MASTER_PORT"});
  Result result = accel(command, surroundings);
  EXPECT_EQ(result.status, 125);
  EXPECT_EQ(split_lines(result.err).size(), 1u) << result.err;
  EXPECT_NE(result.err.find("port " + port), std::string::npos) << result.err;
  EXPECT_FALSE(folder.has("probe.0.pid"));
  // The same command works once the port is free.
  close(holder);
  result = accel(command, surroundings);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(
      result.out.find("[1] MASTER_PORT=" + port + "\n"), std::string::npos);
}

} // namespace
