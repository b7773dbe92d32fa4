#pragma once

#include "checkpoint/files.h"

#include <accel/checkpoint/directory.h>

#include <functional>
#include <future>
#include <string>

namespace accel::checkpoint {

/// A checkpoint that is being written: a temporary directory beside the one
/// that it becomes, locked by the process that has made it. Destroyed before
/// `finish` has returned, it leaves nothing behind, and an earlier checkpoint
/// of that name as it was.
class UnfinishedCheckpoint {
 public:
  /// Every process calls it. Throws on all of them where the directory cannot
  /// be made or replaced.
  UnfinishedCheckpoint(
      const std::string& directory,
      const Processes& processes,
      Sync sync,
      Remove remove = remove_now);
  ~UnfinishedCheckpoint();
  UnfinishedCheckpoint(const UnfinishedCheckpoint&) = delete;
  UnfinishedCheckpoint& operator=(const UnfinishedCheckpoint&) = delete;

  /// Where the files are written.
  const std::string& directory() const {
    return temporary_;
  }
  /// "Saving the checkpoint '…'", for messages.
  const std::string& what() const {
    return what_;
  }

  /// Lets `write` write this process's files; when those of all processes are
  /// on the disk, adds the manifest and gives the directory its name. Every
  /// process calls it, all throw where one fails. May be called on another
  /// thread than the constructor, with other `processes` (the same ones, who
  /// reach each other in another way).
  void finish(
      const Processes& processes,
      const std::function<void(CheckpointFiles&)>& write);

 private:
  std::string target_;
  std::string temporary_;
  std::string what_;
  Sync sync_;
  Remove remove_;
  Descriptor lock_;
  /// Takes the checkpoint that will be replaced out of the system's memory,
  /// while the new one is written.
  std::future<void> room_;
  /// This process is to remove the temporary directory.
  bool begun_ = false;
};

} // namespace accel::checkpoint
