#include "launch_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "batch_hosts.h"
#include "command_line.h"
#include "config_file.h"
#include "environment.h"
#include "error.h"
#include "launch_settings.h"
#include "parallel/deepspeed_settings.h"
#include "parallel/fsdp_settings.h"
#include "parallel/megatron_settings.h"
#include "parallel/parallelism_settings.h"
#include "settings.h"

namespace accel::launcher {
namespace {

constexpr const char* kFooter =
    R"(Everything behind PROGRAM, or behind --, belongs to the program. Names of
options may have underscores for hyphens. What no option says is taken from
the environment, then from the configuration file (accel config); --dry-run
shows which it was.

Examples:
  accel launch --num-processes 2 -- ./train --epochs 3
  accel launch -n 4 --mixed-precision bf16 ./train data/
  accel launch -n 4 --fsdp FULL_SHARD ./train         parameters are divided
  accel launch -n 4 --dp-shard 2 --tp 2 ./train       and layers
  accel launch -n 2 --output main -- ./train > log    only what process 0 prints
  accel launch -n 2 --output logs/ -- ./train         one file per process
  accel launch -n 4 --max-restarts 3 --resume auto -- ./train
  accel launch -n 4 --max-restarts 9 --resume auto --min-processes 3 -- ./train
  accel launch --num-machines 2 --machine-rank 1 --main-process-ip node0 \
    --main-process-port 29500 --nproc-per-node 4 -- ./train    on node1

Exit codes: the program's (128 + signal when a signal ended it) of the process
that failed first, 0 only when all processes returned 0; 75 stopped by a signal
after saving; 2 wrong usage, 125 the launcher itself failed (a port that is
taken, say), 126 PROGRAM cannot be executed, 127 PROGRAM was not found.)";

constexpr const char* kTestFooter =
    R"(Examples:
  accel test
  accel test --num-processes 4 --cpu

Exit codes: 0 all is well; 1 something computes wrongly; otherwise as those of
accel launch.)";

/// Asks the settings one after another, and keeps the plan.
class Resolver {
 public:
  Resolver(const Settings& settings, LaunchOptions& options)
      : settings_(settings), options_(options) {
    if (const auto file = settings_.find("--config-file", ConfigFile())) {
      config_ = read_config(file->value);
    } else if (const char* named = std::getenv("ACCEL_CONFIG_FILE");
               named != nullptr && *named != '\0') {
      // Somebody means this file: one that is not there is an error, as with the option.
      if (::access(named, F_OK) != 0) {
        throw Error(
            kLauncherFailed,
            "cannot read the configuration file " + std::string(named) +
                ", which the environment variable ACCEL_CONFIG_FILE names: " +
                std::strerror(errno));
      }
      config_ = read_config(named);
    } else if (const std::string path = default_config_path();
               !path.empty() && ::access(path.c_str(), F_OK) == 0) {
      config_ = read_config(path);
    }
  }

  std::optional<Choice> find(const std::string& name) const {
    return settings_.find(name, config_);
  }

  std::optional<bool> flag(const std::string& name) const {
    const auto choice = find(name);
    return choice ? read_flag(choice->value) : std::nullopt;
  }

  void plan(
      const std::string& what,
      const std::optional<Choice>& choice,
      const std::string& otherwise) {
    options_.plan.push_back(
        {what,
         choice ? choice->value : otherwise,
         choice ? choice->source : "default"});
  }

  const ConfigFile& config() const {
    return config_;
  }

 private:
  const Settings& settings_;
  LaunchOptions& options_;
  ConfigFile config_;
};

std::optional<int> as_int(const std::optional<Choice>& choice) {
  return choice ? std::optional<int>(std::atoi(choice->value.c_str()))
                : std::nullopt;
}

void resolve_output(Resolver& resolver, LaunchOptions& options) {
  const auto output = resolver.find("--output");
  const std::string value = output ? output->value : "all";
  resolver.plan("output", output, "all");
  const auto tee = resolver.find("--tee");
  if (value.find('/') != std::string::npos) {
    if (tee) {
      throw Error(
          kUsage,
          "--tee writes files in addition, but " + output->source + " " +
              value + " writes nothing but files; leave one of them out");
    }
    options.output = OutputMode::kFiles;
    options.output_directory = value;
    return;
  }
  options.output = value == "prefix"  ? OutputMode::kPrefix
                   : value == "plain" ? OutputMode::kPlain
                   : value == "main"  ? OutputMode::kMain
                                      : OutputMode::kAll;
  if (tee) {
    options.output_directory = tee->value;
    resolver.plan("output also to", tee, "");
  }
}

