#pragma once

#include <cstdint>

/// Between libaccel_trace.so, which is preloaded and knows nothing of LibTorch
/// (so that shells and other programs that the traced one starts are not
/// disturbed), and libaccel_trace_torch.so, which it loads into processes that
/// use LibTorch.
extern "C" {

/// What the second library wants to be told. Arguments are LibTorch's objects.
struct AccelTraceCallbacks {
  /// A module has registered a tensor: `module` is a torch::nn::Module*,
  /// `name` a const std::string*, `tensor` the registered at::Tensor*.
  void (*registered)(
      void* module, const void* name, void* tensor, bool is_buffer);
  /// Around a call of torch::autograd::backward (on whatever way): `roots` and
  /// `gradients` are const std::vector<at::Tensor>*.
  void (*begin_backward)(const void* roots, const void* gradients);
  void (*end_backward)(bool failed);
  /// Around a from_blob of the program (not of LibTorch itself): `maker` is an
  /// at::TensorMaker*, `tensor` the at::Tensor* that it has made. Null where
  /// the program computes in its own dtypes.
  void (*begin_blob)(void* maker);
  void (*end_blob)(void* tensor);
  /// The program asks for the elements of `tensor`, a const at::TensorBase*, as
  /// float: where to read them, or null for what LibTorch says. Null itself
  /// where LibTorch is to say it always.
  float* (*read_as_float)(const void* tensor);
};

/// Exported by the second library: returns the callbacks, or null when it does
/// not trace this process.
using AccelTraceStart = const AccelTraceCallbacks* (*)();
}

constexpr const char* kAccelTraceStart = "accel_trace_start";
