#pragma once

#include <accel/checkpoint/state_dict.h>
#include <accel/export.h>

#include <cstdint>
#include <string>
#include <vector>

/// Model files with the names and the layout of Accelerate's `save_model`, so
/// that Python reads ours and we read Python's.
namespace accel::checkpoint {

/// The number of bytes that a text like "10GB" or "1.5 MB" means: decimal KB,
/// MB, GB, TB, or binary KiB, MiB, GiB, TiB, in any case of letters. Throws for
/// anything else.
ACCEL_API uint64_t parse_size(const std::string& size);

/// One file of a model and the tensors that go into it.
struct Shard {
  /// The name, such as "model-00001-of-00002.safetensors".
  std::string file;
  /// The names of its tensors.
  std::vector<std::string> names;
  /// Bytes of the tensors.
  uint64_t size = 0;
};

/// Distributes tensors over files of at most `max_shard_size` bytes of tensors
/// each, greedily and in order, as Accelerate does. A tensor that is larger
/// gets a file of its own. One file is `{stem}.safetensors`; of several the
/// second of three is `{stem}-00002-of-00003.safetensors`.
ACCEL_API std::vector<Shard> plan_shards(
    const StateDict& tensors,
    uint64_t max_shard_size,
    const std::string& stem = "model");

/// Writes the model into `directory`, which is made where it is missing: as
/// `model.safetensors`, or as several shards with
/// `model.safetensors.index.json` where it is larger than `max_shard_size`.
///
/// All files are complete on the disk before the first one gets its name; what
/// an earlier save left there (other shards, the index, a whole
/// `model.safetensors`) is removed. To be called by one process.
ACCEL_API void save_model(
    const torch::nn::Module& module,
    const std::string& directory,
    const std::string& max_shard_size = "10GB");

/// The same with a number of bytes.
ACCEL_API void save_model(
    const torch::nn::Module& module,
    const std::string& directory,
    uint64_t max_shard_size);

/// Loads what `save_model` or Accelerate has written. `path` is a
/// `.safetensors` file, an index (`.index.json`), or a directory that holds one
/// of the two. Compares everything before the first value is changed. Values
/// go straight from the file into the parameters, on any device; of divided ones
/// each process reads its part. Every process must call it where parameters are
/// divided.
ACCEL_API IncompatibleKeys load_model(
    torch::nn::Module& module,
    const std::string& path,
    const LoadOptions& options = {});

/// `load_model` by the name that it has in Accelerate.
inline IncompatibleKeys load_checkpoint_in_model(
    torch::nn::Module& module,
    const std::string& path,
    const LoadOptions& options = {}) {
  return load_model(module, path, options);
}

} // namespace accel::checkpoint
