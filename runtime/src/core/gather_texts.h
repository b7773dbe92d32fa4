#pragma once

#include <accel/detail/communicator.h>

#include <cstdint>
#include <string>
#include <vector>

namespace accel::detail {

/// Every process's text, by rank, cut off behind `most` characters: short ones, in one
/// message. Every process of the communicator must call it, with the same `most`.
std::vector<std::string> gather_texts(
    Communicator& communicator, const std::string& text, int64_t most);

} // namespace accel::detail
