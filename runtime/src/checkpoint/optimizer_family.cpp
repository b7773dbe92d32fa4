#include "checkpoint/optimizer_family.h"

#include "checkpoint/files.h"
#include "checkpoint/optimizer_fields.h"
#include "checkpoint/safetensors_read.h"
#include "checkpoint/threads.h"

#include <accel/optim/optimizer.h>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace accel::checkpoint {

namespace {

namespace optim = torch::optim;

/// One field to JSON. Tensors are not for it.
Json write_value(double value) {
  return to_json(value);
}
Json write_value(bool value) {
  return value;
}
Json write_value(int64_t value) {
  return value;
}
Json write_value(const std::string& value) {
  return value;
}
Json write_value(const std::tuple<double, double>& value) {
  return {to_json(std::get<0>(value)), to_json(std::get<1>(value))};
}
template <typename T>
Json write_value(const std::optional<T>& value) {
  return value ? write_value(*value) : Json(nullptr);
}

/// One field from JSON.
void read_value(const Json& json, double& value, const std::string& what) {
  value = to_double(json, what);
}
void read_value(const Json& json, bool& value, const std::string& what) {
  TORCH_CHECK(
      json.is_boolean(),
      what,
      " is ",
      in_quotes(json.dump()),
      ", not true or false");
  value = json.get<bool>();
}
void read_value(const Json& json, int64_t& value, const std::string& what) {
  value = to_int(json, what);
}
void read_value(const Json& json, std::string& value, const std::string& what) {
  TORCH_CHECK(
      json.is_string(), what, " is ", in_quotes(json.dump()), ", not a text");
  value = json.get<std::string>();
}
void read_value(
    const Json& json,
    std::tuple<double, double>& value,
    const std::string& what) {
  TORCH_CHECK(
      json.is_array() && json.size() == 2,
      what,
      " is ",
      in_quotes(json.dump()),
      ", not two numbers");
  value = {to_double(json[0], what), to_double(json[1], what)};
}
template <typename T>
void read_value(
    const Json& json, std::optional<T>& value, const std::string& what) {
  value.reset();
  if (!json.is_null()) {
    read_value(json, value.emplace(), what);
  }
}

/// Writes the fields of one parameter's state.
struct StateWriter {
  std::string prefix;
  Json& json;
  StateDict& tensors;

  void operator()(const char* name, at::Tensor& tensor) {
    if (tensor.defined()) {
      tensors.insert(prefix + name, tensor);
    }
  }
  void operator()(const char* name, std::deque<at::Tensor>& list) {
    json[name] = list.size();
    for (size_t i = 0; i < list.size(); ++i) {
      tensors.insert(prefix + name + "." + std::to_string(i), list[i]);
    }
  }
  template <typename T>
  void operator()(const char* name, T& value) {
    json[name] = write_value(value);
  }
};

/// A tensor that is to be overwritten, and how.
struct Overwrite {
  at::Tensor to;
  std::function<void(at::Tensor&)> copy;
};

/// A tensor of an optimizer's state.
struct OwnTensor {
  at::Tensor tensor;
  /// What this process holds of it, where it is divided.
  std::optional<TensorPiece> piece;

  const at::Tensor& memory() const {
    return piece ? piece->values : tensor;
  }
};

/// Collects the tensors of an optimizer's state that nobody else holds, by name:
/// memory of hundreds of MB that need not be asked for again.
struct OwnTensors {
  std::string prefix;
  const PieceOf& piece_of;
  std::map<std::string, OwnTensor>& tensors;

  void operator()(const char* name, const at::Tensor& tensor) {
    add(prefix + name, tensor);
  }
  void operator()(const char* name, const std::deque<at::Tensor>& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      add(prefix + name + "." + std::to_string(i), list[i]);
    }
  }
  template <typename T>
  void operator()(const char*, const T&) {}

  void add(const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.use_count() != 1) {
      return;
    }
    OwnTensor own{tensor, piece_of ? piece_of(tensor) : std::nullopt};
    const at::Tensor& memory = own.memory();
    if (memory.has_storage() && memory.storage().use_count() == 1 &&
        can_be_read_into(memory) && !memory.is_inference()) {
      tensors.emplace(name, std::move(own));
    }
  }
};

/// Reads them, and notes what it has seen.
struct StateReader {
  std::string prefix;
  const Json& json;
  const TensorSources& tensors;
  const PieceOf& piece_of;
  /// The parameter that the state belongs to.
  const at::Tensor& parameter;
  /// Whether state tensors have the parameter's shape (not those of LBFGS,
  /// which treats all parameters as one vector).
  bool like_parameter;
  const std::string& what;
  std::set<std::string>& used_tensors;
  /// What the optimizer has under these names, and what shall become of it.
  const std::map<std::string, OwnTensor>& own;
  std::vector<Overwrite>& overwrites;
  std::set<std::string> used_fields{};

