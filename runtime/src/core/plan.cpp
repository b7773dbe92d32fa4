#include <accel/accelerator.h>
#include <accel/options.h>

#include "core/accelerator_own.h"
#include "core/environment.h"
#include "parallel/deepspeed_options.h"
#include "parallel/tensor_plan.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <sstream>

namespace accel {
namespace {

std::string text(bool value) {
  return value ? "true" : "false";
}
std::string text(int64_t value) {
  return std::to_string(value);
}
std::string text(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}
std::string text(const std::string& value) {
  return value.empty() ? "(empty)" : value;
}
std::string text(std::optional<bool> value) {
  return value ? text(*value) : "automatic";
}

bool equal(const GradScalerOptions& a, const GradScalerOptions& b) {
  return a.init_scale() == b.init_scale() &&
      a.growth_factor() == b.growth_factor() &&
      a.backoff_factor() == b.backoff_factor() &&
      a.growth_interval() == b.growth_interval();
}

std::string text(const GradScalerOptions& value) {
  std::ostringstream out;
  out << "init_scale " << value.init_scale() << ", growth_factor "
      << value.growth_factor() << ", backoff_factor " << value.backoff_factor()
      << ", growth_interval " << value.growth_interval();
  return out.str();
}

bool equal(const AutocastOptions& a, const AutocastOptions& b) {
  return a.enabled() == b.enabled() && a.cache_enabled() == b.cache_enabled();
}

std::string text(const AutocastOptions& value) {
  return "enabled " + text(value.enabled()) + ", cache_enabled " +
      text(value.cache_enabled());
}

template <typename T>
bool equal(const T& a, const T& b) {
  return a == b;
}

/// Who has said `mixed_precision`, `gradient_accumulation_steps` and `zero_stage` where
/// that was DeepSpeed's or Megatron-LM's plugin.
std::map<std::string, std::string> sources_of_plugins(
    const AcceleratorOptions& given, const ResolvedOptions& options) {
  if (const auto deepspeed = parallel::resolve_deepspeed(given.deepspeed_plugin())) {
    auto sources = deepspeed->sources;
    sources.try_emplace(
        "zero_stage",
        given.deepspeed_plugin() ? "argument deepspeed_plugin"
                                 : "environment ACCELERATE_USE_DEEPSPEED");
    return sources;
  }
  if (options.fill_mesh) {
    const std::string by = given.megatron_lm_plugin()
        ? "argument megatron_lm_plugin"
        : "environment ACCELERATE_USE_MEGATRON_LM";
    std::map<std::string, std::string> sources{{"zero_stage", by}};
    if (options.gradient_accumulation_steps > 1) {
      sources["gradient_accumulation_steps"] = by;
    }
    return sources;
  }
  return {};
}

/// Collects the options in order.
class Plan {
 public:
  explicit Plan(const AcceleratorOptions& given) : given_(given) {}

  /// An option that the environment does not know. `get` reads it from the
  /// options; `value` is what is in force.
  template <typename Get>
  void add(const char* name, const std::string& value, const Get& get) {
    add(name, value, get, nullptr, false);
  }

  /// One that `variable` may have decided: over the argument, or only where
  /// there is none.
  template <typename Get>
  void add(
      const char* name,
      const std::string& value,
      const Get& get,
      const char* variable,
      bool over_argument) {
    const bool argument = !equal(get(given_), get(AcceleratorOptions()));
    const bool environment = variable != nullptr &&
        detail::get_environment(variable) && (over_argument || !argument);
    entries_.push_back(
        {name,
         value,
         environment ? std::string("environment ") + variable
             : argument ? "argument"
                        : "default"});
  }

  /// The last one was decided by `sources[key]`, of a plugin that says what several
  /// options are, where nobody has said so himself.
  void said(
      const std::map<std::string, std::string>& sources, const std::string& key) {
    const auto found = sources.find(key);
    if (found != sources.end() && entries_.back().source == "default") {
      entries_.back().source = found->second;
    }
  }

  std::vector<OptionInForce> take() {
    return std::move(entries_);
  }

