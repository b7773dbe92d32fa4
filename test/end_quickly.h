#pragma once

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <unistd.h>

// Defined where a sanitizer is linked in.
extern "C" {
__attribute__((weak)) void __asan_init();
__attribute__((weak)) void __tsan_init();
}

namespace accel::detail {
// The library's own (core/read_values.h), declared here: this is compiled
// without its headers. A program that is not linked with it has none.
__attribute__((weak)) int exit_code_at_end(int status);
} // namespace accel::detail

namespace accel::test {

/// For programs of tests that start hundreds of processes: from now on this
/// process and those that it forks end without LibTorch's static destructors.
/// These take each of its 3,000 operators out of the dispatcher again, 0.15 s of
/// processor time a process: more than most tests. What is registered by
/// std::atexit from now on, and objects of functions that are made from now on,
/// end as ever. That programs end well without it is tested, too: some of those
/// that stand for a user's do (test/e2e, e2e_program). Nothing changes under a sanitizer: what it looks for at
/// the end it finds.
inline void end_quickly() {
  if (&__asan_init != nullptr || &__tsan_init != nullptr) {
    return;
  }
  const auto end = [](int status, void*) {
    std::cout.flush();
    std::cerr.flush();
    std::fflush(nullptr);
    ::_exit(&detail::exit_code_at_end != nullptr ? detail::exit_code_at_end(status) : status);
  };
  if (::on_exit(end, nullptr) != 0) {
    std::cerr << "end_quickly: no room for a handler\n";
    std::abort();
  }
}

} // namespace accel::test
