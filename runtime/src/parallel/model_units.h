#pragma once

#include <accel/export.h>

#include <accel/parallel/fully_sharded.h>

#include <ATen/core/Tensor.h>

#include <set>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace accel::parallel {

/// The parameters of a model, each once, in groups that are used at the same
/// time and gathered together: a layer, a block.
///
/// The model is taken apart into its children, and so are containers
/// (`Sequential`, `ModuleList`, `ModuleDict`) and children that hold more than
/// a quarter of it, for two units are in memory at a time. What a module that
/// is taken apart holds itself is a unit. Neighbours of less than a mebibyte
/// together are one: their messages would cost more than their memory. The same
/// on all processes.
///
/// With a policy the modules that it names are units instead, of what no unit within
/// them holds, and the rest of the model is one.
ACCEL_API std::vector<std::vector<at::Tensor>> model_units(
    const torch::nn::Module& model,
    const AutoWrap& wrap = {});

/// Compares the classes of a policy with those that the models have.
class ClassNames {
 public:
  explicit ClassNames(const AutoWrap& wrap);

  void add(const torch::nn::Module& model);

  /// Throws where a class that was named is in none of the models.
  void check() const;

 private:
  void add_class(const std::string& name);

  const bool used_;
  /// Whether they were given; where not, one of them is enough.
  const bool given_;
  std::set<std::string> missing_;
  bool any_found_ = false;
  /// Those that there are, as one would name them.
  std::set<std::string> all_;
};

} // namespace accel::parallel