 private:
  const AcceleratorOptions& given_;
  std::vector<OptionInForce> entries_;
};

} // namespace

std::vector<OptionInForce> options_in_force(const AcceleratorOptions& given) {
  const ResolvedOptions options = resolve(given);
  Plan plan(given);
  const auto sources = sources_of_plugins(given, options);
#define ACCEL_GET(name) [](const AcceleratorOptions& o) { return o.name(); }
#define ACCEL_PLAN(name) plan.add(#name, text(options.name), ACCEL_GET(name))
  plan.add(
      "match_single_device",
      text(options.match_single_device),
      ACCEL_GET(match_single_device),
      "ACCEL_MATCH_SINGLE_DEVICE",
      true);
  plan.add(
      "mixed_precision",
      to_string(options.mixed_precision),
      ACCEL_GET(mixed_precision),
      "ACCELERATE_MIXED_PRECISION",
      false);
  plan.said(sources, "mixed_precision");
  plan.add(
      "gradient_accumulation_steps",
      text(options.gradient_accumulation_steps),
      ACCEL_GET(gradient_accumulation_steps),
      "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
      true);
  plan.said(sources, "gradient_accumulation_steps");
  ACCEL_PLAN(grad_scaler);
  ACCEL_PLAN(autocast);
  plan.add("comm_hook", to_string(options.comm_hook), ACCEL_GET(comm_hook));
  ACCEL_PLAN(bucket_cap_mb);
  ACCEL_PLAN(broadcast_buffers);
  plan.add(
      "fsdp_plugin",
      options.fsdp ? to_string(*options.fsdp) : "no",
      [](const AcceleratorOptions& o) { return o.fsdp_plugin().has_value(); },
      "ACCELERATE_USE_FSDP",
      false);
  if (options.fsdp) {
    plan.said(sources, "zero_stage");
  }
  plan.add(
      "auto_wrap_policy",
      to_string(options.auto_wrap),
      [](const AcceleratorOptions& o) {
        return o.fsdp_plugin() && o.fsdp_plugin()->auto_wrap_policy();
      },
      "FSDP_AUTO_WRAP_POLICY",
      false);
  plan.add(
      "cpu_offload",
      text(options.cpu_offload),
      [](const AcceleratorOptions& o) {
        return o.fsdp_plugin() && o.fsdp_plugin()->cpu_offload();
      },
      "FSDP_OFFLOAD_PARAMS",
      false);
  const std::string where_quicker = "where it is quicker";
  plan.add(
      "forward_prefetch",
      options.forward_prefetch ? text(*options.forward_prefetch) : where_quicker,
      [](const AcceleratorOptions& o) {
        return o.fsdp_plugin() && o.fsdp_plugin()->forward_prefetch();
      },
      "FSDP_FORWARD_PREFETCH",
      false);
  plan.add(
      "backward_prefetch",
      options.backward_prefetch ? to_string(*options.backward_prefetch)
                                : where_quicker,
      [](const AcceleratorOptions& o) {
        return o.fsdp_plugin() && o.fsdp_plugin()->backward_prefetch();
      },
      "FSDP_BACKWARD_PREFETCH",
      false);
  plan.add(
      "activation_checkpointing",
      text(options.activation_checkpointing),
      [](const AcceleratorOptions& o) {
        return (o.fsdp_plugin() && o.fsdp_plugin()->activation_checkpointing()) ||
            (o.megatron_lm_plugin() && o.megatron_lm_plugin()->recompute_activations());
      },
      options.fill_mesh ? "MEGATRON_LM_RECOMPUTE_ACTIVATIONS"
                        : "FSDP_ACTIVATION_CHECKPOINTING",
      false);
  plan.add(
      "reduce_dtype",
      options.reduce_dtype ? c10::toString(*options.reduce_dtype)
                           : "that of the parameter",
      [](const AcceleratorOptions& o) {
        return o.fsdp_plugin() && o.fsdp_plugin()->mixed_precision_policy() &&
            o.fsdp_plugin()->mixed_precision_policy()->reduce_dtype();
      });
  plan.add(
      "deepspeed_plugin",
      std::string(options.gradient_clipping > 0 && !options.fill_mesh
                      ? "gradient_clipping " + text(options.gradient_clipping)
                      : "no gradient_clipping") +
          (options.offload == OffloadOptions()
               ? ""
               : ", " + parallel::to_text(options.offload)) +
          (options.zero3_init ? ", models built in parts" : ""),
      [](const AcceleratorOptions& o) {
        return o.deepspeed_plugin().has_value();
      },
      "ACCELERATE_USE_DEEPSPEED",
      false);
  plan.add(
      "megatron_lm_plugin",
      options.fill_mesh ? "tp_degree " + text(options.parallelism->tp) +
              (options.fsdp ? ", use_distributed_optimizer" : "") +
              (options.gradient_clipping > 0
                   ? ", gradient_clipping " + text(options.gradient_clipping)
                   : "")
                        : "no",
      [](const AcceleratorOptions& o) {
        return o.megatron_lm_plugin().has_value();
      },
      "ACCELERATE_USE_MEGATRON_LM",
      false);
  plan.add(
      "state_dict_type",
      to_string(options.state_dict_type),
      [](const AcceleratorOptions& o) {
        return o.fsdp_plugin() && o.fsdp_plugin()->state_dict_type();
      },
      "FSDP_STATE_DICT_TYPE",
      false);
  plan.add(
      "parallelism_config",
      options.parallelism ? to_string(*options.parallelism) : "no",
      [](const AcceleratorOptions& o) {
        return o.parallelism_config().has_value();
      },
      "ACCELERATE_USE_PARALLELISM_CONFIG",
      false);
  plan.add(
      "torch_tp_plugin",
      options.tp_plan.empty() ? "plan made from the model"
                              : parallel::to_text(options.tp_plan),
      [](const AcceleratorOptions& o) {
        return o.torch_tp_plugin().has_value();
      },
      "ACCEL_TP_PLAN",
      false);
  plan.add(
      "cpu", text(options.cpu), ACCEL_GET(cpu), "ACCELERATE_USE_CPU", false);
  ACCEL_PLAN(device_placement);
  plan.add(
      "split_batches",
      text(options.split_batches),
      ACCEL_GET(split_batches),
      "ACCEL_SPLIT_BATCHES",
      true);
  ACCEL_PLAN(even_batches);
  ACCEL_PLAN(dispatch_batches);
  ACCEL_PLAN(load_whole_batches);
  ACCEL_PLAN(non_blocking);
  ACCEL_PLAN(step_scheduler_with_optimizer);
  ACCEL_PLAN(sync_with_dataloader);
  ACCEL_PLAN(adjust_scheduler);
  ACCEL_PLAN(sync_each_batch);
  plan.add(
      "log_with",
      std::to_string(given.log_with().size()) + " trackers",
      [](const AcceleratorOptions& o) { return o.log_with().size(); });
  plan.add("project_dir", text(given.project_dir()), ACCEL_GET(project_dir));
  plan.add(
      "automatic_checkpoint_naming",
      text(given.automatic_checkpoint_naming()),
      ACCEL_GET(automatic_checkpoint_naming));
  plan.add(
      "total_limit",
      given.total_limit() == 0 ? "all" : text(given.total_limit()),
      ACCEL_GET(total_limit));
  ACCEL_PLAN(save_on_each_node);
  plan.add(
      "logging_dir",
      given.logging_dir().empty() ? text(given.project_dir())
                                  : text(given.logging_dir()),
      ACCEL_GET(logging_dir));
  plan.add(
      "timeout",
      std::to_string(options.timeout.count()) + " ms",
      ACCEL_GET(timeout));
#undef ACCEL_PLAN
#undef ACCEL_GET
  return plan.take();
}

std::string Accelerator::plan() const {
  std::ostringstream out;
  out << "accel: process " << process_index() << " of " << num_processes()
      << ", " << local_process_index() << " of "
      << state().local_num_processes() << " on this machine; "
      << to_string(distributed_type()) << " on " << device() << '\n';
  size_t name = 0;
  size_t value = 0;
  for (const auto& option : own_->options_in_force) {
    name = std::max(name, option.name.size());
    value = std::max(value, option.value.size());
  }
  for (const auto& option : own_->options_in_force) {
    out << "  " << std::left << std::setw(static_cast<int>(name) + 2)
        << option.name << std::setw(static_cast<int>(value) + 2)
        << option.value << option.source << '\n';
  }
  return out.str();
}

} // namespace accel
