#pragma once

#include <accel/export.h>

#include <memory>

namespace accel {

/// While it lives, what this thread builds has its parameters in parts from the
/// start: a model that no process could hold whole. DeepSpeed's `zero.Init`
/// (Accelerate's `zero3_init_flag`), and in place of Accelerate's
/// `init_empty_weights`, whose parameters have no values.
///
///     accel::Accelerator accelerator(
///         accel::AcceleratorOptions()
///             .match_single_device(true)
///             .fsdp_plugin(accel::FullyShardedDataParallelPlugin()));
///     auto model = [] {
///       accel::ShardedInitGuard guard;
///       return torch::nn::Linear(4096, 4096);
///     }();
///     accelerator.prepare(model, optimizer);
///
/// A parameter (a leaf that requires gradients, of floating-point numbers, with as
/// many rows as there are processes) is divided as soon as an operator finds it
/// registered, before it is filled: `reset_parameters` then draws the random numbers
/// of one device, of one parameter after the other, and each process keeps its rows.
/// So the initial weights are those of one device bit for bit, whatever the model
/// does to make them. At most one parameter is whole at a time, and only while it is
/// drawn. Buffers, and parameters that are frozen when they are made, stay whole.
///
/// `prepare` takes the parameters as they are, and moves those that tensor
/// parallelism cuts in another way. Values of a file go straight into the parts:
/// `checkpoint::load_model` inside of the scope or after it.
///
/// Does nothing on one process, with NO_SHARD, and in a scope within another.
/// Throws `c10::Error` without an Accelerator. The scope must be in the thread in
/// which the model is trained; every process must build the same in it, since
/// operators on divided parameters may be collective.
class ACCEL_API ShardedInitGuard {
 public:
  ShardedInitGuard();
  ~ShardedInitGuard();
  ShardedInitGuard(const ShardedInitGuard&) = delete;
  ShardedInitGuard& operator=(const ShardedInitGuard&) = delete;

 private:
  class Builder;
  std::unique_ptr<Builder> builder_;
};

} // namespace accel
