#pragma once

#include <accel/checkpoint/directory.h>
#include <accel/checkpoint/pieces.h>
#include <accel/checkpoint/safetensors.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

/// Whole files of tensors that are divided between processes: one tensor after the
/// other is put together, written, and dropped, so that nobody needs room for more
/// than one. A process that cannot write still takes part in what is left, since the
/// others wait for it; the error comes after that.
namespace accel::checkpoint {

/// What a file shall have of these: each tensor once (`shared_once`, as
/// `without_shared`), or each in memory of its own. Divided ones stay as they are.
StateDict divided_file(
    const StateDict& tensors, const PieceOf& piece_of, bool shared_once);

/// Calls `write`, on the processes that write, with a function that gives the whole
/// of the next tensor of `order`; the others take part in putting them together.
/// Every process calls it, with an equal order. Throws what `write` has thrown; to be
/// called within `run_together`.
void write_one_by_one(
    const std::vector<at::Tensor>& order,
    bool writer,
    const PutTogether& put_together,
    const std::function<void(const PutTogether&)>& write);

/// `save_model` of a model that is divided; the files are those of one that is not.
/// Every process calls it, and all throw where one fails.
void save_divided_model(
    const torch::nn::Module& module,
    const std::string& directory,
    const std::string& max_shard_size,
    const Processes& processes,
    const PieceOf& piece_of,
    const PutTogether& put_together);

} // namespace accel::checkpoint
