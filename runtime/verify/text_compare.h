#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace accel::verify {

/// What two runs printed, line by line: the words must be equal, numbers are
/// compared as numbers.
struct TextComparison {
  struct Line {
    std::string original;
    std::string migrated;
    bool different = false;
    /// It changes from run to run of the original, so it says nothing.
    bool ignored = false;
  };
  std::vector<Line> lines;
  size_t numbers = 0;
  /// Greatest relative difference of the numbers that count.
  double largest = 0;
  /// Numbers that differ between two runs of the original, or are times by the
  /// words around them, or by other lines of the same words, and differ.
  size_t ignored_numbers = 0;
  /// Numbers that differ by one in the last digit, which rounding can explain.
  size_t last_digits = 0;
  /// Numbers that differ, and are nothing but the rounding of larger ones.
  size_t left_of_larger = 0;
  bool same_bytes = false;
  bool different = false;
  /// Only numbers differ, in the first line that does.
  bool only_numbers = false;
  /// Says where they part; empty where they do not.
  std::string first;
};

/// Compares the texts. Numbers may differ by `relative`. What is smaller than
/// the last digit that is printed of a fraction can turn this digit over, with
/// a probability that is known: so many numbers, and no more, may differ by one
/// in it. Two numbers that are both at most `zero` are equal: what rounding leaves of
/// larger ones (`rounding_of_one`). `repeat` is the text of a second run of the original, or the same
/// text.
TextComparison compare_texts(
    const std::string& original,
    const std::string& repeat,
    const std::string& migrated,
    double relative,
    double zero = 0);

} // namespace accel::verify
