#include "distributed/rules/registered.h"

#include "distributed/rules/strategy.h"
#include "distributed/rules/table.h"

#include <accel/distributed/register_sharding.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

// Operators of the program's own, whose ways it has said.

namespace accel::distributed {
namespace {

std::string full_name(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty()
      ? schema.name()
      : schema.name() + "." + schema.overload_name();
}

/// What was registered, and which operators have been looked up: each thread keeps what
/// it has found. Functions stay where they are.
struct Registry {
  std::mutex mutex;
  std::unordered_map<std::string, ShardingFunction> ways;
  std::unordered_set<std::string> looked_up;

  static Registry& get() {
    static auto* const registry = new Registry();
    return *registry;
  }
};

int8_t role(const Call& call, const Placement& place) {
  TORCH_CHECK(
      place.is_replicate() || place.is_sum() ||
          (place.is_shard() && place.cut() == nullptr && place.dim() >= 0),
      "accel: register_sharding(\"", call.name(), "\"): ", place,
      " is no place of a way. Give Shard(dim), with a dimension from 0 and no cut of its "
      "own, Partial() or Replicate().");
  return place.is_shard() ? static_cast<int8_t>(place.dim())
      : place.is_sum()   ? kSum
                         : kWhole;
}

Strategy strategy(const Call& call, const Sharding& way) {
  const auto& info = call.info();
  TORCH_CHECK(
      way.inputs.size() == info.tensors.size() && way.outputs.size() == info.results,
      "accel: register_sharding(\"", call.name(), "\"): a way has ", way.inputs.size(),
      " inputs and ", way.outputs.size(), " outputs, the operator ", info.tensors.size(),
      " arguments that may be tensors and ", info.results, " results: ",
      call.op().schema());
  Strategy strategy;
  for (size_t k = 0; k < way.inputs.size(); ++k) {
    strategy.arguments.push_back(role(call, way.inputs[k]));
    TORCH_CHECK(
        strategy.arguments[k] == kWhole || call.at(info.tensors[k]).isTensor() ||
            call.at(info.tensors[k]).isNone(),
        "accel: register_sharding(\"", call.name(), "\"): input ", k,
        " is a list of tensors and cannot be ", way.inputs[k], ". Give Replicate().");
  }
  for (const auto& place : way.outputs) {
    strategy.results.push_back(role(call, place));
  }
  return strategy;
}

bool registered(Call& call) {
  const ShardingFunction* function = nullptr;
  {
    auto& registry = Registry::get();
    const std::lock_guard<std::mutex> lock(registry.mutex);
    function = &registry.ways.at(full_name(call.op().schema()));
  }
  std::vector<Strategy> ways;
  for (const auto& way :
       (*function)(c10::ArrayRef<c10::IValue>(&call.at(0), call.size()))) {
    ways.push_back(strategy(call, way));
  }
  return in_parts(call, ways);
}

/// The operator's overloads that `op` names.
std::vector<c10::OperatorHandle> overloads(const std::string& op) {
  std::vector<c10::OperatorHandle> found;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name == op || name.name + "." + name.overload_name == op) {
      if (const auto handle = dispatcher.findSchema(name)) {
        found.push_back(*handle);
      }
    }
  }
  return found;
}

} // namespace

Rule registered_rule(const c10::OperatorHandle& op) {
  auto& registry = Registry::get();
  const auto name = full_name(op.schema());
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.looked_up.insert(name);
  return registry.ways.count(name) != 0 ? registered : nullptr;
}

void register_sharding(const std::string& op, ShardingFunction ways) {
  const auto named = overloads(op);
  TORCH_CHECK(
      !named.empty(), "accel: register_sharding: there is no operator \"", op,
      "\". Give the name that TORCH_LIBRARY has registered, \"library::name\".");
  TORCH_CHECK(
      ways != nullptr, "accel: register_sharding(\"", op, "\"): the function is empty.");
  auto& registry = Registry::get();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  for (const auto& handle : named) {
    const auto& schema = handle.schema();
    const auto name = full_name(schema);
    TORCH_CHECK(
        !has_rule(schema), "accel: register_sharding: accel has a rule for \"", op,
        "\" already (docs/operators.md).");
    TORCH_CHECK(
        registry.ways.count(name) == 0, "accel: register_sharding: \"", name,
        "\" has been registered before.");
    TORCH_CHECK(
        registry.looked_up.count(name) == 0, "accel: register_sharding: \"", name,
        "\" has been called already. Register it before.");
    for (const auto* arguments : {&schema.arguments(), &schema.returns()}) {
      for (const auto& argument : *arguments) {
        TORCH_CHECK(
            argument.alias_info() == nullptr, "accel: register_sharding: \"", name,
            "\" writes an argument or returns a view of one; only operators that return "
            "tensors of their own can be done in parts: ", schema);
      }
    }
  }
  for (const auto& handle : named) {
    registry.ways.emplace(full_name(handle.schema()), ways);
  }
}

} // namespace accel::distributed
