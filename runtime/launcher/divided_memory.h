#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "safetensors_files.h"

namespace accel::launcher {

/// Sizes of the mesh's axes, by their names in Accelerate: "dp_shard", "tp". What is not
/// there is 1.
using MeshSizes = std::map<std::string, long>;

long size_of(const MeshSizes& sizes, const std::string& axis);

/// How many processes they make.
long product_of(const MeshSizes& sizes);

/// "dp_shard 2, tp 2", in the mesh's order; empty for one process.
std::string to_text(const MeshSizes& sizes);

/// What the process that has most of a model has of its parameters, in numbers.
struct HeldParameters {
  /// What it has all the time: parts along tp and dp_shard, and what is not cut.
  double parts = 0;
  /// What comes together along dp_shard when all of it is gathered, and of the largest
  /// unit. 0 where nothing is cut along dp_shard.
  double gathered = 0;
  double largest_unit = 0;
  /// "layers.0"; empty where the units are not known.
  std::string unit{};
};

/// As the runtime divides a model with these tensors (docs/parallelism.md): parameters
/// are whole along dp_replicate, cp and sp; between the processes along tp weights of two
/// dimensions are divided, where a plan says nothing else; along dp_shard everything that
/// has as many rows as there are processes. Units are the model's children, as names
/// tell them.
HeldParameters divide(const std::vector<TensorEntry>& tensors, const MeshSizes& sizes);

/// The same of a number of parameters that all can be divided, in units that are not
/// known.
HeldParameters divide(double count, const MeshSizes& sizes);

} // namespace accel::launcher
