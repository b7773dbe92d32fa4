// Examples for the reference of checkpoints.

#include <accel/accel.h>
#include <accel/checkpoint/directory.h>
#include <accel/checkpoint/model_files.h>
#include <accel/checkpoint/optimizer_state.h>
#include <accel/checkpoint/processes.h>
#include <accel/checkpoint/random_state.h>
#include <accel/checkpoint/safetensors.h>
#include <accel/checkpoint/state.h>
#include <accel/optim/schedulers.h>
#include <torch/torch.h>

#include <iostream>

namespace checkpoint = accel::checkpoint;

// @example accel::checkpoint::SafetensorsFile accel::checkpoint::TensorInfo accel::checkpoint accel::checkpoint::StateDict
void safetensors(torch::nn::Linear model) {
  checkpoint::StateDict state = checkpoint::without_shared(checkpoint::state_dict(*model));
  checkpoint::save_safetensors(state, "model.safetensors");
  checkpoint::SafetensorsFile file("model.safetensors");
  for (const checkpoint::TensorInfo& tensor : file.tensors()) {
    std::cout << tensor.name << ' ' << tensor.dtype << ' ' << tensor.shape.size() << ' '
              << tensor.offset << ' ' << tensor.size << '\n';
  }
  if (file.find("weight")) {
    torch::Tensor mapped = file.map("weight"), copy = file.read("weight");
    file.read_into("weight", copy);
  }
  std::cout << file.path() << ' ' << file.metadata().at("format") << '\n';
  checkpoint::load_state_dict(*model, checkpoint::load_safetensors("model.safetensors"));
}

// @example accel::checkpoint accel::checkpoint::Shard accel::checkpoint::LoadOptions accel::checkpoint::IncompatibleKeys
void model_files(torch::nn::Linear model) {
  checkpoint::save_model(*model, "model", "500MB");
  checkpoint::IncompatibleKeys keys = checkpoint::load_model(
      *model, "model", checkpoint::LoadOptions().strict(false).convert_dtype(true));
  std::cout << keys.missing.size() << " missing, " << keys.unexpected.size() << " unexpected\n";
  checkpoint::load_checkpoint_in_model(*model, "model/model.safetensors");
  for (const checkpoint::Shard& shard :
       checkpoint::plan_shards(checkpoint::state_dict(*model), checkpoint::parse_size("1.5 MB"))) {
    std::cout << shard.file << ": " << shard.names.size() << " tensors, " << shard.size << " bytes\n";
  }
}

// @example accel::checkpoint accel::checkpoint::OptimizerState accel::checkpoint::ParameterNames
void optimizers(torch::nn::Linear model, torch::optim::Adam& optimizer, torch::optim::StepLR& scheduler) {
  checkpoint::ParameterNames names;
  for (const auto& parameter : model->named_parameters()) {
    names[parameter.value().unsafeGetTensorImpl()] = parameter.key();
  }
  checkpoint::OptimizerState state = checkpoint::optimizer_state(optimizer, names);
  checkpoint::save_safetensors(state.tensors, "optimizer.safetensors", {{"state", state.json}});
  auto change = checkpoint::prepare_optimizer_state(optimizer, state, names);
  change();
  checkpoint::load_optimizer_state(optimizer, checkpoint::read_python_optimizer("optimizer.bin", optimizer));
  checkpoint::load_scheduler_state(scheduler, checkpoint::scheduler_state(scheduler));
}

// @example accel::checkpoint
void generators() {
  checkpoint::StateDict state = checkpoint::random_state();
  torch::rand({3});
  checkpoint::load_random_state(state);
  auto change = checkpoint::prepare_random_state(state);
  change();
}

