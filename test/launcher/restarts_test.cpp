// Starting all processes again after one has failed.

#include <gtest/gtest.h>

#include <algorithm>

#include "harness.h"

namespace {

using Strings = std::vector<std::string>;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

/// A shell program: fails in the first attempts, in which nobody may stay.
std::vector<std::string> shell(
    const std::vector<std::string>& options, const std::string& program) {
  std::vector<std::string> all{"launch"};
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), {"--", "/bin/sh", "-c", program});
  return all;
}

TEST(Restarts, UntilAllProcessesEndWell) {
  const Result result = accel(shell(
      {"-n", "2", "--max-restarts", "5", "--resume", "auto"},
      "echo attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS "
      "$ACCEL_RESUME;"
      "if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then exit 9; "
      "fi; if [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then sleep 60; fi"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_LT(result.seconds, 20);
  for (const char* attempt : {"0", "1", "2"}) {
    expect_part(
        "\n" + result.out,
        std::string("\nattempt ") + attempt + " of 5 auto\n");
  }
  EXPECT_EQ(count_of(result.err, "failed first: exit code 9"), 2u);
  expect_part(
      result.err,
      "starting all processes again (restart 2 of at most 5, from the newest "
      "complete checkpoint)");
}

TEST(Restarts, EndWithTheLastFailure) {
  const Result result = accel(shell(
      {"--max-restarts", "2"}, "exit $((TORCHELASTIC_RESTART_COUNT + 3))"));
  EXPECT_EQ(result.status, 5);
  EXPECT_EQ(count_of(result.err, "starting all processes again"), 2u);
  expect_part(result.err, "from the beginning: --resume auto was not asked for");
  expect_part(result.err, "failed: exit code 5");
}

TEST(Restarts, AreNotMadeUnlessAskedFor) {
  const Result result = accel(shell({}, "exit 3"));
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(count_of(result.err, "again"), 0u);
}

TEST(Restarts, NeverAgainstTheUser) {
  const Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  std::vector<std::string> arguments =
      shell({"--max-restarts", "9"}, "echo $$ > pid.new; mv pid.new pid; sleep 60");
  arguments.insert(arguments.begin(), accel_path());
  Running running(arguments, surroundings);
  folder.wait_for_pid("pid");
  running.signal(SIGTERM);
  const Result result = running.wait();
  EXPECT_EQ(result.status, 143);
  EXPECT_EQ(result.err, "accel: stopped by SIGTERM\n");
}

TEST(Restarts, NotAfterSavingOnASignal) {
  const Result result =
      accel(shell({"-n", "2", "--max-restarts", "9"}, "sleep 0.$RANK; exit 75"));
  EXPECT_EQ(result.status, 75);
  EXPECT_EQ(
      result.err,
      "accel: stopped by a signal after saving (exit code 75); started again "
      "with --resume auto it goes on there\n");
}

TEST(Restarts, ContinueTheFilesOfTheirOutput) {
  const Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  const Result result = accel(
      shell(
          {"--max-restarts", "1", "--output", "logs/"},
          "echo attempt $TORCHELASTIC_RESTART_COUNT; exit "
          "$((1 - TORCHELASTIC_RESTART_COUNT))"),
      surroundings);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(folder.read("logs/rank-0.stdout.log"), "attempt 0\nattempt 1\n");
}

TEST(Tee, WritesFilesBesideTheOutput) {
  const Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  for (const char* how : {"all", "main", "prefix"}) {
    const Result result = accel(
        shell(
            {"-n", "2", "--output", how, "--tee", "logs/"},
            "echo out $RANK; echo err $RANK >&2"),
        surroundings);
    EXPECT_EQ(result.status, 0) << result.err;
    const std::string first = std::string(how) == "prefix" ? "[0] " : "";
    const bool main = std::string(how) == "main";
    Strings lines = split_lines(result.out);
    std::sort(lines.begin(), lines.end());
    EXPECT_EQ(
        lines,
        main ? Strings{"out 0"}
        : first.empty() ? (Strings{"[1] out 1", "out 0"})
                        : (Strings{"[0] out 0", "[1] out 1"}));
    lines = split_lines(result.err);
    std::sort(lines.begin(), lines.end());
    EXPECT_EQ(
        lines,
        first.empty() ? (Strings{"[1] err 1", "err 0"})
                      : (Strings{"[0] err 0", "[1] err 1"}));
    for (const char* rank : {"0", "1"}) {
      const std::string file = std::string("logs/rank-") + rank;
      EXPECT_EQ(
          folder.read(file + ".stdout.log"), std::string("out ") + rank + "\n");
      EXPECT_EQ(
          folder.read(file + ".stderr.log"), std::string("err ") + rank + "\n");
    }
  }
  const Result both = accel(
      {"launch", "--output", "a/", "--tee", "b/", "/bin/true"}, surroundings);
  EXPECT_EQ(both.status, 2);
  expect_part(both.err, "--tee");
}

} // namespace
