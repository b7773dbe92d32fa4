#include "launch_command.h"

#include "command_line.h"
#include "error.h"
#include "suggestion.h"

namespace accel::launcher {
namespace {

constexpr const char* kFooter =
    R"(Everything behind PROGRAM, or behind --, belongs to the program. Names of
options may have underscores for hyphens.

Examples:
  accel launch --num-processes 2 -- ./train --epochs 3
  accel launch -n 4 --mixed-precision bf16 ./train data/
  accel launch -n 2 --output main -- ./train > log    only what process 0 prints
  accel launch -n 2 --output logs/ -- ./train         one file per process

Exit codes: the program's (128 + signal when a signal ended it) of the process
that failed first, 0 only when all processes returned 0; 2 wrong usage,
125 the launcher itself failed (a port that is taken, say),
126 PROGRAM cannot be executed, 127 PROGRAM was not found.)";

/// Sets `options.output` from what was given.
void set_output(LaunchOptions& options, const std::string& value) {
  if (value.empty()) {
    options.output =
        options.num_processes == 1 ? OutputMode::kPlain : OutputMode::kPrefix;
  } else if (value == "prefix") {
    options.output = OutputMode::kPrefix;
  } else if (value == "plain") {
    options.output = OutputMode::kPlain;
  } else if (value == "main") {
    options.output = OutputMode::kMain;
  } else if (value.find('/') != std::string::npos) {
    options.output = OutputMode::kFiles;
    options.output_directory = value;
  } else {
    throw Error(
        kUsage,
        "--output: " + value + " is none of prefix, plain, main" +
            suggest(value, {"prefix", "plain", "main"}) +
            "; a folder is written with a slash: " + value + "/");
  }
}

} // namespace

std::optional<LaunchOptions> parse_launch(
    const std::vector<std::string>& arguments) {
  LaunchOptions options;
  std::string mixed_precision;
  std::string output;
  int steps = 0;
  int port = 0;
  int threads = 0;
  bool match = false;
  bool per_process = false;

  CLI::App command(
      "Starts a program as several processes on this host, passes signals and "
      "output on, and ends all of them when one fails.",
      "launch");
  set_help(command, "[OPTIONS] [--] PROGRAM [ARGUMENTS...]", kFooter);
  const auto at_least_one = CLI::Range(1, 1 << 20).description("");
  command
      .add_option(
          "-n,--num-processes,--nproc-per-node",
          options.num_processes,
          "Number of processes; 1 if not given")
      ->type_name("N")
      ->check(CLI::Range(1, 4096).description(""));
  auto* precision = command.add_option(
      "--mixed-precision",
      mixed_precision,
      "no, fp16, bf16 or fp8; if not given the program decides");
  precision->type_name("TYPE")->check(
      CLI::IsMember({"no", "fp16", "bf16", "fp8"}).description(""));
  auto* accumulation = command.add_option(
      "--gradient-accumulation-steps",
      steps,
      "Batches per optimizer step; if not given the program decides");
  accumulation->type_name("K")->check(at_least_one);
  command.add_flag(
      "--cpu", options.cpu, "Use the CPU even where there is a GPU");
  auto* match_flag = command.add_flag(
      "--match-single-device",
      match,
      "Split every batch between the processes, so that the training is that "
      "of one device; overrides the program");
  auto* per_process_flag = command.add_flag(
      "--per-process-batch",
      per_process,
      "Every process takes whole batches, as in Accelerate; overrides the "
      "program");
  match_flag->excludes(per_process_flag);
  auto* port_option = command.add_option(
      "--main-process-port,--master-port",
      port,
      "TCP port of process 0's store; if not given or 0 a free one is taken");
  port_option->type_name("P")->check(CLI::Range(0, 65535).description(""));
  auto* threads_option = command.add_option(
      "--num-threads-per-process,--num-cpu-threads-per-process",
      threads,
      "OMP_NUM_THREADS; if neither is given, a fair share of the cores");
  threads_option->type_name("T")->check(at_least_one);
  command
      .add_option(
          "--output",
          output,
          "prefix: whole lines behind \"[rank] \" (default for N > 1); "
          "plain: whole lines as they are, with N = 1 every byte as it comes "
          "(default for N = 1); main: process 0's standard output, byte for "
          "byte, and everybody's standard error; DIR/: files "
          "DIR/rank-R.stdout.log and DIR/rank-R.stderr.log")
      ->type_name("HOW");
  command
      .add_option(
          "--grace-period",
          options.grace_period,
          "Seconds between asking a process to end and killing it; 10 if not "
          "given")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e6).description(""));

  SplitArguments split = split_arguments(command, arguments);
  if (!parse_options(command, std::move(split.options))) {
    return std::nullopt;
  }
  if (split.program.empty()) {
    throw Error(
        kUsage,
        "which program? Write: accel launch --num-processes 2 -- ./train "
        "ARGUMENTS");
  }
  options.program = std::move(split.program);
  if (*precision) {
    options.mixed_precision = mixed_precision;
  }
  if (*accumulation) {
    options.gradient_accumulation_steps = steps;
  }
  if (match || per_process) {
    options.match_single_device = match;
  }
  if (*port_option) {
    options.main_process_port = port;
  }
  if (*threads_option) {
    options.num_threads_per_process = threads;
  }
  set_output(options, output);
  return options;
}

} // namespace accel::launcher
