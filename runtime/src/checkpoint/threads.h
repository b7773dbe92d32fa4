#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace accel::checkpoint {

/// How many threads may go over so many bytes of files or memory at once: as
/// many as this process has cores for, those of its neighbours on the host
/// (LOCAL_WORLD_SIZE) left alone, at most 4. More do not make memory faster. One where there are so few
/// bytes that starting threads takes longer than that.
size_t copying_threads(uint64_t bytes);

/// Calls `work` with 0 … count - 1, in any order, on up to `threads` threads of
/// which one is the caller's. Where calls throw, the exception of the lowest
/// number is thrown when all are done.
///
/// The other threads have nothing of LibTorch's thread-local state: `work` must
/// not run operators.
void on_threads(
    size_t count, size_t threads, const std::function<void(size_t)>& work);

} // namespace accel::checkpoint
