#pragma once

#include <accel/checkpoint/directory.h>
#include <accel/checkpoint/state.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace accel::checkpoint {

/// The files that one process writes of a state, by name.
struct StateFiles {
  struct Tensors {
    std::string name;
    StateDict tensors;
    std::map<std::string, std::string> metadata{{"format", "pt"}};
  };

  std::vector<Tensors> tensors;
  /// Files that the writing process writes and of which the others have parts. Every
  /// process has them, and each tensor is put together when it is written.
  std::vector<Tensors> divided;
  std::vector<std::pair<std::string, std::string>> texts;
};

/// What each process has of its own, for `state_files`; with
/// `Processes::each_node`, where each host gets the files of all processes.
/// Every process calls it. Nothing, and no message, otherwise.
std::vector<std::string> exchange_own_files(
    const TrainingState& state,
    const Processes& processes);

/// Collects them; the tensors are the program's own, not copies. Does not call
/// `before_save`, which may change the state: to be called before.
StateFiles state_files(
    const TrainingState& state,
    const Processes& processes,
    const std::vector<std::string>& own_files);

void write_files(const StateFiles& state, CheckpointFiles& files);

/// Writes `divided`. Every process calls it.
void write_divided(
    const StateFiles& state,
    const Processes& processes,
    const PutTogether& put_together,
    CheckpointFiles& files);

/// The next name in `root`, the same on all processes, and the removal of what
/// is over the limit (0: nothing). Every process calls them.
std::string next_numbered(
    const std::string& root,
    int64_t total_limit,
    const Processes& processes);
void prune_together(
    const std::string& root,
    int64_t total_limit,
    const Processes& processes,
    const Remove& remove = remove_now);

} // namespace accel::checkpoint
