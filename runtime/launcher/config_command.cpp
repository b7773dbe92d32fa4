#include <unistd.h>

#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "command_line.h"
#include "commands.h"
#include "config_file.h"
#include "environment.h"
#include "error.h"
#include "gpus.h"
#include "settings.h"

namespace accel::launcher {
namespace {

constexpr const char* kConfigFooter =
    R"(accel config asks how programs should be launched and writes the answers to
a file that accel launch reads; options and environment variables still win.
accel config default asks nothing: one process, and what the options here say.

Examples:
  accel config
  accel config default --mixed-precision bf16 --num-processes 4
  accel config --config-file two.yaml && accel launch --config-file two.yaml ./train)";

using Check = std::function<std::string(const std::string&)>;
using Values = std::map<std::string, std::string>;

/// One answer from standard input; asks again where it makes no sense.
std::string ask(
    const std::string& question,
    const std::string& otherwise,
    const Check& check) {
  while (true) {
    std::cout << question << " [" << otherwise << "]: " << std::flush;
    std::string answer;
    if (!std::getline(std::cin, answer)) {
      throw Error(
          kUsage,
          "the answers ended before the questions did; nothing was written. "
          "accel config default asks nothing");
    }
    const size_t begin = answer.find_first_not_of(" \t\r");
    const size_t end = answer.find_last_not_of(" \t\r");
    answer = begin == std::string::npos
                 ? otherwise
                 : answer.substr(begin, end - begin + 1);
    const std::string wrong = check(answer);
    if (wrong.empty()) {
      return answer;
    }
    std::cout << "  " << wrong << "\n";
  }
}

bool ask_yes_or_no(const std::string& question, bool otherwise) {
  return *read_flag(ask(question, otherwise ? "yes" : "no", yes_or_no()));
}

Values ask_everything() {
  Values values{{"compute_environment", "LOCAL_MACHINE"}};
  values["num_processes"] = ask(
      "How many processes share the work? (this machine has " +
          std::to_string(available_cores()) + " cores)",
      "1",
      whole_number(1, 4096));
  const bool cpu = ask_yes_or_no("Use the CPU even where there is a GPU?", false);
  values["use_cpu"] = cpu ? "true" : "false";
  values["distributed_type"] = values["num_processes"] == "1" ? "NO"
                               : cpu                          ? "MULTI_CPU"
                                                              : "MULTI_GPU";
  // fp16 and fp8 need a GPU.
  values["mixed_precision"] =
      cpu ? ask("Mixed precision: no or bf16?", "no", one_of({"no", "bf16"}))
          : ask("Mixed precision: no, fp16, bf16 or fp8?",
                "no",
                one_of({"no", "fp16", "bf16", "fp8"}));
  const std::string sharing = ask(
      "How is the work shared? program: as the program says; split: every "
      "batch is split, so that the training is that of one device; whole: "
      "every process takes whole batches",
      "program",
      one_of({"program", "split", "whole"}));
  if (sharing != "program") {
    values["match_single_device"] = sharing == "split" ? "true" : "false";
  }
  const std::string threads = ask(
      "Threads per process (OMP_NUM_THREADS), or auto for a fair share?",
      "auto",
      [](const std::string& text) {
        return text == "auto" ? std::string()
                              : whole_number(1, 1 << 20)(text);
      });
  if (threads != "auto") {
    values["num_threads_per_process"] = threads;
  }
  values["max_restarts"] = ask(
      "How often may all processes be started again after a failure?",
      "0",
      whole_number(0, 1 << 20));
  values["resume"] = ask(
      "Should accelerator.resume() go on at the newest complete checkpoint? "
      "auto or never",
      "never",
      one_of({"auto", "never"}));
  return values;
}

} // namespace

int config_command(const std::vector<std::string>& arguments) {
  CLI::App command(
      "Writes what accel launch does if not told otherwise.", "config");
  set_help(command, "[default] [OPTIONS]", kConfigFooter);
  std::string what;
  std::string path;
  std::string precision = "no";
  std::string processes = "1";
  bool overwrite = false;
  command.add_option("what", what, "default: ask nothing")
      ->check(CLI::IsMember({"default"}).description(""))
      ->type_name("");
  command
      .add_option(
          "--config-file",
          path,
          "Where to write; if not given where accel launch looks")
      ->type_name("FILE");
  auto* precision_option =
      command
          .add_option(
              "--mixed-precision", precision, "For default: no if not given")
          ->type_name("TYPE")
          ->check(CLI::IsMember({"no", "fp16", "bf16", "fp8"}).description(""));
  auto* processes_option =
      command
          .add_option(
              "-n,--num-processes", processes, "For default: 1 if not given")
          ->type_name("N")
          ->check(CLI::Range(1, 4096).description(""));
  command.add_flag(
      "--overwrite", overwrite, "Replace the file where it exists");
  if (!parse_arguments(command, arguments)) {
    return 0;
  }
  const bool ask_nothing = !what.empty();
  if (!ask_nothing && (*precision_option || *processes_option)) {
    throw Error(
        kUsage,
        "--mixed-precision and --num-processes are for: accel config default");
  }
  if (path.empty()) {
    path = default_config_path();
  }
  if (path.empty()) {
    throw Error(
        kUsage, "there is no $HOME to write to; give --config-file FILE");
  }
  if (!overwrite && ::access(path.c_str(), F_OK) == 0) {
    throw Error(
        kUsage,
        path + " exists. Give --overwrite to replace it, or --config-file");
  }
  // fp16 and fp8 are for a machine that has GPUs, whatever this one has.
  const bool for_gpus =
      !gpus().empty() || precision == "fp16" || precision == "fp8";
  const Values values =
      ask_nothing
          ? Values{
                {"compute_environment", "LOCAL_MACHINE"},
                {"distributed_type",
                 processes == "1" ? "NO"
                     : for_gpus   ? "MULTI_GPU"
                                  : "MULTI_CPU"},
                {"mixed_precision", precision},
                {"num_processes", processes},
                {"use_cpu", "false"}}
          : ask_everything();
  write_file(path, config_text(values));
  std::cout << "wrote " << path << "\n";
  return 0;
}

} // namespace accel::launcher
