#include "config_questions.h"

#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

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

/// Asks for a setting, and writes the answer down under `key`. `otherwise` is what holds
/// where nothing is said, and `unsaid` the answer that is not written down.
void ask_setting(
    Values& values,
    const std::string& key,
    const std::string& question,
    const std::string& otherwise,
    const Check& check,
    const std::string& unsaid = "") {
  const auto answer = ask(question, otherwise, [&](const std::string& text) {
    return text == unsaid ? std::string() : check(text);
  });
  if (answer != unsaid) {
    values[key] = answer;
  }
}

const char* yes_is_true(bool yes) {
  return yes ? "true" : "false";
}

std::string check_strategy(const std::string& text) {
  return parallel::fsdp_strategy_name(text).empty() ? parallel::no_fsdp_strategy(text)
                                                    : "";
}

/// What is gathered ahead. Answers that say nothing leave it to where weights travel.
void ask_prefetch(Values& values) {
  const auto strategy = values.count("fsdp_reshard_after_forward") != 0
      ? parallel::strategy_of_reshard(values["fsdp_reshard_after_forward"])
      : parallel::fsdp_strategy_name(values["fsdp_sharding_strategy"]);
  if (strategy == "NO_SHARD") {
    return; // nothing is gathered
  }
  ask_setting(
      values, "fsdp_forward_prefetch",
      "Gather the next weights while forward computes? yes, no or auto: between hosts",
      "auto", parallel::fsdp::flag, "auto");
  if (strategy == "FULL_SHARD" || strategy == "HYBRID_SHARD") {
    ask_setting(
        values, "fsdp_backward_prefetch",
        "When are they gathered in backward? BACKWARD_PRE (while the present ones are "
        "used), BACKWARD_POST (while gradients are summed), NO_PREFETCH or auto",
        "auto", parallel::fsdp::prefetch, "auto");
  }
}

/// Sharded data parallelism, under `fsdp_config`.
Values ask_fsdp(bool cpu) {
  Values values;
  ask_setting(
      values, "fsdp_version", "Whose options of FSDP, those of version 1 or 2?", "1",
      one_of({"1", "2"}));
  if (values["fsdp_version"] == "2") {
    values["fsdp_reshard_after_forward"] = yes_is_true(ask_yes_or_no(
        "Drop gathered weights after forward, and gather them again in backward?", true));
  } else {
    ask_setting(
        values, "fsdp_sharding_strategy",
        "What is divided? FULL_SHARD, SHARD_GRAD_OP (weights stay whole until backward is "
        "done), HYBRID_SHARD (within hosts), HYBRID_SHARD_ZERO2 or NO_SHARD",
        "FULL_SHARD", check_strategy);
  }
  values["fsdp_offload_params"] = yes_is_true(ask_yes_or_no(
      std::string("Parameters, gradients and states in the host's memory? ") +
          (cpu ? "(where they are on CPUs anyway)"
               : "(while the GPU does not compute with them: less of its memory, more "
                 "time)"),
      false));
  ask_setting(
      values, "fsdp_auto_wrap_policy",
      "Which modules are gathered together? children of the model, "
      "TRANSFORMER_BASED_WRAP (of some classes), SIZE_BASED_WRAP or NO_WRAP (all)",
      "children", parallel::fsdp::policy, "children");
  const auto policy = parallel::auto_wrap_policy_name(values["fsdp_auto_wrap_policy"]);
  if (policy.empty()) {
    values.erase("fsdp_auto_wrap_policy");
  } else if (policy == "TRANSFORMER_BASED_WRAP") {
    ask_setting(
        values, "fsdp_transformer_layer_cls_to_wrap",
        "Of which classes, as Block,Embeddings? layers: LibTorch's transformer layers",
        "layers", parallel::fsdp::names, "layers");
  } else if (policy == "SIZE_BASED_WRAP") {
    ask_setting(
        values, "fsdp_min_num_params", "From how many parameters?", "100000000",
        parallel::fsdp::count);
  }
  ask_setting(
      values, "fsdp_state_dict_type",
      "What are checkpoints? FULL_STATE_DICT (whole files) or SHARDED_STATE_DICT (a file "
      "of each process)",
      values["fsdp_version"] == "2" ? "SHARDED_STATE_DICT" : "FULL_STATE_DICT",
      [](const std::string& text) {
        return parallel::state_dict_type_name(text).empty()
            ? parallel::no_state_dict_type(text)
            : std::string();
      });
  ask_prefetch(values);
  values["fsdp_activation_checkpointing"] = yes_is_true(ask_yes_or_no(
      "Compute activations again in backward? (less memory, about a third more time)",
      false));
  return values;
}

/// Under `deepspeed_config`.
Values ask_deepspeed(bool cpu) {
  Values values;
  ask_setting(
      values, "deepspeed_config_file",
      "Path of DeepSpeed's own file (JSON), or none to be asked?", "none",
      parallel::deepspeed::path, "none");
  if (!values.empty()) {
    return values;
  }
  ask_setting(
      values, "zero_stage",
      "ZeRO stage? 0: nothing is divided, 1 and 2: weights stay whole until backward is "
      "done, 3: all is divided",
      "2", parallel::deepspeed::stage);
  const bool all = values["zero_stage"] == "3";
  ask_setting(
      values, "gradient_accumulation_steps",
      "How many batches make an optimizer step? program: as the program says", "program",
      whole_number(1, 1 << 20), "program");
  ask_setting(
      values, "gradient_clipping",
      "To which norm are gradients scaled down before each step? 0: not at all", "0",
      parallel::deepspeed::bound);
  for (const std::string what : {"optimizer", "param"}) {
    const auto device = "offload_" + what + "_device";
    if (what == "param" && !all) {
      continue;
    }
    ask_setting(
        values, device,
        std::string("Where do ") +
            (what == "param" ? "the parts of parameters" : "optimizer states") +
            (cpu ? " lie? none: in memory, nvme: in a file"
                 : " lie? none: in the GPU's memory, cpu: in the host's, nvme: in a file"),
        "none",
        cpu ? one_of({"none", "nvme"}) : one_of({"none", "cpu", "nvme"}));
    if (values[device] == "nvme") {
      ask_setting(
          values, "offload_" + what + "_nvme_path", "In which folder?", "/tmp",
          parallel::deepspeed::path);
    }
  }
  if (all) {
    values["zero3_init_flag"] = yes_is_true(ask_yes_or_no(
        "Build models in parts? (for one that no process could hold whole)", false));
  }
  return values;
}