void resolve_sharing(Resolver& resolver, LaunchOptions& options) {
  const auto match = resolver.find("--match-single-device");
  const auto whole = resolver.find("--per-process-batch");
  if (whole && match && match->source == "--match-single-device") {
    throw Error(
        kUsage,
        "--match-single-device excludes --per-process-batch: give one of "
        "them");
  }
  if (match) {
    options.match_single_device = read_flag(match->value);
    if (match->source == "--match-single-device") {
      options.split_batches = true; // what the option says in full
    }
  }
  if (whole) {
    options.split_batches = false;
  }
  resolver.plan("match single device", match, "as the program says");
  if (whole) {
    resolver.plan("split batches", Choice{"false", whole->source}, "");
  }
}

/// The settings that are given of a plugin, by their variables; none where it is not
/// `used`, and then their options are an error. `option`: what says that it is.
std::map<std::string, std::string> settings_of_plugin(
    Resolver& resolver,
    bool used,
    const std::string& option,
    const std::vector<parallel::PluginSetting>& settings) {
  std::map<std::string, std::string> given;
  for (const auto& setting : settings) {
    const std::string names = setting.option;
    const auto choice = resolver.find(names.substr(0, names.find(',')));
    if (!choice) {
      continue;
    }
    if (!used && choice->source[0] == '-') {
      throw Error(
          kUsage,
          choice->source + " " + choice->value + " is for " + option +
              "; give that, too");
    }
    if (used && *setting.variable != '\0') {
      given[setting.variable] = choice->value;
      resolver.plan(setting.name, choice, "");
    }
  }
  return given;
}

/// The same, with who says that it is used in the plan.
std::map<std::string, std::string> resolve_plugin(
    Resolver& resolver,
    const std::optional<Choice>& use,
    bool used,
    const std::string& option,
    const std::string& what,
    const std::vector<parallel::PluginSetting>& settings) {
  if (use) {
    resolver.plan(what, use, "");
  }
  return settings_of_plugin(resolver, used, option, settings);
}

/// What only one policy of units reads, given as an option with another.
void check_policy(
    const Resolver& resolver,
    const std::string& option,
    const std::string& policy) {
  const auto given = resolver.find(option);
  const auto said = resolver.find("--fsdp-auto-wrap-policy");
  if (given && given->source[0] == '-' &&
      (!said || parallel::auto_wrap_policy_name(said->value) != policy)) {
    throw Error(
        kUsage,
        given->source + " " + given->value + " is for --fsdp-auto-wrap-policy " +
            policy + "; give that, too");
  }
}

/// 0 for an option, 1 for the environment, 2 for a file.
int rank_of(const Choice& choice) {
  return choice.source[0] == '-' ? 0 : choice.source.rfind("environment", 0) == 0 ? 1 : 2;
}

/// The strategy by its name: what --fsdp-sharding-strategy and, in the words of version
/// 2, --fsdp-reshard-after-forward say. Where the same source says both, the words of
/// the version count, as in the runtime and in Accelerate.
std::optional<Choice> find_strategy(const Resolver& resolver) {
  auto named = resolver.find("--fsdp-sharding-strategy");
  if (named) {
    named->value = parallel::fsdp_strategy_name(named->value);
  }
  auto reshard = resolver.find("--fsdp-reshard-after-forward");
  if (!reshard) {
    return named;
  }
  const auto said = reshard->source + " " + reshard->value;
  reshard->value = parallel::strategy_of_reshard(reshard->value);
  if (!named) {
    return reshard;
  }
  const auto version = resolver.find("--fsdp-version");
  if (!version && named->source[0] == '-' && reshard->source[0] == '-' &&
      named->value != reshard->value) {
    throw Error(
        kUsage,
        said + " means " + reshard->value + ", and --fsdp-sharding-strategy is " +
            named->value + "; give one of them");
  }
  const int difference = rank_of(*reshard) - rank_of(*named);
  const bool second = version && version->value == "2";
  return difference < 0 || (difference == 0 && second) ? reshard : named;
}

