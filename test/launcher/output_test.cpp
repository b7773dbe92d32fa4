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

/// Every line must be one that `probe lines` printed, each rank's in order;
/// those of process 0 with a prefix only where `all_prefixed`.
void expect_whole_lines(
    const std::string& text, int ranks, int count, bool all_prefixed) {
  std::map<std::string, int> next;
  for (const std::string& line : split_lines(text)) {
    // "[r] line r i xxx|"
    const bool prefixed = line[0] == '[';
    const std::string rank =
        prefixed ? line.substr(1, line.find(']') - 1) : "0";
    ASSERT_EQ(prefixed, rank != "0" || all_prefixed) << line;
    const std::string start = (prefixed ? "[" + rank + "] " : "") + "line " +
                              rank + " " + std::to_string(next[rank]) + " ";
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
  for (const char* how : {"all", "prefix"}) {
    const Result result = accel(
        launch_probe({"-n", "4", "--output", how}, {"lines", "10000"}));
    EXPECT_EQ(result.status, 0);
    const bool prefix = std::string(how) == "prefix";
    expect_whole_lines(result.out, 4, 10000, prefix);
    expect_whole_lines(result.err, 4, 10000, prefix);
  }
}

TEST(Output, OfProcessZeroIsByteForByteAmongTheOthers) {
  // Also its stderr; the other one says something in between.
  const Strings actions{
      "if",  "0",           "err", "a\\rb\\r\\n\\n", "bytes", "3000000",
      "err", "no line end", "if",  "1",               "out",   "other\\n",
      "err", "other\\n"};
  const Result result = accel(launch_probe({"-n", "2"}, actions));
  EXPECT_EQ(result.status, 0);
  std::string out = result.out;
  std::string err = result.err;
  for (std::string* text : {&out, &err}) {
    const size_t at = text->find("[1] other\n");
    ASSERT_NE(at, std::string::npos);
    text->erase(at, 10);
  }
  EXPECT_TRUE(out == direct_bytes("3000000"));
  EXPECT_EQ(err, "a\rb\r\n\nno line end");
}

TEST(Output, OfTheMainProcessIsByteForByte) {
  const Result result = accel(launch_probe(
      {"-n", "3", "--output", "main"}, {"err", "seen\n", "bytes", "5000000"}));
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.size(), 5000000u);
  EXPECT_TRUE(result.out == direct_bytes("5000000"));
  EXPECT_EQ(split_lines(result.err).size(), 3u) << result.err;
  EXPECT_NE(result.err.find("[2] seen\n"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("[0]"), std::string::npos) << result.err;
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
      accel(launch_probe({"-n", "2"}, {"if", "1", "out", "one\\ntwo"}));
  EXPECT_EQ(result.out, "[1] one\n[1] two\n");
}

TEST(Output, OfProcessZeroEndsAsItDoes) {
  EXPECT_EQ(
      accel(launch_probe({"-n", "2"}, {"if", "0", "out", "one\\ntwo"})).out,
      "one\ntwo");
  // What comes later begins on a line of its own: others' lines,
  EXPECT_EQ(
      accel(launch_probe(
                {"-n", "2"},
                {"if", "0", "out", "one\\ntwo", "if", "1", "sleep", "0.3",
                 "out", "late\\n"}))
          .out,
      "one\ntwo\n[1] late\n");
  // and the launcher's.
  const std::string err =
      accel(launch_probe({}, {"err", "half", "exit", "3"})).err;
  EXPECT_EQ(err.rfind("half\naccel: ", 0), 0u) << err;
}

TEST(Output, OfProcessZeroIsShownAtOnceAndOthersWaitForTheEndOfItsLine) {
  Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  auto command = launch_probe(
      {"-n", "2"},
      {"if", "0", "out", "half ", "pid", "half", "wait", "go",  "out",
       "a line\\n", "if", "1", "wait", "half.0.pid", "out", "other\\n", "pid",
       "other"});
  command.insert(command.begin(), accel_path());
  Running running(command, surroundings);
  EXPECT_TRUE(eventually([&] { return running.output_so_far() == "half "; }));
  folder.wait_for_pid("other.1.pid");
  usleep(1000000); // Longer than errors wait.
  EXPECT_EQ(running.output_so_far(), "half ");
  Running({"/bin/touch", folder / "go"}).wait();
  const Result result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "half a line\n[1] other\n");
}

TEST(Output, OfOthersInterruptsALineWhereItIsUrgent) {
  // On a terminal, on standard error, and where that goes to the same place.
  struct Case {
    const char* stream;
    const char* redirection;
    bool terminal;
  };
  for (const Case& c :
       {Case{"out", "", true},
        Case{"err", "2>&1 >/dev/null", false},
        Case{"err", "2>&1", false}}) {
    Folder folder;
    Surroundings surroundings;
    surroundings.cwd = folder.path();
    surroundings.terminal = c.terminal;
    const bool same = std::string(c.redirection) == "2>&1";
    Running running(
        {"/bin/sh", "-c",
         std::string("exec \"$@\" ") + c.redirection, "sh", accel_path(),
         "launch", "-n", "2", "--", probe_path(), "if", "0",
         same ? "out" : c.stream, "Continue? ", "pid", "asked", "wait", "go",
         same ? "out" : c.stream, "yes\\n", "if", "1", "wait", "asked.0.pid",
         c.stream, "warning\\n"},
        surroundings);
    const std::string end = c.terminal ? "\r\n" : "\n";
    const std::string shown = "Continue? " + end + "[1] warning" + end;
    EXPECT_TRUE(eventually([&] { return running.output_so_far() == shown; }))
        << running.output_so_far();
    Running({"/bin/touch", folder / "go"}).wait();
    EXPECT_EQ(running.wait().out, shown + "yes" + end);
  }
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

TEST(Output, OfProcessZerosProgressBarIsAsItDrawsIt) {
  const auto command = launch_probe(
      {"-n", "2"}, {"if", "0", "out", "\\r10%\\r20%\\rdone\\n"});
  EXPECT_EQ(accel(command).out, "\r10%\r20%\rdone\n");
  Surroundings surroundings;
  surroundings.terminal = true;
  EXPECT_EQ(accel(command, surroundings).out, "\r10%\r20%\rdone\r\n");
}

TEST(Output, IsATerminalForTheProgramWhereItIsOneForTheLauncher) {
  for (const char* count : {"1", "2"}) {
    const auto command =
        launch_probe({"-n", count, "--output", "main"}, {"tty"});
    EXPECT_EQ(accel(command).out, "no terminal\n");
    Surroundings surroundings;
    surroundings.terminal = true;
    EXPECT_EQ(accel(command, surroundings).out, "a terminal\r\n");
  }
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
  EXPECT_TRUE(eventually([&] { return !alive(writer) && !alive(other); }));
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
    const std::string text = "\n" + running.output_so_far();
    return text.find("\n[1] shown") != std::string::npos &&
           text.find("\nshown") != std::string::npos;
  }));
  Running({"/bin/touch", folder / "go"}).wait();
  EXPECT_EQ(running.wait().status, 0);
}

} // namespace
