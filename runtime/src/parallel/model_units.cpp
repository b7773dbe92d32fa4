#include "parallel/model_units.h"

#include "parallel/unit_sizes.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

#include <c10/util/Exception.h>
#include <c10/util/Type.h>

#include <cstdint>
#include <iterator>
#include <typeinfo>
#include <unordered_set>
#include <utility>

namespace accel::parallel {
namespace {

int64_t bytes_of(const std::vector<at::Tensor>& parameters) {
  int64_t bytes = 0;
  for (const auto& parameter : parameters) {
    bytes += parameter.numel() * static_cast<int64_t>(parameter.element_size());
  }
  return bytes;
}

bool is_container(const torch::nn::Module& module) {
  return module.as<torch::nn::Sequential>() != nullptr ||
         module.as<torch::nn::ModuleList>() != nullptr ||
         module.as<torch::nn::ModuleDict>() != nullptr;
}

class Units {
 public:
  explicit Units(const torch::nn::Module& model)
      : large_(bytes_of(model.parameters()) / kPartsOfModel) {
    take_apart(model);
  }

  std::vector<std::vector<at::Tensor>> all;

 private:
  void take_apart(const torch::nn::Module& module) {
    add(module.parameters(/*recurse=*/false));
    for (const auto& child : module.children()) {
      const auto parameters = child->parameters();
      if (is_container(*child) || bytes_of(parameters) > large_) {
        take_apart(*child);
      } else {
        add(parameters);
      }
    }
  }

  void add(const std::vector<at::Tensor>& parameters) {
    std::vector<at::Tensor> unit;
    for (const auto& parameter : parameters) {
      if (seen_.insert(parameter.unsafeGetTensorImpl()).second) {
        unit.push_back(parameter);
      }
    }
    if (unit.empty()) {
      return;
    }
    if (!all.empty() && bytes_of(all.back()) + bytes_of(unit) < kSmallUnit) {
      all.back().insert(all.back().end(), unit.begin(), unit.end());
    } else {
      all.push_back(std::move(unit));
    }
  }

  const int64_t large_;
  std::unordered_set<const void*> seen_;
};

// ---- With a policy.

/// "TransformerEncoderLayer" of "torch::nn::TransformerEncoderLayerImpl", but with the
/// namespaces.
std::string plain_name(std::string name) {
  const std::string anonymous = "(anonymous namespace)::";
  for (size_t at = 0; (at = name.find(anonymous)) != std::string::npos;) {
    name.erase(at, anonymous.size());
  }
  const std::string impl = "Impl";
  if (name.size() > impl.size() &&
      name.compare(name.size() - impl.size(), impl.size(), impl) == 0) {
    name.resize(name.size() - impl.size());
  }
  return name;
}

std::string class_of(const torch::nn::Module& module) {
  return plain_name(c10::demangle(typeid(module).name()));
}

/// Whether a class is called so, with or without namespaces.
bool is_called(const std::string& class_name, const std::string& wanted) {
  const auto name = plain_name(wanted);
  const std::string end = "::" + name;
  return class_name == name ||
         (class_name.size() > end.size() &&
          class_name.compare(class_name.size() - end.size(), end.size(), end) ==
              0);
}

/// Those that are named.
const std::vector<std::string>& names_of(const AutoWrap& wrap) {
  static const std::vector<std::string> layers{
      "TransformerEncoderLayer", "TransformerDecoderLayer"};
  return wrap.class_names.empty() ? layers : wrap.class_names;
}

class UnitsOfPolicy {
 public:
  UnitsOfPolicy(const torch::nn::Module& model, const AutoWrap& wrap)
      : wrap_(wrap) {
    if (auto rest = outside_of_units(model); !rest.empty()) {
      all.push_back(std::move(rest));
    }
  }

  std::vector<std::vector<at::Tensor>> all;

 private:
  /// Makes the units within a module; what is in none of them.
  std::vector<at::Tensor> outside_of_units(const torch::nn::Module& module) {
    // As PyTorch does; it has a part that is no module of its own.
    const bool in_one_piece = wrap_.policy == AutoWrapPolicy::kSizeBasedWrap &&
                              module.as<torch::nn::MultiheadAttention>();
    std::vector<at::Tensor> rest;
    for (const auto& parameter : module.parameters(in_one_piece)) {
      if (seen_.insert(parameter.unsafeGetTensorImpl()).second) {
        rest.push_back(parameter);
      }
    }
    if (in_one_piece) {
      return rest;
    }
    for (const auto& child : module.children()) {
      auto own = outside_of_units(*child);
      if (!own.empty() && is_unit(*child, own)) {
        all.push_back(std::move(own));
      } else {
        rest.insert(rest.end(), own.begin(), own.end());
      }
    }
    return rest;
  }

  bool is_unit(
      const torch::nn::Module& module, const std::vector<at::Tensor>& own) {
    if (wrap_.policy == AutoWrapPolicy::kTransformerBasedWrap) {
      for (const auto& name : names_of(wrap_)) {
        if (is_called(class_of(module), name)) {
          return true;
        }
      }
      return false;
    }
    // Lists are not called; what they hold is.
    if (wrap_.policy == AutoWrapPolicy::kNoWrap || wrap_.min_num_params == 0 ||
        module.as<torch::nn::ModuleList>() || module.as<torch::nn::ModuleDict>()) {
      return false;
    }
    int64_t numbers = 0;
    for (const auto& parameter : own) {
      numbers += parameter.numel();
    }
    return numbers >= wrap_.min_num_params;
  }

  const AutoWrap& wrap_;
  std::unordered_set<const void*> seen_;
};

} // namespace

std::vector<std::vector<at::Tensor>> model_units(
    const torch::nn::Module& model,
    const AutoWrap& wrap) {
  return wrap.policy ? UnitsOfPolicy(model, wrap).all : Units(model).all;
}

ClassNames::ClassNames(const AutoWrap& wrap)
    : used_(wrap.policy == AutoWrapPolicy::kTransformerBasedWrap),
      given_(!wrap.class_names.empty()),
      missing_(names_of(wrap).begin(), names_of(wrap).end()) {}

void ClassNames::add(const torch::nn::Module& model) {
  if (!used_) {
    return;
  }
  add_class(class_of(model));
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (!module->parameters().empty()) {
      add_class(class_of(*module));
    }
  }
}

void ClassNames::add_class(const std::string& name) {
  const auto begin = name.find('<') == std::string::npos ? name.rfind("::")
                                                         : std::string::npos;
  all_.insert(begin == std::string::npos ? name : name.substr(begin + 2));
  for (auto one = missing_.begin(); one != missing_.end();) {
    const bool found = is_called(name, *one);
    any_found_ = any_found_ || found;
    one = found ? missing_.erase(one) : std::next(one);
  }
}

void ClassNames::check() const {
  if (!used_ || missing_.empty() || (!given_ && any_found_)) {
    return;
  }
  std::string there_are;
  for (const auto& name : all_) {
    there_are += (there_are.empty() ? "" : ", ") + name;
  }
  TORCH_CHECK(
      false, "accel: auto_wrap_policy is TRANSFORMER_BASED_WRAP, ",
      given_ ? "and no module of a prepared model is a " + *missing_.begin()
             : std::string(
                   "no classes are named, and a prepared model has neither "
                   "TransformerEncoderLayer nor TransformerDecoderLayer"),
      ". Give others as transformer_cls_names_to_wrap "
      "(--fsdp-transformer-layer-cls-to-wrap). There are: ",
      there_are, ".");
}

} // namespace accel::parallel
