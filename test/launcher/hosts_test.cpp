// Several launchers that make one job: here all run on this machine, and take
// the loopback interface for their network. (With namespaces: test/faults.)

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <memory>

#include "harness.h"

namespace {

using Strings = std::vector<std::string>;

/// What a line of this process begins with.
std::string prefix_of(size_t rank) {
  return rank == 0 ? "" : "[" + std::to_string(rank) + "] ";
}

/// A socket at a port that nobody else has; listens with `listening`.
int hold_port(int& port, bool listening) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(fd, generic, size), 0);
  EXPECT_EQ(getsockname(fd, generic, &size), 0);
  if (listening) {
    EXPECT_EQ(listen(fd, 100), 0);
  }
  port = ntohs(address.sin_port);
  return fd;
}

class Hosts : public testing::Test {
 protected:
  /// How each launcher is started.
  struct Host {
    int machine = 0;
    int machines = 2;
    /// On this host.
    int processes = 1;
    Strings options;
    Strings program;
  };

  Hosts() : holder_(hold_port(port_, false)) {
    surroundings_.cwd = folder_.path();
    surroundings_.environment = {{"OMP_NUM_THREADS", "1"}};
  }

  ~Hosts() override {
    close(holder_);
  }

  std::unique_ptr<Running> start(const Host& host) {
    Strings command{
        accel_path(),
        "launch",
        "--num-machines",
        std::to_string(host.machines),
        "--machine-rank",
        std::to_string(host.machine),
        "--main-process-ip",
        "127.0.0.1",
        "--main-process-port",
        std::to_string(port_),
        "--nproc-per-node",
        std::to_string(host.processes)};
    command.insert(command.end(), host.options.begin(), host.options.end());
    command.emplace_back("--");
    command.insert(command.end(), host.program.begin(), host.program.end());
    return std::make_unique<Running>(command, surroundings_);
  }

  /// Starts the same on `machines` hosts and waits for their ends.
  std::vector<Result> run(
      int machines,
      int processes,
      const Strings& options,
      const Strings& program) {
    std::vector<std::unique_ptr<Running>> running;
    for (int machine = 0; machine < machines; ++machine) {
      running.push_back(
          start({machine, machines, processes, options, program}));
    }
    std::vector<Result> results;
    for (auto& launcher : running) {
      results.push_back(launcher->wait());
    }
    return results;
  }

  static Strings shell(const std::string& text) {
    return {"/bin/sh", "-c", text};
  }

  Folder folder_;
  int port_ = 0;
  /// Keeps the port for the launchers, who may listen there nevertheless.
  int holder_;
  Surroundings surroundings_;
};

TEST_F(Hosts, ShareTheRanksAndEndTogether) {
  const auto results = run(
      3,
      2,
      {},
      shell("echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
            "$GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RUN_ID "
            "$MASTER_PORT; if [ $RANK = 4 ]; then sleep 0.5; fi"));
  for (size_t machine = 0; machine < 3; ++machine) {
    EXPECT_EQ(results[machine].status, 0) << results[machine].err;
    EXPECT_EQ(results[machine].err, "");
    // Nobody leaves before all are done.
    EXPECT_GT(results[machine].seconds, 0.5);
    for (size_t local = 0; local < 2; ++local) {
      const size_t rank = 2 * machine + local;
      expect_part(
          results[machine].out,
          prefix_of(rank) + std::to_string(rank) + "/6 " +
              std::to_string(local) + "/2 " + std::to_string(machine) +
              "/3 127.0.0.1 accel-");
    }
    // All were told the same store and job.
    const Strings lines = split_lines(results[machine].out);
    ASSERT_EQ(lines.size(), 2u);
    for (const std::string& line : lines) {
      EXPECT_EQ(
          line.substr(line.find("127.0.0.1")),
          split_lines(results[0].out)[0].substr(
              split_lines(results[0].out)[0].find("127.0.0.1")));
    }
  }
}

TEST_F(Hosts, AFailureOnOneEndsAllAndIsNamedOnAll) {
  for (const int rank : {0, 3}) {
    const auto results = run(
        2,
        2,
        {},
        shell("if [ $RANK = " + std::to_string(rank) +
              " ]; then echo the reason >&2; kill -SEGV $$; fi; sleep 60"));
    for (const Result& result : results) {
      EXPECT_EQ(result.status, 139) << result.err;
      EXPECT_LT(result.seconds, 10);
      expect_part(result.err, "accel: rank " + std::to_string(rank) + " (pid ");
      expect_part(result.err, ") failed first: ended by SIGSEGV");
      expect_part(result.err, "accel:   the reason");
      expect_part(result.err, "stopped because of that: rank ");
    }
  }
}

