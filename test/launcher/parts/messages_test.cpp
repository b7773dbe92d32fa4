// What launchers say to each other.

#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "endings.h"
#include "messages.h"

namespace accel::launcher {
namespace {

TEST(Messages, ComeBackAsTheyWere) {
  Message message;
  message.name = "finished";
  message.report = failure_of(1, 2);
  message.report->endings[0].host = "node1";
  message.report->endings[0].last_errors = {"no UTF-8: \xff", "a\nb"};
  message.report->endings[0].memory = "memory ran out";
  message.report->user_signal = SIGTERM;
  const std::string line = to_line(message);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto back = from_line(line);
  ASSERT_TRUE(back && back->report);
  EXPECT_EQ(back->name, "finished");
  EXPECT_EQ(back->report->user_signal, SIGTERM);
  ASSERT_EQ(back->report->endings.size(), 2u);
  EXPECT_EQ(back->report->endings[0].note, "barrier: closed");
  EXPECT_EQ(back->report->endings[0].host, "node1");
  EXPECT_EQ(back->report->endings[0].last_errors[1], "a\nb");
  EXPECT_EQ(back->report->endings[0].memory, "memory ran out");
  EXPECT_EQ(back->report->endings[1].status, 3);

  Message start;
  start.name = "verdict";
  start.verdict.emplace();
  start.verdict->start = true;
  start.verdict->attempt = two_hosts();
  const auto verdict = from_line(to_line(start))->verdict;
  EXPECT_TRUE(verdict->start);
  EXPECT_EQ(verdict->attempt.run_id, "run");
  EXPECT_EQ(verdict->attempt.first_rank(1), 2);
}

TEST(Messages, OfStrangersAreNone) {
  for (const char* line :
       {"",
        "GET / HTTP/1.1",
        "{}",
        "[]",
        "{\"accel\":1}",
        "{\"accel\":\"hello\",\"hosts\":7}",
        "{\"accel\":\"hello\",\"hosts\":[{\"machine\":\"x\"}]}",
        "\x01\xff\xfe"}) {
    EXPECT_FALSE(from_line(line)) << line;
  }
  // However deep.
  EXPECT_FALSE(from_line(std::string(60000, '[')));
}

TEST(Messages, SayWhatHostsWereToldDifferently) {
  LaunchOptions options;
  options.num_machines = 2;
  const Hello one = own_hello(options, "/bin/sh");
  options.machine_rank = 1;
  EXPECT_EQ(difference(one, own_hello(options, "/bin/sh")), "");
  const std::string program = difference(one, own_hello(options, "/bin/ls"));
  EXPECT_EQ(
      program.find("another program (checksum of its file) on "), 0u)
      << program;
  options.world_size = 7;
  EXPECT_EQ(
      difference(one, own_hello(options, "/bin/sh"))
          .find("another number of processes on "),
      0u);
}

} // namespace
} // namespace accel::launcher
