// libaccel_trace.so: what `accel verify` preloads. It only looks whether this
// process uses LibTorch; where it does, it loads libaccel_trace_torch.so from
// its own folder and passes on to it the calls that it stands in for.

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "preload.h"

namespace {

const AccelTraceCallbacks* callbacks = nullptr;

template <typename Function>
Function next(const char* symbol) {
  void* found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    std::fprintf(stderr, "accel verify: LibTorch has no %s\n", symbol);
    std::abort();
  }
  return reinterpret_cast<Function>(found);
}

/// The process that uses LibTorch is found: what it starts is not traced.
void remove_from_environment(const std::string& self) {
  const char* value = std::getenv("LD_PRELOAD");
  std::string rest;
  std::string list = value == nullptr ? "" : value;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find_first_of(": ", begin), list.size());
    const std::string entry = list.substr(begin, end - begin);
    if (!entry.empty() && entry != self) {
      rest += (rest.empty() ? "" : ":") + entry;
    }
    begin = end + 1;
  }
  if (rest.empty()) {
    unsetenv("LD_PRELOAD");
  } else {
    setenv("LD_PRELOAD", rest.c_str(), 1);
  }
}

__attribute__((constructor)) void start() {
  if (dlsym(
          RTLD_DEFAULT,
          "_ZN2at4impl16SetVariableHooksEPNS0_22VariableHooksInterfaceE") ==
      nullptr) {
    return;
  }
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&start), &info) == 0) {
    return;
  }
  const std::string self = info.dli_fname;
  remove_from_environment(self);
  const std::string path =
      self.substr(0, self.rfind('/') + 1) + "libaccel_trace_torch.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "accel verify: %s\n", dlerror());
    return;
  }
  const auto begin =
      reinterpret_cast<AccelTraceStart>(dlsym(library, kAccelTraceStart));
  if (begin != nullptr) {
    callbacks = begin();
  }
}

} // namespace

// The functions of LibTorch that are looked at. Class objects are passed by
// address (Itanium C++ ABI), so that no header of LibTorch is needed.

#define STRING "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#define REGISTER_PARAMETER \
  "_ZN5torch2nn6Module18register_parameterE" STRING "N2at6TensorEb"
#define REGISTER_BUFFER \
  "_ZN5torch2nn6Module15register_bufferE" STRING "N2at6TensorE"
#define BACKWARD                                                  \
  "_ZN5torch8autograd8backwardERKSt6vectorIN2at6TensorESaIS3_EES" \
  "7_St8optionalIbEbS7_"
#define MAKE_TENSOR "_ZN2at11TensorMaker11make_tensorEv"
#define DATA_PTR "_ZNK2at10TensorBase8data_ptrIfEEPT_v"
#define MUTABLE_DATA_PTR "_ZNK2at10TensorBase16mutable_data_ptrIfEEPT_v"
#define CONST_DATA_PTR "_ZNK2at10TensorBase14const_data_ptrIfLi0EEEPKT_v"
#define CONST_DATA_PTR_OF_CONST \
  "_ZNK2at10TensorBase14const_data_ptrIKfLi0EEEPKNSt12remove_constIT_E4typeEv"

/// Not in an unnamed namespace: a function of such a type could not be exported.
namespace accel::verify {

/// An at::Tensor as functions return it: not trivial, so that it lies where the
/// caller says. Only its address is used here.
struct ReturnedTensor {
  explicit ReturnedTensor(void* content) : implementation(content) {}
  ReturnedTensor(ReturnedTensor&& other) noexcept
      : implementation(other.implementation) {}
  ReturnedTensor(const ReturnedTensor&) = delete;
  ReturnedTensor& operator=(const ReturnedTensor&) = delete;
  ReturnedTensor& operator=(ReturnedTensor&&) = delete;
  ~ReturnedTensor() {} // NOLINT: what makes it not trivial

  void* implementation;
};

} // namespace accel::verify

namespace {

/// from_blob is inline: a program's call comes from the program. LibTorch's
/// own calls, and libaccel's, write through the memory that they give.
bool is_library(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    return false;
  }
  const char* slash = std::strrchr(info.dli_fname, '/');
  const char* name = slash == nullptr ? info.dli_fname : slash + 1;
  return std::strncmp(name, "libtorch", 8) == 0 ||
      std::strncmp(name, "libc10", 6) == 0 ||
      std::strncmp(name, "libaccel", 8) == 0;
}

