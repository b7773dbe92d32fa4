#pragma once

#include "checkpoint/xxh64.h"

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace accel::detail {

/// What is common in a checkpoint is process 0's, and all processes get it when it is
/// loaded: checksums by name, to see what is not the same on all of them.
class CommonChecksums {
 public:
  /// Bytes, "object_0".
  void add(const std::string& name, const std::string& bytes);
  /// "buffer model_1.norm.running_mean" for each buffer of the models.
  void add_buffers(const std::vector<torch::nn::Module*>& models);
  /// "parameters", "buffers" and "optimizers": all of each together.
  void add_training(
      const std::vector<torch::nn::Module*>& models,
      const std::vector<torch::optim::Optimizer*>& optimizers);

  /// For the other processes.
  std::string text() const;

 private:
  std::map<std::string, uint64_t> checksums_;
};

/// The names of what begins with `prefix` and is not the same in all of `texts`,
/// separated by commas; at most a few. Empty where everything is.
std::string differing(
    const std::vector<std::string>& texts, const std::string& prefix);

/// What is not the same on all processes is lost: `texts` are their checksums. Throws
/// where a resumed run could not go on from it at all, on all processes; else `warns`.
void check_common(
    const std::vector<std::string>& texts, bool trains_locally, bool warns);

} // namespace accel::detail
