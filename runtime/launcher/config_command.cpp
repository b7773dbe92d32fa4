#include <unistd.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "command_line.h"
#include "commands.h"
#include "config_file.h"
#include "config_questions.h"
#include "error.h"
#include "gpus.h"

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

using Values = std::map<std::string, std::string>;

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
  const Answers answers =
      ask_nothing
          ? Answers{
                Values{
                    {"compute_environment", "LOCAL_MACHINE"},
                    {"distributed_type",
                     processes == "1" ? "NO"
                         : for_gpus   ? "MULTI_GPU"
                                      : "MULTI_CPU"},
                    {"mixed_precision", precision},
                    {"num_processes", processes},
                    {"use_cpu", "false"}},
                {}}
          : ask_everything();
  write_file(path, config_text(answers.values, answers.lists));
  std::cout << "wrote " << path << "\n";
  return 0;
}

} // namespace accel::launcher
