#include "core/checkpoint_parts.h"

#include "checkpoint/json.h"
#include "core/optimizers.h"
#include "core/registry.h"
#include "core/runtime.h"

#include <accel/grad_scaler.h>
#include <accel/optim/scheduler.h>

#include <c10/util/Exception.h>

#include <algorithm>

namespace accel::detail {
namespace {

using checkpoint::Extra;
using checkpoint::Json;

std::string scaler_text(const GradScaler& scaler) {
  const auto state = scaler.state_dict();
  Json json;
  json["scale"] = checkpoint::to_json(state.scale);
  json["growth_factor"] = checkpoint::to_json(state.growth_factor);
  json["backoff_factor"] = checkpoint::to_json(state.backoff_factor);
  json["growth_interval"] = state.growth_interval;
  json["growth_tracker"] = state.growth_tracker;
  return json.dump();
}

void load_scaler(GradScaler& scaler, const std::string& text) {
  const std::string what = "The gradient scaler's state";
  const Json json = checkpoint::parse_json(text, what);
  const auto real = [&](const char* name) {
    return checkpoint::to_double(checkpoint::member(json, name, what), what);
  };
  scaler.load_state_dict(
      {real("scale"),
       real("growth_factor"),
       real("backoff_factor"),
       checkpoint::member_int(json, "growth_interval", what),
       checkpoint::member_int(json, "growth_tracker", what)});
}

std::string scheduler_part(size_t place) {
  return "scheduler_" + std::to_string(place);
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text.empty() ? "none" : text;
}

} // namespace

std::vector<Extra> with_places(std::vector<Extra> extras) {
  size_t place = 0;
  for (auto& extra : extras) {
    if (extra.first.rfind("scheduler_", 0) == 0) {
      extra.first = scheduler_part(place++);
    }
  }
  return extras;
}

std::vector<CheckpointPart> parts_of(Runtime& runtime) {
  std::vector<CheckpointPart> parts;
  for (auto* scheduler : living_schedulers()) {
    parts.push_back(
        {scheduler_part(parts.size()),
         [scheduler] {
           return scheduler->scheduler_name() + "\n" +
               scheduler->save_scheduler();
         },
         [scheduler](const std::string& text) {
           const size_t end = text.find('\n');
           TORCH_CHECK(
               text.substr(0, end) == scheduler->scheduler_name(),
               "accel: the checkpoint has the state of a scheduler ",
               text.substr(0, end),
               " for a ",
               scheduler->scheduler_name(),
               ".");
           scheduler->load_scheduler(text.substr(end + 1));
         },
         true,
         ""});
  }
  if (auto* scaler = runtime.scaler()) {
    parts.push_back(
        {"scaler",
         [scaler] { return scaler_text(*scaler); },
         [scaler](const std::string& text) { load_scaler(*scaler, text); },
         true,
         ""});
  }
  const auto& objects = runtime.registry().objects();
  for (size_t i = 0; i < objects.size(); ++i) {
    parts.push_back(
        {"object_" + std::to_string(i),
         objects[i].save,
         objects[i].load,
         false,
         objects[i].kind});
  }
  return parts;
}

void check_same_parts(
    const std::vector<CheckpointPart>& parts,
    const std::vector<Extra>& extras) {
  std::vector<std::string> saved, current;
  for (const auto& extra : extras) {
    saved.push_back(extra.first);
  }
  for (const auto& part : parts) {
    current.push_back(part.name);
  }
  std::sort(saved.begin(), saved.end());
  std::sort(current.begin(), current.end());
  TORCH_CHECK(
      saved == current,
      "accel: the checkpoint was saved with other schedulers or registered "
      "objects: ",
      listed(saved),
      "; the program has: ",
      listed(current),
      ". Make and register the same ones in the same order before "
      "load_state.");
}

void check_same_kinds(
    const std::vector<CheckpointPart>& parts,
    const std::map<std::string, std::string>& saved) {
  for (const auto& part : parts) {
    const auto found = saved.find(part.name);
    TORCH_CHECK(
        found == saved.end() || part.kind.empty() || found->second == part.kind,
        "accel: the checkpoint has ",
        found == saved.end() ? "" : found->second,
        " as ",
        part.name,
        ", but the program has registered ",
        part.kind,
        " in its place. Register the same objects in the same order before "
        "load_state.");
  }
}

const std::string& bytes_of(
    const std::vector<Extra>& extras,
    const std::string& name) {
  return std::find_if(
             extras.begin(),
             extras.end(),
             [&](const Extra& extra) { return extra.first == name; })
      ->second;
}

void try_parts(
    const std::vector<CheckpointPart>& parts,
    const std::vector<Extra>& extras) {
  for (const auto& part : parts) {
    if (part.can_try) {
      const std::string before = part.save();
      part.load(bytes_of(extras, part.name));
      part.load(before);
    }
  }
}

} // namespace accel::detail