/// Elements that are taken for float.
template <typename Float>
Float* elements(const void* tensor, Float* (*real)(const void*)) {
  Float* copy = callbacks == nullptr || callbacks->read_as_float == nullptr
      ? nullptr
      : callbacks->read_as_float(tensor);
  return copy != nullptr ? copy : real(tensor);
}

} // namespace

// Not with the others: a function that returns a class is not C's.
__attribute__((visibility("default"))) accel::verify::ReturnedTensor
accel_trace_make_tensor(void* maker) __asm__(MAKE_TENSOR);

accel::verify::ReturnedTensor accel_trace_make_tensor(void* maker) {
  static const auto real = next<accel::verify::ReturnedTensor (*)(void*)>(MAKE_TENSOR);
  if (callbacks == nullptr || callbacks->begin_blob == nullptr ||
      is_library(__builtin_return_address(0))) {
    return real(maker);
  }
  callbacks->begin_blob(maker);
  accel::verify::ReturnedTensor tensor = real(maker);
  callbacks->end_blob(&tensor);
  return tensor;
}

extern "C" {

__attribute__((visibility("default"))) float* accel_trace_data_ptr(
    const void* tensor) __asm__(DATA_PTR);
__attribute__((visibility("default"))) float* accel_trace_mutable_data_ptr(
    const void* tensor) __asm__(MUTABLE_DATA_PTR);
__attribute__((visibility("default"))) const float* accel_trace_const_data_ptr(
    const void* tensor) __asm__(CONST_DATA_PTR);
__attribute__((visibility("default"))) const float*
accel_trace_const_data_ptr_of_const(const void* tensor)
    __asm__(CONST_DATA_PTR_OF_CONST);
__attribute__((visibility("default"))) void* accel_trace_register_parameter(
    void* module, void* name, void* tensor, bool requires_grad)
    __asm__(REGISTER_PARAMETER);
__attribute__((visibility("default"))) void* accel_trace_register_buffer(
    void* module, void* name, void* tensor) __asm__(REGISTER_BUFFER);
__attribute__((visibility("default"))) void accel_trace_backward(
    const void* roots,
    const void* gradients,
    uint16_t retain_graph,
    bool create_graph,
    const void* inputs) __asm__(BACKWARD);

void* accel_trace_register_parameter(
    void* module, void* name, void* tensor, bool requires_grad) {
  static const auto real =
      next<void* (*)(void*, void*, void*, bool)>(REGISTER_PARAMETER);
  // LibTorch moves from its arguments.
  const std::string copy = *static_cast<const std::string*>(name);
  void* registered = real(module, name, tensor, requires_grad);
  if (callbacks != nullptr) {
    callbacks->registered(module, &copy, registered, /*is_buffer=*/false);
  }
  return registered;
}

void* accel_trace_register_buffer(void* module, void* name, void* tensor) {
  static const auto real =
      next<void* (*)(void*, void*, void*)>(REGISTER_BUFFER);
  const std::string copy = *static_cast<const std::string*>(name);
  void* registered = real(module, name, tensor);
  if (callbacks != nullptr) {
    callbacks->registered(module, &copy, registered, /*is_buffer=*/true);
  }
  return registered;
}

float* accel_trace_data_ptr(const void* tensor) {
  static const auto real = next<float* (*)(const void*)>(DATA_PTR);
  return elements(tensor, real);
}

float* accel_trace_mutable_data_ptr(const void* tensor) {
  static const auto real = next<float* (*)(const void*)>(MUTABLE_DATA_PTR);
  return elements(tensor, real);
}

const float* accel_trace_const_data_ptr(const void* tensor) {
  static const auto real = next<const float* (*)(const void*)>(CONST_DATA_PTR);
  return elements(tensor, real);
}

const float* accel_trace_const_data_ptr_of_const(const void* tensor) {
  static const auto real =
      next<const float* (*)(const void*)>(CONST_DATA_PTR_OF_CONST);
  return elements(tensor, real);
}

/// `retain_graph` is a std::optional<bool>, which is passed like an integer.
void accel_trace_backward(
    const void* roots,
    const void* gradients,
    uint16_t retain_graph,
    bool create_graph,
    const void* inputs) {
  static const auto real =
      next<void (*)(const void*, const void*, uint16_t, bool, const void*)>(
          BACKWARD);
  if (callbacks == nullptr) {
    real(roots, gradients, retain_graph, create_graph, inputs);
    return;
  }
  callbacks->begin_backward(roots, gradients);
  try {
    real(roots, gradients, retain_graph, create_graph, inputs);
  } catch (...) {
    callbacks->end_backward(/*failed=*/true);
    throw;
  }
  callbacks->end_backward(/*failed=*/false);
}
}
