// What is said and done when all processes have ended.

#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "endings.h"
#include "restart_policy.h"
#include "summary.h"

namespace accel::launcher {
namespace {

using Lines = std::vector<std::string>;

LaunchOptions elastic(int min_processes) {
  LaunchOptions options;
  options.max_restarts = 9;
  options.min_processes = min_processes;
  options.resume = "auto";
  return options;
}

TEST(Summary, BlamesTheFirstThatFailedByItself) {
  std::vector<Ending> endings{
      exited(0, 0, 0), exited(1, 3, 2), exited(2, 4, 1), exited(3, 5, 3)};
  EXPECT_EQ(find_cause(endings)->rank, 2);
  // One that says that it only follows is passed over …
  endings[2].note = "all_reduce: connection closed";
  EXPECT_EQ(find_cause(endings)->rank, 1);
  // … as is one that was asked to end …
  endings[1].asked = true;
  EXPECT_EQ(find_cause(endings)->rank, 3);
  // … but a consequence is nearer to the cause than that.
  endings[3].asked = true;
  EXPECT_EQ(find_cause(endings)->rank, 2);
  EXPECT_EQ(find_cause({exited(0, 0, 0)}), nullptr);
}

TEST(Summary, IsNotFilledUpByStackFrames) {
  Lines errors{"error: the message"};
  for (int i = 0; i < 30; ++i) {
    errors.push_back("frame #" + std::to_string(i) + ": somewhere");
  }
  errors.push_back("");
  Ending cause = exited(0, 3, 0);
  cause.last_errors = telling_lines(errors);
  EXPECT_EQ(
      summarize_failure({cause}, cause),
      "rank 0 (pid 100) failed: exit code 3, 0.00 s after the start\n"
      "its last lines on standard error:\n"
      "  error: the message\n"
      "  (30 stack frames)");
}

TEST(Summary, NamesHostsWhereThereAreSeveral) {
  Ending killed = exited(1, SIGKILL, 0);
  killed.code = CLD_KILLED;
  killed.host = "node1";
  Ending follower = exited(0, 1, 1);
  follower.host = "node0";
  follower.note = "all_reduce #3: connection closed";
  const std::string text = summarize_failure({follower, killed}, killed);
  EXPECT_EQ(
      text.substr(0, text.find(',')),
      "rank 1 (pid 101 on node1) failed first: ended by SIGKILL (Killed)");
  EXPECT_NE(
      text.find("could not go on without the others: rank 0 on node0 (exit "
                "code 1, in all_reduce #3)"),
      std::string::npos)
      << text;
}

TEST(Summary, SaysThatMemoryRanOut) {
  Ending killed = exited(1, SIGKILL, 0);
  killed.code = CLD_KILLED;
  // A shell's word for one that it had started.
  const Ending shell = exited(1, 128 + SIGKILL, 0);
  for (Ending ending : {killed, shell}) {
    const std::string plain = ending.describe();
    EXPECT_EQ(plain.find("memory"), std::string::npos);
    ending.memory = "The kernel has killed somebody.";
    EXPECT_EQ(ending.describe(), plain + ", probably out of memory");
    const std::string text =
        summarize_failure({exited(0, 0, 1), ending}, ending);
    EXPECT_NE(
        text.find("\n  The kernel has killed somebody. Fewer processes, "),
        std::string::npos)
        << text;
    EXPECT_EQ(text.find("somebody killed it"), std::string::npos) << text;
  }
}

TEST(RestartPolicy, LeavesOutWhoFailsFirstTwiceInARow) {
  const LaunchOptions options = elastic(3);
  RestartPolicy policy(options);
  Verdict verdict = policy.after(two_hosts(), failure_of(3, 4));
  ASSERT_TRUE(verdict.start);
  EXPECT_EQ(verdict.attempt.world_size(), 4);
  EXPECT_EQ(verdict.attempt.number, 1);
  // Another one is not the same one.
  verdict = policy.after(verdict.attempt, failure_of(2, 4));
  EXPECT_EQ(verdict.attempt.world_size(), 4);
  EXPECT_NE(verdict.text.find("starting all processes again"),
            std::string::npos);
  verdict = policy.after(verdict.attempt, failure_of(2, 4));
  EXPECT_EQ(verdict.attempt.world_size(), 3);
  EXPECT_EQ(verdict.attempt.processes(0), 2);
  EXPECT_EQ(verdict.attempt.processes(1), 1);
  for (const char* part :
       {"starting 3 processes instead of 4, since rank 2 has failed first "
        "twice in a row and --min-processes 3 allows it (restart 3 of at most "
        "9, from the newest complete checkpoint)",
        "in a program with match_single_device (and without "
        "split_batches(false)) a global batch is what it was",
        "In any other batches are per process, so that an optimizer step now "
        "takes 3 of 4 of the samples"}) {
    EXPECT_NE(verdict.text.find(part), std::string::npos) << verdict.text;
  }
  // No fewer than that.
  for (int i = 0; i < 3; ++i) {
    verdict = policy.after(verdict.attempt, failure_of(1, 3));
    EXPECT_EQ(verdict.attempt.world_size(), 3);
  }
}

TEST(RestartPolicy, GoesOnWithoutALostHost) {
  Report report = failure_of(0, 4);
  for (int rank : {2, 3}) {
    report.endings[static_cast<size_t>(rank)].code = Ending::kLost;
    report.endings[static_cast<size_t>(rank)].note = "";
  }
  for (int least : {0, 2, 3}) {
    const LaunchOptions options = elastic(least);
    const Verdict verdict = RestartPolicy(options).after(two_hosts(), report);
    ASSERT_TRUE(verdict.start);
    // Where it may not, the host is waited for.
    EXPECT_EQ(verdict.attempt.processes(1), least == 2 ? 0 : 2) << least;
    EXPECT_EQ(verdict.attempt.hosts(), least == 2 ? 1 : 2);
  }
}

TEST(RestartPolicy, KeepsProcessZeroOnItsHost) {
  const LaunchOptions options = elastic(1);
  RestartPolicy policy(options);
  Attempt attempt{0, 1, "run", {{0, "a", 1}, {1, "b", 1}}};
  for (int i = 0; i < 3; ++i) {
    attempt = policy.after(attempt, failure_of(0, 2)).attempt;
    EXPECT_EQ(attempt.processes(0), 1);
    EXPECT_EQ(attempt.processes(1), 1);
  }
}

TEST(RestartPolicy, EndsWhereNothingIsToBeStarted) {
  const LaunchOptions options = elastic(0);
  RestartPolicy policy(options);
  Report well = failure_of(0, 4, 0);
  EXPECT_FALSE(policy.after(two_hosts(), well).start);
  EXPECT_EQ(policy.after(two_hosts(), well).exit_code, 0);
  EXPECT_FALSE(policy.after(two_hosts(), failure_of(1, 4, 75)).start);
  Report stopped = failure_of(1, 4);
  stopped.user_signal = SIGTERM;
  EXPECT_FALSE(policy.after(two_hosts(), stopped).start);
  Attempt last = two_hosts();
  last.number = 9;
  EXPECT_FALSE(policy.after(last, failure_of(1, 4)).start);
  EXPECT_EQ(policy.after(last, failure_of(1, 4)).exit_code, 3);
}

} // namespace
} // namespace accel::launcher