/// Whether parameters are divided, and how.
void resolve_fsdp(Resolver& resolver, LaunchOptions& options) {
  const auto both = resolver.find("--fsdp");
  auto use = resolver.find("--use-fsdp");
  auto strategy = find_strategy(resolver);
  if (both) {
    if (strategy && strategy->source[0] == '-') {
      throw Error(
          kUsage,
          "--fsdp " + both->value + " names a strategy, and so does " +
              strategy->source + " " + strategy->value + "; give one of them");
    }
    use = Choice{"true", both->source};
    strategy = Choice{parallel::fsdp_strategy_name(both->value), both->source};
  }
  options.use_fsdp = use ? read_flag(use->value) : std::nullopt;
  if (strategy && strategy->source[0] == '-' &&
      !options.use_fsdp.value_or(false)) {
    throw Error(
        kUsage,
        strategy->source + " " + strategy->value +
            " is for --use-fsdp; give that, too, or --fsdp " + strategy->value);
  }
  if (strategy) {
    options.fsdp_sharding_strategy = strategy->value;
  }
  resolver.plan("parameters divided", use, "as the program says");
  if (options.use_fsdp.value_or(false)) {
    resolver.plan("sharding strategy", strategy, "FULL_SHARD");
  }
  options.fsdp_settings = settings_of_plugin(
      resolver, options.use_fsdp.value_or(false), "--use-fsdp",
      parallel::fsdp_plugin_settings());
  check_policy(
      resolver, "--fsdp-transformer-layer-cls-to-wrap", "TRANSFORMER_BASED_WRAP");
  check_policy(resolver, "--fsdp-min-num-params", "SIZE_BASED_WRAP");
  const auto version = resolver.find("--fsdp-version");
  if (version) {
    options.fsdp_version = version->value;
    resolver.plan("FSDP version", version, "");
  }
  auto files = resolver.find("--fsdp-state-dict-type");
  if (files) {
    files->value = parallel::state_dict_type_name(files->value);
    options.fsdp_state_dict_type = files->value;
    resolver.plan("checkpoints", files, "");
  }
}

/// The same in DeepSpeed's words.
void resolve_deepspeed(Resolver& resolver, LaunchOptions& options) {
  const auto use = resolver.find("--use-deepspeed");
  options.use_deepspeed = use ? read_flag(use->value) : std::nullopt;
  const bool used = options.use_deepspeed.value_or(false);
  if (used && options.use_fsdp.value_or(false)) {
    throw Error(
        kUsage,
        use->source + " and FSDP both say how parameters are divided; leave one of "
            "them out");
  }
  options.deepspeed_settings = resolve_plugin(
      resolver, use, used, "--use-deepspeed", "DeepSpeed's settings",
      parallel::deepspeed_settings());
}

/// Megatron-LM's settings; how many processes there are is known.
void resolve_megatron(Resolver& resolver, LaunchOptions& options) {
  const auto use = resolver.find("--use-megatron-lm");
  options.use_megatron_lm = use ? read_flag(use->value) : std::nullopt;
  const bool used = options.use_megatron_lm.value_or(false);
  const char* other = options.use_deepspeed.value_or(false) ? "DeepSpeed's settings"
      : options.use_fsdp.value_or(false)                    ? "FSDP"
      : options.use_parallelism_config.value_or(false) ? "sizes of a mesh (--dp-shard, --tp …)"
                                                       : nullptr;
  if (used && other != nullptr) {
    throw Error(
        kUsage,
        use->source + " and " + other +
            " both say what the processes are used for; leave one of them out");
  }
  options.megatron_settings = resolve_plugin(
      resolver, use, used, "--use-megatron-lm", "Megatron-LM's settings",
      parallel::megatron_settings());
  const auto degree = options.megatron_settings.find("MEGATRON_LM_TP_DEGREE");
  if (degree != options.megatron_settings.end() &&
      options.world_size % std::atoi(degree->second.c_str()) != 0) {
    throw Error(
        kUsage,
        "tp_degree is " + degree->second + ", which does not divide --num-processes " +
            std::to_string(options.world_size) + "; give a degree that does");
  }
}

