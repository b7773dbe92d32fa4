#include "config_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <vector>

#include "error.h"
#include "file_descriptor.h"
#include "launch_settings.h"
#include "parallel/deepspeed_settings.h"
#include "parallel/fsdp_settings.h"
#include "parallel/megatron_settings.h"
#include "parallel/parallelism_settings.h"
#include "settings.h"
#include "suggestion.h"

namespace accel::launcher {
namespace {

/// Keys that options of `accel launch` have, or that say something that is
/// checked below.
const std::set<std::string>& known_keys() {
  static const std::set<std::string> keys{
      "compute_environment",
      "deepspeed_config",
      "distributed_type",
      "fsdp_config",
      "enable_cpu_affinity",
      "gpu_ids",
      "gradient_accumulation_steps",
      "grace_period",
      "machine_rank",
      "main_process_ip",
      "main_process_port",
      "match_single_device",
      "megatron_lm_config",
      "max_restarts",
      "min_processes",
      "mixed_precision",
      "num_machines",
      "num_processes",
      "num_threads_per_process",
      "output",
      "parallelism_config",
      "placement_report",
      "resume",
      "tp_plan",
      "use_cpu",
  };
  return keys;
}

/// Accelerate's keys that make no difference here: the debug checks are always
/// on, and there is one way to meet.
const std::set<std::string>& keys_without_effect() {
  static const std::set<std::string> keys{
      "debug", "main_training_function", "rdzv_backend", "same_network"};
  return keys;
}

/// Accelerate's keys that switch something on that accel does not have; of earlier
/// versions, too (dynamo_backend, ipex_config), whose files Accelerate still reads.
const std::set<std::string>& foreign_keys() {
  static const std::set<std::string> keys{
      "command_file",
      "commands",
      "downcast_bf16",
      "dynamo_backend",
      "dynamo_config",
      "fp8_config",
      "ipex_config",
      "mpirun_config",
      "tpu_env",
      "tpu_name",
      "tpu_use_cluster",
      "tpu_use_sudo",
      "tpu_vm",
      "tpu_zone",
  };
  return keys;
}

bool says_nothing(const YAML::Node& node) {
  if (!node.IsDefined() || node.IsNull()) {
    return true;
  }
  if (node.IsScalar()) {
    const std::string& text = node.Scalar();
    return text.empty() || text == "no" || text == "false" || text == "False" ||
           text == "NO";
  }
  return node.size() == 0;
}

/// Also of a list of that: `ipex_config: {ipex: false}`.
bool asks_for_nothing(const YAML::Node& node) {
  return says_nothing(node) ||
      (node.IsMap() && std::all_of(node.begin(), node.end(), [](const auto& entry) {
         return says_nothing(entry.second);
       }));
}

/// UTF-8 without control characters and what Unicode keeps for no character:
/// what is written is then read as it was.
bool is_text(const std::string& value) {
  for (size_t i = 0; i < value.size();) {
    const auto first = static_cast<unsigned char>(value[i]);
    const size_t length = first < 0x80 ? 1
        : (first & 0xe0) == 0xc0       ? 2
        : (first & 0xf0) == 0xe0       ? 3
        : (first & 0xf8) == 0xf0       ? 4
                                       : 0;
    if (length == 0 || length > value.size() - i) {
      return false;
    }
    uint32_t code = length == 1 ? first : first & (0x7fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<unsigned char>(value[i + k]);
      if ((byte & 0xc0) != 0x80) {
        return false;
      }
      code = code << 6 | (byte & 0x3fu);
    }
    constexpr uint32_t kLeast[] = {0x20, 0x80, 0x800, 0x10000};
    if (code < kLeast[length - 1] || code > 0x10ffff ||
        (code >= 0x7f && code < 0xa0) || (code >= 0xd800 && code < 0xe000) ||
        (code >= 0xfdd0 && code < 0xfdf0) || (code & 0xfffe) == 0xfffe ||
        code == 0xfeff) {
      return false;
    }
    i += length;
  }
  return true;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(kUsage, path + ": " + why);
}

[[noreturn]] void unknown_key(const std::string& path, const std::string& key) {
  std::vector<std::string> candidates;
  for (const auto* keys :
       {&known_keys(), &keys_without_effect(), &foreign_keys()}) {
    candidates.insert(candidates.end(), keys->begin(), keys->end());
  }
  refuse(path, "unknown key " + key + suggest(key, candidates));
}

/// Calls `visit(key, value)` for the entries of a list of Accelerate's, but for keys
/// without a value. `form`: what the list, `name`, must be made of; `where` begins
/// errors about a value.
template <typename Visit>
void each_entry(
    const ConfigFile& config,
    const YAML::Node& list,
    const std::string& name,
    const std::string& form,
    const std::string& where,
    const Visit& visit) {
  if (says_nothing(list)) {
    return;
  }
  if (!list.IsMap()) {
    refuse(config.path, name + " must be a list of \"" + form + "\"");
  }
  for (const auto& entry : list) {
    const std::string key =
        entry.first.IsScalar() ? entry.first.Scalar() : "(not a word)";
    if (entry.second.IsNull()) {
      continue;
    }
    if (!entry.second.IsScalar()) {
      refuse(config.path, where + key + " must be one value");
    }
    visit(key, entry.second.Scalar());
  }
}

/// Accelerate's `fsdp_config`: a list of `fsdp_…: value`.
void read_fsdp(ConfigFile& config, const YAML::Node& list) {
  const auto read = [&](const std::string& key, const std::string& value) {
    const auto name = parallel::fsdp_setting_name(key);
    const auto* setting =
        parallel::find_setting(parallel::fsdp_plugin_settings(), name);
    std::string why;
    if (name == "sharding_strategy") {
      if (parallel::fsdp_strategy_name(value).empty()) {
        why = parallel::no_fsdp_strategy(value);
      }
    } else if (name == "reshard_after_forward") {
      if (parallel::strategy_of_reshard(value).empty()) {
        why = parallel::no_reshard(value);
      }
    } else if (name == "version") {
      if (value != "1" && value != "2") {
        why = parallel::no_fsdp_version(value);
      }
    } else if (name == "state_dict_type") {
      if (parallel::state_dict_type_name(value).empty()) {
        why = parallel::no_state_dict_type(value);
      }
    } else if (setting == nullptr) {
      std::vector<std::string> names;
      for (const auto& known : parallel::fsdp_plugin_settings()) {
        names.push_back("fsdp_" + std::string(known.name));
      }
      why = "accel has no such option" + suggest("fsdp_" + name, names);
    } else if (value.empty() || value == "none") {
      return;
    } else {
      why = setting->check(value);
    }
    if (!why.empty()) {
      refuse(config.path, "fsdp_config: " + key + ": " + value + ": " + why);
    }
    config.values["fsdp_" + name] = value;
  };
  each_entry(config, list, "fsdp_config", "fsdp_...: value", "", read);
}

/// Accelerate's `deepspeed_config`. What only DeepSpeed's own launcher does may be
/// there with the value that asks for nothing.
void read_deepspeed(ConfigFile& config, const YAML::Node& list) {
  const auto read = [&](const std::string& key, const std::string& value) {
    if (value == "auto" || (value == "none" && key.find("path") != key.npos)) {
      return;
    }
    std::string why;
    if (const auto* setting = 
            parallel::find_setting(parallel::deepspeed_settings(), key)) {
      why = setting->check(value);
      config.values[key] = value;
    } else if (key == "gradient_accumulation_steps") {
      why = whole_number(1, 1 << 30)(value);
      const auto [known, is_new] = config.values.emplace(key, value);
      if (!is_new && known->second != value) {
        why = "but it is " + known->second + " beside deepspeed_config";
      }
    } else {
      std::vector<std::string> names{"gradient_accumulation_steps"};
      for (const auto& known : parallel::deepspeed_settings()) {
        names.push_back(known.name);
      }
      why = "accel has no such option; DeepSpeed itself is not used" +
          suggest(key, names);
    }
    if (!why.empty()) {
      refuse(config.path, "deepspeed_config: " + key + ": " + value + ": " + why);
    }
  };
  each_entry(
      config, list, "deepspeed_config", "name: value", "deepspeed_config: ", read);
}

/// Accelerate's `megatron_lm_config`: a list of `megatron_lm_…: value`.
void read_megatron(ConfigFile& config, const YAML::Node& list) {
  const std::string prefix = "megatron_lm_";
  const auto read = [&](const std::string& key, const std::string& value) {
    std::vector<std::string> names;
    const parallel::PluginSetting* found = nullptr;
    for (const auto& setting : parallel::megatron_settings()) {
      names.push_back(prefix + setting.name);
      found = key == names.back() ? &setting : found;
    }
    const std::string why = found == nullptr
        ? "accel has no such option; Megatron-LM itself is not used" +
            suggest(key, names)
        : found->check(value);
    if (!why.empty()) {
      refuse(config.path, "megatron_lm_config: " + key + ": " + value + ": " + why);
    }
    config.values[key] = value;
  };
  each_entry(
      config, list, "megatron_lm_config", "megatron_lm_...: value",
      "megatron_lm_config: ", read);
}

/// Accelerate's `parallelism_config`: the sizes of the mesh.
void read_parallelism(ConfigFile& config, const YAML::Node& list) {
  if (says_nothing(list)) {
    return;
  }
  if (!list.IsMap()) {
    refuse(
        config.path,
        "parallelism_config must be a list of \"parallelism_config_..._size: "
        "number\"");
  }
  const std::string prefix = "parallelism_config_";
  for (const auto& entry : list) {
    const std::string key =
        entry.first.IsScalar() ? entry.first.Scalar() : "(not a word)";
    if (entry.second.IsNull()) {
      continue;
    }
    const std::string value =
        entry.second.IsScalar() ? entry.second.Scalar() : "(no number)";
    const std::string name =
        key.rfind(prefix, 0) == 0 ? key.substr(prefix.size()) : key;
    std::vector<std::string> names;
    const parallel::ParallelismSetting* found = nullptr;
    for (const auto& setting : parallel::parallelism_settings()) {
      names.push_back(prefix + setting.name + "_size");
      found = name == setting.name + std::string("_size") ? &setting : found;
    }
    const parallel::PluginSetting* way = nullptr;
    for (const auto* settings : parallel::axis_settings()) {
      for (const auto& setting : *settings) {
        names.push_back(prefix + setting.name);
        way = name == setting.name ? &setting : way;
      }
    }
    const std::string why = found != nullptr ? check_mesh_size(value)
        : way != nullptr
        ? way->check(value)
        : "accel has no such option" + suggest(prefix + name, names);
    if (!why.empty()) {
      refuse(config.path, "parallelism_config: " + key + ": " + why);
    }
    config.values[prefix + name] = value;
  }
}

void check(const ConfigFile& config) {
  const auto environment = config.find("compute_environment");
  if (environment && *environment != "LOCAL_MACHINE") {
    refuse(
        config.path,
        "compute_environment is " + *environment +
            "; accel starts programs on LOCAL_MACHINE only");
  }
  const auto type = config.find("distributed_type");
  const auto count = config.find("num_processes");
  if (!type) {
    return;
  }
  const std::vector<std::string> types{
      "NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM"};
  if (std::find(types.begin(), types.end(), *type) == types.end()) {
    refuse(
        config.path,
        "distributed_type is " + *type +
            "; accel has NO, MULTI_CPU, MULTI_GPU, FSDP, DEEPSPEED and MEGATRON_LM" +
            suggest(*type, types));
  }
  if (*type == "NO" && count && *count != "1") {
    refuse(
        config.path,
        "distributed_type is NO, but num_processes is " + *count +
            "; write MULTI_CPU or MULTI_GPU, or num_processes: 1");
  }
  const auto cpu = config.find("use_cpu");
  const bool use_cpu = cpu && (*cpu == "true" || *cpu == "True");
  if (*type == "MULTI_GPU" && use_cpu) {
    refuse(config.path, "distributed_type is MULTI_GPU, but use_cpu is true");
  }
}

/// A key of `deepspeed_config` that was given; null where none was.
const std::string* deepspeed_key(const ConfigFile& config) {
  for (const auto& setting : parallel::deepspeed_settings()) {
    if (const auto found = config.values.find(setting.name);
        found != config.values.end()) {
      return &found->first;
    }
  }
  return nullptr;
}

/// The key of `megatron_lm_config` that was given; null where none was.
const std::string* megatron_key(const ConfigFile& config) {
  const auto first = config.values.lower_bound("megatron_lm_");
  return first != config.values.end() && first->first.rfind("megatron_lm_", 0) == 0
      ? &first->first
      : nullptr;
}

/// Notes that the file's type is `type`, under `use`. Where it is another, `says`, what
/// the list `list` says, must be empty.
void use_type(
    ConfigFile& config,
    const std::string& type,
    const std::string& use,
    const std::string& list,
    const std::string& says) {
  const auto given = config.find("distributed_type");
  if (given == type) {
    config.values[use] = "true";
  } else if (!says.empty()) {
    refuse(
        config.path,
        list + " " + says + ", but distributed_type is " +
            given.value_or("not given") + "; write distributed_type: " + type +
            ", or remove " + list);
  }
}

} // namespace

std::optional<std::string> ConfigFile::find(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? std::nullopt
                               : std::optional<std::string>(found->second);
}

std::string default_config_path() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string path = variable("ACCEL_CONFIG_FILE"); !path.empty()) {
    return path;
  }
  std::string base = variable("XDG_CONFIG_HOME");
  if (base.empty() && !variable("HOME").empty()) {
    base = variable("HOME") + "/.config";
  }
  return base.empty() ? "" : base + "/accel/default_config.yaml";
}