TEST_F(Hosts, StartAgainTogether) {
  const auto results = run(
      2,
      1,
      {"--max-restarts", "3", "--resume", "auto"},
      shell("echo attempt $TORCHELASTIC_RESTART_COUNT; "
            "if [ $TORCHELASTIC_RESTART_COUNT -ge 2 ]; then exit 0; fi; "
            "if [ $RANK = $TORCHELASTIC_RESTART_COUNT ]; then exit 9; fi; "
            "sleep 60"));
  for (size_t machine = 0; machine < 2; ++machine) {
    const Result& result = results[machine];
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(
        split_lines(result.out),
        (Strings{
            prefix_of(machine) + "attempt 0",
            prefix_of(machine) + "attempt 1",
            prefix_of(machine) + "attempt 2"}));
    expect_part(result.err, "failed first: exit code 9");
    expect_part(result.err, "starting all processes again (restart 2 of at most 3");
  }
}

TEST_F(Hosts, ALostOneEndsTheJob) {
  const Strings program = shell("echo $$ > pid.$RANK.new; mv pid.$RANK.new pid.$RANK; sleep 60");
  auto first = start({0, 2, 1, {}, program});
  auto second = start({1, 2, 1, {}, program});
  folder_.wait_for_pid("pid.0");
  const pid_t lost = folder_.wait_for_pid("pid.1");
  second->signal(SIGKILL);
  const Result result = first->wait();
  EXPECT_EQ(result.status, 125);
  EXPECT_LT(result.seconds, 10);
  expect_part(result.err, "rank 1 on ");
  expect_part(result.err, "failed first: lost with its host");
  expect_part(result.err, "it has ended without a message");
  expect_part(result.err, "stopped because of that: rank 0");
  EXPECT_TRUE(eventually([&] { return !alive(lost); }));
}

TEST_F(Hosts, TheFirstOneLostEndsTheJob) {
  const Strings program = shell("echo $$ > pid.$RANK.new; mv pid.$RANK.new pid.$RANK; sleep 60");
  auto first = start({0, 2, 1, {"--max-restarts", "3"}, program});
  auto second = start({1, 2, 1, {"--max-restarts", "3"}, program});
  folder_.wait_for_pid("pid.0");
  const pid_t other = folder_.wait_for_pid("pid.1");
  first->signal(SIGKILL);
  const Result result = second->wait();
  EXPECT_EQ(result.status, 125);
  EXPECT_LT(result.seconds, 10);
  expect_part(result.err, "(--machine-rank 0) is lost: it has ended without a message");
  EXPECT_FALSE(alive(other));
}

TEST_F(Hosts, GoOnWithFewerWhereThatIsAllowed) {
  const Strings options{
      "--max-restarts", "2", "--min-processes", "2", "--resume", "auto"};
  const Strings program = shell(
      "echo $RANK of $WORLD_SIZE on $GROUP_RANK of $GROUP_WORLD_SIZE; "
      "if [ $WORLD_SIZE = 2 ]; then exit 0; fi; "
      "echo $$ > pid.$RANK.new; mv pid.$RANK.new pid.$RANK; sleep 60");
  std::vector<std::unique_ptr<Running>> running;
  for (int machine = 0; machine < 3; ++machine) {
    running.push_back(start({machine, 3, 1, options, program}));
  }
  for (const char* name : {"pid.0", "pid.1", "pid.2"}) {
    folder_.wait_for_pid(name);
  }
  running[1]->signal(SIGKILL);
  for (size_t machine : {0, 2}) {
    const Result result = running[machine]->wait();
    EXPECT_EQ(result.status, 0) << result.err;
    expect_part(result.err, "rank 1 on ");
    expect_part(result.err, "starting 2 processes instead of 3, since ");
    expect_part(result.err, "What changes with 2 processes instead of 3: ");
    // Ranks and hosts are counted anew.
    expect_part(
        result.out,
        machine == 0 ? "0 of 2 on 0 of 2\n" : "[1] 1 of 2 on 1 of 2\n");
  }
}

TEST_F(Hosts, OneThatComesBackIsWaitedFor) {
  const Strings options{"--max-restarts", "1", "--resume", "auto"};
  const Strings program = shell(
      "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then echo again; exit 0; fi; "
      "echo $$ > pid.$RANK.new; mv pid.$RANK.new pid.$RANK; sleep 60");
  auto first = start({0, 2, 1, options, program});
  auto second = start({1, 2, 1, options, program});
  folder_.wait_for_pid("pid.0");
  folder_.wait_for_pid("pid.1");
  second->signal(SIGKILL);
  second->wait();
  second = start({1, 2, 1, options, program});
  for (auto* launcher : {first.get(), second.get()}) {
    const Result result = launcher->wait();
    EXPECT_EQ(result.status, 0) << result.err;
    expect_part(result.out, "again");
  }
}

