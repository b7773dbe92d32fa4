#include "checkpoint/divided.h"

#include "checkpoint/model_write.h"
#include "checkpoint/optimizer_files.h"
#include "checkpoint/piece_files.h"
#include "checkpoint/safetensors_write.h"
#include "checkpoint/state_files.h"

#include <accel/checkpoint/state_dict.h>

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <exception>

namespace accel::checkpoint {

namespace {

/// Gives tensors in an order that all processes have agreed on.
class InOrder {
 public:
  InOrder(const std::vector<at::Tensor>& order, const PutTogether& put_together)
      : order_(order), put_together_(put_together) {}

  at::Tensor next(const at::Tensor& tensor) {
    TORCH_INTERNAL_ASSERT(
        at_ < order_.size() && order_[at_].is_same(tensor),
        "a tensor is written in another order than it is put together");
    return next();
  }

  /// Takes part in what is left, unless that has failed before: then there is
  /// nobody to wait for.
  void finish() {
    while (!failed_ && at_ < order_.size()) {
      next();
    }
  }

 private:
  at::Tensor next() {
    failed_ = true;
    auto whole = put_together_(order_[at_++]);
    failed_ = false;
    return whole;
  }

  const std::vector<at::Tensor>& order_;
  const PutTogether& put_together_;
  size_t at_ = 0;
  bool failed_ = false;
};

} // namespace

StateDict divided_file(
    const StateDict& tensors, const PieceOf& piece_of, bool shared_once) {
  Pieces pieces(tensors, piece_of);
  if (shared_once) {
    pieces.values = without_shared(pieces.values);
  } else {
    separate(pieces.values);
  }
  for (auto& item : pieces.values) {
    if (pieces.boxes.count(item.key()) != 0) {
      item.value() = tensors[item.key()];
    }
  }
  return pieces.values;
}

void write_one_by_one(
    const std::vector<at::Tensor>& order,
    bool writer,
    const PutTogether& put_together,
    const std::function<void(const PutTogether&)>& write) {
  InOrder tensors(order, put_together);
  std::exception_ptr error;
  if (writer) {
    try {
      write([&](const at::Tensor& tensor) { return tensors.next(tensor); });
    } catch (...) {
      error = std::current_exception();
    }
  }
  try {
    tensors.finish();
  } catch (...) {
    error = error ? error : std::current_exception();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

void write_divided(
    const StateFiles& state,
    const Processes& processes,
    const PutTogether& put_together,
    CheckpointFiles& files) {
  std::vector<at::Tensor> order;
  for (const auto& file : state.divided) {
    for (const auto* item : file_order(file.tensors)) {
      order.push_back(item->value());
    }
  }
  write_one_by_one(
      order, processes.writer(), put_together, [&](const PutTogether& next) {
        for (const auto& [name, tensors, metadata] : state.divided) {
          files.write_tensors(name, tensors, metadata, next);
        }
      });
}

void save_divided_model(
    const torch::nn::Module& module,
    const std::string& directory,
    const std::string& max_shard_size,
    const Processes& processes,
    const PieceOf& piece_of,
    const PutTogether& put_together) {
  StateDict tensors;
  std::vector<Shard> shards;
  std::vector<at::Tensor> order;
  run_together(processes, "save_model", [&] {
    tensors = divided_file(state_dict(module), piece_of, /*shared_once=*/true);
    shards = plan_shards(tensors, parse_size(max_shard_size));
    for (const auto& shard : shards) {
      const auto part = shard_tensors(tensors, shard);
      for (const auto* item : file_order(part)) {
        order.push_back(item->value());
      }
    }
  });
  run_together(processes, "save_model", [&] {
    write_one_by_one(
        order, processes.writer(), put_together,
        [&](const PutTogether& next) {
          write_model(tensors, shards, directory, next);
        });
  });
}

} // namespace accel::checkpoint
