#pragma once

#include <accel/checkpoint/pieces.h>
#include <accel/checkpoint/safetensors.h>
#include <accel/export.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// Checkpoint directories that are complete or not there (docs/checkpoints.md).
namespace accel::checkpoint {

/// The processes that save or load together. As it stands: one process.
struct Processes {
  /// This process among them, from 0.
  int64_t rank = 0;
  /// How many there are.
  int64_t size = 1;
  /// Gives every process the texts of all processes, by rank. Every process
  /// calls it equally often. Called a few times for each save and load.
  std::function<std::vector<std::string>(const std::string&)> exchange =
      [](const std::string& text) { return std::vector<std::string>{text}; };

  /// Among the processes of its host.
  int64_t local_rank = 0;
  /// Each host has a checkpoint of its own, complete and the same on all of
  /// them, on a disk that the others do not see (`save_on_each_node`).
  bool each_node = false;

  /// Whether this is process 0.
  bool main() const {
    return rank == 0;
  }
  /// This process writes what is common: process 0, or the first one of each
  /// host.
  bool writer() const {
    return each_node ? local_rank == 0 : main();
  }
};

/// Runs `work` and tells all processes how it went: where it has thrown in any
/// of them, all of them throw, naming the process and its error.
ACCEL_API void run_together(
    const Processes& processes,
    const std::string& what,
    const std::function<void()>& work);

/// A file of a checkpoint as the manifest has it.
struct FileRecord {
  /// Relative to the checkpoint, with '/'.
  std::string name;
  /// Bytes.
  uint64_t size = 0;
  /// XXH64 of the content; `xxhsum -H64` prints the same. With `blocks` it is that of
  /// these numbers, 8 bytes each, the lowest first.
  uint64_t checksum = 0;
  /// Of a file of more than 32 MiB: the checksums of each 32 MiB, so that several
  /// threads can check it; else empty.
  std::vector<uint64_t> blocks;
};

/// `manifest.json`, which only a complete checkpoint has.
struct ACCEL_API Manifest {
  /// How many processes have written it.
  int64_t world_size = 1;
  /// All files of the checkpoint but the manifest itself.
  std::vector<FileRecord> files;

  /// Null where there is no such file.
  const FileRecord* find(const std::string& name) const;
};

/// When a checkpoint has been saved.
enum class Sync {
  /// When it is on the disk.
  kOnDisk,
  /// When the system has it, which writes it to the disk in its own time. A
  /// machine that stops before leaves a directory with its final name and a
  /// manifest whose checksums do not fit.
  kLater,
};

/// Called with a directory that is needed no longer: removes it, at once or in
/// its own time.
using Remove = std::function<void(const std::string& directory)>;

/// At once.
ACCEL_API void remove_now(const std::string& directory);

/// Where one process writes its files of a checkpoint.
class ACCEL_API CheckpointFiles {
 public:
  explicit CheckpointFiles(std::string directory, Sync sync = Sync::kOnDisk);

  /// The temporary directory, for code that writes files of its own. What lies
  /// there when all processes are done becomes part of the checkpoint.
  const std::string& directory() const {
    return directory_;
  }
  /// Writes a safetensors file of this name. Throws `c10::Error` where it
  /// cannot. With `put_together` each tensor is put together when it is written.
  void write_tensors(
      const std::string& name,
      const StateDict& tensors,
      const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
      const PutTogether& put_together = nullptr);
  /// Writes a file of this name. Throws `c10::Error` where it cannot.
  void write_bytes(const std::string& name, const std::string& bytes);

  /// What this process has written, with sizes and checksums.
  const std::vector<FileRecord>& written() const {
    return written_;
  }

 private:
  std::string directory_;
  Sync sync_;
  std::vector<FileRecord> written_;
};

/// Writes a checkpoint: every process lets `write` put its files into a
/// temporary directory beside `directory`; when all are done and everything is
/// synced to the disk (`sync`), the main process adds the manifest and renames.
/// Until then, and when anything fails or the process is killed, an earlier
/// checkpoint of that name stays as it is.
///
/// *All processes call it*, and all throw when one fails. The directory must be
/// one that they all see. An earlier checkpoint of that name is replaced, with
/// files that others have put there carried over, and given to `remove`, on the
/// main process, under the name that an unfinished one has; a directory that
/// holds something else is refused.
ACCEL_API void write_checkpoint(
    const std::string& directory,
    const Processes& processes,
    const std::function<void(CheckpointFiles&)>& write,
    Sync sync = Sync::kOnDisk,
    const Remove& remove = remove_now);

/// How thoroughly a checkpoint is looked at.
enum class Verify {
  /// The manifest, and that every file is there with its size.
  kSizes,
  /// The content of every file as well.
  kChecksums,
};

/// Checks a checkpoint and returns its manifest; throws `c10::Error` naming the
/// file and what is wrong with it. Files beyond the manifest are ignored.
ACCEL_API Manifest verify_checkpoint(
    const std::string& directory, Verify verify = Verify::kChecksums);

/// Whether there is something at `directory` that is meant to be a checkpoint,
/// also where a process was killed while it replaced one.
ACCEL_API bool checkpoint_exists(const std::string& directory);

/// Automatic naming: `root`/checkpoint_{i}.
ACCEL_API std::string checkpoint_path(const std::string& root, int64_t index);

/// One more than the largest number in use in `root`, complete or not; 0 where
/// there is none. So a resumed run goes on counting.
ACCEL_API int64_t next_checkpoint_index(const std::string& root);

/// The complete checkpoint with the largest number; empty where there is none.
/// Directories without a valid manifest, or with missing files, do not count,
/// nor do numbers above `at_most`.
ACCEL_API std::optional<std::string> newest_checkpoint(
    const std::string& root,
    Verify verify = Verify::kSizes,
    int64_t at_most = INT64_MAX);

/// The same on all hosts: the complete checkpoint with the largest number of
/// those that each of them has; the path is this process's. *All processes call
/// it*. Where there is one directory for all, it is what process 0 sees.
ACCEL_API std::optional<std::string> newest_checkpoint_of_all(
    const std::string& root,
    const Processes& processes,
    Verify verify = Verify::kSizes);

/// Removes all but the newest `total_limit` complete checkpoints and what
/// interrupted saves have left, and returns the names of the checkpoints that
/// it removed. Directories that are no complete checkpoints of ours are neither
/// counted nor touched. To be called after a save, by one process;
/// `total_limit` is at least 1, so that the newest always stays.
ACCEL_API std::vector<std::string> prune_checkpoints(
    const std::string& root,
    int64_t total_limit,
    const Remove& remove = remove_now);

} // namespace accel::checkpoint
