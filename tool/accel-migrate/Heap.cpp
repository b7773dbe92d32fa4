//===- Heap.cpp - Memory for syntax trees ---------------------------------===//

#include "Heap.h"

#ifdef __GLIBC__
#include <cstdint>
#include <cstdlib>
#include <thread>

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace accel::migrate {

#ifdef __GLIBC__

/// Of addresses; memory is taken where something is written.
static constexpr int Reserved = 512 << 20;
static constexpr uintptr_t PageBytes = 2u << 20; ///< Of a large page.
/// With more threads than this one heap for all of them would be waited for.
static constexpr unsigned MostThreads = 8;

void prepareHeap() {
  if (std::thread::hardware_concurrency() > MostThreads)
    return;
  // Each parse runs in a thread of its own, whose heap would begin anew and grow
  // page by page. What one parse has freed is for the next one.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 32 << 20); // The most that there is.
  mallopt(M_TRIM_THRESHOLD, Reserved);
  mallopt(M_TOP_PAD, Reserved);
  const auto Before = reinterpret_cast<uintptr_t>(sbrk(0));
  // More than what is left of the heap, so that it has to grow.
  free(malloc(1 << 20));
  mallopt(M_TOP_PAD, 8 << 20);
  const auto After = reinterpret_cast<uintptr_t>(sbrk(0));
  const uintptr_t Begin = (Before + PageBytes - 1) / PageBytes * PageBytes;
  if (Begin < After)
    madvise(reinterpret_cast<void *>(Begin), After - Begin, MADV_HUGEPAGE);
}

#else

void prepareHeap() {}

#endif

} // namespace accel::migrate
