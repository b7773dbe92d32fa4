// Preloaded where two runs of an original differ: std::random_device and time()
// give the program the same numbers in each run, so that one that seeds itself from
// them can be compared.

#include <atomic>
#include <cstring>
#include <ctime>

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

namespace {

/// Whether code is the program's own. Libraries name files by chance, and those of
/// a run of several processes do it more often than those of one.
bool of_program(void* code) {
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
          query.found |= part.p_type == PT_LOAD && query.code >= start && query.code < start + part.p_memsz;
        }
        return 1; // the first object is the program
      },
      &query);
  return query.found;
}

/// Who draws. Without optimization operator() is a function, and then libraries use the
/// program's copy of it.
[[gnu::noinline]] void* caller() {
  void* frames[4] = {}; // this one, _M_getval, operator() or who calls it, ...
  if (backtrace(frames, 4) < 4) {
    return nullptr;
  }
  Dl_info symbol{};
  const bool is_operator = dladdr(frames[2], &symbol) != 0 && symbol.dli_sname != nullptr &&
      std::strcmp(symbol.dli_sname, "_ZNSt13random_deviceclEv") == 0;
  return frames[is_operator ? 3 : 2];
}

} // namespace

extern "C" unsigned _ZNSt13random_device9_M_getvalEv(void* device) {
  if (!of_program(caller())) {
    static const auto real = reinterpret_cast<unsigned (*)(void*)>(dlsym(RTLD_NEXT, "_ZNSt13random_device9_M_getvalEv"));
    return real(device);
  }
  static std::atomic<unsigned> calls{0};
  const unsigned value = ++calls * 2654435761u;
  return value ^ (value >> 15);
}

extern "C" std::time_t time(std::time_t* result) {
  constexpr std::time_t now = 1700000000;
  if (result != nullptr) {
    *result = now;
  }
  return now;
}