  at::Tensor take(const std::string& name) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      return {};
    }
    const TensorSource& saved = found->second;
    used_tensors.insert(name);
    TORCH_CHECK(
        !like_parameter || at::IntArrayRef(saved.shape) == parameter.sizes(),
        what,
        ": ",
        in_quotes(name),
        " has the shape ",
        at::IntArrayRef(saved.shape),
        ", but the parameter ",
        parameter.sizes());
    TORCH_CHECK(
        at::isFloatingType(saved.dtype) || at::isComplexType(saved.dtype),
        what,
        ": ",
        in_quotes(name),
        " is ",
        saved.dtype);
    const auto piece = like_parameter && piece_of ? piece_of(parameter)
                                                  : std::nullopt;
    const auto copy = [saved, piece](at::Tensor& to) {
      if (piece) {
        copy_piece(saved, *piece, to);
      } else {
        saved.copy_box(to, std::vector<int64_t>(saved.shape.size(), 0));
      }
    };
    const at::IntArrayRef sizes =
        piece ? piece->values.sizes() : at::IntArrayRef(saved.shape);
    const auto kept = own.find(name);
    if (kept != own.end() && kept->second.memory().sizes() == sizes &&
        kept->second.memory().scalar_type() == saved.dtype &&
        kept->second.piece.has_value() == piece.has_value() &&
        (!piece || (kept->second.piece->offset == piece->offset &&
                    kept->second.piece->blocks == piece->blocks))) {
      overwrites.push_back({kept->second.memory(), copy});
      return kept->second.tensor;
    }
    // Of its own memory: what was loaded may be a file's mapping, and the
    // optimizer works in place.
    auto values = at::empty(
        sizes, at::TensorOptions(saved.dtype).device(parameter.device()));
    copy(values);
    return piece ? piece->like(std::move(values)) : values;
  }

  void operator()(const char* name, at::Tensor& tensor) {
    tensor = take(prefix + name);
  }
  void operator()(const char* name, std::deque<at::Tensor>& list) {
    used_fields.insert(name);
    const int64_t size = member_int(json, name, what, /*lowest=*/0);
    list.clear();
    for (int64_t i = 0; i < size; ++i) {
      const std::string full = prefix + name + "." + std::to_string(i);
      list.push_back(take(full));
      TORCH_CHECK(list.back().defined(), what, " has no ", in_quotes(full));
    }
  }
  template <typename T>
  void operator()(const char* name, T& value) {
    used_fields.insert(name);
    read_value(
        member(json, name, what),
        value,
        what + ": " + in_quotes(prefix + name));
  }
};

template <typename Class>
bool matches(const optim::Optimizer& optimizer) {
  // Exactly these: a class that derives from them may have more to save.
  return typeid(optimizer) == typeid(Class) ||
         typeid(optimizer) == typeid(AcceleratedOptimizer<Class>);
}

template <typename Wanted, typename Base>
const Wanted& as(const Base& object) {
  const auto* result = dynamic_cast<const Wanted*>(&object);
  TORCH_CHECK(
      result,
      "An optimizer holds options or a state of another class than its own: ",
      typeid(object).name());
  return *result;
}

template <typename Options, typename State>
void write(const optim::Optimizer& optimizer, Json& json, StateDict& tensors) {
  Json groups = Json::array();
  Json states = Json::object();
  int64_t index = 0;
  for (const auto& group : optimizer.param_groups()) {
    Json entry = Json::object();
    Options options = as<Options>(group.options());
    options_of(options, [&](const char* name, auto& value) {
      entry[name] = write_value(value);
    });
    entry["params"] = Json::array();
    for (const auto& parameter : group.params()) {
      entry["params"].push_back(index);
      const auto found =
          optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found != optimizer.state().end()) {
        State state = as<State>(*found->second);
        Json fields = Json::object();
        state_of(
            state,
            StateWriter{
                "state." + std::to_string(index) + ".", fields, tensors});
        states[std::to_string(index)] = std::move(fields);
      }
      ++index;
    }
    groups.push_back(std::move(entry));
  }
  json["param_groups"] = std::move(groups);
  json["state"] = std::move(states);
}

template <typename Options>
Options read_options(
    const Json& json,
    const optim::OptimizerParamGroup& group,
    int64_t first,
    const std::string& what) {
  Options options = as<Options>(group.options());
  size_t known = 1;
  options_of(options, [&](const char* name, auto& value) {
    read_value(member(json, name, what), value, what + ": " + in_quotes(name));
    ++known;
  });
  const Json& parameters = member(json, "params", what);
  TORCH_CHECK(
      parameters.is_array() && parameters.size() == group.params().size(),
      what,
      " is of ",
      parameters.size(),
      " parameters, but the optimizer's group has ",
      group.params().size());
  for (const Json& number : parameters) {
    TORCH_CHECK(
        number == first,
        what,
        ": the parameters are not numbered in order: ",
        in_quotes(number.dump()),
        " instead of ",
        first);
    ++first;
  }
  TORCH_CHECK(
      json.size() == known, what, " has an option that is not known here");
  return options;
}