TEST_F(Hosts, AreToldToEndWhereOneIs) {
  const Strings program = shell(
      "trap 'echo asked; exit 75' TERM; "
      "echo $$ > pid.$RANK.new; mv pid.$RANK.new pid.$RANK; "
      "while true; do sleep 0.05; done");
  for (size_t asked : {0, 1}) {
    std::vector<std::unique_ptr<Running>> running;
    for (int machine = 0; machine < 2; ++machine) {
      running.push_back(start({machine, 2, 1, {"--max-restarts", "5"}, program}));
    }
    folder_.wait_for_pid("pid.0");
    folder_.wait_for_pid("pid.1");
    running[asked]->signal(SIGTERM);
    for (auto& launcher : running) {
      const Result result = launcher->wait();
      EXPECT_EQ(result.status, 75) << result.err;
      expect_part(result.out, "asked");
      expect_part(result.err, "stopped by SIGTERM after saving");
    }
    unlink((folder_ / "pid.0").c_str());
    unlink((folder_ / "pid.1").c_str());
  }
}

TEST_F(Hosts, WaitingForOthersCanBeEnded) {
  for (int machine : {0, 1}) {
    auto launcher = start({machine, 2, 1, {}, shell("echo never")});
    usleep(300000);
    launcher->signal(SIGTERM);
    const Result result = launcher->wait();
    EXPECT_EQ(result.status, 143);
    EXPECT_EQ(result.err, "accel: stopped by SIGTERM\n");
    EXPECT_EQ(result.out, "");
  }
}

// ---- Before anything starts: one message on each host.

/// The only line of `result`, which has started nothing.
std::string refusal(const Result& result) {
  EXPECT_EQ(result.status, 125);
  EXPECT_EQ(result.out, "");
  const Strings lines = split_lines(result.err);
  EXPECT_EQ(lines.size(), 1u) << result.err;
  return lines.empty() ? "" : lines[0];
}

class Preflight : public Hosts {
 protected:
  /// Starts these launchers, each of which has to refuse with `part`.
  void refused(const std::vector<Host>& hosts, const std::string& part) {
    std::vector<std::unique_ptr<Running>> running;
    for (const Host& host : hosts) {
      running.push_back(start(host));
    }
    for (auto& launcher : running) {
      expect_part(refusal(launcher->wait()), part);
    }
  }

  const Strings program_ = shell("echo started");
};

TEST_F(Preflight, TheProgramIsTheSame) {
  refused(
      {{0, 2, 1, {}, program_}, {1, 2, 1, {}, {"/bin/echo", "started"}}},
      "another program (checksum of its file) on ");
}

TEST_F(Preflight, TheNumbersAreTheSame) {
  refused(
      {{0, 2, 1, {}, program_}, {1, 2, 2, {}, program_}},
      ": 4 and 2. Start the same program in the same way on all hosts");
  refused(
      {{0, 2, 1, {}, program_}, {1, 3, 1, {}, program_}},
      "another number of hosts (--num-machines) on ");
  refused(
      {{0, 2, 1, {"--max-restarts", "1"}, program_}, {1, 2, 1, {}, program_}},
      "another --max-restarts on ");
}

TEST_F(Preflight, TheVersionIsTheSame) {
  auto launcher = start({0, 2, 1, {}, program_});
  int fd = -1;
  ASSERT_TRUE(eventually([&] { return (fd = connect_to(port_)) >= 0; }));
  const std::string hello =
      R"({"accel":"hello","hosts":[{"machine":1,"host":"old","processes":1,)"
      R"("facts":[["version of accel","0.0.1"]],"address":"127.0.0.1","port":1}]})"
      "\n";
  ASSERT_EQ(send(fd, hello.data(), hello.size(), 0), static_cast<ssize_t>(hello.size()));
  expect_part(
      refusal(launcher->wait()),
      "another version of accel on old (--machine-rank 1) than on ");
  // It is told, too.
  std::string answer(1000, '\0');
  EXPECT_GT(recv(fd, answer.data(), answer.size(), MSG_WAITALL), 0);
  expect_part(answer, "another version of accel");
  close(fd);
}

TEST_F(Preflight, RanksAreUnique) {
  refused(
      {{0, 3, 1, {}, program_}, {1, 3, 1, {}, program_}, {1, 3, 1, {}, program_}},
      "--machine-rank 1 was given on two hosts, ");
}

