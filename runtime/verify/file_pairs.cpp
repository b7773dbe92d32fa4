#include "file_pairs.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

namespace accel::verify {
namespace {

/// A name with one sign for each number.
std::string without_numbers(const std::string& name) {
  std::string result;
  for (const char c : name) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) {
      result += c;
    } else if (result.empty() || result.back() != '\0') {
      result += '\0';
    }
  }
  return result;
}

/// For names that are alike but for their numbers: by these, the first first.
bool numbers_less(const std::string& a, const std::string& b) {
  const auto numbers = [](const std::string& name) {
    // Of two numbers without zeros in front the longer one is greater.
    std::vector<std::pair<size_t, std::string>> all(1);
    for (const char c : name) {
      if (std::isdigit(static_cast<unsigned char>(c)) == 0) {
        all.emplace_back();
      } else if (c != '0' || !all.back().second.empty()) {
        all.back().second += c;
        ++all.back().first;
      }
    }
    return all;
  };
  return numbers(a) < numbers(b);
}

/// Files whose names are alike, of each run.
struct Alike {
  std::vector<std::string> original, repeat, migrated;
  std::vector<FilePair> of_one_name;

  /// The original gives them other names each time. (Sorted as they came.)
  bool change() const {
    return original.size() == repeat.size() && original != repeat;
  }
};

std::string at(const std::vector<std::string>& names, size_t i) {
  return i < names.size() ? names[i] : "";
}

} // namespace

std::vector<FilePair> pair_files(
    const std::vector<std::string>& original,
    const std::vector<std::string>& repeat,
    const std::vector<std::string>& migrated) {
  const auto in = [](const std::vector<std::string>& names,
                     const std::string& name) {
    return std::binary_search(names.begin(), names.end(), name);
  };
  std::set<std::string> names;
  for (const auto* run : {&original, &repeat, &migrated}) {
    names.insert(run->begin(), run->end());
  }
  std::vector<FilePair> pairs;
  std::map<std::string, Alike> others;
  for (const auto& name : names) {
    const FilePair pair{
        in(original, name) ? name : "",
        in(repeat, name) ? name : "",
        in(migrated, name) ? name : ""};
    if (!pair.original.empty() && !pair.repeat.empty() &&
        !pair.migrated.empty()) {
      pairs.push_back(pair);
      continue;
    }
    Alike& alike = others[without_numbers(name)];
    alike.of_one_name.push_back(pair);
    for (auto [list, own] :
         {std::pair(&alike.original, &pair.original),
          std::pair(&alike.repeat, &pair.repeat),
          std::pair(&alike.migrated, &pair.migrated)}) {
      if (!own->empty()) {
        list->push_back(*own);
      }
    }
  }
  for (auto& [_, alike] : others) {
    if (alike.change()) {
      for (auto* run : {&alike.original, &alike.repeat, &alike.migrated}) {
        std::sort(run->begin(), run->end(), numbers_less);
      }
      const size_t count =
          std::max(alike.original.size(), alike.migrated.size());
      for (size_t i = 0; i < count; ++i) {
        pairs.push_back(
            {at(alike.original, i),
             at(alike.repeat, i),
             at(alike.migrated, i)});
      }
      continue;
    }
    pairs.insert(
        pairs.end(), alike.of_one_name.begin(), alike.of_one_name.end());
  }
  // Nobody asks for what only the second run has written.
  pairs.erase(
      std::remove_if(
          pairs.begin(),
          pairs.end(),
          [](const FilePair& pair) {
            return pair.original.empty() && pair.migrated.empty();
          }),
      pairs.end());
  const auto name = [](const FilePair& pair) -> const std::string& {
    return pair.original.empty() ? pair.migrated : pair.original;
  };
  std::sort(
      pairs.begin(), pairs.end(), [&](const FilePair& a, const FilePair& b) {
        return name(a) < name(b);
      });
  return pairs;
}

} // namespace accel::verify