/// What replaces an optimizer's options and state.
template <typename Options, typename State>
struct Replacement {
  std::vector<Options> options;
  std::vector<std::pair<void*, State>> states;
  std::vector<Overwrite> overwrites;
};

void overwrite(std::vector<Overwrite>& pairs) {
  uint64_t bytes = 0;
  for (const auto& pair : pairs) {
    bytes += pair.to.nbytes();
  }
  on_threads(
      pairs.size(),
      copying_threads(bytes),
      [&](size_t i) {
        pairs[i].copy(pairs[i].to);
      });
}

template <typename Options, typename State>
std::function<void()> prepare(
    optim::Optimizer& optimizer,
    const Json& json,
    const TensorSources& tensors,
    const PieceOf& piece_of,
    const std::string& what) {
  const at::NoGradGuard no_grad;
  auto replacement = std::make_shared<Replacement<Options, State>>();
  const Json& groups = member(json, "param_groups", what);
  TORCH_CHECK(
      groups.is_array() && groups.size() == optimizer.param_groups().size(),
      what,
      " has ",
      groups.size(),
      " parameter groups, but the optimizer ",
      optimizer.param_groups().size());
  std::vector<at::Tensor> parameters;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto& group = optimizer.param_groups()[i];
    replacement->options.push_back(read_options<Options>(
        groups[i],
        group,
        static_cast<int64_t>(parameters.size()),
        what + ", parameter group " + std::to_string(i)));
    parameters.insert(
        parameters.end(), group.params().begin(), group.params().end());
  }

  const Json& states = member(json, "state", what);
  TORCH_CHECK(states.is_object(), what, ": 'state' is not a JSON object");
  std::set<std::string> used_tensors;
  std::set<void*> seen;
  for (const auto& item : states.items()) {
    const std::string& number = item.key();
    size_t index = parameters.size();
    if (!number.empty() && number.size() < 10 &&
        number.find_first_not_of("0123456789") == std::string::npos) {
      index = std::stoul(number);
    }
    TORCH_CHECK(
        index < parameters.size(),
        what,
        " is about the parameter ",
        in_quotes(number),
        ", but the optimizer has ",
        parameters.size());
    const at::Tensor& parameter = parameters[index];
    TORCH_CHECK(
        seen.insert(parameter.unsafeGetTensorImpl()).second,
        what,
        " is about parameter ",
        index,
        " twice");
    std::map<std::string, OwnTensor> own;
    const auto current = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (current != optimizer.state().end()) {
      if (auto* old = dynamic_cast<State*>(current->second.get())) {
        state_of(*old, OwnTensors{"state." + number + ".", piece_of, own});
      }
    }
    State state;
    StateReader reader{
        "state." + number + ".",
        item.value(),
        tensors,
        piece_of,
        parameter,
        !std::is_same_v<State, optim::LBFGSParamState>,
        what,
        used_tensors,
        own,
        replacement->overwrites};
    state_of(state, reader);
    TORCH_CHECK(
        item.value().size() == reader.used_fields.size(),
        what,
        " of parameter ",
        index,
        " has a field that is not known here");
    replacement->states.emplace_back(
        parameter.unsafeGetTensorImpl(), std::move(state));
  }
  for (const auto& item : tensors) {
    TORCH_CHECK(
        used_tensors.count(item.first),
        what,
        " has the tensor ",
        in_quotes(item.first),
        ", which is not known here");
  }

  return [&optimizer, replacement] {
    for (size_t i = 0; i < replacement->options.size(); ++i) {
      static_cast<Options&>(optimizer.param_groups()[i].options()) =
          replacement->options[i];
    }
    overwrite(replacement->overwrites);
    optimizer.state().clear();
    for (const auto& [key, state] : replacement->states) {
      optimizer.state()[key] = std::make_unique<State>(state);
    }
  };
}

template <typename Class, typename Options, typename State>
constexpr OptimizerFamily family(const char* name) {
  return {name, matches<Class>, write<Options, State>, prepare<Options, State>};
}

constexpr std::array<OptimizerFamily, 6> kFamilies{{
    family<optim::SGD, optim::SGDOptions, optim::SGDParamState>("SGD"),
    family<optim::Adam, optim::AdamOptions, optim::AdamParamState>("Adam"),
    family<optim::AdamW, optim::AdamWOptions, optim::AdamWParamState>("AdamW"),
    family<optim::Adagrad, optim::AdagradOptions, optim::AdagradParamState>(
        "Adagrad"),
    family<optim::RMSprop, optim::RMSpropOptions, optim::RMSpropParamState>(
        "RMSprop"),
    family<optim::LBFGS, optim::LBFGSOptions, optim::LBFGSParamState>("LBFGS"),
}};

} // namespace

const OptimizerFamily* family_of(const optim::Optimizer& optimizer) {
  for (const auto& family : kFamilies) {
    if (family.matches(optimizer)) {
      return &family;
    }
  }
  return nullptr;
}

} // namespace accel::checkpoint
