#include "device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace accel::distributed::test {
namespace {

at::Device& chosen() {
  static at::Device device = at::kCPU;
  return device;
}

} // namespace

at::Device device() {
  return chosen();
}

void set_device(const std::string& name) {
  at::Device named(name);
  if (named.is_cpu()) {
    return;
  }
  chosen() = at::Device(
      named.type(), named.has_index() ? named.index() : c10::DeviceIndex{0});
  auto& context = at::globalContext();
  if (named.is_cuda()) {
    context.setAllowTF32CuDNN(false);
    context.setAllowTF32CuBLAS(false);
    context.setDeterministicCuDNN(true);
  }
  finish_device();
}

void add_device(CLI::App& app, std::string& name) {
  app.add_option(
         "--device", name,
         "Where all tensors are: cpu, cuda, or what a preloaded library has "
         "registered (sim)")
      ->capture_default_str();
}

at::Tensor on_device(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device() == device()) {
    return tensor;
  }
  if (tensor.layout() != at::kStrided || tensor.is_non_overlapping_and_dense()) {
    return tensor.to(device());
  }
  at::Tensor base = tensor;
  bool expanded = false;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) {
      base = base.narrow(d, 0, 1);
      expanded = true;
    }
  }
  if (expanded) {
    return base.clone(at::MemoryFormat::Contiguous)
        .to(device())
        .expand(tensor.sizes());
  }
  auto copy = at::empty_strided(
      tensor.sizes(), tensor.strides(), tensor.options().device(device()));
  copy.copy_(tensor);
  return copy;
}

c10::IValue changed(
    const c10::IValue& value,
    const std::function<at::Tensor(const at::Tensor&)>& change) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    return tensor.defined() ? change(tensor) : tensor;
  }
  if (value.isTensorList()) {
    auto list = value.toTensorVector();
    for (auto& tensor : list) {
      tensor = tensor.defined() ? change(tensor) : tensor;
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor :
         value.toOptionalTensorList().vec()) {
      list.push_back(
          tensor ? std::optional<at::Tensor>(change(*tensor)) : tensor);
    }
    return list;
  }
  return value;
}

torch::jit::Stack changed(
    const torch::jit::Stack& stack,
    const std::function<at::Tensor(const at::Tensor&)>& change) {
  torch::jit::Stack copy;
  copy.reserve(stack.size());
  for (const auto& value : stack) {
    copy.push_back(changed(value, change));
  }
  return copy;
}

torch::jit::Stack on_device(
    const c10::FunctionSchema& schema,
    const torch::jit::Stack& arguments) {
  if (device().is_cpu()) {
    return arguments;
  }
  torch::jit::Stack moved;
  bool any = false;
  for (const auto& value : arguments) {
    moved.push_back(changed(value, [&](const at::Tensor& tensor) {
      any = true;
      return on_device(tensor);
    }));
    if (value.isDevice()) {
      moved.back() = device();
    }
  }
  const auto i = schema.argumentIndexWithName("device");
  if (!any && i && static_cast<size_t>(*i) < moved.size() && moved[*i].isNone()) {
    moved[*i] = device();
  }
  return moved;
}

torch::jit::Stack written_results(
    const c10::FunctionSchema& schema, torch::jit::Stack results) {
  // The sum of weights where nothing is reduced; the sizes of bags in a sum; the state
  // of random numbers where there is no dropout, and what only cuDNN reads.
  static const std::map<std::string, std::vector<size_t>> unwritten{
      {"aten::nll_loss2d_forward", {1}},
      {"aten::_embedding_bag", {2}},
      {"aten::_embedding_bag_forward_only", {2}},
      {"aten::_scaled_dot_product_flash_attention", {6, 7, 8}},
      {"aten::_flash_attention_forward", {2, 3, 4}},
      {"aten::_scaled_dot_product_efficient_attention", {2, 3}},
      {"aten::_efficient_attention_forward", {2, 3}},
      {"aten::_scaled_dot_product_cudnn_attention", {6, 7, 8}},
      {"aten::_cudnn_attention_forward", {6, 7, 8}},
      {"aten::_cudnn_rnn", {3, 4}}};
  const auto found = unwritten.find(schema.name());
  if (!device().is_cpu() && found != unwritten.end()) {
    for (const size_t i : found->second) {
      if (i < results.size()) {
        results[i] = at::Tensor();
      }
    }
  }
  return results;
}

bool has_own_strides(const c10::FunctionSchema& schema) {
  static const std::set<std::string> names{
      "aten::max_unpool2d", "aten::max_unpool3d", "aten::_linalg_svd",
      "aten::scaled_dot_product_attention",
      "aten::_scaled_dot_product_efficient_attention"};
  return !device().is_cpu() && names.count(schema.name()) != 0;
}

bool may_overlap(const c10::FunctionSchema& schema) {
  return !device().is_cpu() &&
      (schema.name() == "aten::as_strided" || schema.name() == "aten::unfold");
}


void finish_device() {
  if (!device().is_cpu()) {
    at::ones({1}, device()).add(1).cpu();
  }
}

bool device_works() {
  // The first may throw what an operator before it has left behind.
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      finish_device();
      return true;
    } catch (const std::exception&) {
    }
  }
  return false;
}

} // namespace accel::distributed::test
