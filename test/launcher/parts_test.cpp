// Parts of the launcher that need no process.

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "environment.h"
#include "error.h"
#include "interleaver.h"
#include "launch_command.h"
#include "line_splitter.h"
#include "memory_kills.h"
#include "messages.h"
#include "port.h"
#include "restart_policy.h"
#include "suggestion.h"
#include "summary.h"

namespace accel::launcher {
namespace {

using Lines = std::vector<std::string>;

/// Whatever whoever runs the tests has configured.
[[maybe_unused]] const bool unconfigured = [] {
  ::setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
  ::unsetenv("ACCEL_CONFIG_FILE");
  return true;
}();

/// The lines of the pieces; progress is marked with a leading '~'.
Lines split(const std::vector<std::string>& pieces) {
  Lines lines;
  const auto receive = [&](std::string_view text, bool progress) {
    lines.push_back((progress ? "~" : "") + std::string(text));
  };
  LineSplitter splitter;
  for (const std::string& piece : pieces) {
    splitter.feed(piece, receive);
  }
  splitter.finish(receive);
  return lines;
}

TEST(LineSplitter, CutsAtNewlinesHoweverTheTextArrives) {
  const std::string text = "one\n\ntwo\nthree";
  const Lines expected{"one", "", "two", "three"};
  EXPECT_EQ(split({text}), expected);
  std::vector<std::string> letters;
  for (char letter : text) {
    letters.emplace_back(1, letter);
  }
  EXPECT_EQ(split(letters), expected);
}

TEST(LineSplitter, TakesAStateOfAProgressBarForALineOfItsOwn) {
  EXPECT_EQ(split({"\r10%\r20%\r", "30%\n"}), (Lines{"~10%", "~20%", "30%"}));
  EXPECT_EQ(split({"\r99%\r"}), Lines{"99%"});
}

TEST(LineSplitter, KeepsTheCarriageReturnOfAWindowsLine) {
  EXPECT_EQ(split({"a\r\nb\r", "\nc"}), (Lines{"a\r", "b\r", "c"}));
}

// ---- Process 0's bytes and the lines of others.

/// Collects what is written, "1:" or "2:" before what goes to another descriptor
/// than the text before it.
class Interleaved : public testing::Test {
 protected:
  using Clock = Interleaver::Clock;

  static constexpr auto kNever = Clock::time_point::max();

  void line(const std::string& text, Clock::time_point latest = kNever) {
    place_.line(1, text, latest);
    place_.settle(now_);
  }