/// What the processes are used for; how many there are is known.
void resolve_parallelism(Resolver& resolver, LaunchOptions& options) {
  const auto use = resolver.find("--use-parallelism-config");
  options.use_parallelism_config = use ? read_flag(use->value) : std::nullopt;
  long product = 1;
  std::string text;
  std::vector<std::pair<std::string, Choice>> sizes;
  for (const auto& setting : parallel::parallelism_settings()) {
    const std::string names = setting.options;
    const auto size = resolver.find(names.substr(0, names.find(',')));
    if (!size) {
      continue;
    }
    product *= std::atol(size->value.c_str());
    text += (text.empty() ? "" : ", ") + (size->source + " ") + size->value;
    options.parallelism_sizes[setting.variable] = size->value;
    sizes.emplace_back(setting.name, *size);
    // Variables of an outer environment alone ask for nothing.
    if (size->source.rfind("environment", 0) != 0) {
      options.use_parallelism_config = options.use_parallelism_config.value_or(true);
    }
  }
  const auto several = [&](const char* variable) {
    const auto found = options.parallelism_sizes.find(variable);
    return found != options.parallelism_sizes.end() && found->second != "1";
  };
  const auto along = [&](const char* variable) {
    return options.use_parallelism_config.value_or(false) && several(variable);
  };
  const bool cp = along("PARALLELISM_CONFIG_CP_SIZE");
  const bool sp = along("PARALLELISM_CONFIG_SP_SIZE");
  if (cp && sp) {
    throw Error(
        kUsage,
        text + ": cp and sp share the positions of a sequence in two ways; leave "
            "one of them out");
  }
  const auto plan = resolver.find("--tp-plan");
  const bool parts = along("PARALLELISM_CONFIG_TP_SIZE");
  if (plan && plan->source[0] == '-' && !parts) {
    throw Error(kUsage, "--tp-plan is for --tp; give that, too");
  }
  options.axis_settings = settings_of_plugin(
      resolver, cp, "--cp", parallel::context_parallel_settings());
  options.axis_settings.merge(settings_of_plugin(
      resolver, sp, "--sp", parallel::sequence_parallel_settings()));
  if (!options.use_parallelism_config.value_or(false)) {
    options.parallelism_sizes.clear();
    return;
  }
  if (plan && parts) {
    options.tp_plan = plan->value;
  }
  if (product != options.world_size) {
    throw Error(
        kUsage,
        (text.empty() ? "no sizes" : text) + " make a mesh of " +
            std::to_string(product) + " processes, but --num-processes is " +
            std::to_string(options.world_size) +
            "; the product of the sizes must be the number of processes");
  }
  if (const auto fewer = resolver.find("--min-processes");
      fewer && as_int(fewer) != options.world_size) {
    throw Error(
        kUsage,
        fewer->source + " " + fewer->value + ": a mesh of " +
            std::to_string(product) +
            " processes cannot go on with fewer; leave it out");
  }
  for (const auto& [name, size] : sizes) {
    resolver.plan("mesh: " + name, size, "1");
  }
  if (cp && options.axis_settings.count("PARALLELISM_CONFIG_CP_COMM_STRATEGY") == 0) {
    resolver.plan("cp_comm_strategy", std::nullopt, "allgather");
  }
  if (parts) {
    resolver.plan("plan of tensor parallelism", plan, "made from the model");
  }
}

/// How many processes run here, and which of all they are.
void resolve_processes(Resolver& resolver, LaunchOptions& options) {
  const auto total = resolver.find("--num-processes");
  const auto local = resolver.find("--nproc-per-node");
  const int machines = options.num_machines;
  if (local) {
    options.num_processes = as_int(local).value();
    options.world_size = options.num_processes * machines;
    if (total && total->source == "--num-processes" &&
        as_int(total) != options.world_size) {
      throw Error(
          kUsage,
          "--num-processes " + total->value +
              " counts the processes on all hosts together, and "
              "--nproc-per-node " +
              local->value + " makes " + std::to_string(options.world_size) +
              " of them; give one of the two");
    }
    resolver.plan("processes on this host", local, "");
  } else {
    options.world_size =
        as_int(total).value_or(options.num_processes * machines);
    if (options.world_size % machines != 0) {
      throw Error(
          kUsage,
          total->source + ": " + total->value + " processes cannot be shared "
              "equally by " + std::to_string(machines) + " hosts");
    }
    options.num_processes = options.world_size / machines;
    resolver.plan("processes", total, std::to_string(options.world_size));
  }
  options.first_rank = options.machine_rank * options.num_processes;
}

