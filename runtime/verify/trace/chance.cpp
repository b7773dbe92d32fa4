// What a program draws from std::random_device and reads from time(): under
// `accel verify` the same in each run, so that programs that seed themselves from
// them can be compared. Processes other than the first of a migrated program draw
// other numbers, as they do without `accel verify`: a seed that is not broadcast
// is to be seen.

#include "../trace_format.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

namespace {

/// Whether code is the program's own. Libraries name files by chance, and those of
/// a run of several processes do it more often than those of one.
bool is_of_program(const void* code) {
  struct Query {
    ElfW(Addr) code;
    bool found;
  } query{reinterpret_cast<ElfW(Addr)>(code), false};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* data) {
        auto& query = *static_cast<Query*>(data);
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& part = object->dlpi_phdr[i];
          const ElfW(Addr) start = object->dlpi_addr + part.p_vaddr;
          query.found |= part.p_type == PT_LOAD && query.code >= start &&
              query.code < start + part.p_memsz;
        }
        return 1; // the first object is the program
      },
      &query);
  return query.found;
}

/// Who draws. Without optimization operator() is a function, and then libraries
/// use the program's copy of it.
[[gnu::noinline]] const void* drawer() {
  void* frames[4] = {}; // this one, _M_getval, operator() or who calls it, ...
  if (backtrace(frames, 4) < 4) {
    return nullptr;
  }
  Dl_info symbol{};
  const bool is_operator = dladdr(frames[2], &symbol) != 0 &&
      symbol.dli_sname != nullptr &&
      std::strcmp(symbol.dli_sname, "_ZNSt13random_deviceclEv") == 0;
  return frames[is_operator ? 3 : 2];
}

/// What the command says of this process.
struct Chance {
  bool is_fixed = false;
  bool is_main = true;
  uint64_t seed = 0;
  std::time_t begin = 0;
  /// When this process began.
  timespec since{};

  Chance() {
    const char* time = std::getenv(accel::verify::kTraceTime);
    const char* rank = std::getenv("RANK");
    const char* seed_text = std::getenv(accel::verify::kTraceSeed);
    is_fixed = time != nullptr;
    is_main = rank == nullptr || std::strcmp(rank, "0") == 0;
    if (is_fixed) {
      begin = std::strtoll(time, nullptr, 10);
      seed = seed_text == nullptr ? 0 : std::strtoull(seed_text, nullptr, 10);
      if (!is_main) {
        begin += std::strtoll(rank, nullptr, 10);
      }
      clock_gettime(CLOCK_MONOTONIC, &since);
    }
  }

  static const Chance& get() {
    static const Chance chance;
    return chance;
  }
};

/// Read when the program begins.
[[maybe_unused]] const Chance& at_start = Chance::get();

/// splitmix64
uint64_t scramble(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

} // namespace

extern "C" {

__attribute__((visibility("default"))) unsigned
_ZNSt13random_device9_M_getvalEv(void* device) {
  const Chance& chance = Chance::get();
  if (!chance.is_fixed || !chance.is_main || !is_of_program(drawer())) {
    static const auto real = reinterpret_cast<unsigned (*)(void*)>(
        dlsym(RTLD_NEXT, "_ZNSt13random_device9_M_getvalEv"));
    return real(device);
  }
  static std::atomic<uint64_t> drawn{0};
  return static_cast<unsigned>(scramble(scramble(chance.seed) + drawn++));
}

__attribute__((visibility("default"))) std::time_t time(std::time_t* result) {
  const Chance& chance = Chance::get();
  std::time_t now = 0;
  if (chance.is_fixed && is_of_program(__builtin_return_address(0))) {
    timespec here{};
    clock_gettime(CLOCK_MONOTONIC, &here);
    now = chance.begin + (here.tv_sec - chance.since.tv_sec) -
        (here.tv_nsec < chance.since.tv_nsec ? 1 : 0);
  } else {
    timespec here{};
    clock_gettime(CLOCK_REALTIME_COARSE, &here); // as the C library's does
    now = here.tv_sec;
  }
  if (result != nullptr) {
    *result = now;
  }
  return now;
}
}
