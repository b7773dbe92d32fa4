#include <accel/checkpoint/state.h>

#include "checkpoint/files.h"
#include "checkpoint/json.h"
#include "checkpoint/load_plan.h"
#include "checkpoint/manifest.h"
#include "checkpoint/model_source.h"
#include "checkpoint/together.h"

#include <accel/checkpoint/optimizer_state.h>
#include <accel/checkpoint/random_state.h>
#include <accel/checkpoint/state_dict.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

namespace fs = std::filesystem;

namespace accel::checkpoint {

namespace {

constexpr int64_t kStateFormatVersion = 1;
constexpr const char* kState = "state.json";

/// "model" for the first, then "model_1", …: Accelerate's numbering.
std::string numbered(const std::string& stem, size_t index) {
  return index == 0 ? stem : stem + "_" + std::to_string(index);
}
std::string model_file(size_t index) {
  return numbered("model", index) + ".safetensors";
}
std::string random_file(int64_t rank) {
  return "random_states_" + std::to_string(rank) + ".safetensors";
}
std::string process_file(int64_t rank) {
  return "process_" + std::to_string(rank) + ".json";
}
std::string extra_file(size_t index) {
  return "custom_checkpoint_" + std::to_string(index) + ".bin";
}

/// "model.layer.weight" for every parameter of every model.
ParameterNames names_of(const std::vector<torch::nn::Module*>& models) {
  ParameterNames names;
  for (size_t i = 0; i < models.size(); ++i) {
    for (const auto& item : models[i]->named_parameters()) {
      // Of tied parameters the first name counts.
      names.emplace(
          item.value().unsafeGetTensorImpl(),
          numbered("model", i) + "." + item.key());
    }
  }
  return names;
}

void check_extras(const std::vector<Extra>& extras) {
  std::set<std::string> names;
  for (const auto& [name, bytes] : extras) {
    TORCH_CHECK(
        !name.empty() &&
            name.find_first_not_of(
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                "0123456789_-.") == std::string::npos,
        in_quotes(name),
        " cannot name a part of a checkpoint: letters, digits, '_', '-' and "
        "'.' only");
    TORCH_CHECK(
        names.insert(name).second,
        "Two parts of the checkpoint have the name ",
        in_quotes(name));
  }
}

void write_common(CheckpointFiles& files, const TrainingState& state) {
  for (size_t i = 0; i < state.models.size(); ++i) {
    files.write_tensors(
        model_file(i), without_shared(state_dict(*state.models[i])));
  }
  const ParameterNames names = names_of(state.models);
  for (size_t i = 0; i < state.optimizers.size(); ++i) {
    const auto saved = optimizer_state(*state.optimizers[i], names);
    const std::string stem = numbered("optimizer", i);
    files.write_tensors(stem + ".safetensors", saved.tensors);
    files.write_bytes(stem + ".json", saved.json);
  }
  Json extras = Json::array();
  for (size_t i = 0; i < state.extras.size(); ++i) {
    files.write_bytes(extra_file(i), state.extras[i].second);
    extras.push_back(state.extras[i].first);
  }
  files.write_bytes(
      kState,
      dump_json(
          {{"format_version", kStateFormatVersion},
           {"models", state.models.size()},
           {"optimizers", state.optimizers.size()},
           {"extras", extras}}));
}

void write_own(
    CheckpointFiles& files, const TrainingState& state, int64_t rank) {
  files.write_tensors(random_file(rank), random_state());
  files.write_bytes(
      process_file(rank),
      dump_json(
          {{"step", state.step},
           {"loaders",
            state.loaders.empty()
                ? Json(nullptr)
                : parse_json(state.loaders, "The loaders' state")}}));
}

/// The mixing step of splitmix64.
uint64_t mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

/// A checkpoint that is being loaded, on one process.
class Loading {
 public:
  Loading(
      const std::string& directory,
      const TrainingState& state,
      const Processes& processes,
      Verify verify)
      : directory_(locate_checkpoint(directory)),
        what_("The checkpoint " + in_quotes(directory)),
        // One process reads everything for its checksums; the others see the
        // same files.
        manifest_(verify_checkpoint(
            directory, processes.main() ? verify : Verify::kSizes)) {
    const Json common = read_json(kState);
    const int64_t version = member_int(common, "format_version", what_);
    TORCH_CHECK(
        version == kStateFormatVersion,
        what_,
        " has format version ",
        version,
        "; this library reads version ",
        kStateFormatVersion);
    if (state.before_load) {
      state.before_load(directory_);
    }
    compare_count(common, "models", state.models.size());
    compare_count(common, "optimizers", state.optimizers.size());
    prepare_models(state);
    prepare_optimizers(state);
    read_extras(common);
    read_process(processes.rank);
    prepare_random(processes.rank);
    result_.world_size = manifest_.world_size;
    if (state.check_loaded) {
      state.check_loaded(result_);
    }
  }

  LoadedState apply() {
    for (auto& plan : models_) {
      plan.apply();
    }
    for (auto& change : changes_) {
      change();
    }
    return std::move(result_);
  }

 private:
  std::string path(const std::string& file) const {
    TORCH_CHECK(manifest_.find(file), what_, " has no ", in_quotes(file));
    return (fs::path(directory_) / file).string();
  }

  Json read_json(const std::string& file) const {
    return parse_json(read_text(path(file)), what_ + ": " + in_quotes(file));
  }

