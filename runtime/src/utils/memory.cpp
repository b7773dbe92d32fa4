#include <accel/utils/memory.h>

#include "core/libtorch_releases.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <new>

namespace accel {

bool should_reduce_batch_size(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
      dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return true;
  }
  for (const char* message :
       {" out of memory.",
        "CUDA error: out of memory",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.",
        "DefaultCPUAllocator: can't allocate memory",
        "DefaultCPUAllocator: not enough memory"}) {
    if (std::strstr(error.what(), message) != nullptr) {
      return true;
    }
  }
  return false;
}

void clear_device_cache() {
  detail::empty_device_caches();
}

int64_t detail::next_batch_size(
    int64_t batch_size, const FindExecutableBatchSizeOptions& options) {
  if (!options.reduce()) {
    return static_cast<int64_t>(static_cast<double>(batch_size) * 0.9);
  }
  const int64_t next = options.reduce()(batch_size);
  TORCH_CHECK(
      next < batch_size,
      "find_executable_batch_size: reduce must return a smaller batch size, "
      "but made ",
      next,
      " of ",
      batch_size,
      ".");
  return next;
}

} // namespace accel
