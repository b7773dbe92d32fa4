// libaccel_trace_torch.so: loaded by libaccel_trace.so (preload.cpp) into a
// process that uses LibTorch, before its main.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <typeinfo>

#include "double_precision.h"
#include "preload.h"
#include "recorder.h"
#include "variable_hooks.h"
#include "widen_modules.h"

namespace accel::verify {
namespace {

/// Never destroyed: it is used until the very end of the process.
Recorder* recorder = nullptr;
bool widen_modules = false;

std::string demangle(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void registered(void* module, const void* name, void* tensor, bool is_buffer) {
  if (widen_modules) {
    widen_registered(*static_cast<const at::Tensor*>(tensor));
  }
  const auto& type = typeid(*static_cast<torch::nn::Module*>(module));
  recorder->registered(
      module,
      demangle(type.name()),
      *static_cast<const std::string*>(name),
      *static_cast<const at::Tensor*>(tensor),
      is_buffer ? TensorKind::kBuffer : TensorKind::kParameter);
}

/// What a backward starts from: the loss, or the product with what the
/// program passes for its gradient.
double value_of(const at::Tensor& root, const at::Tensor& gradient) {
  const c10::NoGradGuard no_grad;
  const auto detached = root.detach();
  if (detached.is_complex()) {
    return 0;
  }
  if (gradient.defined()) {
    return (detached * gradient.detach()).sum().item<double>();
  }
  return detached.numel() == 1 ? detached.item<double>() : 0;
}

void observe(
    const at::Tensor& loss,
    const std::optional<at::Tensor>& gradient,
    const std::function<void()>& run) {
  if (recorder->busy()) {
    run();
    return;
  }
  recorder->begin_plain(
      {loss}, value_of(loss, gradient.value_or(at::Tensor())));
  try {
    run();
  } catch (...) {
    recorder->end_plain(/*failed=*/true);
    throw;
  }
  recorder->end_plain(/*failed=*/false);
}

thread_local int ignored = 0;

/// torch::autograd::backward, which `Tensor::backward` ends in as well.
void begin_backward(const void* roots, const void* gradients) {
  if (recorder->busy()) {
    ++ignored;
    return;
  }
  const auto& losses = *static_cast<const std::vector<at::Tensor>*>(roots);
  const auto& weights = *static_cast<const std::vector<at::Tensor>*>(gradients);
  double value = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    value += value_of(
        losses[i], i < weights.size() ? weights[i] : at::Tensor());
  }
  recorder->begin_plain(losses, value);
}

void end_backward(bool failed) {
  if (ignored > 0) {
    --ignored;
    return;
  }
  recorder->end_plain(failed);
}

/// libaccel, where the program uses it, tells the global quantities.
void meet_runtime() {
  using Set = bool (*)(int, detail::TraceSink*);
  const auto set =
      reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "accel_set_trace_sink"));
  if (set != nullptr && !set(detail::kTraceSinkVersion, recorder)) {
    recorder->note(
        "the program's libaccel is of another version than accel verify");
  }
}

Recorder::Options read_options() {
  Recorder::Options options;
  options.directory = environment(kTraceDirectory);
  const std::string widening = environment(kTraceDouble);
  options.widening = widening == kTraceDoubleAll ? Widening::kAll
      : widening == kTraceDoubleModules          ? Widening::kModules
      : widening == kTraceDoubleDefault          ? Widening::kDefault
                                                 : Widening::kNone;
  const std::string seed = environment(kTraceSeed);
  options.seeded = !seed.empty();
  options.seed = std::strtoull(seed.c_str(), nullptr, 10);
  options.max_steps =
      std::strtoull(environment(kTraceMaxSteps).c_str(), nullptr, 10);
  options.noise = !environment(kTraceNoise).empty();
  const std::string world_size = environment("WORLD_SIZE");
  if (!world_size.empty()) {
    options.world_size = std::strtoll(world_size.c_str(), nullptr, 10);
    options.rank = std::strtoll(environment("RANK").c_str(), nullptr, 10);
  }
  return options;
}

AccelTraceCallbacks callbacks = {
    registered, begin_backward, end_backward, nullptr, nullptr, nullptr};

} // namespace
} // namespace accel::verify

extern "C" __attribute__((visibility("default")))
const AccelTraceCallbacks* accel_trace_start() {
  using namespace accel::verify;
  const auto options = read_options();
  if (options.directory.empty()) {
    return nullptr;
  }
  try {
    recorder = new Recorder(options);
  } catch (const std::exception& error) {
    std::fprintf(
        stderr,
        "accel verify: this process is not recorded: %s\n",
        error.what());
    return nullptr;
  }
  const std::string mismatch = libtorch_mismatch();
  if (!mismatch.empty()) {
    recorder->note(mismatch);
    recorder->finish();
    return nullptr;
  }
  // What the program says itself comes later and counts.
  if (options.widening == Widening::kModules) {
    widen_modules = true;
    widen_operators();
    callbacks.read_as_float = &read_as_float;
  } else if (options.widening != Widening::kNone) {
    use_double_precision(options.widening);
    callbacks.begin_blob = &begin_blob;
    callbacks.end_blob = &end_blob;
  }
  if (options.seeded) {
    at::manual_seed(options.seed);
  }
  meet_runtime();
  std::atexit([] { recorder->finish_unused(); });
  observe_backward(&observe);
  return &callbacks;
}
