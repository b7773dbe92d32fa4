#include <accel/accelerator.h>

#include <accel/checkpoint/model_files.h>
#include <accel/checkpoint/optimizer_state.h>
#include <accel/checkpoint/processes.h>
#include <accel/checkpoint/state.h>
#include <accel/data/generators.h>
#include <accel/distributed/tensor.h>
#include <accel/gradient_state.h>
#include <accel/utils/memory.h>

#include "checkpoint/divided.h"
#include "checkpoint/loader_cursors.h"
#include "checkpoint/optimizer_family.h"
#include "checkpoint/together.h"
#include "core/accelerator_own.h"
#include "core/checkpoint_differences.h"
#include "core/checkpoint_parts.h"
#include "core/environment.h"
#include "core/registry.h"
#include "core/runtime.h"
#include "gradients/window.h"

#include <algorithm>
#include <filesystem>

namespace accel {
namespace {

using checkpoint::Extra;

/// What `accel launch --resume` was given.
bool resume_wanted() {
  const auto value = detail::get_environment("ACCEL_RESUME").value_or("never");
  TORCH_CHECK(
      value == "auto" || value == "never",
      "accel: the environment variable ACCEL_RESUME is '",
      value,
      "'; it must be auto or never.");
  return value == "auto";
}

/// All processes, and who of them writes.
checkpoint::Processes checkpoint_processes(const AcceleratorState& state) {
  auto processes = checkpoint::all_processes();
  processes.local_rank = state.local_process_index();
  processes.each_node = state.options().save_on_each_node;
  return processes;
}

/// What this process holds of divided tensors.
checkpoint::PieceOf piece_of(parallel::ShardedParameters* sharded) {
  return [sharded](const at::Tensor& tensor) { return sharded->piece(tensor); };
}

/// Its whole, for files that are written one tensor after another.
checkpoint::PutTogether put_together(parallel::ShardedParameters* sharded) {
  return [sharded](const at::Tensor& tensor) {
    const at::NoGradGuard no_grad;
    return sharded->is_piece(tensor) ? distributed::full_tensor(tensor.detach())
                                     : tensor;
  };
}

/// Whether all are of LibTorch's classes, whose state is known tensor by tensor.
bool all_known(const std::vector<torch::optim::Optimizer*>& optimizers) {
  return std::all_of(optimizers.begin(), optimizers.end(), [](const auto* one) {
    return checkpoint::family_of(*one) != nullptr;
  });
}

std::vector<const torch::nn::Module*> all_of(
    const std::vector<torch::nn::Module*>& models) {
  return {models.begin(), models.end()};
}

std::string automatic_root(const std::string& project_dir) {
  return (std::filesystem::path(project_dir) / "checkpoints").string();
}

} // namespace

void Accelerator::add_for_checkpointing(checkpoint::CustomObject object) {
  runtime_->registry().add(std::move(object));
}

CheckpointHookHandle Accelerator::register_save_state_pre_hook(
    CheckpointHook hook) {
  auto& registry = runtime_->registry();
  const int64_t id = registry.add_save_hook(std::move(hook));
  return CheckpointHookHandle(
      [runtime = std::weak_ptr<detail::Runtime>(runtime_.shared()), id] {
        if (const auto alive = runtime.lock()) {
          alive->registry().remove_hook(id);
        }
      });
}

CheckpointHookHandle Accelerator::register_load_state_pre_hook(
    CheckpointHook hook) {
  auto& registry = runtime_->registry();
  const int64_t id = registry.add_load_hook(std::move(hook));
  return CheckpointHookHandle(
      [runtime = std::weak_ptr<detail::Runtime>(runtime_.shared()), id] {
        if (const auto alive = runtime.lock()) {
          alive->registry().remove_hook(id);
        }
      });
}

bool Accelerator::resume(const std::string& directory) {
  wait_for_checkpoint();
  const auto processes = checkpoint_processes(state());
  const auto wishes = checkpoint::gather_results(processes, "resume", [&] {
    TORCH_CHECK(
        own_->automatic_naming || !directory.empty(),
        "accel: resume needs a directory, or "
        "AcceleratorOptions().automatic_checkpoint_naming(true).");
    // What process 0 sees counts, or with a checkpoint on each host what the
    // first process of each one sees.
    const bool wanted = resume_wanted();
    return std::string(
        !processes.writer() ? "-"
            : !wanted       ? "no"
            : directory.empty() || checkpoint::checkpoint_exists(directory)
            ? "yes"
            : "none");
  });
  for (size_t rank = 0; rank < wishes.size(); ++rank) {
    TORCH_CHECK(
        wishes[rank] == "-" || wishes[rank] == wishes[0],
        "accel: resume: there is a checkpoint '",
        directory,
        "' on the host of process ",
        wishes[0] == "yes" ? 0 : rank,
        ", but not on that of process ",
        wishes[0] == "yes" ? rank : 0,
        ". Copy it there, or remove it.");
  }
  std::string path = wishes[0] == "yes" ? directory : "";
  LoadStateOptions options;
  if (wishes[0] == "yes" && directory.empty()) {
    const auto root = automatic_root(own_->project_dir);
    const auto newest = checkpoint::newest_checkpoint_of_all(root, processes);
    const auto intact = checkpoint::newest_checkpoint_of_all(
        root, processes, checkpoint::Verify::kChecksums);
    if (newest != intact && processes.main()) {
      TORCH_WARN(
          "accel: the checkpoint '",
          *newest,
          "' is damaged; going on ",
          intact ? "at '" + *intact + "'" : "from the beginning");
    }
    path = intact.value_or("");
    options.verify_checksums(false); // They have just been.
  }
  if (!path.empty()) {
    load_state(path, options);
  }
  runtime_->resumed = true;
  return !path.empty();
}

std::string Accelerator::save_state(
    const std::string& directory,
    const SaveStateOptions& options) {
  wait_for_checkpoint();
  const auto processes = checkpoint_processes(this->state());
  checkpoint::TrainingState state;
  const auto checksums = checkpoint::gather_results(processes, "save_state", [&] {
    TORCH_CHECK(
        own_->automatic_naming == directory.empty(),
        directory.empty()
            ? "accel: save_state needs a directory, or "
              "AcceleratorOptions().automatic_checkpoint_naming(true)."
            : "accel: with automatic_checkpoint_naming(true) save_state names "
              "the directory itself; it was given '" +
                directory + "'.");
    TORCH_CHECK(
        runtime_->resumed || !resume_wanted(),
        "accel: save_state was called before accelerator.resume(), but the "
        "program was started with `accel launch --resume auto`: a run that has "
        "begun anew would follow on the checkpoints of the one that it should "
        "go on with. Call accelerator.resume() when everything is prepared, "
        "or launch without --resume.");
    const auto& gradients = GradientState::get();
    TORCH_CHECK(
        !runtime_->accumulating(),
        "accel: save_state was called in the middle of an accumulation window, "
        "after micro-step ",
        gradients.step,
        " (gradient_accumulation_steps is ",
        gradients.num_steps,
        "): what has been accumulated is no part of a checkpoint. Save where "
        "accelerator.sync_gradients() is true, after the optimizer's step.");
    TORCH_CHECK(
        !runtime_->holds_unused_gradients(),
        "accel: save_state was called behind a backward with whose gradients no "
        "optimizer has stepped yet: gradients are no part of a checkpoint, and a "
        "resumed run goes on with the next batch, so that it would leave this "
        "update out. Save behind optimizer.step(), or behind optimizer.zero_grad() "
        "where the update is meant to be left out.");
    // A program that has saved at the right place leaves out this batch.
    if (runtime_->has_not_learnt() && checkpoint::in_loop_body()) {
      TORCH_CHECK(
          runtime_->saved_behind_step,
          "accel: save_state was called inside of a loop over a data loader before "
          "anything was learnt from the batch: a resumed run goes on with the next "
          "batch, so that it would leave this one out. Save behind "
          "optimizer.step().");
    }
    runtime_->saved_behind_step =
        runtime_->saved_behind_step || runtime_->in_micro_step();
    auto& registry = runtime_->registry();
    state.models = registry.models();
    state.optimizers = registry.optimizers();
    registry.check_schedulers();
    detail::CommonChecksums common;
    if (processes.writer() || processes.size > 1) {
      for (const auto& part : detail::parts_of(*runtime_)) {
        auto bytes = part.save();
        common.add(part.name, bytes);
        if (processes.writer()) {
          state.extras.emplace_back(part.name, std::move(bytes));
          if (!part.kind.empty()) {
            state.extra_kinds.emplace(part.name, part.kind);
          }
        }
      }
    }
    if (runtime_->trains_locally() && runtime_->sharded() == nullptr) {
      common.add_training(state.models, state.optimizers);
    } else if (
        use_distributed() && !this->state().match_single_device() &&
        !this->state().options().broadcast_buffers) {
      common.add_buffers(state.models);
    }
    state.loaders = checkpoint::save_loaders();
    state.step = gradients.step;
    state.before_save = [&](const std::string& temporary) {
      registry.run_save_hooks(state.models, temporary);
    };
    return common.text();
  });
  detail::check_common(checksums, runtime_->trains_locally(), processes.main());
  auto* sharded = runtime_->sharded();
  const bool hooks = runtime_->registry().has_save_hooks();
  parallel::ShardedParameters::Whole whole;
  const bool in_pieces = this->state().options().state_dict_type ==
      StateDictType::kShardedStateDict;
  if (sharded != nullptr &&
      (in_pieces ||
       (!hooks && !options.asynchronous() && all_known(state.optimizers)))) {
    state.in_pieces = in_pieces;
    state.piece_of = piece_of(sharded);
    if (!in_pieces) {
      state.put_together = put_together(sharded);
    }
    if (hooks) {
      // They get whole models, and that only for as long as they run.
      state.before_save = [&](const std::string& temporary) {
        const auto for_hooks =
            runtime_->whole(all_of(state.models), {}, /*here=*/true);
        runtime_->registry().run_save_hooks(state.models, temporary);
      };
    }
    whole = runtime_->whole(
        all_of(state.models), state.optimizers, /*here=*/true,
        [sharded](const at::Tensor& tensor) { return sharded->is_piece(tensor); });
  } else {
    // Files are whole. Hooks see on all processes what the writing one sees.
    whole = runtime_->whole(
        all_of(state.models), state.optimizers, processes.writer() || hooks);
  }
  const bool automatic = own_->automatic_naming;
  const auto limit = own_->total_limit;
  const auto root = automatic ? automatic_root(own_->project_dir) : "";
  const auto target =
      automatic ? checkpoint::next_numbered(root, limit, processes) : directory;
  const auto prune = [=](const checkpoint::Processes& everybody,
                         const checkpoint::Remove& remove) {
    if (automatic) {
      checkpoint::prune_together(root, limit, everybody, remove);
    }
  };
  const auto sync = options.sync() ? checkpoint::Sync::kOnDisk
                                   : checkpoint::Sync::kLater;
  if (!options.asynchronous()) {
    const auto remove = [this](const std::string& old) {
      runtime_->removals.remove(old);
    };
    checkpoint::save_state(target, state, processes, sync, remove);
    prune(processes, remove);
    return target;
  }
  const auto name = "save " + std::to_string(runtime_->background_saves++);
  runtime_->background_save = std::make_unique<checkpoint::BackgroundSave>(
      target,
      state,
      processes,
      sync,
      // It ends before the runtime does.
      [runtime = runtime_.get(), name](
          const std::string& text, const std::atomic<bool>& cancelled) {
        return runtime->exchange_beside(name, text, cancelled);
      },
      [prune](const checkpoint::Processes& everybody) {
        prune(everybody, checkpoint::remove_now);
      });
  return target;
}

void Accelerator::wait_for_checkpoint() {
  runtime_->finish_background_save();
  runtime_->removals.wait();
}

void Accelerator::load_state(
    const std::string& directory,
    const LoadStateOptions& options) {
  runtime_->finish_background_save();
  const auto processes = checkpoint_processes(this->state());
  const auto wished = checkpoint::gather_results(processes, "load_state", [&] {
    TORCH_CHECK(
        own_->automatic_naming || !directory.empty(),
        "accel: load_state needs a directory, or "
        "AcceleratorOptions().automatic_checkpoint_naming(true).");
    return directory;
  });
  // Where all see the same files, what process 0 says counts.
  std::string path = processes.each_node ? directory : wished[0];
  if (path.empty()) {
    const auto root = automatic_root(own_->project_dir);
    const auto newest = checkpoint::newest_checkpoint_of_all(root, processes);
    TORCH_CHECK(
        newest.has_value(),
        "accel: load_state found no complete checkpoint in '",
        root,
        "'.");
    path = *newest;
  }

  checkpoint::TrainingState state;
  std::vector<detail::CheckpointPart> parts;
  checkpoint::run_together(processes, "load_state", [&] {
    state.models = runtime_->registry().models();
    state.optimizers = runtime_->registry().optimizers();
    parts = detail::parts_of(*runtime_);
  });
  auto* sharded = runtime_->sharded();
  parallel::ShardedParameters::Whole whole;
  if (sharded != nullptr && !runtime_->registry().has_load_hooks()) {
    // Each process reads what it holds; what cannot be written in parts is whole
    // until it has been loaded. States are made anew.
    state.piece_of = piece_of(sharded);
    whole = runtime_->whole(
        all_of(state.models), {}, /*here=*/true,
        [sharded](const at::Tensor& tensor) {
          return sharded->can_be_written(tensor);
        });
  } else {
    whole =
        runtime_->whole(all_of(state.models), state.optimizers, /*here=*/true);
  }
  std::function<checkpoint::LateLoaders()> move_loaders;
  checkpoint::LateLoaders late_loaders;
  std::vector<Extra> extras;
  state.before_load = [&](const std::string& real) {
    runtime_->registry().run_load_hooks(state.models, real);
  };
  state.check_loaded = [&](const checkpoint::LoadedState& loaded) {
    extras = detail::with_places(loaded.extras);
    detail::check_same_parts(parts, extras);
    detail::check_same_kinds(parts, loaded.extra_kinds);
    detail::try_parts(parts, extras);
    move_loaders = checkpoint::prepare_loaders(loaded.loaders);
  };
  const auto loaded = checkpoint::load_state(
      path,
      state,
      processes,
      options.verify_checksums() ? checkpoint::Verify::kChecksums
                                 : checkpoint::Verify::kSizes);
  whole.divide();
  if (sharded != nullptr) {
    sharded->settle(); // What was gathered of the old values is dropped.
  }
  checkpoint::run_together(processes, "load_state", [&] {
    late_loaders = move_loaders();
    for (const auto& part : parts) {
      part.load(detail::bytes_of(extras, part.name));
    }
    runtime_->restart_window(loaded.step);
    runtime_->resumed = true;
  });
  if (use_distributed() && this->state().match_single_device()) {
    // A run that was saved by fewer processes has no generators for the rest.
    detail::adopt_main_process_generators(runtime_->communicator(), device());
  }
  detail::expect_loaders(std::move(late_loaders), detail::generator_state());
}

void Accelerator::save_module(
    const torch::nn::Module& model,
    const std::string& directory,
    const std::string& max_shard_size) {
  const auto processes = checkpoint_processes(state());
  if (auto* sharded = runtime_->sharded()) {
    const auto whole = runtime_->whole(
        {&model}, {}, /*here=*/true,
        [sharded](const at::Tensor& tensor) { return sharded->is_piece(tensor); });
    checkpoint::save_divided_model(
        model, directory, max_shard_size, processes, piece_of(sharded),
        put_together(sharded));
    return;
  }
  checkpoint::run_together(processes, "save_model", [&] {
    if (processes.writer()) {
      checkpoint::save_model(model, directory, max_shard_size);
    }
  });
}

checkpoint::StateDict Accelerator::whole_state_dict(
    const torch::nn::Module& model) const {
  checkpoint::StateDict whole;
  for (const auto& item : checkpoint::state_dict(model)) {
    whole.insert(item.key(), distributed::full_tensor(item.value()));
  }
  return whole;
}

void Accelerator::clear() {
  runtime_->registry().clear();
  detail::number_loaders_anew();
  runtime_->restart_window(0);
  clear_device_cache();
}

void Accelerator::free_memory() {
  clear();
}

} // namespace accel
