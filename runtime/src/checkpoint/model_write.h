#pragma once

#include <accel/checkpoint/model_files.h>
#include <accel/checkpoint/pieces.h>

#include <string>
#include <vector>

/// `save_model` in steps, for models of which each process has a part.
namespace accel::checkpoint {

/// The tensors of one of a model's files.
StateDict shard_tensors(const StateDict& tensors, const Shard& shard);

/// Writes the files of a model, complete or not at all; those of an earlier one go.
/// Tensors are put together shard by shard, in each one in `file_order`. Null: all of
/// them are whole.
void write_model(
    const StateDict& tensors,
    const std::vector<Shard>& shards,
    const std::string& directory,
    const PutTogether& put_together);

} // namespace accel::checkpoint