ConfigFile read_config(const std::string& path) {
  ConfigFile config;
  config.path = path;
  YAML::Node root;
  try {
    root = YAML::LoadFile(path);
  } catch (const YAML::BadFile&) {
    throw Error(
        kLauncherFailed,
        "cannot read the configuration file " + path +
            (errno != 0 ? std::string(": ") + std::strerror(errno) : ""));
  } catch (const YAML::Exception& error) {
    refuse(path, std::string("this is not YAML: ") + error.what());
  }
  if (root.IsNull()) {
    return config;
  }
  if (!root.IsMap()) {
    refuse(path, "a list of \"key: value\" was expected");
  }
  for (const auto& entry : root) {
    const std::string key =
        entry.first.IsScalar() ? entry.first.Scalar() : "(not a word)";
    const YAML::Node& value = entry.second;
    if (foreign_keys().count(key) != 0) {
      if (!asks_for_nothing(value)) {
        refuse(
            path,
            key + " asks for something that accel does not have. Remove it, "
                  "and what it stands for");
      }
      continue;
    }
    if (keys_without_effect().count(key) != 0) {
      continue;
    }
    if (key == "fp16") {
      // What Accelerate wrote before there was mixed_precision, and reads like this.
      if (!says_nothing(value) && !root["mixed_precision"].IsDefined()) {
        config.values.emplace("mixed_precision", "fp16");
      }
      continue;
    }
    if (known_keys().count(key) == 0) {
      unknown_key(path, key);
    }
    if (value.IsNull()) {
      continue;
    }
    if (key == "fsdp_config") {
      read_fsdp(config, value);
      continue;
    }
    if (key == "deepspeed_config") {
      read_deepspeed(config, value);
      continue;
    }
    if (key == "megatron_lm_config") {
      read_megatron(config, value);
      continue;
    }
    if (key == "parallelism_config") {
      read_parallelism(config, value);
      continue;
    }
    if (!value.IsScalar()) {
      refuse(path, key + " must be one value");
    }
    if (!is_text(value.Scalar())) {
      refuse(
          path,
          key + " has bytes that are no text: control characters, or something "
                "else than UTF-8");
    }
    if (!config.values.emplace(key, value.Scalar()).second) {
      refuse(path, key + " is there twice");
    }
  }
  check(config);
  const auto gives = [](const std::string* key) {
    return key == nullptr ? "" : "gives " + *key;
  };
  use_type(
      config, "FSDP", "use_fsdp", "fsdp_config",
      config.find("fsdp_sharding_strategy") || config.find("fsdp_reshard_after_forward")
          ? "says how parameters are divided"
          : "");
  use_type(
      config, "MEGATRON_LM", "use_megatron_lm", "megatron_lm_config",
      gives(megatron_key(config)));
  use_type(
      config, "DEEPSPEED", "use_deepspeed", "deepspeed_config",
      gives(deepspeed_key(config)));
  return config;
}

