#include "widen_modules.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace accel::verify {
namespace {

/// Above autograd, as autocast is: gradients go back through the conversions.
/// Of a device that no build of LibTorch for these machines has.
constexpr auto kKey = c10::DispatchKey::AutocastIPU;

bool is_float(const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat;
}

bool is_double(const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kDouble &&
      !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

/// Calls `function` with each tensor of an argument, which it may replace.
template <typename Function>
void for_tensors(c10::IValue& argument, const Function& function) {
  if (argument.isTensor()) {
    auto tensor = argument.toTensor();
    if (function(tensor)) {
      argument = std::move(tensor);
    }
  } else if (argument.isTensorList()) {
    auto list = argument.toTensorVector();
    bool replaced = false;
    for (auto& tensor : list) {
      replaced |= function(tensor);
    }
    if (replaced) {
      argument = std::move(list);
    }
  } else if (argument.isOptionalTensorList()) {
    // A list that others hold as well: not written into.
    c10::List<std::optional<at::Tensor>> list;
    bool replaced = false;
    for (const std::optional<at::Tensor>& item :
         argument.toOptionalTensorList()) {
      auto tensor = item.value_or(at::Tensor());
      replaced |= function(tensor);
      list.push_back(item ? std::optional(std::move(tensor)) : std::nullopt);
    }
    if (replaced) {
      argument = std::move(list);
    }
  }
}

/// Operators whose result has elements of their arguments and no others. A
/// program may go on to fill or read it as float.
bool only_moves(const std::string& name) {
  static const std::set<std::string> names = {
      "aten::alias_copy",      "aten::block_diag",
      "aten::bincount",        "aten::cat",
      "aten::clone",           "aten::concat",
      "aten::constant_pad_nd", "aten::contiguous",
      "aten::empty_like",      "aten::flip",
      "aten::full_like",       "aten::gather",
      "aten::hstack",          "aten::index",
      "aten::index_select",    "aten::item",
      "aten::masked_select",   "aten::new_empty",
      "aten::new_empty_strided", "aten::new_full",
      "aten::new_ones",        "aten::new_zeros",
      "aten::ones_like",       "aten::pin_memory",
      "aten::rand_like",       "aten::randint_like",
      "aten::randn_like",      "aten::repeat",
      "aten::repeat_interleave", "aten::roll",
      "aten::stack",           "aten::take",
      "aten::tile",            "aten::to",
      "aten::unsafe_chunk",    "aten::unsafe_split",
      "aten::vstack",          "aten::zeros_like",
      "aten::_local_scalar_dense", "aten::_to_copy"};
  return names.count(name) != 0;
}

/// What float32 and float64 among the arguments are to become: the dtype of what
/// the operator writes into, else the wider one; float64 also where all are
/// float32 and the operator computes (a sum of shared rows is rounded otherwise).
/// Nothing where they stay.
std::optional<at::ScalarType> common_type(
    const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments) {
  bool floats = false;
  bool doubles = false;
  std::optional<at::ScalarType> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto argument = arguments[i];
    const auto* alias = schema.arguments()[i].alias_info();
    for_tensors(argument, [&](at::Tensor& tensor) {
      if (is_float(tensor) || is_double(tensor)) {
        (is_float(tensor) ? floats : doubles) = true;
        if (alias != nullptr && alias->isWrite()) {
          written = tensor.scalar_type();
        }
      }
      return false;
    });
  }
  if (!floats || (!doubles && (written || only_moves(schema.name())))) {
    return std::nullopt;
  }
  return written.value_or(at::kDouble);
}

void call(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  const auto type =
      common_type(schema, torch::jit::last(*stack, count));
  if (type) {
    for (size_t i = 0; i < count; ++i) {
      // What a result is a view of, and what is written into, stays.
      if (schema.arguments()[i].alias_info() == nullptr) {
        for_tensors(
            torch::jit::peek(*stack, i, count), [&](at::Tensor& tensor) {
              const bool other = (is_float(tensor) || is_double(tensor)) &&
                  tensor.scalar_type() != *type;
              if (other) {
                tensor = tensor.to(*type);
              }
              return other;
            });
      }
    }
  }
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

/// What was given for the elements of one tensor, and what it was then.
struct Copy {
  at::Tensor given;
  at::Tensor before;
};
std::mutex copies_mutex;
/// Never destroyed: the program may read to its very end.
std::vector<Copy>& copies() {
  static auto* all = new std::vector<Copy>;
  return *all;
}

/// The copies are kept, as nobody tells how long they are read.
constexpr size_t kMaxBytes = size_t{2} << 30;
size_t copied_bytes = 0;

at::ArrayRef<Copy> latest() {
  const at::ArrayRef<Copy> all = copies();
  return all.slice(all.size() - std::min<size_t>(all.size(), 4));
}

/// NaN differs from itself: as bytes.
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.view(at::kInt).equal(b.view(at::kInt));
}

} // namespace

void widen_operators() {
  // Never destroyed: the kernel stays to the end of the program.
  auto* library =
      new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&call>());
  c10::impl::tls_set_dispatch_key_excluded(kKey, false);
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

void widen_registered(const at::Tensor& tensor) {
  if (is_float(tensor)) {
    const c10::NoGradGuard no_grad;
    tensor.set_data(tensor.detach().to(at::kDouble));
  }
}

float* read_as_float(const void* tensor) {
  const auto& base = *static_cast<const at::TensorBase*>(tensor);
  if (!base.defined() || base.scalar_type() != at::kDouble ||
      !base.device().is_cpu()) {
    return nullptr;
  }
  // A tensor without memory of its own (one that is distributed) has its own
  // error for who asks for it.
  if (base.numel() == 0 || base.const_data_ptr() == nullptr) {
    return nullptr;
  }
  const c10::NoGradGuard no_grad;
  const auto wide = at::Tensor(base).detach();
  auto given = at::empty_strided(
      wide.sizes(), wide.strides(), wide.options().dtype(at::kFloat));
  given.copy_(wide);
  const std::lock_guard<std::mutex> lock(copies_mutex);
  // A loop that asks for each element by itself.
  for (const auto& [last, before] : latest()) {
    if (last.sizes() == given.sizes() && last.strides() == given.strides() &&
        same_bytes(before, given)) {
      return last.mutable_data_ptr<float>();
    }
  }
  copied_bytes += given.nbytes();
  if (copied_bytes > kMaxBytes) {
    return nullptr;
  }
  copies().push_back({given, given.clone()});
  return given.mutable_data_ptr<float>();
}

bool wrote_into_copies() {
  const std::lock_guard<std::mutex> lock(copies_mutex);
  return std::any_of(copies().begin(), copies().end(), [](const Copy& copy) {
    return !same_bytes(copy.given, copy.before);
  });
}

} // namespace accel::verify
