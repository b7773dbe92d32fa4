// Preloaded where two runs of an original differ: std::random_device and time()
// give the same numbers in each run, so that programs that seed themselves from
// them can be compared.

#include <atomic>
#include <ctime>

extern "C" unsigned _ZNSt13random_device9_M_getvalEv(void*) {
  static std::atomic<unsigned> calls{0};
  unsigned value = ++calls * 2654435761u;
  return value ^ (value >> 15);
}

extern "C" std::time_t time(std::time_t* result) {
  constexpr std::time_t now = 1700000000;
  if (result != nullptr) {
    *result = now;
  }
  return now;
}
