// The one file that depends on the version of LibTorch: the interface has
// other virtual functions in other versions, in a fixed order.

#include "variable_hooks.h"

#include <ATen/core/VariableHooksInterface.h>
#include <torch/version.h>

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <string>

/// The LibTorch of this build; empty where it may be any (built_with.cpp, which
/// CMake makes).
extern const char* const kBuiltWithLibTorch;

namespace accel::verify {
namespace {

using at::TensorBase;

/// Passes every call on to LibTorch's own hooks.
class Hooks final : public at::impl::VariableHooksInterface {
 public:
  Hooks(at::impl::VariableHooksInterface* inner, BackwardObserver observer)
      : inner_(inner), observer_(observer) {}

  void _backward(
      const at::Tensor& self,
      at::TensorList inputs,
      const std::optional<at::Tensor>& gradient,
      std::optional<bool> keep_graph,
      bool create_graph) const override {
    observer_(self, gradient, [&] {
      inner_->_backward(self, inputs, gradient, keep_graph, create_graph);
    });
  }

  TensorBase tensor_data(const TensorBase& self) const override {
    return inner_->tensor_data(self);
  }
  TensorBase variable_data(const TensorBase& self) const override {
    return inner_->variable_data(self);
  }
  const std::shared_ptr<torch::autograd::Node>& grad_fn(
      const TensorBase& self) const override {
    return inner_->grad_fn(self);
  }
  unsigned _register_hook(
      const TensorBase& self,
      std::function<TensorBase(const TensorBase&)> hook) const override {
    return inner_->_register_hook(self, std::move(hook));
  }
  void remove_hook(const TensorBase& self, unsigned position) const override {
    inner_->remove_hook(self, position);
  }
  bool is_view(const TensorBase& self) const override {
    return inner_->is_view(self);
  }
  const TensorBase& base(const TensorBase& self) const override {
    return inner_->base(self);
  }
  const std::string& name(const TensorBase& self) const override {
    return inner_->name(self);
  }
  bool is_leaf(const TensorBase& self) const override {
    return inner_->is_leaf(self);
  }
  int64_t output_nr(const TensorBase& self) const override {
    return inner_->output_nr(self);
  }
  void set_data(const TensorBase& self, const TensorBase& data) const override {
    inner_->set_data(self, data);
  }
  TensorBase data(const TensorBase& self) const override {
    return inner_->data(self);
  }
  int64_t _version(const TensorBase& self) const override {
    return inner_->_version(self);
  }
  void retain_grad(const TensorBase& self) const override {
    inner_->retain_grad(self);
  }
  bool retains_grad(const TensorBase& self) const override {
    return inner_->retains_grad(self);
  }
  void requires_grad_(const TensorBase& self, bool value) const override {
    inner_->requires_grad_(self, value);
  }
  void basic_autograd_not_implemented_fallback(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      torch::jit::Stack* stack) const override {
    inner_->basic_autograd_not_implemented_fallback(op, keys, stack);
  }
#ifdef ACCEL_HOOKS_HAVE_GRAD_DTYPE // found out by CMake
  std::optional<c10::ScalarType> grad_dtype(
      const TensorBase& self) const override {
    return inner_->grad_dtype(self);
  }
  void set_grad_dtype(
      const TensorBase& self,
      const std::optional<c10::ScalarType>& dtype) const override {
    inner_->set_grad_dtype(self, dtype);
  }
#endif

 private:
  at::impl::VariableHooksInterface* inner_;
  BackwardObserver observer_;
};

/// "2.11" from the headers beside the library at `path`; empty without them.
std::string version_beside(const std::filesystem::path& path) {
  const auto include = path.parent_path().parent_path() / "include";
  std::ifstream header(include / "torch/headeronly/version.h");
  if (!header) {
    header.open(include / "torch/csrc/api/include/torch/version.h");
  }
  std::string version;
  std::string line;
  while (std::getline(header, line)) {
    for (const char* part : {"MAJOR ", "MINOR "}) {
      const std::string start = std::string("#define TORCH_VERSION_") + part;
      if (line.rfind(start, 0) == 0) {
        version += (version.empty() ? "" : ".") + line.substr(start.size());
      }
    }
  }
  return version;
}

} // namespace

void observe_backward(BackwardObserver observer) {
  // Never destroyed: backward may be called until the very end.
  static auto* hooks = new Hooks(at::impl::GetVariableHooks(), observer);
  at::impl::SetVariableHooks(hooks);
}

std::string libtorch_mismatch() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&at::impl::SetVariableHooks), &info) ==
      0) {
    return "the process's LibTorch was not found";
  }
  std::error_code none;
  const auto path = std::filesystem::canonical(info.dli_fname, none);
  if (path.string() == kBuiltWithLibTorch) {
    return "";
  }
  const std::string built = std::to_string(TORCH_VERSION_MAJOR) + "." +
      std::to_string(TORCH_VERSION_MINOR);
  const std::string found = version_beside(path);
  if (found == built) {
    return "";
  }
  return "the program uses LibTorch " +
      (found.empty() ? "of an unknown version" : found) + " (" +
      path.string() + "), and accel was built with " + built +
      ". Build accel with -DACCEL_LIBTORCH= the program's LibTorch, and run "
      "its accel verify";
}

} // namespace accel::verify
