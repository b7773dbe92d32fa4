#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace accel::launcher {

/// A box of a tensor, or of each of its blocks, in a file.
struct TensorPiece {
  std::string file;
  uint64_t position;
  /// Of all blocks together.
  std::vector<uint64_t> shape;
  /// In a block.
  std::vector<uint64_t> offset;
  /// How many blocks of equal size each dimension has; the piece has the same rows of
  /// each of them, one block behind the other.
  std::vector<uint64_t> blocks;
};

/// One tensor of a safetensors file, or of several that have parts of it.
struct TensorEntry {
  std::string name;
  /// The format's name: "F32", "BF16".
  std::string dtype;
  std::vector<uint64_t> shape;
  uint64_t elements;
  uint64_t bytes;
  /// Where its bytes are: the file, and the first of them.
  std::string file;
  uint64_t position;
  /// Where processes have saved parts of it: those, and `file` is the first one's.
  std::vector<TensorPiece> pieces{};
};

/// The tensors of a model that lies in one safetensors file, in several with an
/// index, or in those of a checkpoint's processes; nothing but headers is read.
struct ModelFiles {
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

/// `path` is a .safetensors file, a .index.json, or a folder that has one of
/// them, or model.process_0.safetensors and so on. Throws `Error` (kLauncherFailed) where a file is damaged (a
/// wrong length, offsets that leave holes or overlap, shapes that do not fit)
/// or does not have what the index says.
ModelFiles read_model_files(const std::string& path);

/// Bytes of one element; 0 for a dtype that the format does not have.
unsigned dtype_size(const std::string& dtype);

/// True for dtypes whose tensors can be trained.
bool is_floating(const std::string& dtype);

/// Writes the tensors of `model` into one file, which is whole or not there.
/// Throws `Error` (kLauncherFailed).
void write_merged(const ModelFiles& model, const std::string& path);

} // namespace accel::launcher