TEST_F(Preflight, TwoFirstOnesDoNotShareAPort) {
  auto first = start({0, 2, 1, {}, program_});
  int fd = -1;
  ASSERT_TRUE(eventually([&] { return (fd = connect_to(port_)) >= 0; }));
  close(fd);
  auto again = start({0, 2, 1, {}, program_});
  expect_part(
      refusal(again->wait()),
      "port " + std::to_string(port_) +
          ", at which the hosts are to meet, cannot be used: Address already "
          "in use");
  first->signal(SIGTERM);
  first->wait();
}

TEST_F(Preflight, HostsReachEachOther) {
  // One that says that it can be reached where nobody listens.
  auto launcher = start({0, 2, 1, {}, program_});
  auto other = start({1, 2, 1, {}, program_});
  EXPECT_EQ(launcher->wait().status, 0);
  EXPECT_EQ(other->wait().status, 0);
  launcher = start({0, 2, 1, {}, program_});
  int closed = 0;
  const int holder = hold_port(closed, false);
  // What a launcher says, with another port.
  int listener_port = 0;
  const int listener = hold_port(listener_port, true);
  Strings command{
      accel_path(), "launch", "--num-machines", "2", "--machine-rank", "1",
      "--main-process-ip", "127.0.0.1", "--main-process-port",
      std::to_string(listener_port), "--nproc-per-node", "1", "--"};
  command.insert(command.end(), program_.begin(), program_.end());
  Running member(command, surroundings_);
  const int from_member = accept(listener, nullptr, nullptr);
  std::string hello(65536, '\0');
  hello.resize(static_cast<size_t>(std::max<ssize_t>(
      0, recv(from_member, hello.data(), hello.size(), 0))));
  const size_t at = hello.find("\"port\":");
  ASSERT_NE(at, std::string::npos) << hello;
  hello.replace(
      at, hello.find_first_of(",}", at) - at, "\"port\":" + std::to_string(closed));
  int fd = -1;
  ASSERT_TRUE(eventually([&] { return (fd = connect_to(port_)) >= 0; }));
  ASSERT_GT(send(fd, hello.data(), hello.size(), 0), 0);
  const std::string said = refusal(launcher->wait());
  expect_part(said, "the hosts do not reach each other");
  expect_part(said, "(127.0.0.1): Connection refused");
  for (int open : {fd, from_member, listener, holder}) {
    close(open);
  }
  member.signal(SIGTERM);
  member.wait();
}

TEST_F(Preflight, WhoDoesNotComeIsNamed) {
  refused(
      {{0, 3, 1, {"--start-timeout", "2"}, program_},
       {2, 3, 1, {"--start-timeout", "2"}, program_}},
      "nobody has called accel launch with --machine-rank 1 (of 3 hosts) "
      "within 2 s (--start-timeout)");
  const std::string alone =
      refusal(start({1, 2, 1, {"--start-timeout", "1"}, program_})->wait());
  expect_part(alone, "found nobody at 127.0.0.1:" + std::to_string(port_));
  expect_part(alone, "Connection refused");
}

TEST_F(Preflight, SomebodyElseAtThePortIsNotMistakenForALauncher) {
  close(holder_);
  holder_ = hold_port(port_, true);
  const std::string said =
      refusal(start({1, 2, 1, {"--start-timeout", "1"}, program_})->wait());
  expect_part(said, "has not answered within 1 s");
  expect_part(said, "Perhaps it is not accel launch that listens there");
}

TEST_F(Preflight, StrangersDisturbNothing) {
  auto first = start({0, 2, 1, {}, program_});
  std::vector<int> open;
  const auto visit = [&](const std::string& message) {
    int fd = -1;
    ASSERT_TRUE(eventually([&] { return (fd = connect_to(port_)) >= 0; }));
    (void)!send(fd, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    open.push_back(fd);
  };
  visit("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  visit("");
  visit("half a line");
  visit(std::string(1 << 20, '\xff'));
  visit(std::string(1 << 16, '[') + "\n");
  visit("{\"accel\":\"verdict\"}\n");
  visit("{\"accel\":\"hello\"}\n");
  for (int i = 0; i < 300; ++i) {
    visit(std::string(1, static_cast<char>(i)));
  }
  auto second = start({1, 2, 1, {}, program_});
  for (auto* launcher : {first.get(), second.get()}) {
    const Result result = launcher->wait();
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    expect_part(result.out, "started");
  }
  for (int fd : open) {
    close(fd);
  }
}

} // namespace
