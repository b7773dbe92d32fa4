#include "text_compare.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "tolerance.h"

namespace accel::verify {
namespace {

struct Number {
  double value;
  /// What one in the last printed digit is worth; 0 for whole numbers.
  double unit;
  /// By the words around it, a time or a speed of this run, or a line of the sources,
  /// which the migration moves.
  bool may_differ;
};

/// A line cut into its words (numbers are '#' in it) and its numbers.
struct Cut {
  std::string words;
  std::vector<Number> numbers;
};

bool word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

/// The word that begins at `at`.
std::string word_at(const std::string& line, size_t at) {
  size_t end = at;
  while (end < line.size() && word_character(line[end])) {
    ++end;
  }
  return line.substr(at, end - at);
}

/// 12ms
bool has_unit_of_time(const std::string& line, size_t end) {
  static const std::set<std::string> kUnits = {
      "s", "ms", "us", "ns", "sec", "secs", "seconds", "min", "mins", "m", "h"};
  return kUnits.count(word_at(line, end)) != 0;
}

bool is_digit(const std::string& line, size_t at) {
  return at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) != 0;
}

/// 00:01, 12:30:59, of a progress bar or a date.
bool is_of_clock(const std::string& line, size_t begin, size_t end) {
  if (end - begin != 2 || !is_digit(line, begin) || !is_digit(line, end - 1)) {
    return false;
  }
  const bool before = end < line.size() && line[end] == ':' &&
      is_digit(line, end + 1) && is_digit(line, end + 2) && !is_digit(line, end + 3);
  const bool behind = begin >= 3 && line[begin - 1] == ':' &&
      is_digit(line, begin - 2) && is_digit(line, begin - 3);
  return before || behind;
}

/// What says that a number is a time or a speed: `12 ms`, `3.1 it/s`, `00:01`,
/// `elapsed: 3`, `time = 0.25`. "0.25 min 0.1" is no time.
bool is_time(const std::string& line, size_t begin, size_t end) {
  static const std::set<std::string> kUnits = {
      "s", "ms", "us", "ns", "sec", "secs", "second", "seconds", "minutes", "hours"};
  if (has_unit_of_time(line, end) || is_of_clock(line, begin, end)) {
    return true;
  }
  if (end < line.size() && line[end] == ' ') {
    const std::string next = word_at(line, end + 1);
    if (kUnits.count(next) != 0) {
      // first 0.25 second 0.5
      const size_t behind =
          line.find_first_not_of(" \t:=", end + 1 + next.size());
      return next != "second" || behind == std::string::npos ||
          (!is_digit(line, behind) && line[behind] != '-');
    }
    // rows/s, it/sec
    const size_t behind = end + 1 + next.size();
    if (!next.empty() && behind < line.size() && line[behind] == '/' &&
        kUnits.count(word_at(line, behind + 1)) != 0) {
      return true;
    }
  }
  const bool is_fraction = line.find('.', begin) < end;
  static const std::set<std::string> kNames = {
      "elapsed", "took", "duration", "eta", "fps", "seconds", "secs", "ms"};
  while (begin > 0 &&
         std::strchr(" \t:=([\"'~", line[begin - 1]) != nullptr) {
    --begin;
  }
  std::string word;
  while (begin > 0 && word_character(line[begin - 1])) {
    word.insert(
        word.begin(),
        static_cast<char>(std::tolower(static_cast<unsigned char>(line[--begin]))));
  }
  return kNames.count(word) != 0 ||
      (is_fraction && word.size() >= 4 &&
       word.compare(word.size() - 4, 4, "time") == 0);
}

/// `train.cpp:42`, `train.cpp(42)`, as loggers write __FILE__ and __LINE__.
bool is_line_of_source(const std::string& line, size_t begin, size_t end) {
  static const std::set<std::string> kEndings = {
      "c", "cc", "cpp", "cxx", "c++", "cu", "h", "hh", "hpp", "hxx", "inl", "ipp"};
  if (begin < 2 || (line[begin - 1] != ':' && line[begin - 1] != '(') ||
      line.find('.', begin) < end) {
    return false;
  }
  const size_t point = line.rfind('.', begin - 2);
  return point != std::string::npos && point > 0 &&
      word_character(line[point - 1]) &&
      kEndings.count(line.substr(point + 1, begin - 2 - point)) != 0;
}

/// The number that begins at `begin`, as printf and iostreams write it, or
/// npos. Digits inside of words (conv1) are no numbers.
size_t number_end(const std::string& line, size_t begin) {
  if (begin > 0 &&
      (word_character(line[begin - 1]) || line[begin - 1] == '.')) {
    return std::string::npos;
  }
  size_t at = begin;
  if (at < line.size() && (line[at] == '-' || line[at] == '+')) {
    ++at;
  }
  for (const char* special : {"nan", "inf"}) {
    if (line.compare(at, 3, special) == 0 &&
        (at + 3 == line.size() || !word_character(line[at + 3]))) {
      return at + 3;
    }
  }
  const auto digits = [&] {
    const size_t from = at;
    while (at < line.size() &&
           std::isdigit(static_cast<unsigned char>(line[at]))) {
      ++at;
    }
    return at - from;
  };
  if (digits() == 0) {
    return std::string::npos;
  }
  if (at < line.size() && line[at] == '.') {
    ++at;
    digits();
  }
  if (at < line.size() && (line[at] == 'e' || line[at] == 'E')) {
    const size_t before = at++;
    if (at < line.size() && (line[at] == '-' || line[at] == '+')) {
      ++at;
    }
    if (digits() == 0) {
      at = before;
    }
  }
  return at < line.size() && word_character(line[at]) && !has_unit_of_time(line, at)
      ? std::string::npos
      : at;
}

double unit_of(const std::string& text) {
  const size_t exponent = text.find_first_of("eE");
  const size_t point = text.find('.');
  if (point == std::string::npos && exponent == std::string::npos) {
    return 0;
  }
  const size_t end = std::min(exponent, text.size());
  const double fraction =
      point == std::string::npos ? 0 : static_cast<double>(end - point - 1);
  const double power = exponent == std::string::npos
      ? 0
      : std::strtod(text.c_str() + exponent + 1, nullptr);
  return std::pow(10.0, power - fraction);
}

Cut cut(const std::string& line) {
  Cut result;
  for (size_t at = 0; at < line.size();) {
    const size_t end = number_end(line, at);
    if (end == std::string::npos) {
      result.words += line[at++];
      continue;
    }
    const std::string text = line.substr(at, end - at);
    result.numbers.push_back(
        {std::strtod(text.c_str(), nullptr), unit_of(text),
         is_time(line, at, end) || is_line_of_source(line, at, end)});
    result.words += '#';
    at = end;
  }
  // Numbers that are printed into columns are padded by their length.
  std::string words;
  for (const char c : result.words) {
    if (c != ' ' || words.empty() || words.back() != ' ') {
      words += c;
    }
  }
  result.words = words;
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::vector<Cut> cuts_of(const std::vector<std::string>& lines) {
  std::vector<Cut> cuts;
  for (const auto& line : lines) {
    cuts.push_back(cut(line));
  }
  return cuts;
}

/// Which whole numbers are times, as two runs of the original tell: they differ in
/// most lines of the same words. In some both runs may have taken as long.
class Times {
 public:
  Times(const std::vector<Cut>& original, const std::vector<Cut>& repeat) {
    for (size_t i = 0; i < std::min(original.size(), repeat.size()); ++i) {
      const Cut& a = original[i];
      const Cut& b = repeat[i];
      if (a.words != b.words) {
        continue;
      }
      auto& counts = counts_[a.words];
      counts.resize(a.numbers.size());
      for (size_t k = 0; k < a.numbers.size(); ++k) {
        counts[k].lines += 1;
        counts[k].differ +=
            distance(a.numbers[k].value, b.numbers[k].value) != 0 ? 1 : 0;
      }
    }
  }

  bool have(const Cut& line, size_t number) const {
    const auto found = counts_.find(line.words);
    return found != counts_.end() && line.numbers[number].unit == 0 &&
        2 * found->second[number].differ > found->second[number].lines;
  }

 private:
  struct Count {
    size_t lines = 0;
    size_t differ = 0;
  };
  std::map<std::string, std::vector<Count>> counts_;
};

class Comparer {
 public:
  Comparer(
      TextComparison& result, double relative, double zero, const Times& times)
      : result_(result), relative_(relative), zero_(zero), times_(times) {}

  void compare_line(
      size_t number,
      TextComparison::Line line,
      const Cut& a,
      const Cut& again) {
    const Cut b = cut(line.migrated);
    if (a.words != again.words) {
      line.ignored = true;
      result_.ignored_numbers += 1;
    } else if (a.words != b.words) {
      line.different = true;
      report(number, "the words differ", /*only_numbers=*/false);
    } else {
      compare_numbers(number, a, again.numbers, b.numbers, line);
    }
    result_.lines.push_back(line);
  }

  /// To be called at the end.
  void judge_last_digits() {
    const double most = 3 * expected_last_digits_ +
        (expected_last_digits_ >= 1e-3 ? 1 : 0);
    if (static_cast<double>(last_digits_.size()) <= most) {
      result_.last_digits = last_digits_.size();
      return;
    }
    for (const auto& [number, row, what] : last_digits_) {
      result_.lines[row].different = true;
    }
    const auto& [number, row, what] = last_digits_.front();
    if (!result_.different || number < first_line_) {
      result_.different = false;
      report(
          number,
          what + ", one in the last digit, which rounding does not explain",
          /*only_numbers=*/true);
    }
  }

 private:
  struct LastDigit {
    size_t number;
    size_t row;
    std::string what;
  };

  void compare_numbers(
      size_t number,
      const Cut& original,
      const std::vector<Number>& again,
      const std::vector<Number>& b,
      TextComparison::Line& line) {
    const auto& a = original.numbers;
    for (size_t i = 0; i < a.size(); ++i) {
      if (distance(a[i].value, again[i].value) != 0) {
        ++result_.ignored_numbers;
        line.ignored = true;
        continue;
      }
      const double difference = distance(a[i].value, b[i].value);
      if (difference != 0 && (a[i].may_differ || times_.have(original, i))) {
        ++result_.ignored_numbers;
        line.ignored = true;
        continue;
      }
      ++result_.numbers;
      const double size = std::max(std::abs(a[i].value), std::abs(b[i].value));
      // iostreams drop zeros at the end: the finer one of two fractions is
      // nearer to what is printed of both.
      const double unit = a[i].unit > 0 && b[i].unit > 0
          ? std::min(a[i].unit, b[i].unit)
          : std::max(a[i].unit, b[i].unit);
      if (unit > 0 && std::isfinite(difference)) {
        expected_last_digits_ += std::min(1.0, relative_ * size / unit);
      }
      if (difference == 0) {
        continue;
      }
      if (std::isfinite(difference) && size <= zero_) {
        ++result_.left_of_larger;
        continue;
      }
      if (size > 0 && !std::isnan(size)) {
        result_.largest = std::max(result_.largest, difference / size);
      }
      if (std::isfinite(difference) && difference <= relative_ * size) {
        continue;
      }
      const std::string what = "number " + std::to_string(i + 1) +
          " differs by " + short_number(difference) +
          (size > 0 && std::isfinite(difference)
               ? ", " + short_number(difference / size) + " of it"
               : "");
      // 1.0001: the units are powers of ten and not exact.
      if (std::isfinite(difference) &&
          difference <= relative_ * size + 1.0001 * unit) {
        last_digits_.push_back({number, result_.lines.size(), what});
        continue;
      }
      line.different = true;
      report(number, what, /*only_numbers=*/true);
    }
  }

  void report(size_t number, const std::string& what, bool only_numbers) {
    if (!result_.different) {
      result_.different = true;
      first_line_ = number;
      result_.only_numbers = only_numbers;
      result_.first = "line " + std::to_string(number + 1) + ": " + what;
    }
  }

  TextComparison& result_;
  double relative_;
  double zero_;
  const Times& times_;
  size_t first_line_ = 0;
  std::vector<LastDigit> last_digits_;
  /// How many of them rounding would make.
  double expected_last_digits_ = 0;
};

} // namespace

TextComparison compare_texts(
    const std::string& original,
    const std::string& repeat,
    const std::string& migrated,
    double relative,
    double zero) {
  TextComparison result;
  result.same_bytes = original == migrated;
  const auto a = lines_of(original);
  const auto b = lines_of(migrated);
  const auto cuts = cuts_of(a);
  const auto again = cuts_of(lines_of(repeat));
  const Times times(cuts, again);
  Comparer comparer(result, relative, zero, times);
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    comparer.compare_line(
        i, {a[i], b[i], false, false}, cuts[i], i < again.size() ? again[i] : Cut());
  }
  comparer.judge_last_digits();
  for (size_t i = b.size(); i < a.size(); ++i) {
    result.lines.push_back({a[i], "", true, false});
  }
  for (size_t i = a.size(); i < b.size(); ++i) {
    result.lines.push_back({"", b[i], true, false});
  }
  if (a.size() != b.size() && !result.different) {
    result.different = true;
    result.first = std::to_string(a.size()) +
        " lines in the original, " + std::to_string(b.size()) +
        " in the migrated program";
  }
  return result;
}

} // namespace accel::verify
