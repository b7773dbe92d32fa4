#include "divided_memory.h"

#include <algorithm>
#include <cctype>

#include "parallel/parallelism_settings.h"
#include "parallel/unit_sizes.h"

namespace accel::launcher {
namespace {

/// In numbers.
constexpr double kSmallUnit = double{parallel::kSmallUnit} / sizeof(float);

bool is_number(const std::string& name) {
  return !name.empty() &&
      std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isdigit(c) != 0;
         });
}

/// "2" before "10", so that neighbours are neighbours.
struct InOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    if (is_number(a) && is_number(b) && a.size() != b.size()) {
      return a.size() < b.size();
    }
    return a < b;
  }
};

/// A module, as the names of parameters tell it.
struct Module {
  /// Of its own parameters, and with those of its children: what is cut along dp_shard.
  double own = 0;
  double all = 0;
  std::map<std::string, Module, InOrder> children{};
};

void add(Module& module, const std::string& name, double numbers) {
  module.all += numbers;
  const auto dot = name.find('.');
  if (dot == std::string::npos) {
    module.own += numbers;
  } else {
    add(module.children[name.substr(0, dot)], name.substr(dot + 1), numbers);
  }
}

/// A Sequential or a ModuleList.
bool is_container(const Module& module) {
  return module.own == 0 && !module.children.empty() &&
      std::all_of(module.children.begin(), module.children.end(), [](const auto& child) {
           return is_number(child.first);
         });
}

/// The largest of the units that runtime/src/parallel/model_units.cpp makes.
class LargestUnit {
 public:
  explicit LargestUnit(const Module& model) : large_(model.all / double{parallel::kPartsOfModel}) {
    take_apart(model, "");
  }

  double numbers = 0;
  std::string name{};

 private:
  void take_apart(const Module& module, const std::string& prefix) {
    add(module.own, prefix.empty() ? "the model's own" : prefix);
    for (const auto& [child, inner] : module.children) {
      const auto name = prefix.empty() ? child : prefix + "." + child;
      if (is_container(inner) || inner.all > large_) {
        take_apart(inner, name);
      } else {
        add(inner.all, name);
      }
    }
  }

  void add(double unit, const std::string& of) {
    if (unit == 0) {
      return;
    }
    last_ = last_ + unit < kSmallUnit ? last_ + unit : unit;
    if (last_ > numbers) {
      numbers = last_;
      name = of;
    }
  }

  const double large_;
  double last_ = 0;
};

} // namespace

long size_of(const MeshSizes& sizes, const std::string& axis) {
  const auto found = sizes.find(axis);
  return found == sizes.end() ? 1 : found->second;
}

long product_of(const MeshSizes& sizes) {
  long product = 1;
  for (const auto& [name, size] : sizes) {
    product *= size;
  }
  return product;
}

std::string to_text(const MeshSizes& sizes) {
  std::string text;
  for (const auto& axis : parallel::parallelism_settings()) {
    if (const long size = size_of(sizes, axis.name); size > 1) {
      text += (text.empty() ? "" : ", ") + std::string(axis.name) + " " +
          std::to_string(size);
    }
  }
  return text;
}

HeldParameters divide(const std::vector<TensorEntry>& tensors, const MeshSizes& sizes) {
  const auto tp = static_cast<uint64_t>(size_of(sizes, "tp"));
  const auto shard = static_cast<uint64_t>(size_of(sizes, "dp_shard"));
  const auto part = [](uint64_t rows, uint64_t of) { return (rows + of - 1) / of; };
  HeldParameters held;
  Module model;
  for (const auto& tensor : tensors) {
    if (!is_floating(tensor.dtype)) {
      continue;
    }
    auto shape = tensor.shape;
    const bool matrix = tp > 1 && shape.size() == 2;
    if (matrix && shape[1] >= tp) {
      shape[1] = part(shape[1], tp);
    } else if (matrix && shape[0] >= tp) {
      shape[0] = part(shape[0], tp);
    }
    const auto numbers = [&] {
      double product = 1;
      for (const auto size : shape) {
        product *= static_cast<double>(size);
      }
      return product;
    };
    const double together = numbers();
    if (shard > 1 && !shape.empty() && shape[0] >= shard) {
      shape[0] = part(shape[0], shard);
      held.gathered += together;
      add(model, tensor.name, together);
    }
    held.parts += numbers();
  }
  const LargestUnit largest(model);
  held.largest_unit = largest.numbers;
  held.unit = largest.name;
  return held;
}

HeldParameters divide(double count, const MeshSizes& sizes) {
  HeldParameters held;
  const double along_tp = count / static_cast<double>(size_of(sizes, "tp"));
  const long shard = size_of(sizes, "dp_shard");
  held.parts = along_tp / static_cast<double>(shard);
  held.gathered = shard > 1 ? along_tp : 0;
  return held;
}

} // namespace accel::launcher
