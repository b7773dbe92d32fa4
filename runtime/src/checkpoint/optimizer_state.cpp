#include <accel/checkpoint/optimizer_state.h>

#include "checkpoint/files.h"
#include "checkpoint/json.h"
#include "checkpoint/optimizer_family.h"
#include "checkpoint/optimizer_files.h"
#include "checkpoint/safetensors_write.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <sstream>
#include <typeinfo>

namespace accel::checkpoint {

namespace {

constexpr int64_t kOptimizerFormatVersion = 1;
constexpr const char* kArchive = "archive";

std::string class_name(const torch::optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

/// The names of the optimizer's parameters in its order; a parameter that
/// `names` does not have makes them all unknown.
Json parameter_names(
    const torch::optim::Optimizer& optimizer, const ParameterNames& names) {
  Json result = Json::array();
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto found = names.find(parameter.unsafeGetTensorImpl());
      if (found == names.end()) {
        return nullptr;
      }
      result.push_back(found->second);
    }
  }
  return result;
}

void compare_names(
    const Json& saved, const Json& current, const std::string& what) {
  if (saved.is_null() || current.is_null() || saved == current) {
    return;
  }
  TORCH_CHECK(
      saved.is_array() && saved.size() == current.size(),
      what,
      " is of another number of parameters than the optimizer's ",
      current.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    TORCH_CHECK(
        saved[i] == current[i],
        what,
        ": parameter ",
        i,
        " was ",
        in_quotes(saved[i].dump()),
        " and is now ",
        in_quotes(current[i].dump()),
        ". Construct the optimizer with the parameters in the same order.");
  }
}

at::Tensor archive_bytes(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  const std::string bytes = stream.str();
  torch::serialize::InputArchive written;
  written.load_from(bytes.data(), bytes.size());
  TORCH_CHECK(
      !written.keys().empty(),
      "The optimizer ",
      class_name(optimizer),
      " cannot be saved: its save(OutputArchive&) writes nothing. Override "
      "save and load.");
  at::Tensor tensor =
      at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), tensor.mutable_data_ptr<uint8_t>());
  return tensor;
}

std::function<void()> prepare_archive(
    torch::optim::Optimizer& optimizer,
    const TensorSources& tensors,
    const std::string& what) {
  const auto bytes = tensors.find(kArchive);
  TORCH_CHECK(
      bytes != tensors.end() && tensors.size() == 1 &&
          bytes->second.dtype == at::kByte && bytes->second.shape.size() == 1,
      what,
      " has no archive of bytes");
  const at::Tensor contiguous = bytes->second.get().contiguous();
  auto archive = std::make_shared<torch::serialize::InputArchive>();
  archive->load_from(
      reinterpret_cast<const char*>(contiguous.const_data_ptr<uint8_t>()),
      static_cast<size_t>(contiguous.numel()));
  return [&optimizer, archive] { optimizer.load(*archive); };
}

/// Makes the protected counter of a scheduler reachable.
struct StepCount : torch::optim::LRScheduler {
  static unsigned& of(torch::optim::LRScheduler& scheduler) {
    return scheduler.*(&StepCount::step_count_);
  }
};

} // namespace

OptimizerState collect_optimizer_state(
    const torch::optim::Optimizer& optimizer, const ParameterNames& names) {
  OptimizerState result;
  Json json;
  json["format_version"] = kOptimizerFormatVersion;
  const OptimizerFamily* family = family_of(optimizer);
  json["optimizer"] = family ? family->name : class_name(optimizer);
  json["parameters"] = parameter_names(optimizer, names);
  if (family) {
    family->write(optimizer, json, result.tensors);
  } else {
    result.tensors.insert(kArchive, archive_bytes(optimizer));
  }
  result.json = dump_json(json);
  return result;
}

void separate(StateDict& tensors) {
  if (find_overlap(tensors)) {
    for (auto& item : tensors) {
      item.value() = item.value().clone();
    }
  }
}

OptimizerState optimizer_state(
    const torch::optim::Optimizer& optimizer, const ParameterNames& names) {
  auto result = collect_optimizer_state(optimizer, names);
  separate(result.tensors);
  return result;
}

std::function<void()> prepare_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const OptimizerState& state,
    const ParameterNames& names) {
  TensorSources sources;
  add_sources(sources, state.tensors);
  return prepare_optimizer_state(
      optimizer, state.json, sources, names, nullptr, "The optimizer's state");
}

std::function<void()> prepare_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const std::string& text,
    const TensorSources& sources,
    const ParameterNames& names,
    const PieceOf& piece_of,
    const std::string& what) {
  const Json json = parse_json(text, what);
  const int64_t version = member_int(json, "format_version", what);
  TORCH_CHECK(
      version == kOptimizerFormatVersion,
      what,
      " has format version ",
      version,
      "; this library reads version ",
      kOptimizerFormatVersion);
  const OptimizerFamily* family = family_of(optimizer);
  const std::string saved = member_text(json, "optimizer", what);
  const std::string current = family ? family->name : class_name(optimizer);
  TORCH_CHECK(
      saved == current,
      what,
      " is that of ",
      in_quotes(saved),
      ", but the optimizer is ",
      in_quotes(current),
      ". Make and prepare the same optimizers in the same order as when it was "
      "saved.");
  compare_names(
      member(json, "parameters", what),
      parameter_names(optimizer, names),
      what);
  return family ? family->prepare(optimizer, json, sources, piece_of, what)
                : prepare_archive(optimizer, sources, what);
}

void load_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const OptimizerState& state,
    const ParameterNames& names) {
  prepare_optimizer_state(optimizer, state, names)();
}

std::string scheduler_state(const torch::optim::LRScheduler& scheduler) {
  Json json;
  json["step_count"] =
      StepCount::of(const_cast<torch::optim::LRScheduler&>(scheduler));
  return dump_json(json);
}

void load_scheduler_state(
    torch::optim::LRScheduler& scheduler, const std::string& json) {
  const std::string what = "The scheduler's state";
  const int64_t count =
      member_int(parse_json(json, what), "step_count", what, /*lowest=*/0);
  TORCH_CHECK(
      count <= std::numeric_limits<unsigned>::max(),
      what,
      ": step_count ",
      count,
      " is too large");
  StepCount::of(scheduler) = static_cast<unsigned>(count);
}

} // namespace accel::checkpoint
