#include "core/checkpoint_differences.h"

#include "core/tensor_checksum.h"

#include <accel/checkpoint/optimizer_state.h>

#include <c10/util/Exception.h>

#include <cstddef>
#include <set>
#include <sstream>

namespace accel::detail {
namespace {

/// So many names are listed.
constexpr size_t kListed = 4;

/// The next number of a checksum of several.
uint64_t behind(uint64_t all, const at::Tensor& tensor) {
  return all * 31 + (tensor.defined() ? checksum_of(tensor).value_or(0) : 0);
}

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.insert(line);
  }
  return lines;
}

} // namespace

void CommonChecksums::add(const std::string& name, const std::string& bytes) {
  checksums_[name] = checkpoint::xxh64(bytes.data(), bytes.size());
}

void CommonChecksums::add_buffers(const std::vector<torch::nn::Module*>& models) {
  for (size_t i = 0; i < models.size(); ++i) {
    const auto model = i == 0 ? "model." : "model_" + std::to_string(i) + ".";
    for (const auto& buffer : models[i]->named_buffers()) {
      checksums_["buffer " + model + buffer.key()] = behind(0, buffer.value());
    }
  }
}

void CommonChecksums::add_training(
    const std::vector<torch::nn::Module*>& models,
    const std::vector<torch::optim::Optimizer*>& optimizers) {
  auto& parameters = checksums_["parameters"];
  auto& buffers = checksums_["buffers"];
  for (const auto* model : models) {
    for (const auto& tensor : model->parameters()) {
      parameters = behind(parameters, tensor);
    }
    for (const auto& tensor : model->buffers()) {
      buffers = behind(buffers, tensor);
    }
  }
  auto& states = checksums_["optimizers"];
  for (const auto* optimizer : optimizers) {
    const auto state = checkpoint::optimizer_state(*optimizer);
    states = states * 31 + checkpoint::xxh64(state.json.data(), state.json.size());
    for (const auto& item : state.tensors) {
      states = behind(states, item.value());
    }
  }
}

std::string CommonChecksums::text() const {
  std::string text;
  for (const auto& [name, checksum] : checksums_) {
    text += name + " " + std::to_string(checksum) + "\n";
  }
  return text;
}

std::string differing(
    const std::vector<std::string>& texts, const std::string& prefix) {
  std::set<std::string> names;
  const auto first = lines_of(texts.at(0));
  const auto compare = [&](const auto& lines, const auto& others) {
    for (const auto& line : lines) {
      if (line.rfind(prefix, 0) == 0 && others.count(line) == 0) {
        names.insert(line.substr(0, line.rfind(' ')));
      }
    }
  };
  for (const auto& text : texts) {
    const auto lines = lines_of(text);
    compare(lines, first);
    compare(first, lines);
  }
  std::string list;
  size_t listed = 0;
  for (const auto& name : names) {
    list += list.empty() ? "" : ", ";
    if (++listed > kListed) {
      return list + "…";
    }
    list += name;
  }
  return list;
}

void check_common(
    const std::vector<std::string>& texts, bool trains_locally, bool warns) {
  if (trains_locally) {
    std::string names;
    for (const char* kind : {"parameters", "buffers", "optimizers"}) {
      if (!differing(texts, kind).empty()) {
        names += (names.empty() ? "" : ", ") + std::string(kind);
      }
    }
    TORCH_CHECK(
        names.empty(),
        "accel: save_state was called in the scope of a LocalSGD while what is "
        "trained was not the same on all processes (",
        names,
        "): the checkpoint would have process 0's only. Save behind the scope of "
        "the LocalSGD.");
  }
  if (!warns) {
    return;
  }
  if (const auto names = differing(texts, "buffer "); !names.empty()) {
    TORCH_WARN_ONCE(
        "accel: save_state: with broadcast_buffers(false) models have buffers that "
        "are not the same on all processes (",
        names,
        "). The checkpoint has process 0's, which all of them get when it is loaded, "
        "so that a resumed run computes something else than one that was not "
        "interrupted. Leave broadcast_buffers at true, or make them the same before "
        "save_state.");
  }
  auto names = differing(texts, "object_");
  if (const auto more = differing(texts, "scheduler_"); !more.empty()) {
    names += (names.empty() ? "" : ", ") + more;
  }
  if (!names.empty()) {
    TORCH_WARN_ONCE(
        "accel: save_state: what is registered is not the same on all processes (",
        names,
        ", in the order of registration). The checkpoint has process 0's, which all of "
        "them get when it is loaded. Register what is common to all processes only; "
        "what each one has of its own, a std::mt19937 say, make anew from a common "
        "number and process_index() in each epoch.");
  }
}

} // namespace accel::detail