namespace {

void write_values(
    YAML::Emitter& out,
    const std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : values) {
    out << YAML::Key << key << YAML::Value;
    if (value == "no" || value == "NO") {
      // Accelerate would read it as false.
      out << YAML::SingleQuoted;
    }
    out << value;
  }
}

} // namespace

std::string config_text(
    const std::map<std::string, std::string>& values,
    const std::map<std::string, std::map<std::string, std::string>>& lists) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  write_values(out, values);
  for (const auto& [name, list] : lists) {
    out << YAML::Key << name << YAML::Value << YAML::BeginMap;
    write_values(out, list);
    out << YAML::EndMap;
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

void write_file(const std::string& path, const std::string& text) {
  const std::filesystem::path folder =
      std::filesystem::absolute(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw Error(
        kLauncherFailed,
        "cannot make the folder " + folder.string() + ": " + error.message());
  }
  const std::string temporary = path + ".new-" + std::to_string(::getpid());
  {
    const FileDescriptor file(::open(
        temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file) {
      throw_errno("cannot write " + temporary);
    }
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t count =
          ::write(file.get(), text.data() + done, text.size() - done);
      if (count < 0 && errno != EINTR) {
        const int reason = errno;
        ::unlink(temporary.c_str());
        errno = reason;
        throw_errno("cannot write " + path);
      }
      done += static_cast<size_t>(std::max<ssize_t>(count, 0));
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary.c_str());
    errno = reason;
    throw_errno("cannot write " + path);
  }
}

} // namespace accel::launcher
