// The host touches memory of a device: who it was.

#include "hardware.h"

#include <ATen/record_function.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include <unistd.h>

namespace accel::sim {
namespace {

thread_local const char* current = nullptr;
thread_local const char* last = nullptr;
thread_local char last_text[128];

struct Outer : at::ObserverContext {
  const char* name = nullptr;
};

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  auto outer = std::make_unique<Outer>();
  outer->name = current;
  current = function.name();
  return outer;
}

void leave(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
  if (current != nullptr) {
    // The name may be gone later.
    std::strncpy(last_text, current, sizeof last_text - 1);
    last = last_text;
  }
  current = static_cast<Outer*>(context)->name;
}

struct sigaction previous;

void on_fault(int signal, siginfo_t* info, void* /*context*/) {
  c10::DeviceIndex device = 0;
  if (is_seen_address(info->si_addr, &device)) {
    char text[512];
    const auto note = operator_note();
    const int size = std::snprintf(
        text,
        sizeof text,
        "sim:%d: the host touches memory of the device, at %p, %s%s. Copy the "
        "tensor to the CPU first.\n",
        static_cast<int>(device),
        info->si_addr,
        note.current != nullptr ? "in operator " : "outside of operators, after ",
        note.current != nullptr ? note.current
            : note.last != nullptr ? note.last
                                   : "none");
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, static_cast<size_t>(size));
  }
  // Again, as if nobody had looked.
  ::sigaction(signal, &previous, nullptr);
}

[[maybe_unused]] const bool installed = [] {
  for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
    arena(i); // the handler must not map anything
  }
  at::addGlobalCallback(at::RecordFunctionCallback(enter, leave)
                            .scopes({at::RecordScope::FUNCTION}));
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  return ::sigaction(SIGSEGV, &action, &previous) == 0;
}();

} // namespace

OperatorNote operator_note() {
  return {current, last};
}

InKernel::InKernel(const char* name) : outer_(current) {
  current = name;
}

InKernel::~InKernel() {
  current = outer_;
}

} // namespace accel::sim