/// What divides the number of processes.
Check divisor_of(int processes) {
  return [processes](const std::string& text) {
    const auto why = check_mesh_size(text);
    return !why.empty() || processes % std::atoi(text.c_str()) == 0
        ? why
        : text + " does not divide " + std::to_string(processes) + " processes";
  };
}

/// Under `megatron_lm_config`.
Values ask_megatron(int processes) {
  Values values;
  ask_setting(
      values, "megatron_lm_tp_degree", "How many processes compute parts of each layer?",
      "1", divisor_of(processes));
  if (values["megatron_lm_tp_degree"] != "1") {
    values["megatron_lm_sequence_parallelism"] = yes_is_true(ask_yes_or_no(
        "Do they share out the positions between the layers, too (norms, dropout)?",
        false));
  }
  ask_setting(
      values, "megatron_lm_num_micro_batches", "How many batches make an optimizer step?",
      "1", parallel::megatron::count);
  ask_setting(
      values, "megatron_lm_gradient_clipping",
      "To which norm are gradients scaled down before each step? 0: not at all", "0",
      parallel::megatron::bound);
  values["megatron_lm_recompute_activations"] = yes_is_true(ask_yes_or_no(
      "Compute activations again in backward? (less memory, about a third more time)",
      false));
  values["megatron_lm_use_distributed_optimizer"] = yes_is_true(ask_yes_or_no(
      "Divide weights, gradients and optimizer states between the groups?", true));
  return values;
}

/// Under `parallelism_config`: sizes that make the number of processes.
Values ask_mesh(int processes) {
  const std::vector<std::pair<std::string, std::string>> questions{
      {"dp_shard",
       "Between how many processes are parameters, gradients and optimizer states "
       "divided?"},
      {"tp", "How many processes compute parts of each layer (tensor parallelism)?"},
      {"cp",
       "How many processes share the positions of each sequence, whose keys and values "
       "come to all in attention (context parallelism)?"},
      {"sp",
       "How many processes share the positions of each sequence, with some of the heads "
       "in attention (sequence parallelism)?"}};
  Values values;
  int left = processes;
  for (const auto& [name, question] : questions) {
    const bool both = name == "sp" && values.count("parallelism_config_cp_size") != 0;
    if (left == 1 || both) {
      continue;
    }
    const auto key = "parallelism_config_" + name + "_size";
    ask_setting(values, key, question, "1", divisor_of(left), "1");
    if (const auto size = values.find(key); size != values.end()) {
      left /= std::atoi(size->second.c_str());
      if (name == "cp") {
        ask_setting(
            values, "parallelism_config_cp_comm_strategy",
            "How do keys and values come to all? allgather: they are gathered; alltoall: "
            "passed on from process to process, which needs less memory",
            "allgather", parallel::context_parallel::strategy);
      }
    }
  }
  // The rest shares out the samples.
  values["parallelism_config_dp_replicate_size"] = std::to_string(left);
  return values;
}

/// What the processes are used for beside samples.
void ask_parallelism(Answers& answers, int processes, bool cpu) {
  const std::string use = ask(
      "What are the processes used for? samples: each has the whole model; fsdp: it is "
      "divided; deepspeed, megatron: the same in their words; mesh: sizes of groups that "
      "divide it, layers (tp) and sequences (cp, sp)",
      "samples", one_of({"samples", "fsdp", "deepspeed", "megatron", "mesh"}));
  auto& type = answers.values["distributed_type"];
  if (use == "fsdp") {
    type = "FSDP";
    answers.lists["fsdp_config"] = ask_fsdp(cpu);
  } else if (use == "deepspeed") {
    type = "DEEPSPEED";
    answers.lists["deepspeed_config"] = ask_deepspeed(cpu);
  } else if (use == "megatron") {
    type = "MEGATRON_LM";
    answers.lists["megatron_lm_config"] = ask_megatron(processes);
  } else if (use == "mesh") {
    answers.lists["parallelism_config"] = ask_mesh(processes);
    if (answers.lists["parallelism_config"].count("parallelism_config_tp_size") != 0) {
      ask_setting(
          answers.values, "tp_plan",
          "Which modules are cut, as blocks.*.up=colwise,blocks.*.down=rowwise? auto: as "
          "the model's order says",
          "auto", anything(), "auto");
    }
  }
}

} // namespace

Answers ask_everything() {
  Answers answers;
  Values& values = answers.values;
  values["compute_environment"] = "LOCAL_MACHINE";
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
  const int processes = std::atoi(values["num_processes"].c_str());
  // Only a training that is that of one device can be divided otherwise.
  if (processes > 1 && sharing != "whole") {
    ask_parallelism(answers, processes, cpu);
  }
  return answers;
}

} // namespace accel::launcher
