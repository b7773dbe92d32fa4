#include "parallel/deepspeed_options.h"

#include "core/environment.h"
#include "parallel/deepspeed_settings.h"

#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <set>

namespace accel::parallel {
namespace {

using nlohmann::json;

/// A value and who gave it.
struct Said {
  std::string value;
  std::string by;
};
using AllSaid = std::map<std::string, Said>;

std::string text_of(const json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  return value.dump();
}

// ---- DeepSpeed's file.

/// Keys that tune its engine, or say what happens here anyway.
const std::set<std::string>& keys_without_effect() {
  static const std::set<std::string> keys{
      "/steps_per_print", "/wall_clock_breakdown", "/dump_state",
      "/memory_breakdown", "/prescale_gradients", "/zero_allow_untested_optimizer",
      "/zero_force_ds_cpu_optimizer", "/communication_data_type",
      "/disable_allgather", "/fp16/auto_cast", "/fp16/loss_scale",
      "/fp16/initial_scale_power", "/fp16/loss_scale_window", "/fp16/hysteresis",
      "/fp16/min_loss_scale", "/fp16/consecutive_hysteresis",
      "/zero_optimization/allgather_partitions",
      "/zero_optimization/allgather_bucket_size", "/zero_optimization/overlap_comm",
      "/zero_optimization/reduce_scatter", "/zero_optimization/reduce_bucket_size",
      "/zero_optimization/contiguous_gradients",
      "/zero_optimization/round_robin_gradients",
      "/zero_optimization/sub_group_size",
      "/zero_optimization/ignore_unused_parameters",
      "/zero_optimization/elastic_checkpoint",
      "/zero_optimization/stage3_max_live_parameters",
      "/zero_optimization/stage3_max_reuse_distance",
      "/zero_optimization/stage3_prefetch_bucket_size",
      "/zero_optimization/stage3_param_persistence_threshold",
      "/zero_optimization/offload_optimizer/pin_memory",
      "/zero_optimization/offload_optimizer/buffer_count",
      "/zero_optimization/offload_optimizer/fast_init",
      "/zero_optimization/offload_optimizer/pipeline_read",
      "/zero_optimization/offload_optimizer/pipeline_write",
      "/zero_optimization/offload_param/pin_memory",
      "/zero_optimization/offload_param/buffer_count",
      "/zero_optimization/offload_param/buffer_size",
      "/zero_optimization/offload_param/max_in_cpu"};
  return keys;
}

/// Groups whose keys are looked at one by one.
bool is_group(const std::string& key) {
  return key == "/zero_optimization" || key == "/fp16" || key == "/bf16" ||
      key == "/zero_optimization/offload_optimizer" ||
      key == "/zero_optimization/offload_param";
}

/// What is switched off is not asked for.
bool says_nothing(const json& value) {
  return value.is_null() || value == false ||
      ((value.is_object() || value.is_array()) && value.empty()) ||
      (value.is_object() && value.contains("enabled") && value["enabled"] == false);
}

/// Puts what the file says into `said`; errors name the file and the key.
void read_group(
    const std::string& file,
    const json& group,
    const std::string& at,
    AllSaid& said) {
  for (const auto& item : group.items()) {
    const auto& value = item.value();
    const std::string key = at + "/" + item.key();
    const std::string by = "deepspeed_config_file " + file;
    const auto refuse = [&](const std::string& why) {
      TORCH_CHECK(
          false, "accel: ", by, ": ", key.substr(1), " is ", value.dump(), ": ", why,
          ".");
    };
    const auto setting = std::find_if(
        deepspeed_settings().begin(), deepspeed_settings().end(),
        [&](const auto& one) { return one.in_file != nullptr && key == one.in_file; });
    if (setting != deepspeed_settings().end()) {
      const auto text = text_of(value);
      if (value.is_null() || text == "auto") {
        continue;
      }
      if (const auto why = setting->check(text); !why.empty()) {
        refuse(why);
      }
      said[setting->name] = {text, by};
    } else if (is_group(key) && value.is_object()) {
      read_group(file, value, key, said);
    } else if (key == "/fp16/enabled" || key == "/bf16/enabled") {
      const std::string precision = key == "/fp16/enabled" ? "fp16" : "bf16";
      if (value == true) {
        if (!said.try_emplace("mixed_precision", Said{precision, by}).second) {
          refuse("so is the other of fp16 and bf16; a run has one of them");
        }
      } else if (value == false) {
        said["not " + precision] = {"true", by};
      } else if (value != "auto") {
        refuse("write true, false or \"auto\"");
      }
    } else if (key == "/gradient_accumulation_steps") {
      if (value.is_number_integer() && value.get<int64_t>() >= 1) {
        said["gradient_accumulation_steps"] = {text_of(value), by};
      } else if (value != "auto") {
        refuse("write a whole number from 1, or \"auto\"");
      }
    } else if (key == "/train_batch_size" || key == "/train_micro_batch_size_per_gpu") {
      if (value != "auto") {
        refuse("the batch size is that of the program's data loader; write \"auto\"");
      }
    } else if (keys_without_effect().count(key) == 0 && !says_nothing(value)) {
      refuse("accel has no such option; DeepSpeed itself is not used. Remove it");
    }
  }
}

void read_file(const std::string& path, AllSaid& said) {
  std::ifstream file(path);
  TORCH_CHECK(
      file, "accel: deepspeed_config_file ", path,
      " cannot be read. Give the path of DeepSpeed's JSON file.");
  json content;
  try {
    content = json::parse(file);
  } catch (const json::exception& error) {
    TORCH_CHECK(
        false, "accel: deepspeed_config_file ", path, " is no JSON: ", error.what());
  }
  TORCH_CHECK(
      content.is_object() && content.contains("zero_optimization"),
      "accel: deepspeed_config_file ", path,
      " has no zero_optimization. Write \"zero_optimization\": {\"stage\": N}.");
  read_group(path, content, "", said);
}

// ---- All of it.

/// What the argument says, by name.
AllSaid said_by(const DeepSpeedPlugin& plugin) {
  AllSaid said;
  const auto add = [&](const char* name, const auto& value) {
    if (value) {
      said[name] = {text_of_value(*value), "deepspeed_plugin"};
    }
  };
  add("deepspeed_config_file", plugin.hf_ds_config());
  add("gradient_accumulation_steps", plugin.gradient_accumulation_steps());
  add("gradient_clipping", plugin.gradient_clipping());
  add("zero_stage", plugin.zero_stage());
  add("offload_optimizer_device", plugin.offload_optimizer_device());
  add("offload_param_device", plugin.offload_param_device());
  add("offload_optimizer_nvme_path", plugin.offload_optimizer_nvme_path());
  add("offload_param_nvme_path", plugin.offload_param_nvme_path());
  add("zero3_init_flag", plugin.zero3_init_flag());
  add("zero3_save_16bit_model", plugin.zero3_save_16bit_model());
  return said;
}

void add_environment(AllSaid& said) {
  for (const auto& setting : deepspeed_settings()) {
    const auto value = accel::detail::get_environment(setting.variable);
    // "none" is how Accelerate's launcher says that there is no file or path.
    if (value && *value != "auto" &&
        (setting.check != deepspeed::path || *value != "none")) {
      said.try_emplace(
          setting.name,
          Said{*value, std::string("the environment variable ") + setting.variable});
    }
  }
}

/// The values that two give must be the same.
void merge(AllSaid& said, const AllSaid& of_file) {
  for (const auto& [name, other] : of_file) {
    const auto [here, is_new] = said.try_emplace(name, other);
    TORCH_CHECK(
        is_new || in_lower_case(here->second.value) == in_lower_case(other.value),
        "accel: ", name, " is ", here->second.value, " (", here->second.by, ") and ",
        other.value, " (", other.by, "). Leave one of them out.");
  }
}

std::string value_of(const AllSaid& said, const char* name, const char* otherwise) {
  const auto found = said.find(name);
  return found == said.end() ? otherwise : in_lower_case(found->second.value);
}

/// The folder where "nvme" is said, else empty.
std::string folder_of(const AllSaid& said, const std::string& what) {
  if (value_of(said, (what + "_device").c_str(), "none") != "nvme") {
    return "";
  }
  const auto path = said.find(what + "_nvme_path");
  TORCH_CHECK(
      path != said.end(), "accel: ", what, "_device is nvme, and ", what,
      "_nvme_path is not given. Give a folder on a disk with room.");
  return path->second.value;
}

} // namespace

std::optional<DeepSpeedOptions> resolve_deepspeed(
    const std::optional<DeepSpeedPlugin>& given) {
  if (!given &&
      !accel::detail::get_environment_flag("ACCELERATE_USE_DEEPSPEED")
           .value_or(false)) {
    return std::nullopt;
  }
  AllSaid said = given ? said_by(*given) : AllSaid();
  add_environment(said);
  if (const auto file = said.find("deepspeed_config_file"); file != said.end()) {
    AllSaid of_file;
    read_file(file->second.value, of_file);
    merge(said, of_file);
  }
  for (const auto& setting : deepspeed_settings()) {
    if (const auto found = said.find(setting.name); found != said.end()) {
      const auto why = setting.check(found->second.value);
      TORCH_CHECK(
          why.empty(), "accel: ", setting.name, " of ", found->second.by, ": ", why,
          ".");
    }
  }
  DeepSpeedOptions options;
  const auto stage = value_of(said, "zero_stage", "2");
  options.strategy = stage == "0" ? ShardingStrategy::kNoShard
      : stage == "3"              ? ShardingStrategy::kFullShard
                                  : ShardingStrategy::kShardGradOp;
  const auto clipping = value_of(said, "gradient_clipping", "0");
  options.gradient_clipping = clipping == "auto" ? 0 : std::stod(clipping);
  if (const auto steps = said.find("gradient_accumulation_steps");
      steps != said.end()) {
    options.gradient_accumulation_steps = std::stoll(steps->second.value);
    TORCH_CHECK(
        *options.gradient_accumulation_steps >= 1,
        "accel: gradient_accumulation_steps of ", steps->second.by, " is ",
        steps->second.value, ", but at least one micro-batch makes a step.");
  }
  const auto precision = value_of(said, "mixed_precision", "");
  if (!precision.empty()) {
    options.mixed_precision =
        precision == "fp16" ? MixedPrecision::kFP16 : MixedPrecision::kBF16;
  }
  for (const auto precision : {MixedPrecision::kFP16, MixedPrecision::kBF16}) {
    if (said.count(std::string("not ") + to_string(precision)) != 0) {
      options.not_wanted.push_back(precision);
    }
  }
  const std::string variable = "the environment variable ";
  for (const auto& [name, one] : said) {
    options.sources[name] = one.by.rfind(variable, 0) == 0
        ? "environment " + one.by.substr(variable.size())
        : one.by == "deepspeed_plugin" ? "argument deepspeed_plugin"
                                       : one.by;
  }
  const auto of_parameters = value_of(said, "offload_param_device", "none");
  options.offload = {
      value_of(said, "offload_optimizer_device", "none") != "none",
      of_parameters != "none", folder_of(said, "offload_optimizer"),
      folder_of(said, "offload_param")};
  options.zero3_init = is_true(value_of(said, "zero3_init_flag", "false"));
  TORCH_CHECK(
      !options.zero3_init || stage == "3", "accel: zero3_init_flag is true and zero_stage is ",
      stage, ". Models are built in parts with stage 3 only.");
  TORCH_CHECK(
      !options.offload.parameters || stage == "3", "accel: offload_param_device is ",
      of_parameters, " and zero_stage is ", stage,
      ". Parts of parameters lie elsewhere with stage 3 only.");
  return options;
}

std::string to_text(const OffloadOptions& offload) {
  std::string text;
  const auto add = [&](bool is_moved, const char* what, const std::string& folder) {
    if (is_moved) {
      text += (text.empty() ? "" : ", ") + std::string(what) + " in " +
          (folder.empty() ? "the host's memory" : folder);
    }
  };
  add(offload.optimizer, "optimizer states", offload.optimizer_folder);
  add(offload.parameters, "parameters", offload.parameters_folder);
  return text;
}

} // namespace accel::parallel
