//===- Parallel.h - Work on several cores -----------------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_TOOL_PARALLEL_H
#define ACCEL_MIGRATE_TOOL_PARALLEL_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/ThreadPool.h"

#include <cstddef>

namespace accel::migrate {

/// Calls `Work` with 0 to `Count` - 1, in at most `Jobs` threads at a time (0:
/// as many as there are cores), and returns when all is done.
inline void inParallel(size_t Count, unsigned Jobs,
                       llvm::function_ref<void(size_t)> Work) {
  if (Count <= 1 || Jobs == 1) {
    for (size_t I = 0; I != Count; ++I)
      Work(I);
    return;
  }
  llvm::DefaultThreadPool Pool(llvm::hardware_concurrency(Jobs));
  for (size_t I = 0; I != Count; ++I)
    Pool.async([Work, I] { Work(I); });
  Pool.wait();
}

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_TOOL_PARALLEL_H
