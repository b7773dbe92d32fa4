#pragma once

#include "checkpoint/load_plan.h"

#include <accel/checkpoint/pieces.h>
#include <accel/checkpoint/safetensors.h>

#include <map>
#include <string>
#include <vector>

/// Files in which several processes save what each of them holds of the same
/// tensors: one safetensors file of each process, which says in its metadata of
/// which tensors it has a box, and which one.
namespace accel::checkpoint {

/// The values of one process.
struct Pieces {
  Pieces(const StateDict& tensors, const PieceOf& piece_of);

  /// Plain tensors under the names that were given. The caller may take some out,
  /// or replace them by copies.
  StateDict values;
  std::map<std::string, TensorPiece> boxes;
  /// Of the whole tensors.
  std::map<std::string, std::vector<int64_t>> sizes;
};

/// What a process writes: its boxes, and with `main` what every process has.
struct PieceFile {
  StateDict tensors;
  std::map<std::string, std::string> metadata;
};
PieceFile piece_file(const Pieces& pieces, bool main);

/// The whole tensors of the files of all processes. Throws `c10::Error` where their
/// boxes leave holes, overlap, or do not fit each other.
TensorSources piece_sources(const std::vector<std::string>& paths);

} // namespace accel::checkpoint