  void compare_count(
      const Json& common, const std::string& kind, size_t count) const {
    const int64_t saved = member_int(common, kind, what_, /*lowest=*/0);
    TORCH_CHECK(
        saved == static_cast<int64_t>(count),
        what_,
        " has ",
        saved,
        " ",
        kind,
        ", but the program ",
        count);
  }

  void prepare_models(const TrainingState& state) {
    for (size_t i = 0; i < state.models.size(); ++i) {
      const std::string file = path(model_file(i));
      models_.emplace_back(
          state_dict(*state.models[i]),
          model_sources(file),
          LoadOptions(),
          in_quotes(file));
    }
  }

  void prepare_optimizers(const TrainingState& state) {
    const ParameterNames names = names_of(state.models);
    for (size_t i = 0; i < state.optimizers.size(); ++i) {
      const std::string stem = numbered("optimizer", i);
      const OptimizerState saved{
          read_text(path(stem + ".json")),
          load_safetensors(path(stem + ".safetensors"))};
      changes_.push_back(
          prepare_optimizer_state(*state.optimizers[i], saved, names));
    }
  }

  void read_extras(const Json& common) {
    const Json& names = member(common, "extras", what_);
    TORCH_CHECK(names.is_array(), what_, ": 'extras' is not a list");
    for (size_t i = 0; i < names.size(); ++i) {
      TORCH_CHECK(
          names[i].is_string(), what_, ": the name of an extra is not a text");
      result_.extras.emplace_back(
          names[i].get<std::string>(),
          read_text(path(extra_file(i)), INT64_MAX));
    }
    check_extras(result_.extras);
  }

  void read_process(int64_t rank) {
    const Json own =
        read_json(process_file(rank < manifest_.world_size ? rank : 0));
    result_.step = member_int(own, "step", what_, /*lowest=*/0);
    const Json& loaders = member(own, "loaders", what_);
    result_.loaders = loaders.is_null() ? "" : loaders.dump();
  }

  void prepare_random(int64_t rank) {
    const bool own = rank < manifest_.world_size;
    StateDict state =
        load_safetensors(path(random_file(own ? rank : 0)), /*copy=*/true);
    if (!own) {
      const FileRecord& first = *manifest_.find(random_file(0));
      bool equal = true;
      for (int64_t other = 1; other < manifest_.world_size; ++other) {
        const FileRecord* file = manifest_.find(random_file(other));
        TORCH_CHECK(file, what_, " has no ", in_quotes(random_file(other)));
        equal = equal && file->size == first.size &&
                file->checksum == first.checksum;
      }
      // One process alone says nothing about whether several would be equal;
      // the same numbers on all of them would be the worse guess.
      result_.random = equal && manifest_.world_size > 1
                           ? RandomOrigin::kShared
                           : RandomOrigin::kDerived;
      if (result_.random == RandomOrigin::kDerived) {
        derive(state, static_cast<uint64_t>(rank));
      }
    }
    changes_.push_back(prepare_random_state(state));
  }

  /// Replaces the generators' states by such that come from a seed.
  static void derive(StateDict& state, uint64_t rank) {
    for (auto& item : state) {
      const at::Tensor bytes = item.value().contiguous();
      const uint64_t seed =
          mix(xxh64(bytes.const_data_ptr(), bytes.nbytes()) ^ mix(rank));
      if (item.key() == "torch_cpu") {
        at::Generator generator =
            at::make_generator<at::CPUGeneratorImpl>(seed);
        item.value() = generator.get_state();
      } else {
        // A GPU generator's state is its seed and an offset, 8 bytes each.
        at::Tensor derived = at::zeros_like(bytes);
        TORCH_CHECK(
            derived.numel() == 16, "A GPU generator has an unknown state");
        std::memcpy(derived.mutable_data_ptr(), &seed, sizeof(seed));
        item.value() = derived;
      }
    }
  }

  std::string directory_;
  std::string what_;
  Manifest manifest_;
  std::vector<LoadPlan> models_;
  std::vector<std::function<void()>> changes_;
  LoadedState result_;
};

} // namespace

void save_state(
    const std::string& directory,
    const TrainingState& state,
    const Processes& processes) {
  write_checkpoint(directory, processes, [&](CheckpointFiles& files) {
    check_extras(state.extras);
    if (state.before_save) {
      state.before_save(files.directory());
    }
    if (processes.main()) {
      write_common(files, state);
    }
    write_own(files, state, processes.rank);
  });
}

std::string save_state_numbered(
    const std::string& root,
    int64_t total_limit,
    const TrainingState& state,
    const Processes& processes) {
  TORCH_CHECK(
      total_limit >= 0,
      "total_limit is ",
      total_limit,
      "; it must be positive, or 0 to keep all checkpoints");
  // The main process says which it is: the others may see the directory
  // later, when the checkpoint is already there.
  const std::string directory =
      gather_results(processes, "Numbering a checkpoint", [&] {
        return processes.main()
                   ? checkpoint_path(root, next_checkpoint_index(root))
                   : std::string();
      })[0];
  save_state(directory, state, processes);
  run_together(processes, "Removing old checkpoints", [&] {
    if (processes.main() && total_limit > 0) {
      prune_checkpoints(root, total_limit);
    }
  });
  return directory;
}

LoadedState load_state(
    const std::string& directory,
    const TrainingState& state,
    const Processes& processes,
    Verify verify) {
  std::optional<Loading> loading;
  const std::string what = "Loading the checkpoint " + in_quotes(directory);
  run_together(processes, what, [&] {
    loading.emplace(directory, state, processes, verify);
  });
  LoadedState result;
  run_together(processes, what, [&] { result = loading->apply(); });
  return result;
}

} // namespace accel::checkpoint
