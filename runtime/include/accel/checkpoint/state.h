#pragma once

#include <accel/checkpoint/directory.h>
#include <accel/checkpoint/pieces.h>
#include <accel/export.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

/// A whole training run in one directory; `Accelerator::save_state` and
/// `load_state` rest on it. docs/checkpoints.md describes the files.
namespace accel::checkpoint {

/// Bytes under a name: schedulers, a gradient scaler, what a user registered.
using Extra = std::pair<std::string, std::string>;

/// How the generators of this process got their state.
enum class RandomOrigin {
  /// From the file that this process, or one of the same rank, had written.
  kOwn,
  /// There is no file of this rank, but all that are there are the same (as
  /// with `match_single_device`), so theirs it is.
  kShared,
  /// There is no file of this rank: seeded from rank 0's state and this rank,
  /// the same in every run that resumes like this.
  kDerived,
};

/// What `load_state` returns for the caller to put back.
struct LoadedState {
  /// How many processes had saved.
  int64_t world_size = 1;
  /// `TrainingState::step` of this process; where it has no file, of rank 0.
  int64_t step = 0;
  /// What was saved as `TrainingState::extras`.
  std::vector<Extra> extras;
  /// What was saved as `TrainingState::extra_kinds`; empty in checkpoints of earlier
  /// versions.
  std::map<std::string, std::string> extra_kinds;
  /// Of this process; where it has no file, of rank 0.
  std::string loaders;
  /// Where the random state of this process comes from.
  RandomOrigin random = RandomOrigin::kOwn;
};

/// What is saved and loaded. Models and optimizers are the same on every
/// process and in the same order in every run; nothing is owned.
struct TrainingState {
  /// Models whose parameters and buffers are saved.
  std::vector<torch::nn::Module*> models;
  /// Optimizers whose states are saved.
  std::vector<torch::optim::Optimizer*> optimizers;
  /// Written by the main process. Names are unique; letters, digits, '_', '-'
  /// and '.'.
  std::vector<Extra> extras;
  /// What extras are, in words, by their names, for whoever loads them to compare. Need
  /// not have all of them.
  std::map<std::string, std::string> extra_kinds;
  /// This process's place in its data loaders, as JSON; may be empty.
  std::string loaders;
  /// Micro-steps since the last accumulation window ended, on this process.
  int64_t step = 0;
  /// For parameters, buffers and optimizer states of which each process holds a
  /// part. Null: there are none.
  PieceOf piece_of;
  /// Each process saves the parts that it holds, in a file of its own, instead of the
  /// main process everything.
  bool in_pieces = false;
  /// With `piece_of`, and instead of `in_pieces`: files are whole, and each divided
  /// tensor is put together when it is written.
  PutTogether put_together;
  /// Called on every process with the temporary directory, before our own files
  /// are written; what it writes there becomes part of the checkpoint.
  std::function<void(const std::string&)> before_save;
  /// Called on every process with the checkpoint's directory before anything is
  /// compared. Both may change `models`, for code that takes over their saving
  /// and loading.
  std::function<void(const std::string&)> before_load;
  /// Called on every process with what `load_state` is going to return, after
  /// everything else was compared and before anything is changed: to throw.
  std::function<void(const LoadedState&)> check_loaded;
};

/// Saves models, optimizers, extras, and for each process its generators, its
/// loaders and its step. *All processes call it*, with an equal `directory`;
/// the main process writes what is common. See `write_checkpoint` for what is
/// promised when it is interrupted.
ACCEL_API void save_state(
    const std::string& directory,
    const TrainingState& state,
    const Processes& processes = {},
    Sync sync = Sync::kOnDisk,
    const Remove& remove = remove_now);

/// The same with automatic naming: saves as the next number in `root`, then
/// removes all but the newest `total_limit` checkpoints (0: keeps all). Returns
/// the directory, the same on all processes.
ACCEL_API std::string save_state_numbered(
    const std::string& root,
    int64_t total_limit,
    const TrainingState& state,
    const Processes& processes = {},
    Sync sync = Sync::kOnDisk);

/// Loads a directory that `save_state` has written into the models and
/// optimizers of `state`, and sets the generators. *All processes call it*;
/// their number may be another than when it was saved.
///
/// The manifest and the checksums are verified, and everything is compared on
/// every process, before anything is changed anywhere: an error, which all
/// processes throw, leaves them all as they were.
ACCEL_API LoadedState load_state(
    const std::string& directory,
    const TrainingState& state,
    const Processes& processes = {},
    Verify verify = Verify::kChecksums);

} // namespace accel::checkpoint
