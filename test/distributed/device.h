#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

namespace accel::distributed::test {

/// The device that tensors of this program are on: the CPU, unless `set_device`
/// says another one.
at::Device device();

/// "cpu", "cuda", "cuda:1", or the name of a device that a preloaded library has
/// registered ("sim"). Also makes the device compute as exactly as it can: without
/// TF32, with cuDNN's deterministic kernels. Throws where there is no such device.
void set_device(const std::string& name);

/// The option --device.
void add_device(CLI::App& app, std::string& name);

/// The same values with the same strides on the device; also of an expanded tensor
/// and of one with gaps. On the CPU the tensor itself.
at::Tensor on_device(const at::Tensor& tensor);

/// The same value with other tensors; lists are new ones.
c10::IValue changed(
    const c10::IValue& value,
    const std::function<at::Tensor(const at::Tensor&)>& change);
torch::jit::Stack changed(
    const torch::jit::Stack& stack,
    const std::function<at::Tensor(const at::Tensor&)>& change);

/// A call's arguments with its tensors on the device, with the device wherever
/// another is named, and also where none is and nothing else says which one
/// (`zeros`).
torch::jit::Stack on_device(
    const c10::FunctionSchema& schema,
    const torch::jit::Stack& arguments);

/// The results without those that CUDA's kernel leaves unwritten.
torch::jit::Stack written_results(
    const c10::FunctionSchema& schema, torch::jit::Stack results);

/// Whether CUDA's kernel chooses the order of the result's memory by the number of
/// rows, so that a part of them has another.
bool has_own_strides(const c10::FunctionSchema& schema);

/// Whether elements of the view may share their memory: CUDA writes them at the same
/// time, and what it leaves is any of them.
bool may_overlap(const c10::FunctionSchema& schema);

/// Waits for the device, and throws what has gone wrong there until now.
void finish_device();

/// Whether the device still computes. After an error in a kernel (an index out of
/// range) a CUDA device never does again in this process.
bool device_works();

} // namespace accel::distributed::test
