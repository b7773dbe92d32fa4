// The way of the processes' output.

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <map>

#include "harness.h"

namespace {

using Strings = std::vector<std::string>;

/// `probe bytes count`, as run without the launcher.
std::string direct_bytes(const std::string& count) {
  return Running({probe_path(), "bytes", count}).wait().out;
}

/// Every line must be one that `probe lines` printed, each rank's in order.
void expect_whole_lines(const std::string& text, int ranks, int count) {
  std::map<std::string, int> next;
  for (const std::string& line : split_lines(text)) {
    // "[r] line r i xxx|"
    const std::string rank = line.substr(1, line.find(']') - 1);
    const std::string start =
        "[" + rank + "] line " + rank + " " + std::to_string(next[rank]) + " ";
    ASSERT_EQ(line.substr(0, start.size()), start);
    const size_t end = line.find_first_not_of('x', start.size());
    ASSERT_EQ(line.substr(end), "|");
    ++next[rank];
  }
  EXPECT_EQ(next.size(), static_cast<size_t>(ranks));
  for (const auto& [rank, lines] : next) {
    EXPECT_EQ(lines, count) << rank;
  }
}

TEST(Output, NeverTearsLinesOfConcurrentWriters) {
  const Result result = accel(launch_probe({"-n", "4"}, {"lines", "10000"}));
  EXPECT_EQ(result.status, 0);
  expect_whole_lines(result.out, 4, 10000);
  expect_whole_lines(result.err, 4, 10000);
}

TEST(Output, OfTheMainProcessIsByteForByte) {
  const Result result = accel(launch_probe(
      {"-n", "3", "--output", "main"}, {"err", "seen\n", "bytes", "5000000"}));
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.size(), 5000000u);
  EXPECT_TRUE(result.out == direct_bytes("5000000"));
  EXPECT_EQ(split_lines(result.err).size(), 3u) << result.err;
  EXPECT_NE(result.err.find("[2] seen\n"), std::string::npos) << result.err;
}

TEST(Output, OfOneProcessIsByteForByte) {
  const Result result =
      accel(launch_probe({}, {"err", "a\\rb", "bytes", "1000000"}));
  EXPECT_TRUE(result.out == direct_bytes("1000000"));
  EXPECT_EQ(result.err, "a\rb");
}

TEST(Output, GoesToTheStreamItWasWrittenTo) {
  const Result result = accel(
      launch_probe({"-n", "2"}, {"if", "1", "out", "O\\n", "err", "E\\n"}));
  EXPECT_EQ(result.out, "[1] O\n");
  EXPECT_EQ(result.err, "[1] E\n");
}

TEST(Output, PlainHasWholeLinesWithoutPrefix) {
  const Result result = accel(launch_probe(
      {"-n", "2", "--output", "plain"},
      {"out", "a", "sleep", "0.05", "out", "b\\n"}));
  EXPECT_EQ(result.out, "ab\nab\n");
}

TEST(Output, EndsAnUnfinishedLastLine) {
  const Result result =
      accel(launch_probe({"-n", "2"}, {"if", "0", "out", "one\\ntwo"}));
  EXPECT_EQ(result.out, "[0] one\n[0] two\n");
}

TEST(Output, OfAProgressBarIsReadableInALog) {
  const Result result = accel(
      launch_probe({"-n", "2"}, {"if", "1", "out", "\\r10%\\r20%\\rdone\\n"}));
  EXPECT_EQ(result.out, "[1] 10%\n[1] 20%\n[1] done\n");
}

TEST(Output, OfAProgressBarIsOverwrittenOnATerminal) {
  Surroundings surroundings;
  surroundings.terminal = true;
  const Result result = accel(
      launch_probe({"-n", "2"}, {"if", "1", "out", "\\r10%\\r20%\\rdone\\n"}),
      surroundings);
  EXPECT_EQ(result.out, "[1] 10%\r\x1b[K[1] 20%\r\x1b[K[1] done\r\n");
}

