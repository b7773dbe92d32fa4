#include <fstream>
#include <iostream>
#include <sstream>

#include "command_line.h"
#include "error.h"
#include "report.h"
#include "verify.h"

namespace accel::verify {
namespace {

using launcher::Error;
using launcher::kUsage;

constexpr const char* kFooter =
    R"(Runs the original, twice, and the migrated program on each number of
processes, in working directories of their own that begin with what is in the
current one, and compares every backward call, the final parameters, what is
printed and what is written. The original is neither changed nor rebuilt.

ARGUMENTS go to both programs. Everything behind -- belongs to them.

Examples:
  accel verify --original ./train --migrated ./train_accel -n 1,2,4
  accel verify --original a --migrated b --double --report verify.html -- --epochs 2
  accel verify --original a --migrated b --launch "-n 2 --fsdp FULL_SHARD"

Exit codes: 0 equal, 1 different, 2 could not be compared or wrong usage.)";

std::vector<int> parse_processes(const std::string& list) {
  std::vector<int> result;
  std::istringstream parts(list);
  std::string part;
  while (std::getline(parts, part, ',')) {
    size_t end = 0;
    int value = 0;
    try {
      value = std::stoi(part, &end);
    } catch (const std::exception&) {
      end = 0;
    }
    if (end != part.size() || value < 1 || value > 4096) {
      throw Error(
          kUsage,
          "--num-processes: '" + part +
              "' is no number of processes; write a list such as 1,2,4");
    }
    result.push_back(value);
  }
  if (result.empty()) {
    throw Error(kUsage, "--num-processes is empty; write a list such as 1,2,4");
  }
  return result;
}

/// The options of `--launch`, of which the number of processes is needed here.
LaunchedRun parse_launched(const std::string& text) {
  LaunchedRun result;
  result.text = text;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    result.options.push_back(word);
  }
  std::string count;
  for (size_t i = 0; i < result.options.size(); ++i) {
    const std::string& option = result.options[i];
    const size_t equals = option.find('=');
    const std::string name = option.substr(0, equals);
    if (name == "-n" || name == "--num-processes" || name == "--num_processes") {
      count = equals != std::string::npos    ? option.substr(equals + 1)
          : i + 1 < result.options.size() ? result.options[i + 1]
                                          : "";
    } else if (option.rfind("-n", 0) == 0 && option.size() > 2) {
      count = option.substr(2);
    }
    if (name == "--output" || name == "--num-machines" || name == "--num_machines" ||
        name == "--" || (i == 0 && option[0] != '-')) {
      throw Error(
          kUsage,
          "--launch: '" + option + "' in '" + text +
              "' has no place there: accel verify starts the program on this "
              "machine, and keeps what it prints. Write options such as "
              "'-n 2 --fsdp FULL_SHARD'");
    }
  }
  if (count.empty()) {
    throw Error(
        kUsage,
        "--launch: '" + text +
            "' does not say how many processes; write -n, too: "
            "'-n 2 --fsdp FULL_SHARD'");
  }
  result.processes = parse_processes(count).at(0);
  return result;
}

/// Nothing when only help was asked for.
std::optional<VerifyOptions> parse(const std::vector<std::string>& arguments) {
  VerifyOptions options;
  std::string processes;
  std::vector<std::string> launched;
  double base = 0;
  double growth = 0;
  bool once = false;
  CLI::App command(
      "Runs a program and its migrated version and says whether they compute "
      "the same.",
      "verify");
  launcher::set_help(
      command,
      "--original PROGRAM --migrated PROGRAM [OPTIONS] [-- ARGUMENTS...]",
      kFooter);
  command.add_option("--original", options.original, "The program as it was")
      ->type_name("PROGRAM");
  command
      .add_option(
          "--migrated", options.migrated, "The same program, using accel")
      ->type_name("PROGRAM");
  command
      .add_option(
          "-n,--num-processes",
          processes,
          "For the migrated program, e.g. 1,2,4; 1,2 if not given")
      ->type_name("LIST");
  command
      .add_option(
          "--launch",
          launched,
          "One more run of the migrated program, with these options of accel "
          "launch, -n among them; repeatable. Where it is given and -n is not, "
          "there are only these runs")
      ->type_name("OPTIONS")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_flag(
      "--double",
      options.to_double,
      "Run both in float64, where a difference is an error and not rounding");
  command
      .add_option(
          "--max-steps",
          options.max_steps,
          "End the programs before backward call N+1")
      ->type_name("N");
  command
      .add_option(
          "--timeout", options.timeout, "For each run; no limit if not given")
      ->type_name("SECONDS");
  command
      .add_option(
          "--report", options.report, "Write a page with curves and tables")
      ->type_name("FILE");
  auto* base_option = command.add_option(
      "--tolerance", base, "Allowed relative difference at step 0");
  base_option->type_name("R")->check(CLI::Range(0.0, 1.0).description(""));
  auto* growth_option = command.add_option(
      "--growth", growth, "Growth of it per step, as a part of it");
  growth_option->type_name("G")->check(CLI::Range(0.0, 1e6).description(""));
  command
      .add_option(
          "--seed",
          options.seed,
          "LibTorch's seed in programs that set none; 0 if not given")
      ->type_name("S");
  command.add_flag(
      "--no-repeat",
      once,
      "Run the original only once; what changes from run to run is then not "
      "told from errors");
  command
      .add_option(
          "--jobs", options.jobs, "Processes at a time; the cores if not given")
      ->type_name("J")
      ->check(CLI::Range(1, 4096).description(""));
  command
      .add_option(
          "--keep", options.keep, "Keep the runs' folders and traces in DIR")
      ->type_name("DIR");
  auto split = launcher::split_arguments(command, arguments);
  if (!launcher::parse_options(command, std::move(split.options))) {
    return std::nullopt;
  }
  if (options.original.empty() || options.migrated.empty()) {
    throw Error(
        kUsage,
        std::string(options.original.empty() ? "--original" : "--migrated") +
            " is missing. Write: accel verify --original ./train --migrated "
            "./train_accel -- ARGUMENTS");
  }
  options.arguments = std::move(split.program);
  options.repeat = !once;
  for (const auto& text : launched) {
    options.launched.push_back(parse_launched(text));
  }
  if (!processes.empty()) {
    options.processes = parse_processes(processes);
  } else if (!launched.empty()) {
    options.processes.clear();
  }
  if (*base_option) {
    options.tolerance.base = base;
  }
  if (*growth_option) {
    options.tolerance.growth = growth;
  }
  return options;
}

void write_report(const Result& result) {
  std::ofstream file(result.options.report, std::ios::binary);
  file << make_report(result);
  file.close();
  if (!file) {
    throw Error(kUsage, result.options.report + " cannot be written");
  }
  std::cerr << "accel verify: report: " << result.options.report << std::endl;
}

} // namespace

int verify_command(const std::vector<std::string>& arguments) {
  const auto options = parse(arguments);
  if (!options) {
    return 0;
  }
  try {
    const Result result = verify(*options);
    print(result);
    if (!options->report.empty()) {
      write_report(result);
    }
    return static_cast<int>(result.outcome);
  } catch (const Error& error) {
    // Whatever went wrong, the programs were not compared.
    throw Error(static_cast<int>(Outcome::kNotCompared), error.what());
  } catch (const std::exception& error) {
    throw Error(static_cast<int>(Outcome::kNotCompared), error.what());
  }
}

} // namespace accel::verify
