#pragma once

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>

// How the launcher and the library read the same texts. Without LibTorch, which
// the launcher does not know, and in a header, since neither links the other.

namespace accel::detail {

/// y, yes, t, true, on, 1 and their opposites, in any case; else nothing.
inline std::optional<bool> flag_in(const std::string& text) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  for (const char* yes : {"y", "yes", "t", "true", "on", "1"}) {
    if (lower == yes) {
      return true;
    }
  }
  for (const char* no : {"n", "no", "f", "false", "off", "0"}) {
    if (lower == no) {
      return false;
    }
  }
  return std::nullopt;
}

/// Without the blanks around it.
inline std::string without_blanks(const std::string& text) {
  const auto begin = text.find_first_not_of(' ');
  return begin == std::string::npos
      ? std::string()
      : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

/// The first host of a Slurm node list: "n[007-9,12]-ib,x" is "n007-ib".
inline std::string first_host(const std::string& node_list) {
  std::string host;
  for (size_t i = 0; i < node_list.size() && node_list[i] != ',';) {
    if (node_list[i] != '[') {
      host += node_list[i++];
      continue;
    }
    const size_t close = std::min(node_list.find(']', i), node_list.size());
    const size_t end = node_list.find_first_of("-,]", i);
    host += node_list.substr(
        i + 1, std::min(end, node_list.size()) - i - 1);
    i = close + 1;
  }
  return host;
}

} // namespace accel::detail