  const Clock::time_point now_ = Clock::now();
  std::string out_;
  int last_ = 1;
  Interleaver place_{[this](int fd, std::string_view bytes) {
    out_ += std::exchange(last_, fd) == fd ? "" : std::to_string(fd) + ":";
    out_ += bytes;
  }};
};

TEST_F(Interleaved, BytesAreWrittenAtOnceAndLinesBetweenLines) {
  line("a");
  place_.bytes(1, "ha");
  EXPECT_EQ(out_, "a\nha");
  line("b");
  line("c");
  place_.bytes(1, "l");
  EXPECT_EQ(out_, "a\nhal");
  place_.bytes(1, "f\nnext\nthe third");
  EXPECT_EQ(out_, "a\nhalf\nb\nc\nnext\nthe third");
  place_.bytes(1, "\n");
  line("d");
  EXPECT_EQ(out_, "a\nhalf\nb\nc\nnext\nthe third\nd\n");
}

TEST_F(Interleaved, AnUrgentLineInterruptsWhenItsTimeHasCome) {
  place_.bytes(1, "half");
  line("a");
  EXPECT_EQ(place_.deadline(), kNever);
  const auto later = now_ + std::chrono::seconds(1);
  line("b", later);
  EXPECT_EQ(place_.deadline(), later);
  EXPECT_EQ(out_, "half");
  place_.settle(later);
  EXPECT_EQ(out_, "half\na\nb\n");
  EXPECT_EQ(place_.deadline(), kNever);
  place_.bytes(1, " of it\n");
  EXPECT_EQ(out_, "half\na\nb\n of it\n");
}

TEST_F(Interleaved, MuchDoesNotWait) {
  place_.bytes(1, "half");
  const std::string text(Interleaver::kMostWaiting / 2, 'x');
  line(text);
  EXPECT_EQ(out_, "half");
  line(text);
  EXPECT_EQ(out_, "half\n" + text + "\n" + text + "\n");
}

TEST_F(Interleaved, NothingWaitsForBytesThatDoNotCome) {
  place_.bytes(1, "half");
  line("a");
  place_.end_of_bytes();
  line("b");
  EXPECT_EQ(out_, "half\na\nb\n");
  // After a restart.
  place_.bytes(1, "half");
  line("c");
  EXPECT_EQ(out_, "half\na\nb\nhalf");
  place_.release();
  EXPECT_EQ(out_, "half\na\nb\nhalf\nc\n");
  // And nothing is added where nothing follows.
  place_.bytes(1, "half");
  place_.end_of_bytes();
  EXPECT_EQ(out_, "half\na\nb\nhalf\nc\nhalf");
}

TEST_F(Interleaved, EachGoesToItsDescriptorInTheOrderOfTheirArrival) {
  place_.bytes(1, "half");
  place_.line(2, "a", kNever);
  place_.line(1, "b", kNever);
  place_.line(2, "c", kNever);
  place_.bytes(2, "error\n");
  place_.settle(now_);
  EXPECT_EQ(out_, "half2:error\na\n1:b\n2:c\n");
}

TEST_F(Interleaved, AProgressBarIsOverwrittenAndLeftOutInTheMiddleOfALine) {
  place_.progress(1, "10%");
  place_.progress(1, "20%");
  EXPECT_EQ(out_, "10%\r\x1b[K20%\r");
  place_.bytes(1, "half");
  EXPECT_EQ(out_, "10%\r\x1b[K20%\r\x1b[Khalf");
  place_.progress(1, "30%");
  EXPECT_EQ(out_, "10%\r\x1b[K20%\r\x1b[Khalf");
  place_.bytes(1, "\n");
  place_.progress(1, "40%");
  line("a");
  EXPECT_EQ(out_, "10%\r\x1b[K20%\r\x1b[Khalf\n40%\r\x1b[Ka\n");
}

TEST(LineSplitter, CutsALineThatNeverEnds) {
  const Lines lines = split({std::string(LineSplitter::kLongest + 5, 'x')});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), LineSplitter::kLongest);
  EXPECT_EQ(lines[1].size(), 5u);
}