/// Where each of several hosts gets its number from.
void resolve_hosts(Resolver& resolver, LaunchOptions& options) {
  const auto batch = find_batch_hosts();
  const auto choose = [&](const char* name, const std::string& from_batch) {
    auto choice = resolver.find(name);
    const bool given = choice && choice->source[0] == '-';
    if (batch && !given && !from_batch.empty()) {
      choice = Choice{from_batch, "environment of " + batch->system};
    }
    return choice;
  };
  const auto machines =
      choose("--num-machines", batch ? std::to_string(batch->machines) : "");
  options.num_machines = as_int(machines).value_or(1);
  resolver.plan("hosts", machines, "1");
  const auto rank =
      choose("--machine-rank", batch ? std::to_string(batch->rank) : "");
  const auto address = choose("--main-process-ip", batch ? batch->main : "");
  if (options.num_machines == 1) {
    // A script for any number of hosts says --num-machines 1, and where they meet.
    const bool asked = (rank && rank->value != "0") ||
                       (!machines && address && address->source[0] == '-');
    if (asked) {
      throw Error(
          kUsage,
          (rank && rank->value != "0" ? "--machine-rank" : "--main-process-ip") +
              std::string(" is for several hosts; give --num-machines, too"));
    }
    resolve_processes(resolver, options);
    return;
  }
  if (!rank || !address) {
    throw Error(
        kUsage,
        std::string("with --num-machines ") + machines->value + " give " +
            (rank ? "--main-process-ip" : "--machine-rank") +
            ", too: accel launch is called on every host, with its own "
            "--machine-rank, and the same of everything else");
  }
  options.machine_rank = as_int(rank).value();
  if (options.machine_rank >= options.num_machines) {
    throw Error(
        kUsage,
        rank->source + ": " + rank->value + " is no host of " +
            machines->value + "; they are counted from 0");
  }
  options.main_process_ip = address->value;
  resolver.plan("this host", rank, "");
  resolver.plan("host of process 0", address, "");
  resolve_processes(resolver, options);
  const auto port = resolver.find("--main-process-port");
  if (!port || port->value == "0") {
    if (!batch || batch->port == 0) {
      throw Error(
          kUsage,
          "with several hosts give --main-process-port, a port that is free "
          "on host 0; the same on all");
    }
    options.main_process_port = batch->port;
  }
}

