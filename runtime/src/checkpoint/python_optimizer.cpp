#include <accel/checkpoint/optimizer_state.h>

#include "checkpoint/files.h"
#include "checkpoint/json.h"
#include "checkpoint/optimizer_family.h"
#include "checkpoint/python_archive.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <map>
#include <set>

namespace accel::checkpoint {

namespace {

/// A Python dict with texts or whole numbers as keys, by the keys' texts.
using Dict = std::map<std::string, c10::IValue>;

Dict to_dict(const c10::IValue& value, const std::string& what) {
  TORCH_CHECK(value.isGenericDict(), what, " is not a dict");
  Dict result;
  for (const auto& item : value.toGenericDict()) {
    TORCH_CHECK(
        item.key().isString() || item.key().isInt(),
        what,
        " has a key that is neither a text nor a number");
    result.emplace(
        item.key().isString() ? item.key().toStringRef()
                              : std::to_string(item.key().toInt()),
        item.value());
  }
  return result;
}

const c10::IValue& entry(
    const Dict& dict, const std::string& key, const std::string& what) {
  const auto found = dict.find(key);
  TORCH_CHECK(found != dict.end(), what, " has no ", in_quotes(key));
  return found->second;
}

/// A number, text or None.
Json scalar_to_json(
    const c10::IValue& value,
    const PythonArchive& archive,
    const std::string& what) {
  if (value.isNone()) {
    return nullptr;
  }
  if (value.isBool()) {
    return value.toBool();
  }
  if (value.isInt()) {
    return value.toInt();
  }
  if (value.isDouble()) {
    return checkpoint::to_json(value.toDouble());
  }
  if (value.isString()) {
    return value.toStringRef();
  }
  TORCH_CHECK(value.isTensor(), what, " is of an unknown kind");
  const at::Tensor tensor = archive.tensor(value);
  TORCH_CHECK(
      tensor.numel() == 1,
      what,
      " is a tensor of shape ",
      tensor.sizes(),
      " where a number is expected");
  const at::Scalar number = tensor.item();
  TORCH_CHECK(!number.isComplex(), what, " is a complex number");
  return scalar_to_json(number, archive, what);
}

/// A number, text, None, or a list or tuple of them.
Json to_json(
    const c10::IValue& value,
    const PythonArchive& archive,
    const std::string& what) {
  Json list = Json::array();
  if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements()) {
      list.push_back(scalar_to_json(element, archive, what));
    }
    return list;
  }
  if (value.isList()) {
    for (const auto& element : value.toListRef()) {
      list.push_back(scalar_to_json(element, archive, what));
    }
    return list;
  }
  return scalar_to_json(value, archive, what);
}

/// A counter, which newer versions of Python's optimizers keep as a tensor.
Json to_counter(
    const c10::IValue& value,
    const PythonArchive& archive,
    const std::string& what) {
  const Json json = scalar_to_json(value, archive, what);
  if (!json.is_number_float()) {
    return json;
  }
  const double number = json.get<double>();
  TORCH_CHECK(
      number >= 0 && number < 0x1p53 && number == std::floor(number),
      what,
      " is ",
      number,
      ", not a number of steps");
  return static_cast<int64_t>(number);
}

bool is_counter(const std::string& field) {
  return field == "step" || field == "func_evals" || field == "n_iter";
}

/// Refuses options that would make Python's step another one than LibTorch's.
void check_python_option(
    const std::string& name,
    const Json& value,
    bool decoupled,
    const std::string& what) {
  // How it is computed, not what.
  static const std::set<std::string> kHarmless{
      "foreach", "fused", "capturable", "differentiable", "initial_lr"};
  if (kHarmless.count(name) || (name == "maximize" && value == false) ||
      (name == "decoupled_weight_decay" && value == decoupled)) {
    return;
  }
  TORCH_CHECK(
      false,
      what,
      ": LibTorch's optimizer has nothing like ",
      in_quotes(name),
      " = ",
      value.dump());
}

Json convert_group(
    const Dict& group,
    const Json& like,
    bool decoupled,
    const PythonArchive& archive,
    const std::string& what) {
  Json result;
  for (const auto& item : like.items()) {
    result[item.key()] = to_json(entry(group, item.key(), what), archive, what);
  }
  for (const auto& [name, value] : group) {
    if (!result.contains(name)) {
      check_python_option(
          name, to_json(value, archive, what), decoupled, what);
    }
  }
  return result;
}

Json convert_state(
    const Dict& state,
    const std::string& prefix,
    StateDict& tensors,
    const PythonArchive& archive,
    const std::string& what) {
  Json result = Json::object();
  for (const auto& [name, value] : state) {
    if (value.isNone() || name == "al") {
      continue; // a buffer that is not there yet, or one of no importance
    }
    if (is_counter(name)) {
      result[name] = to_counter(value, archive, what);
    } else if (value.isTensor()) {
      tensors.insert(prefix + name, archive.tensor(value));
    } else if (value.isList()) {
      const auto list = value.toListRef();
      result[name] = list.size();
      for (size_t i = 0; i < list.size(); ++i) {
        TORCH_CHECK(
            list[i].isTensor(), what, ": ", in_quotes(name), " is no tensors");
        tensors.insert(
            prefix + name + "." + std::to_string(i), archive.tensor(list[i]));
      }
    } else {
      result[name] = to_json(value, archive, what);
    }
  }
  return result;
}

} // namespace

OptimizerState read_python_optimizer(
    const std::string& path, const torch::optim::Optimizer& optimizer) {
  const OptimizerFamily* family = family_of(optimizer);
  TORCH_CHECK(
      family,
      "Only the state of LibTorch's own optimizer classes can be taken from "
      "Python");
  const std::string what = "Python's optimizer state " + in_quotes(path);
  const PythonArchive archive(path, what);
  const Dict saved = to_dict(archive.value(), what);

  // What the groups of this class have to say is taken from the optimizer.
  const Json current = parse_json(optimizer_state(optimizer).json, what);
  const c10::IValue& groups = entry(saved, "param_groups", what);
  TORCH_CHECK(groups.isList(), what, ": 'param_groups' is not a list");
  const auto group_list = groups.toListRef();
  TORCH_CHECK(
      group_list.size() == current["param_groups"].size(),
      what,
      " has ",
      group_list.size(),
      " parameter groups, but the optimizer ",
      current["param_groups"].size());

  OptimizerState result;
  Json json = current;
  for (size_t i = 0; i < group_list.size(); ++i) {
    json["param_groups"][i] = convert_group(
        to_dict(group_list[i], what),
        current["param_groups"][i],
        current["optimizer"] == "AdamW",
        archive,
        what);
  }
  json["state"] = Json::object();
  for (const auto& [index, state] :
       to_dict(entry(saved, "state", what), what)) {
    json["state"][index] = convert_state(
        to_dict(state, what),
        "state." + index + ".",
        result.tensors,
        archive,
        what);
  }
  // Python does not say which parameter is which.
  json["parameters"] = nullptr;
  result.json = dump_json(json);
  return result;
}

} // namespace accel::checkpoint
