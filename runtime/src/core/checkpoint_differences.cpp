#include "core/checkpoint_differences.h"

#include "core/tensor_checksum.h"

#include <accel/checkpoint/optimizer_state.h>

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

} // namespace accel::detail
