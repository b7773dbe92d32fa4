#include <accel/checkpoint/model_files.h>

#include "checkpoint/files.h"
#include "checkpoint/json.h"
#include "checkpoint/load_plan.h"
#include "checkpoint/model_source.h"
#include "checkpoint/model_write.h"
#include "checkpoint/safetensors_write.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>

namespace fs = std::filesystem;

namespace accel::checkpoint {

namespace {

constexpr const char* kStem = "model";
constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// Whether `name` is "model-00001-of-00003.safetensors" with any numbers.
bool is_shard_name(const std::string& name) {
  const std::string pattern = "model-#####-of-#####.safetensors";
  return name.size() == pattern.size() &&
         std::equal(
             name.begin(), name.end(), pattern.begin(), [](char c, char p) {
               return p == '#' ? c >= '0' && c <= '9' : c == p;
             });
}

std::string index_text(const std::vector<Shard>& shards) {
  Json weight_map = Json::object();
  uint64_t total = 0;
  for (const auto& shard : shards) {
    total += shard.size;
    for (const auto& name : shard.names) {
      weight_map[name] = shard.file;
    }
  }
  const Json index{
      {"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  // Python's json.dumps escapes what is not ASCII.
  return index.dump(2, ' ', /*ensure_ascii=*/true) + "\n";
}

/// The shards that an index lists: file names, and which tensor is where.
std::map<std::string, std::set<std::string>> read_index(
    const std::string& path) {
  const std::string what = "The index " + in_quotes(path);
  const Json index = parse_json(read_text(path), what);
  const Json& weight_map = member(index, "weight_map", what);
  TORCH_CHECK(
      weight_map.is_object(), what, ": 'weight_map' is not a JSON object");
  std::map<std::string, std::set<std::string>> files;
  for (const auto& item : weight_map.items()) {
    TORCH_CHECK(
        item.value().is_string(),
        what,
        ": the file of tensor ",
        in_quotes(item.key()),
        " is not a text");
    const auto file = item.value().get<std::string>();
    TORCH_CHECK(
        !file.empty() && file != "." && file != ".." &&
            file.find('/') == std::string::npos &&
            file.find('\0') == std::string::npos,
        what,
        ": tensor ",
        in_quotes(item.key()),
        " is in ",
        in_quotes(file),
        ", which is not the name of a file beside the index");
    files[file].insert(item.key());
  }
  return files;
}

std::string find_model(const std::string& path) {
  if (!fs::is_directory(path)) {
    return path;
  }
  const std::string whole = (fs::path(path) / kWhole).string();
  const std::string index = (fs::path(path) / kIndex).string();
  const bool has_whole = fs::exists(whole), has_index = fs::exists(index);
  TORCH_CHECK(
      has_whole || has_index,
      "The directory ",
      in_quotes(path),
      " holds neither ",
      kWhole,
      " nor ",
      kIndex);
  TORCH_CHECK(
      !has_whole || !has_index,
      "The directory ",
      in_quotes(path),
      " holds both ",
      kWhole,
      " and ",
      kIndex,
      ", from two saves. Remove the older one, or name the file to load.");
  return has_whole ? whole : index;
}

} // namespace

uint64_t parse_size(const std::string& size) {
  const auto fail = [&] {
    TORCH_CHECK(
        false,
        in_quotes(size),
        " is not a size. Write a number and KB, MB, GB, TB (powers of 1000) or "
        "KiB, MiB, GiB, TiB (powers of 1024), like \"5GB\".");
  };
  size_t position = 0;
  const auto skip_spaces = [&] {
    while (position < size.size() && size[position] == ' ') {
      ++position;
    }
  };
  skip_spaces();
  const size_t begin = position;
  size_t dots = 0, digits = 0;
  while (position < size.size() &&
         (std::isdigit(static_cast<unsigned char>(size[position])) ||
          size[position] == '.')) {
    ++(size[position] == '.' ? dots : digits);
    ++position;
  }
  if (digits == 0 || digits > 18 || dots > 1) {
    fail();
  }
  const std::string number = size.substr(begin, position - begin);
  skip_spaces();
  std::string unit;
  while (position < size.size() && size[position] != ' ') {
    unit += static_cast<char>(
        std::toupper(static_cast<unsigned char>(size[position++])));
  }
  skip_spaces();
  const size_t power = unit.empty() ? 0 : std::string("KMGT").find(unit[0]) + 1;
  const bool binary = unit.size() == 3 && unit[1] == 'I';
  if (position != size.size() || power < 1 || power > 4 ||
      (unit.size() != 2 && !binary) || unit.back() != 'B') {
    fail();
  }
  uint64_t scale = 1;
  for (size_t i = 0; i < power; ++i) {
    scale *= binary ? 1024 : 1000;
  }
  if (dots == 0) {
    const uint64_t value = std::stoull(number);
    if (value > UINT64_MAX / scale) {
      fail();
    }
    return value * scale;
  }
  const long double bytes = std::stold(number) * scale;
  if (bytes >= 0x1p64L) {
    fail();
  }
  return static_cast<uint64_t>(bytes);
}

std::vector<Shard> plan_shards(
    const StateDict& tensors,
    uint64_t max_shard_size,
    const std::string& stem) {
  TORCH_CHECK(max_shard_size > 0, "The size of a shard must not be 0");
  std::vector<Shard> shards;
  Shard current;
  for (const auto& item : tensors) {
    const uint64_t size = item.value().nbytes();
    if (size > max_shard_size) {
      // Right away, even though an earlier shard is still open: the numbering
      // is Accelerate's.
      shards.push_back({"", {item.key()}, size});
      continue;
    }
    if (current.size + size > max_shard_size) {
      shards.push_back(std::move(current));
      current = Shard();
    }
    current.names.push_back(item.key());
    current.size += size;
  }
  if (!current.names.empty() || shards.empty()) {
    shards.push_back(std::move(current));
  }
  TORCH_CHECK(
      shards.size() <= 99999,
      "A shard size of ",
      max_shard_size,
      " bytes would make ",
      shards.size(),
      " files; the names have room for 99999");
  for (size_t i = 0; i < shards.size(); ++i) {
    char suffix[32] = "";
    if (shards.size() > 1) {
      std::snprintf(
          suffix, sizeof(suffix), "-%05zu-of-%05zu", i + 1, shards.size());
    }
    shards[i].file = stem + suffix + ".safetensors";
  }
  return shards;
}

void save_model(
    const torch::nn::Module& module,
    const std::string& directory,
    const std::string& max_shard_size) {
  save_model(module, directory, parse_size(max_shard_size));
}

void save_model(
    const torch::nn::Module& module,
    const std::string& directory,
    uint64_t max_shard_size) {
  const StateDict tensors = without_shared(state_dict(module));
  write_model(
      tensors, plan_shards(tensors, max_shard_size, kStem), directory, nullptr);
}

StateDict shard_tensors(const StateDict& tensors, const Shard& shard) {
  StateDict part;
  for (const auto& name : shard.names) {
    part.insert(name, tensors[name]);
  }
  return part;
}

void write_model(
    const StateDict& tensors,
    const std::vector<Shard>& shards,
    const std::string& directory,
    const PutTogether& put_together) {
  TORCH_CHECK(
      !fs::exists(directory) || fs::is_directory(directory),
      "Cannot save a model into ",
      in_quotes(directory),
      ": there is a file of that name");
  std::error_code error;
  fs::create_directories(directory, error);
  TORCH_CHECK(
      !error,
      "Cannot make the directory ",
      in_quotes(directory),
      ": ",
      error.message());
  const auto path_of = [&](const std::string& file) {
    return (fs::path(directory) / file).string();
  };

  std::set<std::string> files;
  try {
    for (const auto& shard : shards) {
      files.insert(shard.file);
      write_safetensors(
          shard_tensors(tensors, shard), temporary_path(path_of(shard.file)),
          {{"format", "pt"}}, /*sync=*/true, put_together);
    }
    if (shards.size() > 1) {
      files.insert(kIndex);
      write_text(temporary_path(path_of(kIndex)), index_text(shards));
    }
  } catch (...) {
    for (const auto& file : files) {
      std::error_code ignored;
      fs::remove(temporary_path(path_of(file)), ignored);
    }
    throw;
  }

  // Everything is on the disk. What a reader begins with goes first and comes
  // last, so that it can never put together shards of two saves.
  if (shards.size() > 1) {
    fs::remove(path_of(kWhole));
  }
  fs::remove(path_of(kIndex));
  sync_directory(directory);
  for (const auto& file : files) {
    if (file != kIndex) {
      rename_path(temporary_path(path_of(file)), path_of(file));
    }
  }
  sync_directory(directory);
  if (files.count(kIndex)) {
    rename_path(temporary_path(path_of(kIndex)), path_of(kIndex));
  }
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (is_shard_name(name) && !files.count(name) && entry.is_regular_file()) {
      fs::remove(entry.path());
    }
  }
  sync_directory(directory);
}

TensorSources model_sources(const std::string& path) {
  TensorSources sources;
  const std::string file = find_model(path);
  const std::string suffix = ".index.json";
  if (file.size() < suffix.size() ||
      file.compare(file.size() - suffix.size(), suffix.size(), suffix) != 0) {
    add_sources(sources, SafetensorsFile(file));
    return sources;
  }
  for (const auto& [shard, names] : read_index(file)) {
    const SafetensorsFile tensors(
        (fs::path(file).parent_path() / shard).string());
    for (const auto& name : names) {
      TORCH_CHECK(
          tensors.find(name),
          "The index ",
          in_quotes(file),
          " says that tensor ",
          in_quotes(name),
          " is in ",
          in_quotes(shard),
          ", but it is not");
    }
    for (const auto& info : tensors.tensors()) {
      TORCH_CHECK(
          names.count(info.name),
          in_quotes(tensors.path()),
          " holds tensor ",
          in_quotes(info.name),
          ", but the index ",
          in_quotes(file),
          " does not say so");
    }
    add_sources(sources, tensors);
  }
  return sources;
}

IncompatibleKeys load_model(
    torch::nn::Module& module,
    const std::string& path,
    const LoadOptions& options) {
  LoadPlan plan(
      state_dict(module), model_sources(path), options, in_quotes(path),
      pieces_to_load());
  plan.apply();
  return plan.incompatible();
}

} // namespace accel::checkpoint
