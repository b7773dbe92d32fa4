#include "files_compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "file_pairs.h"
#include "read_file.h"
#include "tensor_archive.h"
#include "text_compare.h"
#include "tolerance.h"

namespace accel::verify {
namespace {

struct Content {
  std::string kind;
  StoredTensors tensors;
  /// What is no tensor, by name; the whole file under "" where it is none.
  std::map<std::string, std::string> others;
};

/// What texts have no use for. Numbers that a program dumps have one soon, and NUL
/// not always: in one of two files that differ by rounding it may be another byte.
bool is_control(char c) {
  const auto code = static_cast<unsigned char>(c);
  return code < 0x20 && std::string_view("\b\t\n\v\f\r\x1b").find(c) == std::string_view::npos;
}

Content parse(const std::string& bytes) {
  Content content;
  if (auto tensors = read_safetensors(bytes)) {
    return {"safetensors", std::move(*tensors), {}};
  }
  if (auto tensors = read_torch_archive(bytes, content.others)) {
    return {"torch archive", std::move(*tensors), std::move(content.others)};
  }
  const bool text = std::none_of(bytes.begin(), bytes.end(), is_control);
  return {text ? "text" : "bytes", {}, {{"", bytes}}};
}

/// Mean square of the finite elements of all tensors.
double typical_square(const StoredTensors& tensors) {
  double squares = 0;
  double count = 0;
  for (const auto& [name, tensor] : tensors) {
    for (const double value : tensor.values) {
      squares += std::isfinite(value) ? value * value : 0;
    }
    count += static_cast<double>(tensor.values.size());
  }
  return count == 0 ? 0 : squares / count;
}

/// |a - b| / max(|a|, |b|) over all elements, with kFloor for small ones;
/// infinite where NaNs differ.
double relative_difference(
    const std::vector<double>& a,
    const std::vector<double>& b,
    double typical) {
  double difference = 0;
  double size_a = 0;
  double size_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(distance(a[i], b[i]), 2);
    size_a += std::isfinite(a[i]) ? a[i] * a[i] : 0;
    size_b += std::isfinite(b[i]) ? b[i] * b[i] : 0;
  }
  const double size = std::max(
      {size_a,
       size_b,
       kFloor * kFloor * typical * static_cast<double>(a.size())});
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

/// What a training may write; the bits of other things seldom are such a number.
bool is_number(double value) {
  return value == 0 || (std::abs(value) > 1e-20 && std::abs(value) < 1e20);
}

/// How far two files of numbers, as a program dumps its memory, are apart: that of
/// the numbers that differ, from byte `first` on. Nothing where what differs is no
/// number.
template <typename Number>
std::optional<double> raw_difference(
    const std::string& a, const std::string& b, size_t first) {
  std::vector<double> of_a;
  std::vector<double> of_b;
  size_t at = first;
  for (; at + sizeof(Number) <= a.size(); at += sizeof(Number)) {
    Number x;
    Number y;
    std::memcpy(&x, a.data() + at, sizeof(x));
    std::memcpy(&y, b.data() + at, sizeof(y));
    if (std::memcmp(&x, &y, sizeof(x)) == 0) {
      continue;
    }
    if (!is_number(x) || !is_number(y)) {
      return {};
    }
    of_a.push_back(x);
    of_b.push_back(y);
  }
  if (a.compare(0, first, b, 0, first) != 0 ||
      a.compare(at, std::string::npos, b, at, std::string::npos) != 0) {
    return {};
  }
  return relative_difference(of_a, of_b, /*typical=*/0);
}

/// Whether what differs from byte `first` on are halves of float64: any two float32
/// look like one. The lower halves are random, so that many are no float32.
bool are_doubles(const std::string& a, const std::string& b, size_t first) {
  size_t different = 0;
  size_t random = 0;
  for (size_t at = first; at + sizeof(float) <= a.size(); at += sizeof(float)) {
    float half;
    std::memcpy(&half, a.data() + at, sizeof(half));
    if (a.compare(at, sizeof(half), b, at, sizeof(half)) != 0) {
      ++different;
      random += is_number(half) ? 0 : 1;
    }
  }
  return different >= 16 && 4 * random >= different;
}

/// Whether two files hold the same numbers, as float32 or as float64.
bool are_same_raw_numbers(
    const std::string& a,
    const std::string& b,
    double relative,
    double& largest) {
  if (a.size() != b.size()) {
    return false;
  }
  for (size_t first = 0; first < sizeof(double); ++first) {
    for (const auto& difference :
         {first < sizeof(float) ? raw_difference<float>(a, b, first)
                                : std::optional<double>(),
          are_doubles(a, b, first) ? raw_difference<double>(a, b, first)
                                   : std::optional<double>()}) {
      if (difference && *difference <= relative) {
        largest = std::max(largest, *difference);
        return true;
      }
    }
  }
  return false;
}

/// Describes the difference of two files; empty where they are equal. Numbers
/// in texts that `repeat` has otherwise are left out.
std::string differences(
    const Content& a,
    const Content& repeat,
    const Content& b,
    double relative,
    double zero,
    std::vector<int64_t> left_to_chance,
    double& largest,
    std::string& left_out) {
  const auto is_raw = [](const Content& one) {
    return one.kind == "bytes" || one.kind == "text";
  };
  if (a.kind != b.kind && !(is_raw(a) && is_raw(b))) {
    return "the original wrote " + a.kind + ", the migrated program " + b.kind;
  }
  const double typical = typical_square(a.tensors);
  for (const auto& [name, tensor] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end()) {
      return "the migrated program's has no tensor " + name;
    }
    if (tensor.dtype != other->second.dtype ||
        tensor.sizes != other->second.sizes ||
        tensor.values.size() != other->second.values.size()) {
      return "the tensor " + name + " has another dtype or other sizes";
    }
    const double difference =
        relative_difference(tensor.values, other->second.values, typical);
    if (!(difference <= relative)) {
      const auto chance = std::find(
          left_to_chance.begin(),
          left_to_chance.end(),
          static_cast<int64_t>(tensor.values.size()));
      if (chance != left_to_chance.end()) {
        left_to_chance.erase(chance);
        left_out += (left_out.empty() ? "" : ", ") + name;
        continue;
      }
      return "the tensor " + name + " differs by " + short_number(difference);
    }
    largest = std::max(largest, difference);
  }
  if (a.tensors.size() != b.tensors.size()) {
    return "the migrated program's has more tensors";
  }
  if (a.kind == "text" && b.kind == "text") {
    const std::string& text = a.others.at("");
    const auto compared = compare_texts(
        text,
        repeat.kind == "text" ? repeat.others.at("") : text,
        b.others.at(""),
        relative,
        zero);
    largest = std::max(largest, compared.largest);
    return compared.different ? compared.first : "";
  }
  if (is_raw(a)) {
    return are_same_raw_numbers(
               a.others.at(""), b.others.at(""), relative, largest)
        ? ""
        : "the bytes differ";
  }
  for (const auto& [name, content] : a.others) {
    const auto other = b.others.find(name);
    if (other == b.others.end() || other->second != content) {
      return "its part " + name + ", which holds no tensor, differs";
    }
  }
  return a.others.size() == b.others.size()
      ? ""
      : "the migrated program's has more parts";
}

} // namespace