TEST(Output, IsATerminalForTheProgramWhereItIsOneForTheLauncher) {
  Surroundings surroundings;
  EXPECT_EQ(accel(launch_probe({}, {"tty"})).out, "no terminal\n");
  surroundings.terminal = true;
  EXPECT_EQ(
      accel(launch_probe({}, {"tty"}), surroundings).out, "a terminal\r\n");
}

TEST(Output, GoesToFilesByteForByte) {
  Folder folder;
  const Result result = accel(launch_probe(
      {"-n", "2", "--output", folder / "logs/"},
      {"bytes", "100000", "if", "1", "err", "no newline"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "");
  const std::string bytes = direct_bytes("100000");
  EXPECT_TRUE(folder.read("logs/rank-0.stdout.log") == bytes);
  EXPECT_TRUE(folder.read("logs/rank-1.stdout.log") == bytes);
  EXPECT_EQ(folder.read("logs/rank-0.stderr.log"), "");
  EXPECT_EQ(folder.read("logs/rank-1.stderr.log"), "no newline");
}

TEST(Output, ThatNobodyReadsDoesNotKeepADyingProcessFromBeingNoticed) {
  Folder folder;
  std::vector<std::string> command = launch_probe(
      {"-n", "2"},
      {"pid",
       "probe",
       "if",
       "0",
       "bytes",
       "50000000",
       "all",
       "wait",
       "die",
       "exit",
       "6"});
  command.insert(command.begin(), accel_path());
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  Running running(command, surroundings);
  running.hold_output(true);
  const pid_t writer = folder.wait_for_pid("probe.0.pid");
  const pid_t other = folder.wait_for_pid("probe.1.pid");
  usleep(300000); // Everything between here and the writer is full.
  EXPECT_TRUE(alive(writer));
  EXPECT_EQ(
      rename((folder / "probe.0.pid").c_str(), (folder / "die").c_str()), 0);
  EXPECT_TRUE(eventually([&] { return !alive(writer) && !alive(other); }, 5));
  running.hold_output(false);
  const Result result = running.wait();
  EXPECT_EQ(result.status, 6);
  EXPECT_NE(result.err.find("rank 1"), std::string::npos) << result.err;
}

TEST(Output, ThatNobodyReadsAnyMoreEndsTheProgram) {
  const Result result =
      Running(
          {"/bin/sh", "-c", accel_path() + " launch -n 2 -- yes | head -n 2"})
          .wait();
  EXPECT_EQ(split_lines(result.out).size(), 2u);
  EXPECT_EQ(result.err, "");
}

TEST(Output, ThatCannotBeWrittenIsNotLostSilently) {
  Surroundings surroundings;
  surroundings.output_file = "/dev/full";
  const Result result =
      accel(launch_probe({"-n", "2"}, {"out", "text\\n"}), surroundings);
  EXPECT_EQ(result.status, 125);
  EXPECT_NE(
      result.err.find("output was lost: cannot write to standard output: No "
                      "space left on device"),
      std::string::npos)
      << result.err;
}

TEST(Output, ShowsALineAtOnceOnATerminal) {
  // printf without fflush: the C library must take its output for a terminal.
  Folder folder;
  Surroundings surroundings;
  surroundings.terminal = true;
  surroundings.cwd = folder.path();
  Running running(
      {accel_path(),
       "launch",
       "-n",
       "2",
       "awk",
       // awk buffers like any C program.
       "BEGIN { print \"shown\"; while (system(\"test -e go\") != 0) "
       "system(\"sleep 0.01\") }"},
      surroundings);
  // The line arrives before the program ends, since it only ends after it.
  EXPECT_TRUE(eventually([&] {
    return running.output_so_far().find("[1] shown") != std::string::npos &&
           running.output_so_far().find("[0] shown") != std::string::npos;
  }));
  Running({"/bin/touch", folder / "go"}).wait();
  EXPECT_EQ(running.wait().status, 0);
}

} // namespace
