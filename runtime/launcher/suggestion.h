#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace accel::launcher {

/// How many letters must be inserted, removed, replaced or swapped with their
/// neighbour to make `b` of `a`.
size_t edit_distance(std::string_view a, std::string_view b);

/// " (did you mean X?)" with the one of `candidates` that `word` was probably
/// meant to be; empty where none is near.
std::string suggest(
    std::string_view word, const std::vector<std::string>& candidates);

/// " (…)" with what to write instead of an option of `accelerate launch` that there is
/// not here; empty for others. Either spelling, "--multi_gpu" and "--multi-gpu".
std::string instead_of(std::string option);

} // namespace accel::launcher