FilesComparison compare_files(
    const WrittenFiles& original,
    const WrittenFiles& repeat,
    const WrittenFiles& migrated,
    double relative,
    const std::vector<int64_t>& left_to_chance,
    double zero) {
  FilesComparison result;
  for (const auto& pair :
       pair_files(original.names, repeat.names, migrated.names)) {
    FilesComparison::File file;
    file.name = pair.original.empty() ? pair.migrated : pair.original;
    if (pair.original.empty()) {
      file.finding = "only the migrated program wrote it";
      file.different = true;
    } else if (pair.repeat.empty()) {
      file.finding = "a second run of the original did not write it";
      file.ignored = true;
    } else if (pair.migrated.empty()) {
      file.finding = "only the original wrote it";
      file.different = true;
    } else {
      const auto first = read_file(original.directory / pair.original);
      const auto other = read_file(migrated.directory / pair.migrated);
      const auto content = parse(first);
      file.kind = content.kind;
      double largest = 0;
      const auto again = parse(read_file(repeat.directory / pair.repeat));
      std::string found = first == other
          ? ""
          : differences(
                content,
                again,
                parse(other),
                relative,
                zero,
                left_to_chance,
                largest,
                file.left_out);
      double of_repeat = 0;
      std::string none;
      if (!found.empty() && content.kind != "text" &&
          !differences(
               content, content, again, relative, zero, {}, of_repeat, none)
               .empty()) {
        file.ignored = true;
        found = "differs between two runs of the original, too";
      }
      file.different = !found.empty() && !file.ignored;
      file.finding = !found.empty() ? found
          : largest == 0            ? "equal"
                         : "equal but for " + short_number(largest);
      if (pair.original != pair.migrated) {
        file.finding += " (" + pair.migrated +
            " of the migrated program; its name changes from run to run)";
      }
    }
    result.different = result.different || file.different;
    result.files.push_back(file);
  }
  return result;
}

} // namespace accel::verify
