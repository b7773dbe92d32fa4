#include "suggestion.h"

#include <algorithm>

namespace accel::launcher {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> distance(
      a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      size_t& here = distance[i][j];
      if (i == 0 || j == 0) {
        here = i + j;
        continue;
      }
      here = std::min(
          {distance[i - 1][j] + 1,
           distance[i][j - 1] + 1,
           distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        here = std::min(here, distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

std::string suggest(
    std::string_view word, const std::vector<std::string>& candidates) {
  const std::string* nearest = nullptr;
  size_t least = std::max<size_t>(1, word.size() * 2 / 5) + 1;
  for (const std::string& candidate : candidates) {
    // A beginning is as good as a slip of the finger.
    const size_t distance =
        candidate.rfind(word, 0) == 0 ? 1 : edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      nearest = &candidate;
    }
  }
  return nearest ? " (did you mean " + *nearest + "?)" : std::string();
}

} // namespace accel::launcher
