#pragma once

#include <cstddef>
#include <string>

namespace accel::checkpoint {

/// Goes over the instructions of a pickle (protocols 0 to 5) without carrying
/// them out and throws `c10::Error`, beginning with `what`, where one of them
/// speaks of more than the `size` bytes that are there: texts and numbers that
/// are longer than the rest, places of its memo beyond what so many bytes can
/// have filled, instructions that do not exist. LibTorch's reader sets memory
/// of those lengths aside before it looks: a few bytes are enough for many GB.
void check_pickle_lengths(
    const void* data, size_t size, const std::string& what);

} // namespace accel::checkpoint
