#include <accel/checkpoint/state.h>

#include "checkpoint/divided.h"
#include "checkpoint/files.h"
#include "checkpoint/json.h"
#include "checkpoint/load_plan.h"
#include "checkpoint/manifest.h"
#include "checkpoint/model_source.h"
#include "checkpoint/optimizer_files.h"
#include "checkpoint/packed_files.h"
#include "checkpoint/piece_files.h"
#include "checkpoint/state_files.h"
#include "checkpoint/together.h"
#include "checkpoint/unfinished.h"

#include <accel/checkpoint/optimizer_state.h>
#include <accel/checkpoint/random_state.h>
#include <accel/checkpoint/state_dict.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>

namespace fs = std::filesystem;

namespace accel::checkpoint {

namespace {

/// Of files that are whole, and of those with each process's part.
constexpr int64_t kStateFormatVersion = 1;
constexpr int64_t kPiecesFormatVersion = 2;
constexpr const char* kState = "state.json";

/// "model" for the first, then "model_1", …: Accelerate's numbering.
std::string numbered(const std::string& stem, size_t index) {
  return index == 0 ? stem : stem + "_" + std::to_string(index);
}
std::string model_file(size_t index) {
  return numbered("model", index) + ".safetensors";
}
/// "model.process_3.safetensors".
std::string piece_file_name(const std::string& stem, int64_t rank) {
  return stem + ".process_" + std::to_string(rank) + ".safetensors";
}
std::string random_file(int64_t rank) {
  return "random_states_" + std::to_string(rank) + ".safetensors";
}
std::string process_file(int64_t rank) {
  return "process_" + std::to_string(rank) + ".json";
}
bool is_state_file(const std::string& name) {
  static const std::regex pattern(
      "state\\.json|(model|optimizer)(_[0-9]+)?"
      "(\\.process_[0-9]+)?\\.(safetensors|json)|"
      "random_states_[0-9]+\\.safetensors|process_[0-9]+\\.json|"
      "custom_checkpoint_[0-9]+\\.bin");
  return std::regex_match(name, pattern);
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

/// Models and optimizers, whole.
void add_tensors(StateFiles& files, const TrainingState& state) {
  for (size_t i = 0; i < state.models.size(); ++i) {
    files.tensors.push_back(
        {model_file(i), without_shared(state_dict(*state.models[i]))});
  }
  const ParameterNames names = names_of(state.models);
  for (size_t i = 0; i < state.optimizers.size(); ++i) {
    auto saved = optimizer_state(*state.optimizers[i], names);
    const std::string stem = numbered("optimizer", i);
    files.tensors.push_back({stem + ".safetensors", std::move(saved.tensors)});
    files.texts.emplace_back(stem + ".json", std::move(saved.json));
  }
}

/// Models and optimizers, which will be whole. Every process has the list.
void add_divided(
    StateFiles& files, const TrainingState& state, const Processes& processes) {
  for (size_t i = 0; i < state.models.size(); ++i) {
    files.divided.push_back(
        {model_file(i),
         divided_file(
             state_dict(*state.models[i]), state.piece_of, /*shared_once=*/true)});
  }
  const ParameterNames names = names_of(state.models);
  for (size_t i = 0; i < state.optimizers.size(); ++i) {
    auto saved = collect_optimizer_state(*state.optimizers[i], names);
    const std::string stem = numbered("optimizer", i);
    files.divided.push_back(
        {stem + ".safetensors",
         divided_file(saved.tensors, state.piece_of, /*shared_once=*/false)});
    if (processes.writer()) {
      files.texts.emplace_back(stem + ".json", std::move(saved.json));
    }
  }
}

/// What this process holds of models and optimizers. The main process has a file for
/// each of them, the others where they have something to write.
void add_pieces(
    StateFiles& files, const TrainingState& state, const Processes& processes) {
  TORCH_CHECK(
      state.piece_of && !processes.each_node,
      "Parts of tensors are saved where processes hold such, into one directory");
  const auto add = [&](const std::string& stem, const Pieces& pieces) {
    auto file = piece_file(pieces, processes.main());
    if (processes.main() || !file.tensors.is_empty()) {
      files.tensors.push_back(
          {piece_file_name(stem, processes.rank), std::move(file.tensors),
           std::move(file.metadata)});
    }
  };
  for (size_t i = 0; i < state.models.size(); ++i) {
    Pieces pieces(state_dict(*state.models[i]), state.piece_of);
    pieces.values = without_shared(pieces.values);
    add(numbered("model", i), pieces);
  }
  const ParameterNames names = names_of(state.models);
  for (size_t i = 0; i < state.optimizers.size(); ++i) {
    auto saved = collect_optimizer_state(*state.optimizers[i], names);
    const std::string stem = numbered("optimizer", i);
    Pieces pieces(saved.tensors, state.piece_of);
    separate(pieces.values);
    add(stem, pieces);
    if (processes.main()) {
      files.texts.emplace_back(stem + ".json", std::move(saved.json));
    }
  }
}

/// The small files that are the same for all processes; one of them writes them.
void add_common(StateFiles& files, const TrainingState& state) {
  Json extras = Json::array();
  for (size_t i = 0; i < state.extras.size(); ++i) {
    files.texts.emplace_back(extra_file(i), state.extras[i].second);
    extras.push_back(state.extras[i].first);
  }
  Json common{
      {"format_version",
       state.in_pieces ? kPiecesFormatVersion : kStateFormatVersion},
      {"models", state.models.size()},
      {"optimizers", state.optimizers.size()},
      {"extras", extras}};
  if (!state.extra_kinds.empty()) {
    common["extra_kinds"] = state.extra_kinds;
  }
  files.texts.emplace_back(kState, dump_json(common));
}

void add_own(StateFiles& files, const TrainingState& state, int64_t rank) {
  files.tensors.push_back({random_file(rank), random_state()});
  files.texts.emplace_back(
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

/// Where all processes see the same files they read them together for their
/// checksums, each a share; else one of each host reads all.
Manifest verified(
    const std::string& directory, const Processes& processes, Verify verify) {
  if (verify == Verify::kChecksums && !processes.each_node) {
    return verify_share(directory, processes.rank, processes.size);
  }
  return verify_checkpoint(
      directory, processes.writer() ? verify : Verify::kSizes);
}

/// A checkpoint that is being loaded, on one process.
class Loading {
 public:
  /// `manifest`: the directory's, verified.
  Loading(
      const std::string& directory,
      const TrainingState& state,
      const Processes& processes,
      Manifest manifest)
      : directory_(locate_checkpoint(directory)),
        what_("The checkpoint " + in_quotes(directory)),
        manifest_(std::move(manifest)) {
    const Json common = read_json(kState);
    const int64_t version = member_int(common, "format_version", what_);
    TORCH_CHECK(
        version == kStateFormatVersion || version == kPiecesFormatVersion,
        what_,
        " has format version ",
        version,
        "; this library reads versions ",
        kStateFormatVersion,
        " and ",
        kPiecesFormatVersion);
    in_pieces_ = version == kPiecesFormatVersion;
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

  /// Of the files that `save_state` itself has written: what hooks have put
  /// beside them may differ between hosts.
  std::string fingerprint() const {
    std::string text;
    for (const auto& file : manifest_.files) {
      if (is_state_file(file.name)) {
        text += file.name + " " + std::to_string(file.checksum) + "\n";
      }
    }
    return text;
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
        count,
        ". Pass to prepare, before load_state, the same as when it was saved.");
  }

  /// Of files in parts, those of all processes that have one.
  TensorSources sources(const std::string& stem) const {
    if (!in_pieces_) {
      return model_sources(path(stem + ".safetensors"));
    }
    std::vector<std::string> paths{path(piece_file_name(stem, 0))};
    for (int64_t rank = 1; rank < manifest_.world_size; ++rank) {
      const std::string file = piece_file_name(stem, rank);
      if (manifest_.find(file)) {
        paths.push_back(path(file));
      }
    }
    return piece_sources(paths);
  }

  void prepare_models(const TrainingState& state) {
    for (size_t i = 0; i < state.models.size(); ++i) {
      const std::string stem = numbered("model", i);
      models_.emplace_back(
          state_dict(*state.models[i]),
          sources(stem),
          LoadOptions(),
          in_quotes((fs::path(directory_) /
                     (in_pieces_ ? stem : stem + ".safetensors"))
                        .string()),
          state.piece_of);
    }
  }

  void prepare_optimizers(const TrainingState& state) {
    const ParameterNames names = names_of(state.models);
    for (size_t i = 0; i < state.optimizers.size(); ++i) {
      const std::string stem = numbered("optimizer", i);
      // Looked at in the file: it is copied once, to where it belongs.
      changes_.push_back(prepare_optimizer_state(
          *state.optimizers[i], read_text(path(stem + ".json")), sources(stem),
          names, state.piece_of,
          what_ + ": the state in " + in_quotes(stem + ".json") +
              " of optimizer " + std::to_string(i)));
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
    const auto kinds = common.find("extra_kinds");
    if (kinds == common.end()) {
      return; // There are none, or an earlier version has saved.
    }
    TORCH_CHECK(kinds->is_object(), what_, ": 'extra_kinds' is no table");
    for (const auto& [name, kind] : kinds->items()) {
      TORCH_CHECK(
          kind.is_string(), what_, ": the kind of an extra is not a text");
      result_.extra_kinds.emplace(name, kind.get<std::string>());
    }
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
  /// Each process has saved what it held.
  bool in_pieces_ = false;
  std::vector<LoadPlan> models_;
  std::vector<std::function<void()>> changes_;
  LoadedState result_;
};

} // namespace

std::vector<std::string> exchange_own_files(
    const TrainingState& state,
    const Processes& processes) {
  if (!processes.each_node) {
    return {};
  }
  return gather_results(processes, "Exchanging what is each process's own", [&] {
    StateFiles files;
    add_own(files, state, processes.rank);
    return packed(files);
  });
}

StateFiles state_files(
    const TrainingState& state,
    const Processes& processes,
    const std::vector<std::string>& own_files) {
  check_extras(state.extras);
  StateFiles files;
  if (state.in_pieces) {
    add_pieces(files, state, processes);
  } else if (state.put_together) {
    add_divided(files, state, processes);
  } else if (processes.writer()) {
    add_tensors(files, state);
  }
  if (processes.writer()) {
    add_common(files, state);
  }
  if (!processes.each_node) {
    add_own(files, state, processes.rank);
  } else if (processes.writer()) {
    for (const auto& text : own_files) {
      unpack(text, files);
    }
  }
  return files;
}

void write_files(const StateFiles& state, CheckpointFiles& files) {
  for (const auto& [name, tensors, metadata] : state.tensors) {
    files.write_tensors(name, tensors, metadata);
  }
  for (const auto& [name, text] : state.texts) {
    files.write_bytes(name, text);
  }
}

std::string next_numbered(
    const std::string& root,
    int64_t total_limit,
    const Processes& processes) {
  TORCH_CHECK(
      total_limit >= 0,
      "total_limit is ",
      total_limit,
      "; it must be positive, or 0 to keep all checkpoints");
  // The main process says which it is: the others may see the directory
  // later, when the checkpoint is already there.
  const auto answers = gather_results(processes, "Numbering a checkpoint", [&] {
    return !processes.writer() ? ""
        : processes.each_node
        ? std::to_string(next_checkpoint_index(root))
        : checkpoint_path(root, next_checkpoint_index(root));
  });
  if (!processes.each_node) {
    return answers[0];
  }
  int64_t next = 0;
  for (const auto& answer : answers) {
    next = std::max<int64_t>(next, answer.empty() ? 0 : std::stoll(answer));
  }
  return checkpoint_path(root, next);
}

void prune_together(
    const std::string& root,
    int64_t total_limit,
    const Processes& processes,
    const Remove& remove) {
  run_together(processes, "Removing old checkpoints", [&] {
    if (processes.writer() && total_limit > 0) {
      prune_checkpoints(root, total_limit, remove);
    }
  });
}

void save_state(
    const std::string& directory,
    const TrainingState& state,
    const Processes& processes,
    Sync sync,
    const Remove& remove) {
  UnfinishedCheckpoint unfinished(directory, processes, sync, remove);
  const auto own_files = exchange_own_files(state, processes);
  if (state.put_together) {
    // All have to go on or none: what follows is waited for by the others.
    StateFiles collected;
    run_together(processes, unfinished.what(), [&] {
      if (state.before_save) {
        state.before_save(unfinished.directory());
      }
      collected = state_files(state, processes, own_files);
    });
    unfinished.finish(processes, [&](CheckpointFiles& files) {
      write_divided(collected, processes, state.put_together, files);
      write_files(collected, files);
    });
    return;
  }
  unfinished.finish(processes, [&](CheckpointFiles& files) {
    if (state.before_save) {
      state.before_save(files.directory());
    }
    write_files(state_files(state, processes, own_files), files);
  });
}

std::string save_state_numbered(
    const std::string& root,
    int64_t total_limit,
    const TrainingState& state,
    const Processes& processes,
    Sync sync) {
  const std::string directory = next_numbered(root, total_limit, processes);
  save_state(directory, state, processes, sync);
  prune_together(root, total_limit, processes);
  return directory;
}

LoadedState load_state(
    const std::string& directory,
    const TrainingState& state,
    const Processes& processes,
    Verify verify) {
  std::optional<Loading> loading;
  const std::string what = "Loading the checkpoint " + in_quotes(directory);
  // On its own, before anything is compared: what a damaged file says has the wrong
  // remedy, and another process may be the one that checks that file.
  Manifest manifest;
  run_together(
      processes, what, [&] { manifest = verified(directory, processes, verify); });
  run_together(processes, what, [&] {
    loading.emplace(directory, state, processes, std::move(manifest));
  });
  if (processes.each_node) {
    const auto fingerprints =
        gather_results(processes, what, [&] { return loading->fingerprint(); });
    for (size_t rank = 0; rank < fingerprints.size(); ++rank) {
      TORCH_CHECK(
          fingerprints[rank] == fingerprints[0],
          what,
          ": the host of process ",
          rank,
          " has another checkpoint of that name than the host of process 0. "
          "Copy one of them to all hosts, or load an earlier one.");
    }
  }
  LoadedState result;
  run_together(processes, what, [&] { result = loading->apply(); });
  return result;
}

} // namespace accel::checkpoint
