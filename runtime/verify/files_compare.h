#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace accel::verify {

/// What two runs wrote into their working directories.
struct FilesComparison {
  struct File {
    std::string name;
    /// "safetensors", "torch archive", "text" or "bytes".
    std::string kind;
    /// "equal", "differ by 1e-9", "only the original wrote it", …
    std::string finding;
    /// Tensors that were not compared; empty where all were.
    std::string left_out;
    bool different = false;
    /// It changes from run to run of the original, so it says nothing.
    bool ignored = false;
  };
  std::vector<File> files;
  bool different = false;
};

struct WrittenFiles {
  std::filesystem::path directory;
  /// Relative to it.
  std::vector<std::string> names;
};

/// Tensors in safetensors files and in what torch::save writes are compared as
/// tensors, texts as `compare_texts` does, everything else by its bytes, or by the
/// float32 or float64 numbers that differ in it.
/// Numbers may differ by `relative`: in texts of their own size, in tensors of
/// the tensor's norm, or of a part of what is typical for the file
/// (`kFloor`). `zero`: as `compare_texts` says. `repeat` is of a second run of the original.
///
/// `left_to_chance`: numbers of elements of the parameters whose values say
/// nothing (`TensorRow::undetermined`). As many tensors of each file may
/// differ.
FilesComparison compare_files(
    const WrittenFiles& original,
    const WrittenFiles& repeat,
    const WrittenFiles& migrated,
    double relative,
    const std::vector<int64_t>& left_to_chance,
    double zero = 0);

} // namespace accel::verify