// @example accel::checkpoint accel::checkpoint::TrainingState accel::checkpoint::LoadedState accel::checkpoint::Extra accel::checkpoint::CustomObject accel::checkpoint::PieceOf accel::checkpoint::PutTogether accel::checkpoint::TensorPiece
void whole_run(torch::nn::Linear model, torch::optim::SGD& optimizer, int64_t& epoch) {
  checkpoint::CustomObject counter = checkpoint::custom_object(epoch);
  checkpoint::TrainingState state;
  state.models = {model.get()};
  state.optimizers = {&optimizer};
  state.extras = {checkpoint::Extra("epoch", counter.save())};
  state.extra_kinds = {{"epoch", counter.kind}}; // "a whole number"
  state.loaders = "";
  state.step = 0;
  // Of a tensor of 8 rows this process has four, from the fifth on.
  checkpoint::PieceOf rows = [half = torch::zeros({4, 2})](const torch::Tensor& tensor) {
    checkpoint::TensorPiece piece;
    piece.offset = {4, 0};
    piece.blocks = {1, 1};
    piece.values = half;
    piece.writes = true;
    piece.like = [](torch::Tensor values) { return values; };
    return tensor.dim() == 2 && tensor.size(0) == 8 ? std::optional(piece) : std::nullopt;
  };
  state.piece_of = rows;
  state.in_pieces = true;
  if (!state.in_pieces) { // whole files instead
    checkpoint::PutTogether whole = [](const torch::Tensor& tensor) {
      return accel::distributed::full_tensor(tensor);
    };
    state.put_together = whole;
  }
  state.before_save = [](const std::string& directory) { std::cerr << directory << '\n'; };
  state.before_load = state.before_save;
  state.check_loaded = [](const checkpoint::LoadedState& loaded) {
    TORCH_CHECK(loaded.world_size == 1, "saved by other processes");
    TORCH_CHECK(loaded.extra_kinds.at("epoch") == "a whole number", "another epoch");
  };
  checkpoint::save_state("last", state, checkpoint::all_processes());
  std::string numbered = checkpoint::save_state_numbered("checkpoints", /*total_limit=*/3, state);
  checkpoint::LoadedState loaded = checkpoint::load_state(numbered, state);
  counter.load(loaded.extras.at(0).second);
  if (loaded.random == checkpoint::RandomOrigin::kDerived) {
    std::cerr << "new random numbers from step " << loaded.step << loaded.loaders << '\n';
  }
}

// @example accel::checkpoint accel::checkpoint::CheckpointFiles accel::checkpoint::Manifest accel::checkpoint::FileRecord accel::checkpoint::Processes accel::checkpoint::Remove
void directories(const checkpoint::StateDict& tensors) {
  checkpoint::Processes processes = checkpoint::all_processes();
  checkpoint::Remove remove = checkpoint::remove_now;
  checkpoint::write_checkpoint(
      "own", processes,
      [&](checkpoint::CheckpointFiles& files) {
        if (processes.main()) {
          files.write_tensors("weights.safetensors", tensors);
          files.write_bytes("note.txt", "written to " + files.directory());
          TORCH_CHECK(files.written().size() == 2);
        }
      },
      checkpoint::Sync::kOnDisk, remove);
  checkpoint::Manifest manifest = checkpoint::verify_checkpoint("own", checkpoint::Verify::kChecksums);
  for (const checkpoint::FileRecord& file : manifest.files) {
    std::cout << file.name << ' ' << file.size << ' ' << file.checksum << ' ' << file.blocks.size() << '\n';
  }
  TORCH_CHECK(manifest.find("note.txt") && manifest.world_size == processes.size);
}

void together(const checkpoint::Processes& processes) {
  checkpoint::run_together(processes, "looking for space", [&] {
    TORCH_CHECK(processes.writer() || processes.rank > 0 || processes.local_rank > 0);
  });
  auto names = processes.exchange("process " + std::to_string(processes.rank));
  TORCH_CHECK(processes.each_node || names.size() == size_t(processes.size));
}

// @example accel::checkpoint
void numbered(const std::string& root) {
  if (auto newest = checkpoint::newest_checkpoint(root)) {
    std::cout << *newest << (checkpoint::checkpoint_exists(*newest) ? " is there\n" : "\n");
  }
  auto everywhere = checkpoint::newest_checkpoint_of_all(root, checkpoint::all_processes());
  auto next = checkpoint::checkpoint_path(root, checkpoint::next_checkpoint_index(root));
  auto removed = checkpoint::prune_checkpoints(root, /*total_limit=*/3);
}
