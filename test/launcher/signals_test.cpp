// Signals to the launcher.

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "harness.h"

namespace {

using Strings = std::vector<std::string>;

/// A launch of two processes that are ready for signals.
struct Launched {
  explicit Launched(const Strings& options, Strings actions) {
    surroundings.cwd = folder.path();
    actions.insert(actions.end(), {"pid", "ready", "forever"});
    Strings command = launch_probe(options, actions);
    command.insert(command.begin(), accel_path());
    running = std::make_unique<Running>(command, surroundings);
    first = folder.wait_for_pid("ready.0.pid");
    second = folder.wait_for_pid("ready.1.pid");
  }

  Folder folder;
  Surroundings surroundings;
  std::unique_ptr<Running> running;
  pid_t first;
  pid_t second;
};

TEST(Signals, AreAllPassedOn) {
  Launched launched({"-n", "2"}, {"trap-exit", "0"});
  const auto received = [&](const std::string& expected) {
    return eventually([&] {
      return launched.folder.has("signals.0") &&
             launched.folder.has("signals.1") &&
             launched.folder.read("signals.0") == expected &&
             launched.folder.read("signals.1") == expected;
    });
  };
  launched.running->signal(SIGUSR1);
  EXPECT_TRUE(received("USR1\n"));
  launched.running->signal(SIGUSR2);
  EXPECT_TRUE(received("USR1\nUSR2\n"));
  launched.running->signal(SIGHUP);
  EXPECT_TRUE(received("USR1\nUSR2\nHUP\n"));
  launched.running->signal(SIGQUIT);
  EXPECT_TRUE(received("USR1\nUSR2\nHUP\nQUIT\n"));
  launched.running->signal(SIGTERM);
  EXPECT_TRUE(received("USR1\nUSR2\nHUP\nQUIT\nTERM\n"));
  // Both have saved and ended well, and so has the launch.
  const Result result = launched.running->wait();
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
}

TEST(Signals, ReachGrandchildren) {
  Launched launched({"-n", "2"}, {"child", "child"});
  const pid_t child = launched.folder.wait_for_pid("child.1.pid");
  launched.running->signal(SIGTERM);
  EXPECT_EQ(launched.running->wait(9).status, 128 + SIGTERM);
  EXPECT_FALSE(alive(child));
}

TEST(Signals, SigtermEndsALaunchByItsNumber) {
  Launched launched({"-n", "2"}, {});
  launched.running->signal(SIGTERM);
  const Result result = launched.running->wait(9);
  EXPECT_EQ(result.status, 128 + SIGTERM);
  EXPECT_EQ(result.err, "accel: stopped by SIGTERM\n");
  EXPECT_FALSE(alive(launched.first));
  EXPECT_FALSE(alive(launched.second));
}

TEST(Signals, SigintEndsTheLauncherAsItEndsAProgram) {
  Launched launched({"-n", "2"}, {});
  launched.running->signal(SIGINT);
  const Result result = launched.running->wait(9);
  // By the signal, not by exit(130): a shell's loop ends then, too.
  EXPECT_EQ(result.status, -SIGINT);
  EXPECT_EQ(result.err, "accel: stopped by SIGINT\n");
}

TEST(Signals, AProcessThatFailsAfterASignalIsStillNamed) {
  Launched launched({"-n", "2"}, {"trap-exit", "7"});
  launched.running->signal(SIGTERM);
  const Result result = launched.running->wait(9);
  EXPECT_EQ(result.status, 7);
  EXPECT_NE(
      result.err.find("SIGTERM was passed on to all processes"),
      std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("exit code 7"), std::string::npos) << result.err;
}

TEST(Signals, WhoIgnoresThemIsKilledAfterTheGracePeriod) {
  Launched launched({"-n", "2", "--grace-period", "0.5"}, {"ignore"});
  launched.running->signal(SIGTERM);
  const Result result = launched.running->wait(9);
  EXPECT_EQ(result.status, 128 + SIGKILL);
  EXPECT_NE(result.err.find("did not end when asked to"), std::string::npos)
      << result.err;
  EXPECT_FALSE(alive(launched.first));
  EXPECT_FALSE(alive(launched.second));
}

TEST(Signals, ASecondSigintKillsAtOnce) {
  Launched launched({"-n", "2", "--grace-period", "1000"}, {"ignore"});
  launched.running->signal(SIGINT);
  EXPECT_FALSE(eventually([&] { return !alive(launched.first); }, 0.3));
  launched.running->signal(SIGINT);
  EXPECT_EQ(launched.running->wait(9).status, 128 + SIGKILL);
  EXPECT_FALSE(alive(launched.first));
  EXPECT_FALSE(alive(launched.second));
}

TEST(Signals, SuspendingTheLauncherSuspendsTheProcesses) {
  Launched launched({"-n", "2"}, {});
  const auto both_are = [&](char state) {
    return eventually([&] {
      return process_state(launched.first) == state &&
             process_state(launched.second) == state;
    });
  };
  launched.running->signal(SIGTSTP);
  EXPECT_TRUE(both_are('T'));
  EXPECT_TRUE(eventually(
      [&] { return process_state(launched.running->pid()) == 'T'; }));
  launched.running->signal(SIGCONT);
  EXPECT_TRUE(both_are('S'));
  launched.running->signal(SIGTERM);
  EXPECT_EQ(launched.running->wait(9).status, 128 + SIGTERM);
}

TEST(Signals, ThatWereIgnoredFromTheStartStayIgnored) {
  // As under nohup, or for SIGINT in a script's background job.
  Folder folder;
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  Running running(
      {"/bin/sh",
       "-c",
       "trap '' HUP; exec " + accel_path() + " launch -n 2 -- " + probe_path() +
           " pid ready wait go"},
      surroundings);
  folder.wait_for_pid("ready.0.pid");
  folder.wait_for_pid("ready.1.pid");
  running.signal(SIGHUP);
  usleep(100000);
  Running({"/bin/touch", folder / "go"}).wait();
  EXPECT_EQ(running.wait(9).status, 0);
}

} // namespace