TEST(Suggestion, CountsSlipsOfTheFinger) {
  EXPECT_EQ(edit_distance("launch", "launch"), 0u);
  EXPECT_EQ(edit_distance("lanuch", "launch"), 1u);
  EXPECT_EQ(edit_distance("lanch", "launch"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Suggestion, IsSilentWhereNothingIsNear) {
  EXPECT_EQ(suggest("lanch", {"launch", "flags"}), " (did you mean launch?)");
  EXPECT_EQ(suggest("bananas", {"launch", "flags"}), "");
}

Lines environment(
    const LaunchOptions& options, std::vector<const char*> inherited) {
  inherited.push_back(nullptr);
  return process_environment(
      options, 1, {4321, "run"}, "/note", "/news", inherited.data());
}

bool has(const Lines& environment, const std::string& entry) {
  return std::count(environment.begin(), environment.end(), entry) == 1;
}

/// How many entries set `name`.
long settings(const Lines& environment, const std::string& name) {
  return std::count_if(
      environment.begin(), environment.end(), [&](const std::string& entry) {
        return entry.rfind(name + "=", 0) == 0;
      });
}

TEST(Environment, OverwritesAnOuterLaunch) {
  LaunchOptions options;
  options.num_processes = options.world_size = 3;
  const Lines result = environment(
      options,
      {"RANK=7",
       "WORLD_SIZE=9",
       "MASTER_PORT=1",
       "TORCHELASTIC_USE_AGENT_STORE=True",
       "TORCHELASTIC_ERROR_FILE=/tmp/x",
       "ACCEL_FAILURE_NOTE=/outer",
       "HOME=/home/me"});
  EXPECT_TRUE(has(result, "RANK=1"));
  EXPECT_TRUE(has(result, "WORLD_SIZE=3"));
  EXPECT_TRUE(has(result, "MASTER_PORT=4321"));
  EXPECT_TRUE(has(result, "HOME=/home/me"));
  EXPECT_TRUE(has(result, "ACCEL_FAILURE_NOTE=/note"));
  EXPECT_EQ(settings(result, "RANK"), 1);
  EXPECT_EQ(settings(result, "TORCHELASTIC_USE_AGENT_STORE"), 0);
  EXPECT_EQ(settings(result, "TORCHELASTIC_ERROR_FILE"), 0);
}

TEST(Environment, SharesTheCoresUnlessTheUserHasSpoken) {
  LaunchOptions options;
  EXPECT_EQ(settings(environment(options, {}), "OMP_NUM_THREADS"), 0);
  options.num_processes = options.world_size = 4096;
  EXPECT_TRUE(has(environment(options, {}), "OMP_NUM_THREADS=1"));
  options.num_processes = options.world_size = 2;
  EXPECT_TRUE(has(
      environment(options, {}),
      "OMP_NUM_THREADS=" + std::to_string(std::max(1, available_cores() / 2))));
  EXPECT_TRUE(
      has(environment(options, {"OMP_NUM_THREADS=7"}), "OMP_NUM_THREADS=7"));
  options.num_threads_per_process = 5;
  EXPECT_TRUE(
      has(environment(options, {"OMP_NUM_THREADS=7"}), "OMP_NUM_THREADS=5"));
}

TEST(Environment, SaysOnlyWhatWasAskedFor) {
  LaunchOptions options;
  const std::vector<std::string> names{
      "ACCELERATE_MIXED_PRECISION",
      "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
      "ACCELERATE_USE_CPU",
      "ACCEL_MATCH_SINGLE_DEVICE",
      "ACCEL_SPLIT_BATCHES",
      "ACCEL_PLACEMENT_REPORT"};
  for (const std::string& name : names) {
    EXPECT_EQ(settings(environment(options, {}), name), 0) << name;
  }
  options.mixed_precision = "bf16";
  options.gradient_accumulation_steps = 4;
  options.cpu = true;
  options.match_single_device = false;
  options.split_batches = false;
  const Lines result = environment(options, {"ACCEL_MATCH_SINGLE_DEVICE=1"});
  EXPECT_TRUE(has(result, "ACCELERATE_MIXED_PRECISION=bf16"));
  EXPECT_TRUE(has(result, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS=4"));
  EXPECT_TRUE(has(result, "ACCELERATE_USE_CPU=true"));
  EXPECT_TRUE(has(result, "ACCEL_MATCH_SINGLE_DEVICE=0"));
  EXPECT_TRUE(has(result, "ACCEL_SPLIT_BATCHES=0"));
}

TEST(Environment, KeepsTheFileOfThePlacementReport) {
  LaunchOptions options;
  // Nobody has asked: what is there stays.
  EXPECT_TRUE(
      has(environment(options, {"ACCEL_PLACEMENT_REPORT=0"}),
          "ACCEL_PLACEMENT_REPORT=0"));
  options.placement_report = true;
  EXPECT_TRUE(has(environment(options, {}), "ACCEL_PLACEMENT_REPORT=1"));
  EXPECT_TRUE(
      has(environment(options, {"ACCEL_PLACEMENT_REPORT=0"}),
          "ACCEL_PLACEMENT_REPORT=1"));
  EXPECT_TRUE(
      has(environment(options, {"ACCEL_PLACEMENT_REPORT=my.json"}),
          "ACCEL_PLACEMENT_REPORT=my.json"));
}

TEST(LaunchCommand, LeavesTheProgramItsArguments) {
  const Lines program{"./train", "--num-processes", "9", "--", "-n"};
  for (const Lines& before :
       {Lines{"-n", "2"},
        Lines{"-n2", "--"},
        Lines{"--num_processes=2"},
        Lines{"--num-processes", "2", "--"},
        Lines{"--cpu", "--nproc_per_node", "2"}}) {
    Lines arguments = before;
    arguments.insert(arguments.end(), program.begin(), program.end());
    const auto options = parse_launch(arguments);
    ASSERT_TRUE(options);
    EXPECT_EQ(options->num_processes, 2);
    EXPECT_EQ(options->program, program);
  }
}

TEST(LaunchCommand, ReadsEveryOption) {
  const auto options = parse_launch(
      {"--num-processes",
       "3",
       "--mixed_precision",
       "bf16",
       "--gradient-accumulation-steps",
       "4",
       "--cpu",
       "--main-process-port",
       "29500",
       "--per-process-batch",
       "--placement-report",
       "--num-cpu-threads-per-process",
       "2",
       "--output",
       "logs/",
       "--grace-period",
       "2.5",
       "./train"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->num_processes, 3);
  EXPECT_EQ(options->mixed_precision, "bf16");
  EXPECT_EQ(options->gradient_accumulation_steps, 4);
  EXPECT_TRUE(options->cpu);
  EXPECT_EQ(options->main_process_port, 29500);
  EXPECT_EQ(options->match_single_device, std::nullopt);
  EXPECT_EQ(options->split_batches, false);
  const auto split = parse_launch({"--match-single-device", "./a"});
  EXPECT_EQ(split->match_single_device, true);
  EXPECT_EQ(split->split_batches, true);
  EXPECT_TRUE(options->placement_report);
  EXPECT_FALSE(parse_launch({"./a"})->placement_report);
  EXPECT_EQ(options->num_threads_per_process, 2);
  EXPECT_EQ(options->output, OutputMode::kFiles);
  EXPECT_EQ(options->output_directory, "logs/");
  EXPECT_EQ(options->grace_period, 2.5);
}

TEST(LaunchCommand, ReadsHowTheOutputIsShown) {
  EXPECT_EQ(parse_launch({"./a"})->output, OutputMode::kAll);
  EXPECT_EQ(parse_launch({"-n", "2", "./a"})->output, OutputMode::kAll);
  const std::map<std::string, OutputMode> modes{
      {"all", OutputMode::kAll},
      {"main", OutputMode::kMain},
      {"prefix", OutputMode::kPrefix},
      {"plain", OutputMode::kPlain}};
  for (const auto& [name, mode] : modes) {
    EXPECT_EQ(parse_launch({"--output", name, "./a"})->output, mode) << name;
  }
}

/// The message of the usage error that `arguments` make.
std::string usage_error(const Lines& arguments) {
  try {
    parse_launch(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), kUsage);
    return error.what();
  }
  return "no error";
}

TEST(LaunchCommand, RefusesWhatMakesNoSense) {
  const auto says = [](const Lines& arguments, const std::string& text) {
    const std::string message = usage_error(arguments);
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  says({"--num-proceses", "2", "./a"}, "did you mean --num-processes?");
  says({"--num-processes", "0", "./a"}, "0 is not a whole number from 1");
  says({"--num-processes", "two", "./a"}, "two");
  says({"--mixed-precision", "fp61", "./a"}, "fp61");
  says({"--main-process-port", "65536", "./a"}, "65536");
  says({"--match-single-device", "--per-process-batch", "./a"}, "excludes");
  says({"--output", "mian", "./a"}, "did you mean main?");
  says({"-n", "2", "-n", "3", "./a"}, "--num-processes");
  says({"--cpu", "--mixed-precision", "fp16", "./a"}, "on the CPU bf16 does");
  says({"--cpu", "--gpu-ids", "0", "./a"}, "makes no sense with --cpu");
  says(
      {"-n", "2", "--nproc-per-node", "3", "./a"},
      "--num-processes 2 counts the processes on all hosts together, and "
      "--nproc-per-node 3 makes 3 of them");
  says({"-n", "2"}, "which program?");
  says({"-n", "2", "--"}, "which program?");
  says({"-n"}, "--num-processes");
}

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

/// Process `rank` ended as the `order`th.
Ending exited(int rank, int status, int order) {
  Ending ending = Ending::of_running(rank, 100 + rank);
  ending.code = CLD_EXITED;
  ending.status = status;
  ending.order = order;
  return ending;
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

// ---- What follows when all processes have ended.

LaunchOptions elastic(int min_processes) {
  LaunchOptions options;
  options.max_restarts = 9;
  options.min_processes = min_processes;
  options.resume = "auto";
  return options;
}

/// Two hosts with two processes each.
Attempt two_hosts() {
  return {0, 1, "run", {{0, "a", 2}, {1, "b", 2}}};
}

/// `rank` has failed, and the others have noticed.
Report failure_of(int rank, int world_size, int status = 3) {
  Report report;
  for (int i = 0; i < world_size; ++i) {
    report.endings.push_back(exited(i, status, i == rank ? 1 : 0));
    report.endings.back().note = i == rank ? "" : "barrier: closed";
  }
  return report;
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

// ---- Memory.

/// The files that the kernel would show.
class KernelFiles {
 public:
  KernelFiles() {
    std::string name =
        (std::filesystem::temp_directory_path() / "accel-kernel-XXXXXX")
            .string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    write("/proc/vmstat", "nr_free_pages 7\noom_kill 40\nthp_zero 1\n");
  }
  ~KernelFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = root_ + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  const std::string& root() const {
    return root_;
  }

 private:
  std::string root_;
};

TEST(MemoryKills, AreCountedInVersionTwo) {
  const KernelFiles files;
  files.write("/proc/self/cgroup", "1:name=systemd:/\n0::/job/step\n");
  files.write(
      "/proc/self/mountinfo",
      "21 1 8:1 / / rw - ext4 /dev/sda rw\n"
      "31 21 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  const std::string group = "/sys/fs/cgroup/job/step";
  const auto events = [&](int kills) {
    // Its name is the end of none and the beginning of another.
    files.write(
        group + "/memory.events",
        "low 0\nmax 9\noom 9\noom_kill " + std::to_string(kills) +
            "\noom_group_kill 9\n");
  };
  events(3);
  files.write(group + "/memory.max", "max\n");
  files.write("/sys/fs/cgroup/job/memory.max", "536870912\n");
  MemoryKills kills(files.root());
  EXPECT_EQ(kills.explain(), ""); // The three are not ours.
  events(5);
  files.write("/proc/vmstat", "oom_kill 42\n");
  // The limit is that of the group above.
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(kills.explain().find("may use 512 MiB."), std::string::npos);
  }
  EXPECT_EQ(kills.explain(), ""); // Two were killed, not three.
}

TEST(MemoryKills, AreCountedInVersionOne) {
  const KernelFiles files;
  files.write("/proc/self/cgroup", "9:cpu:/x\n4:hugetlb,memory:/pod/c\n0::/\n");
  // As in a container: the mount shows the container's own group only.
  files.write(
      "/proc/self/mountinfo",
      "30 24 0:26 /pod /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "31 24 0:27 /pod/c /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  const std::string group = "/sys/fs/cgroup/memory";
  files.write(group + "/memory.limit_in_bytes", "9223372036854771712\n");
  files.write(
      group + "/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  MemoryKills kills(files.root());
  EXPECT_EQ(kills.explain(), "");
  files.write(
      group + "/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  const std::string text = kills.explain();
  EXPECT_NE(text.find("this job's cgroup"), std::string::npos) << text;
  EXPECT_EQ(text.find("MiB"), std::string::npos) << text; // There is no limit.
  EXPECT_EQ(kills.explain(), "");
}

TEST(MemoryKills, AreThoseOfTheMachineWhereThereAreNoGroups) {
  const KernelFiles files;
  MemoryKills kills(files.root());
  EXPECT_EQ(kills.explain(), "");
  files.write("/proc/vmstat", "oom_kill 41\n");
  const std::string text = kills.explain();
  EXPECT_NE(text.find("a process on this machine"), std::string::npos) << text;
  EXPECT_EQ(kills.explain(), "");
}

// ---- What launchers say to each other.

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

TEST(Port, IsFreeAndKept) {
  const Port one(0);
  const Port other(0);
  EXPECT_GT(one.number(), 0);
  EXPECT_NE(one.number(), other.number());
}

} // namespace
} // namespace accel::launcher