void resolve(Resolver& resolver, LaunchOptions& options) {
  resolve_hosts(resolver, options);
  const auto precision = resolver.find("--mixed-precision");
  if (precision) {
    options.mixed_precision = precision->value;
  }
  resolver.plan("mixed precision", precision, "as the program says");
  const auto steps = resolver.find("--gradient-accumulation-steps");
  options.gradient_accumulation_steps = as_int(steps);
  resolver.plan("gradient accumulation", steps, "as the program says");
  auto cpu = resolver.find("--cpu");
  if (!cpu && resolver.config().find("distributed_type") == "MULTI_CPU") {
    cpu = Choice{"true", resolver.config().path};
  }
  options.cpu = cpu && read_flag(cpu->value).value_or(false);
  resolver.plan("CPU only", cpu, "as the program says");
  if (options.cpu && options.mixed_precision == "fp16") {
    throw Error(
        kUsage,
        "mixed precision fp16 (" + precision->source +
            ") needs a GPU, and the CPU is asked for (" + cpu->source +
            "); on the CPU bf16 does");
  }
  const auto gpus = resolver.find("--gpu-ids");
  if (gpus && gpus->value != "all") {
    if (options.cpu && gpus->source == "--gpu-ids") {
      throw Error(kUsage, "--gpu-ids makes no sense with --cpu");
    }
    options.gpu_ids = gpus->value;
  }
  resolver.plan("GPUs", gpus, "all");
  resolve_sharing(resolver, options);
  resolve_fsdp(resolver, options);
  resolve_deepspeed(resolver, options);
  resolve_parallelism(resolver, options);
  resolve_megatron(resolver, options);
  const auto port = resolver.find("--main-process-port");
  const char* what =
      options.num_machines > 1 ? "launchers meet at port" : "store's port";
  if (port && port->value != "0") {
    options.main_process_port = as_int(port);
    resolver.plan(what, port, "");
  } else if (options.main_process_port) {
    resolver.plan(
        what,
        Choice{
            std::to_string(*options.main_process_port),
            "number of the batch job"},
        "");
  } else {
    resolver.plan(what, std::nullopt, "a free one");
  }
  auto threads = resolver.find("--num-threads-per-process");
  const char* variable = std::getenv("OMP_NUM_THREADS");
  if (variable && (!threads || threads->source[0] != '-')) {
    // Whatever OpenMP understands.
    resolver.plan(
        "threads per process",
        Choice{variable, "environment OMP_NUM_THREADS"},
        "");
  } else {
    options.num_threads_per_process = as_int(threads);
    resolver.plan(
        "threads per process",
        threads,
        options.world_size == 1
            ? "as the program says"
            : std::to_string(fair_threads(options.num_processes)));
  }
  const auto affinity = resolver.find("--enable-cpu-affinity");
  options.cpu_affinity = resolver.flag("--enable-cpu-affinity").value_or(false);
  resolver.plan("cores of their own", affinity, "false");
  const auto restarts = resolver.find("--max-restarts");
  options.max_restarts = as_int(restarts).value_or(0);
  resolver.plan("restarts", restarts, "0");
  const auto least = resolver.find("--min-processes");
  options.min_processes = as_int(least).value_or(0);
  resolver.plan("processes at least", least, "all");
  if (options.min_processes > options.world_size) {
    throw Error(
        kUsage,
        least->source + ": " + least->value + " are more than the " +
            std::to_string(options.world_size) +
            " processes that are started");
  }
  if (options.min_processes > 0 && options.max_restarts == 0) {
    throw Error(
        kUsage,
        least->source +
            " is about restarts; give --max-restarts, too, and --resume auto");
  }
  const auto timeout = resolver.find("--start-timeout");
  if (timeout) {
    options.start_timeout = std::strtod(timeout->value.c_str(), nullptr);
  }
  if (options.num_machines > 1) {
    resolver.plan("seconds for the others", timeout, "300");
  }
  const auto resume = resolver.find("--resume");
  if (resume) {
    options.resume = resume->value;
  }
  resolver.plan("resume", resume, "never");
  resolve_output(resolver, options);
  const auto report = resolver.find("--placement-report");
  const char* report_variable = std::getenv("ACCEL_PLACEMENT_REPORT");
  if (report_variable && *report_variable != '\0' &&
      (!report || report->source[0] != '-')) {
    // Perhaps a file, which the runtime looks at.
    resolver.plan(
        "placement report",
        Choice{report_variable, "environment ACCEL_PLACEMENT_REPORT"},
        "");
  } else {
    options.placement_report = report && read_flag(report->value).value_or(false);
    resolver.plan("placement report", report, "false");
  }
  const auto grace = resolver.find("--grace-period");
  if (grace) {
    options.grace_period = std::strtod(grace->value.c_str(), nullptr);
  }
  resolver.plan("grace period", grace, "10");
  options.dry_run = resolver.flag("--dry-run").value_or(false);
}

} // namespace

std::optional<LaunchOptions> parse_launch(
    const std::vector<std::string>& arguments,
    const std::string& command_name) {
  LaunchOptions options;
  const bool test = command_name == "test";
  options.num_processes = test ? 2 : 1;
  CLI::App command(
      test ? "Tests on this machine what programs need: that processes meet, "
             "collectives, that several train as one does, mixed precision "
             "and checkpoints. Takes the options of accel launch."
           : "Starts a program as several processes on this host, passes "
             "signals and output on, and ends all of them when one fails.",
      command_name);
  set_help(
      command,
      test ? "[OPTIONS]" : "[OPTIONS] [--] PROGRAM [ARGUMENTS...]",
      test ? kTestFooter : kFooter);
  Settings settings(command);
  add_launch_settings(settings);

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
  Resolver resolver(settings, options);
  resolve(resolver, options);
  return options;
}

} // namespace accel::launcher
