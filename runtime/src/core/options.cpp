#include <accel/options.h>

#include "core/environment.h"
#include "parallel/deepspeed_options.h"
#include "parallel/fsdp_options.h"
#include "parallel/megatron_options.h"
#include "parallel/parallelism.h"
#include "parallel/tensor_plan.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <tuple>

namespace accel {
namespace {

MixedPrecision parse_mixed_precision(const std::string& text) {
  for (const auto precision :
       {MixedPrecision::kNo,
        MixedPrecision::kFP16,
        MixedPrecision::kBF16,
        MixedPrecision::kFP8}) {
    if (text == to_string(precision)) {
      return precision;
    }
  }
  TORCH_CHECK(
      false,
      "accel: the environment variable ACCELERATE_MIXED_PRECISION is '",
      text,
      "'; known are no, fp16 and bf16.");
}

auto tie(const ResolvedOptions& options) {
  return std::tie(
      options.match_single_device,
      options.mixed_precision,
      options.gradient_accumulation_steps,
      options.grad_scaler,
      options.autocast.enabled(),
      options.autocast.cache_enabled(),
      options.comm_hook,
      options.bucket_cap_mb,
      options.broadcast_buffers,
      options.fsdp,
      options.auto_wrap,
      options.cpu_offload,
      options.forward_prefetch,
      options.backward_prefetch,
      options.activation_checkpointing,
      options.reduce_dtype,
      options.gradient_clipping,
      options.offload,
      options.zero3_init,
      options.state_dict_type,
      options.parallelism,
      options.cp_comm_strategy,
      options.fill_mesh,
      options.tp_plan,
      options.cpu,
      options.device_placement,
      options.split_batches,
      options.even_batches,
      options.dispatch_batches,
      options.load_whole_batches,
      options.non_blocking,
      options.step_scheduler_with_optimizer,
      options.sync_with_dataloader,
      options.adjust_scheduler,
      options.sync_each_batch,
      options.save_on_each_node,
      options.timeout);
}

/// `said`: how many, and by whom.
void accumulate(
    ResolvedOptions& resolved,
    int64_t steps,
    const std::string& said) {
  TORCH_CHECK(
      resolved.gradient_accumulation_steps == 1 ||
          resolved.gradient_accumulation_steps == steps,
      "accel: gradient_accumulation_steps is ",
      resolved.gradient_accumulation_steps, ", and ", said,
      ". Leave one of them out.");
  resolved.gradient_accumulation_steps = steps;
}

/// `precision_by`: who has said `resolved.mixed_precision`; empty for nobody.
void apply(
    const parallel::DeepSpeedOptions& deepspeed,
    const std::string& precision_by,
    ResolvedOptions& resolved) {
  if (const auto steps = deepspeed.gradient_accumulation_steps) {
    accumulate(
        resolved, *steps,
        std::to_string(*steps) + " in deepspeed_plugin or DeepSpeed's file");
  }
  if (const auto precision = deepspeed.mixed_precision) {
    TORCH_CHECK(
        precision_by.empty() || resolved.mixed_precision == *precision,
        "accel: mixed_precision is ", to_string(resolved.mixed_precision), " (",
        precision_by, ") and ", to_string(*precision), " (",
        deepspeed.sources.at("mixed_precision"), "). Leave one of them out.");
    resolved.mixed_precision = *precision;
  }
  for (const auto precision : deepspeed.not_wanted) {
    TORCH_CHECK(
        resolved.mixed_precision != precision,
        "accel: mixed_precision is ", to_string(precision), " (", precision_by,
        "), and DeepSpeed's file says \"", to_string(precision),
        "\": {\"enabled\": false}. Leave one of them out.");
  }
  resolved.gradient_clipping = deepspeed.gradient_clipping;
  resolved.offload = deepspeed.offload;
  resolved.zero3_init = deepspeed.zero3_init;
}

void apply(
    const parallel::MegatronOptions& megatron,
    ResolvedOptions& resolved) {
  if (const int64_t steps = megatron.gradient_accumulation_steps; steps > 1) {
    accumulate(
        resolved, steps,
        "num_micro_batches of Megatron-LM's settings " + std::to_string(steps));
  }
  resolved.gradient_clipping = megatron.gradient_clipping;
  resolved.activation_checkpointing = megatron.recompute_activations;
  resolved.parallelism = ParallelSizes();
  resolved.parallelism->tp = megatron.tp;
  resolved.fill_mesh = true;
  if (megatron.sequence_parallelism &&
      !parallel::has_sequence_word(resolved.tp_plan)) {
    resolved.tp_plan.emplace_back("", "sequence_parallel"); // the model itself
  }
  if (megatron.distributed_optimizer) {
    resolved.fsdp = ShardingStrategy::kShardGradOp;
  }
}

} // namespace

const char* to_string(MixedPrecision precision) {
  switch (precision) {
    case MixedPrecision::kNo:
      return "no";
    case MixedPrecision::kFP16:
      return "fp16";
    case MixedPrecision::kBF16:
      return "bf16";
    case MixedPrecision::kFP8:
      return "fp8";
  }
  return "unknown";
}

const char* to_string(CommHook hook) {
  switch (hook) {
    case CommHook::kNo:
      return "no";
    case CommHook::kFP16:
      return "fp16";
    case CommHook::kBF16:
      return "bf16";
  }
  return "unknown";
}

bool ResolvedOptions::operator==(const ResolvedOptions& other) const {
  return tie(*this) == tie(other);
}

std::string to_string(const ResolvedOptions& options) {
  std::ostringstream out;
  out << std::boolalpha
      << "match_single_device=" << options.match_single_device
      << ", mixed_precision=" << to_string(options.mixed_precision)
      << ", gradient_accumulation_steps="
      << options.gradient_accumulation_steps
      << ", comm_hook=" << to_string(options.comm_hook)
      << ", bucket_cap_mb=" << options.bucket_cap_mb
      << ", broadcast_buffers=" << options.broadcast_buffers
      << ", fsdp=" << (options.fsdp ? to_string(*options.fsdp) : "no")
      << ", auto_wrap=" << to_string(options.auto_wrap)
      << ", cpu_offload=" << options.cpu_offload << ", forward_prefetch="
      << (!options.forward_prefetch       ? "not given"
              : *options.forward_prefetch ? "true"
                                          : "false")
      << ", backward_prefetch="
      << (options.backward_prefetch ? to_string(*options.backward_prefetch)
                                    : "not given")
      << ", activation_checkpointing=" << options.activation_checkpointing
      << ", reduce_dtype="
      << (options.reduce_dtype ? c10::toString(*options.reduce_dtype) : "no")
      << ", gradient_clipping=" << options.gradient_clipping
      << ", offload=" << parallel::to_text(options.offload)
      << ", zero3_init=" << options.zero3_init
      << ", state_dict_type=" << to_string(options.state_dict_type)
      << ", parallelism="
      << (options.parallelism ? to_string(*options.parallelism) : "no")
      << ", cp_comm_strategy=" << to_string(options.cp_comm_strategy)
      << (options.fill_mesh ? " and the rest for samples" : "")
      << ", tp_plan=" << parallel::to_text(options.tp_plan)
      << ", cpu=" << options.cpu
      << ", device_placement=" << options.device_placement
      << ", split_batches=" << options.split_batches
      << ", even_batches=" << options.even_batches
      << ", dispatch_batches="
      << (options.dispatch_batches
              ? (*options.dispatch_batches ? "true" : "false")
              : "automatic")
      << ", load_whole_batches=" << options.load_whole_batches
      << ", non_blocking=" << options.non_blocking
      << ", step_scheduler_with_optimizer="
      << options.step_scheduler_with_optimizer
      << ", sync_with_dataloader=" << options.sync_with_dataloader
      << ", adjust_scheduler=" << options.adjust_scheduler
      << ", sync_each_batch=" << options.sync_each_batch
      << ", save_on_each_node=" << options.save_on_each_node
      << ", timeout=" << options.timeout.count() << "ms";
  return out.str();
}

ResolvedOptions resolve(const AcceleratorOptions& options) {
  ResolvedOptions resolved;
  resolved.match_single_device =
      detail::get_environment_flag("ACCEL_MATCH_SINGLE_DEVICE")
          .value_or(options.match_single_device());
  std::string precision_by;
  if (options.mixed_precision()) {
    resolved.mixed_precision = *options.mixed_precision();
    precision_by = "argument";
  } else if (
      const auto text =
          detail::get_environment("ACCELERATE_MIXED_PRECISION")) {
    resolved.mixed_precision = parse_mixed_precision(*text);
    precision_by = "environment ACCELERATE_MIXED_PRECISION";
  }
  resolved.gradient_accumulation_steps =
      detail::get_environment_integer(
          "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
          1,
          std::numeric_limits<int32_t>::max())
          .value_or(options.gradient_accumulation_steps());
  resolved.grad_scaler = options.grad_scaler();
  resolved.autocast = options.autocast();
  resolved.comm_hook = options.comm_hook();
  resolved.bucket_cap_mb = options.bucket_cap_mb();
  resolved.broadcast_buffers = options.broadcast_buffers();
  resolved.parallelism =
      parallel::resolve_parallelism(
          options.parallelism_config(), options.torch_tp_plugin());
  resolved.cp_comm_strategy = parallel::resolve_cp_comm_strategy(
      options.parallelism_config(), resolved.parallelism);
  resolved.tp_plan = parallel::resolve_tensor_plan(options.torch_tp_plugin());
  auto strategy = parallel::resolve_sharding(options.fsdp_plugin());
  if (strategy) {
    resolved.auto_wrap = parallel::resolve_auto_wrap(options.fsdp_plugin());
    resolved.cpu_offload = parallel::resolve_cpu_offload(options.fsdp_plugin());
    resolved.forward_prefetch =
        parallel::resolve_forward_prefetch(options.fsdp_plugin());
    resolved.backward_prefetch =
        parallel::resolve_backward_prefetch(options.fsdp_plugin());
    resolved.activation_checkpointing =
        parallel::resolve_activation_checkpointing(options.fsdp_plugin());
    resolved.mixed_precision = parallel::resolve_param_dtype(
        options.fsdp_plugin(), resolved.mixed_precision);
    resolved.reduce_dtype = parallel::resolve_reduce_dtype(options.fsdp_plugin());
    TORCH_CHECK(
        !resolved.reduce_dtype || !resolved.parallelism ||
            (resolved.parallelism->tp == 1 && resolved.parallelism->cp == 1 &&
             resolved.parallelism->sp == 1),
        "accel: mixed_precision_policy gives reduce_dtype, and parallelism_config ",
        to_string(*resolved.parallelism),
        ". Beside tp, cp and sp each gradient is summed by itself, in its own type: leave "
        "reduce_dtype out.");
  }
  const auto deepspeed = parallel::resolve_deepspeed(options.deepspeed_plugin());
  if (deepspeed) {
    TORCH_CHECK(
        !strategy,
        "accel: both FSDP (fsdp_plugin, ACCELERATE_USE_FSDP) and DeepSpeed "
        "(deepspeed_plugin, ACCELERATE_USE_DEEPSPEED) say how parameters are "
        "divided. Leave one of them out.");
    if (deepspeed->strategy != ShardingStrategy::kNoShard) {
      strategy = deepspeed->strategy;
    }
    apply(*deepspeed, precision_by, resolved);
  }
  if (const auto megatron =
          parallel::resolve_megatron(options.megatron_lm_plugin())) {
    TORCH_CHECK(
        !strategy && !deepspeed && !resolved.parallelism,
        "accel: Megatron-LM's settings (megatron_lm_plugin, "
        "ACCELERATE_USE_MEGATRON_LM) say what the processes are used for, and so "
        "do ",
        deepspeed       ? "deepspeed_plugin or ACCELERATE_USE_DEEPSPEED"
            : strategy  ? "fsdp_plugin or ACCELERATE_USE_FSDP"
                        : "parallelism_config, ACCELERATE_USE_PARALLELISM_CONFIG or "
                          "tp_size of torch_tp_plugin",
        ". Leave one of them out.");
    apply(*megatron, resolved);
  } else {
    resolved.fsdp = parallel::strategy_with(resolved.parallelism, strategy);
  }
  resolved.state_dict_type =
      resolved.fsdp || (resolved.parallelism && resolved.parallelism->tp > 1)
      ? parallel::resolve_state_dict_type(options.fsdp_plugin())
      : StateDictType::kFullStateDict;
  resolved.cpu = options.cpu() ||
      detail::get_environment_flag("ACCELERATE_USE_CPU").value_or(false);
  resolved.device_placement = options.device_placement();
  resolved.split_batches =
      detail::get_environment_flag("ACCEL_SPLIT_BATCHES")
          .value_or(
              options.split_batches().value_or(resolved.match_single_device));
  resolved.even_batches = options.even_batches();
  resolved.dispatch_batches = options.dispatch_batches();
  resolved.load_whole_batches = options.load_whole_batches();
  resolved.non_blocking = options.non_blocking();
  resolved.step_scheduler_with_optimizer =
      options.step_scheduler_with_optimizer();
  resolved.sync_with_dataloader = options.sync_with_dataloader();
  resolved.adjust_scheduler = options.adjust_scheduler();
  resolved.sync_each_batch = options.sync_each_batch();
  resolved.save_on_each_node = options.save_on_each_node();
  resolved.timeout = options.timeout();

  TORCH_CHECK(
      resolved.gradient_accumulation_steps >= 1,
      "accel: gradient_accumulation_steps is ",
      resolved.gradient_accumulation_steps,
      ", but at least one micro-batch makes a step.");
  const auto& scaler = resolved.grad_scaler;
  TORCH_CHECK(
      std::isfinite(scaler.init_scale()) && scaler.init_scale() > 0 &&
          scaler.growth_factor() > 1 && scaler.backoff_factor() > 0 &&
          scaler.backoff_factor() < 1 && scaler.growth_interval() > 0,
      "accel: the grad_scaler options are init_scale ",
      scaler.init_scale(),
      ", growth_factor ",
      scaler.growth_factor(),
      ", backoff_factor ",
      scaler.backoff_factor(),
      ", growth_interval ",
      scaler.growth_interval(),
      "; the scale must be positive, grow by a factor above 1 after at least "
      "one step, and shrink by one between 0 and 1.");
  TORCH_CHECK(
      resolved.mixed_precision != MixedPrecision::kFP8,
      "accel: mixed_precision is fp8, which accel does not support. It needs "
      "layers that keep scaling factors for their inputs and weights, from "
      "TransformerEngine, torchao or MS-AMP, which are Python packages, and a "
      "GPU with fp8 matrix products (NVIDIA's compute capability 8.9 or newer); "
      "autocast, which LibTorch has, knows fp16 and bf16 only. Use bf16, fp16 "
      "(on a GPU) or no.");
  TORCH_CHECK(
      resolved.comm_hook == CommHook::kNo || !resolved.match_single_device,
      "accel: comm_hook is ",
      to_string(resolved.comm_hook),
      " and match_single_device is true, but gradients that are rounded on "
      "their way are not those of one device. Leave one of the two out.");
  TORCH_CHECK(
      resolved.state_dict_type == StateDictType::kFullStateDict ||
          !resolved.save_on_each_node,
      "accel: save_on_each_node is true and state_dict_type is "
      "SHARDED_STATE_DICT: each host would have the parts of its own processes "
      "only, of which no model can be put together. Use FULL_STATE_DICT, or a "
      "directory that all hosts see.");
  TORCH_CHECK(
      !resolved.fsdp || resolved.match_single_device,
      "accel: sharded data parallelism is asked for (fsdp_plugin, "
      "ACCELERATE_USE_FSDP, deepspeed_plugin, ACCELERATE_USE_DEEPSPEED, "
      "use_distributed_optimizer, or dp_shard_size of parallelism_config), and "
      "match_single_device is false. Parameters are "
      "divided only where the processes compute what one device computes: use "
      "AcceleratorOptions().match_single_device(true) or accel launch "
      "--match-single-device.");
  TORCH_CHECK(
      !resolved.parallelism || resolved.match_single_device ||
          (resolved.parallelism->cp == 1 && resolved.parallelism->sp == 1),
      "accel: the positions of sequences are to be shared out (cp_size, sp_size), "
      "and match_single_device is false. A process computes some of them only "
      "where the processes compute what one device computes: use "
      "AcceleratorOptions().match_single_device(true) or accel launch "
      "--match-single-device.");
  TORCH_CHECK(
      !resolved.parallelism || resolved.parallelism->tp == 1 ||
          resolved.match_single_device,
      "accel: tensor parallelism is asked for (tp_size, tp_degree), and match_single_device "
      "is false. Layers are computed in parts only where the processes compute "
      "what one device computes: use "
      "AcceleratorOptions().match_single_device(true) or accel launch "
      "--match-single-device.");
  TORCH_CHECK(
      std::isfinite(resolved.bucket_cap_mb) && resolved.bucket_cap_mb > 0 &&
          resolved.bucket_cap_mb <= 1 << 20,
      "accel: bucket_cap_mb is ",
      resolved.bucket_cap_mb,
      "; it must be positive, and at most 2^20.");
  TORCH_CHECK(
      resolved.timeout.count() > 0,
      "accel: timeout is ",
      resolved.timeout.count(),
      " ms, but must be positive.");
  return resolved;
}

} // namespace accel
