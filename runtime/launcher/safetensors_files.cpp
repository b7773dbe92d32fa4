#include "safetensors_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include "error.h"
#include "file_descriptor.h"

namespace accel::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;

struct Dtype {
  const char* name;
  unsigned size;
};

/// As the format ranks them, lowest first: files begin with the highest.
constexpr std::array<Dtype, 17> kDtypes{{
    {"BOOL", 1},
    {"U8", 1},
    {"I8", 1},
    {"F8_E5M2", 1},
    {"F8_E4M3", 1},
    {"F8_E8M0", 1},
    {"I16", 2},
    {"U16", 2},
    {"F16", 2},
    {"BF16", 2},
    {"I32", 4},
    {"U32", 4},
    {"F32", 4},
    {"C64", 8},
    {"F64", 8},
    {"I64", 8},
    {"U64", 8},
}};

size_t rank_of(const std::string& dtype) {
  for (size_t i = 0; i < kDtypes.size(); ++i) {
    if (dtype == kDtypes[i].name) {
      return i;
    }
  }
  return kDtypes.size();
}

[[noreturn]] void damaged(const std::string& path, const std::string& why) {
  throw Error(kLauncherFailed, path + " is damaged or no such file: " + why);
}

FileDescriptor open_to_read(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    throw_errno("cannot read " + path);
  }
  return file;
}

void read_at(
    int fd, char* bytes, size_t size, uint64_t position, const std::string& path) {
  for (size_t done = 0; done < size;) {
    const ssize_t count = ::pread(
        fd, bytes + done, size - done, static_cast<off_t>(position + done));
    if (count < 0 && errno != EINTR) {
      throw_errno("cannot read " + path);
    }
    if (count == 0) {
      damaged(path, "it ends too early");
    }
    done += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
}

/// A product that fits; throws otherwise.
uint64_t times(uint64_t a, uint64_t b, const std::string& path) {
  uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) {
    damaged(path, "a shape is too large");
  }
  return result;
}

TensorEntry read_entry(
    const std::string& name,
    const Json& json,
    uint64_t data_start,
    const std::string& path) {
  TensorEntry entry;
  entry.name = name;
  entry.file = path;
  try {
    entry.dtype = json.at("dtype").get<std::string>();
    for (const Json& size : json.at("shape")) {
      if (!size.is_number_unsigned()) {
        damaged(path, "the shape of " + name + " is none");
      }
      entry.shape.push_back(size.get<uint64_t>());
    }
    const Json& offsets = json.at("data_offsets");
    if (offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned() ||
        offsets[1].get<uint64_t>() < offsets[0].get<uint64_t>()) {
      damaged(path, "the offsets of " + name + " make no sense");
    }
    entry.position = data_start + offsets[0].get<uint64_t>();
    entry.bytes = offsets[1].get<uint64_t>() - offsets[0].get<uint64_t>();
  } catch (const Json::exception& error) {
    damaged(path, "the entry of " + name + ": " + error.what());
  }
  if (dtype_size(entry.dtype) == 0) {
    damaged(path, name + " has the unknown dtype " + entry.dtype);
  }
  entry.elements = 1;
  for (uint64_t size : entry.shape) {
    entry.elements = times(entry.elements, size, path);
  }
  if (times(entry.elements, dtype_size(entry.dtype), path) != entry.bytes) {
    damaged(
        path,
        name + " has " + std::to_string(entry.bytes) +
            " bytes, which is not what its shape and dtype need");
  }
  return entry;
}

ModelFiles read_file(const std::string& path) {
  const FileDescriptor file = open_to_read(path);
  struct stat status;
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error(kLauncherFailed, path + " is no file");
  }
  const auto file_size = static_cast<uint64_t>(status.st_size);
  if (file_size < 8) {
    damaged(path, "it has fewer than 8 bytes");
  }
  std::array<unsigned char, 8> length;
  read_at(file.get(), reinterpret_cast<char*>(length.data()), 8, 0, path);
  uint64_t size = 0;
  for (size_t i = 8; i-- > 0;) {
    size = size << 8 | length[i];
  }
  if (size > kMaxHeader || size > file_size - 8) {
    damaged(path, "its header would have " + std::to_string(size) + " bytes");
  }
  std::string text(size, '\0');
  read_at(file.get(), text.data(), size, 8, path);
  Json header;
  try {
    header = Json::parse(text);
  } catch (const Json::exception& error) {
    damaged(path, std::string("its header: ") + error.what());
  }
  if (!header.is_object()) {
    damaged(path, "its header is no JSON object");
  }
  ModelFiles model;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, word] : value.items()) {
        if (!word.is_string()) {
          damaged(path, "its metadata are not text");
        }
        model.metadata[key] = word.get<std::string>();
      }
    } else {
      model.tensors.push_back(read_entry(name, value, 8 + size, path));
    }
  }
  // A name that comes twice leaves a hole, too.
  std::sort(
      model.tensors.begin(),
      model.tensors.end(),
      [](const TensorEntry& a, const TensorEntry& b) {
        return std::make_pair(a.position, a.bytes) <
               std::make_pair(b.position, b.bytes);
      });
  uint64_t position = 8 + size;
  for (const TensorEntry& entry : model.tensors) {
    if (entry.position != position) {
      damaged(path, "the bytes before " + entry.name + " belong to nothing");
    }
    position += entry.bytes;
  }
  if (position != file_size) {
    damaged(
        path,
        "it has " + std::to_string(file_size) + " bytes instead of " +
            std::to_string(position));
  }
  return model;
}

ModelFiles read_index(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) {
    throw_errno("cannot read " + path);
  }
  std::map<std::string, std::set<std::string>> wanted;
  try {
    const Json json = Json::parse(stream);
    for (const auto& [name, file] : json.at("weight_map").items()) {
      wanted[file.get<std::string>()].insert(name);
    }
  } catch (const Json::exception& error) {
    damaged(path, error.what());
  }
  ModelFiles model;
  for (const auto& [name, tensors] : wanted) {
    if (name.empty() || name.find('/') != std::string::npos) {
      damaged(path, "'" + name + "' is no file beside it");
    }
    ModelFiles part =
        read_file((fs::path(path).parent_path() / name).string());
    std::set<std::string> found;
    for (const TensorEntry& entry : part.tensors) {
      found.insert(entry.name);
    }
    if (found != tensors) {
      std::vector<std::string> difference;
      std::set_symmetric_difference(
          found.begin(),
          found.end(),
          tensors.begin(),
          tensors.end(),
          std::back_inserter(difference));
      throw Error(
          kLauncherFailed,
          path + " and " + name + " do not belong together: " +
              difference.front() + " is in one of them only");
    }
    model.tensors.insert(
        model.tensors.end(), part.tensors.begin(), part.tensors.end());
    model.metadata.insert(part.metadata.begin(), part.metadata.end());
  }
  return model;
}

/// What `save_state` writes beside the tensors of a process's file: of which of them
/// it has a part, as {name: [sizes of the whole tensor, place of the part]}, with the
/// numbers of blocks behind where it is cut in blocks.
constexpr const char* kBoxes = "accel.pieces";

/// "model.process_3.safetensors", in the order of the processes.
std::vector<std::string> process_files(const std::string& folder) {
  std::map<unsigned long, std::string> files;
  const std::string prefix = "model.process_";
  const std::string suffix = ".safetensors";
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.size() <= prefix.size() + suffix.size() ||
        name.rfind(prefix, 0) != 0 ||
        name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) {
      continue;
    }
    const std::string rank = name.substr(
        prefix.size(), name.size() - prefix.size() - suffix.size());
    if (rank.size() < 10 &&
        rank.find_first_not_of("0123456789") == std::string::npos) {
      files.emplace(std::stoul(rank), entry.path().string());
    }
  }
  std::vector<std::string> result;
  for (const auto& [rank, file] : files) {
    result.push_back(file);
  }
  return result;
}

uint64_t elements_of(const std::vector<uint64_t>& shape, const std::string& path) {
  uint64_t elements = 1;
  for (const uint64_t size : shape) {
    elements = times(elements, size, path);
  }
  return elements;
}

/// Makes a part of a tensor out of one of a process's file.
void place_piece(TensorEntry& entry, const Json& boxes) {
  TensorPiece piece{entry.file, entry.position, entry.shape, {}, {}};
  piece.blocks.assign(entry.shape.size(), 1);
  const auto box = boxes.find(entry.name);
  if (box == boxes.end()) {
    piece.offset.assign(entry.shape.size(), 0);
  } else {
    try {
      entry.shape = box->at(0).get<std::vector<uint64_t>>();
      piece.offset = box->at(1).get<std::vector<uint64_t>>();
      if (box->size() > 2) {
        piece.blocks = box->at(2).get<std::vector<uint64_t>>();
      }
    } catch (const Json::exception& error) {
      damaged(entry.file, "the place of " + entry.name + ": " + error.what());
    }
  }
  bool fits = piece.shape.size() == entry.shape.size() &&
      piece.offset.size() == entry.shape.size() &&
      piece.blocks.size() == entry.shape.size();
  for (size_t i = 0; fits && i < entry.shape.size(); ++i) {
    const uint64_t blocks = piece.blocks[i];
    fits = piece.shape[i] <= entry.shape[i] && blocks > 0 &&
        piece.shape[i] % blocks == 0 && entry.shape[i] % blocks == 0 &&
        piece.offset[i] <= (entry.shape[i] - piece.shape[i]) / blocks;
  }
  if (!fits) {
    damaged(entry.file, "what it has of " + entry.name + " is no part of it");
  }
  entry.elements = elements_of(entry.shape, entry.file);
  entry.bytes = times(entry.elements, dtype_size(entry.dtype), entry.file);
  entry.pieces = {std::move(piece)};
}

/// Of pieces in the same blocks: in one of them, and so in each.
bool overlap(const TensorPiece& a, const TensorPiece& b) {
  for (size_t i = 0; i < a.shape.size(); ++i) {
    if (std::max(a.offset[i], b.offset[i]) >=
        std::min(a.offset[i] + a.shape[i] / a.blocks[i],
                 b.offset[i] + b.shape[i] / b.blocks[i])) {
      return false;
    }
  }
  return true;
}

/// The model whose parts are in these files.
ModelFiles read_process_files(const std::vector<std::string>& paths) {
  ModelFiles model;
  std::map<std::string, size_t> by_name;
  for (const std::string& path : paths) {
    ModelFiles part = read_file(path);
    Json boxes = Json::object();
    if (const auto text = part.metadata.find(kBoxes);
        text != part.metadata.end()) {
      boxes = Json::parse(text->second, nullptr, /*allow_exceptions=*/false);
      if (!boxes.is_object()) {
        damaged(path, std::string(kBoxes) + " is no JSON object");
      }
      part.metadata.erase(text);
    }
    model.metadata.insert(part.metadata.begin(), part.metadata.end());
    for (TensorEntry& entry : part.tensors) {
      place_piece(entry, boxes);
      const auto [place, is_new] =
          by_name.emplace(entry.name, model.tensors.size());
      if (is_new) {
        model.tensors.push_back(std::move(entry));
        continue;
      }
      TensorEntry& whole = model.tensors[place->second];
      if (whole.shape != entry.shape || whole.dtype != entry.dtype) {
        damaged(path, entry.name + " is of other sizes than in " + whole.file);
      }
      if (whole.pieces[0].blocks != entry.pieces[0].blocks) {
        damaged(path, entry.name + " is cut in other blocks than in " + whole.file);
      }
      for (const TensorPiece& other : whole.pieces) {
        if (overlap(other, entry.pieces[0])) {
          damaged(path, "it has a part of " + entry.name + " that " +
                            other.file + " has, too");
        }
      }
      whole.pieces.push_back(std::move(entry.pieces[0]));
    }
  }
  for (const TensorEntry& entry : model.tensors) {
    uint64_t elements = 0;
    for (const TensorPiece& piece : entry.pieces) {
      elements += elements_of(piece.shape, piece.file);
    }
    if (elements != entry.elements) {
      damaged(
          paths[0],
          "the files of the processes have " + std::to_string(elements) +
              " of the " + std::to_string(entry.elements) + " elements of " +
              entry.name);
    }
  }
  return model;
}

/// The part's rows, as far as they lie one behind the other in the whole tensor, too.
class Runs {
 public:
  Runs(const TensorEntry& entry, const TensorPiece& piece)
      : whole_(entry.shape), piece_(piece), size_(dtype_size(entry.dtype)) {
    // The last dimension that is cut, of whose blocks each is a run of its own; behind
    // it everything is there.
    cut_ = whole_.size();
    while (cut_ > 0 && piece.shape[cut_ - 1] == whole_[cut_ - 1]) {
      size_ *= whole_[--cut_];
    }
    for (size_t i = 0; i < cut_; ++i) {
      count_ *= i + 1 == cut_ ? piece.blocks[i] : piece.shape[i];
    }
    if (cut_ > 0) {
      size_ *= piece.shape[cut_ - 1] / piece.blocks[cut_ - 1];
    }
    count_ = size_ == 0 ? 0 : count_;
  }

  uint64_t count() const {
    return count_;
  }
  /// In bytes.
  uint64_t size() const {
    return size_;
  }
  /// Where the run begins in the whole tensor, in bytes.
  uint64_t position(uint64_t run, uint64_t element_size) const {
    std::vector<uint64_t> index(whole_.size(), 0);
    for (size_t i = cut_; i-- > 0;) {
      const uint64_t rows = piece_.shape[i] / piece_.blocks[i];
      // The row in the piece.
      uint64_t row = run % piece_.blocks[i] * rows;
      if (i + 1 == cut_) {
        run /= piece_.blocks[i];
      } else {
        row = run % piece_.shape[i];
        run /= piece_.shape[i];
      }
      index[i] = row / rows * (whole_[i] / piece_.blocks[i]) + piece_.offset[i] +
          row % rows;
    }
    uint64_t element = 0;
    for (size_t i = 0; i < index.size(); ++i) {
      element = element * whole_[i] + index[i];
    }
    return element * element_size;
  }

 private:
  const std::vector<uint64_t>& whole_;
  const TensorPiece& piece_;
  size_t cut_ = 0;
  uint64_t size_;
  uint64_t count_ = 1;
};

std::string json_text(const std::string& text) {
  return Json(text).dump();
}

void write_at(
    int fd, const char* bytes, size_t size, uint64_t position, const std::string& path) {
  for (size_t done = 0; done < size;) {
    const ssize_t count = ::pwrite(
        fd, bytes + done, size - done, static_cast<off_t>(position + done));
    if (count < 0 && errno != EINTR) {
      throw_errno("cannot write " + path);
    }
    done += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
}

std::string header_text(
    const std::vector<const TensorEntry*>& order,
    const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      header += header.back() == '{' ? "" : ",";
      header += json_text(key) + ":" + json_text(value);
    }
    header += "}";
  }
  uint64_t offset = 0;
  for (const TensorEntry* entry : order) {
    header += header.size() == 1 ? "" : ",";
    header += json_text(entry->name) + ":{\"dtype\":\"" + entry->dtype +
              "\",\"shape\":[";
    for (uint64_t size : entry->shape) {
      header += header.back() == '[' ? "" : ",";
      header += std::to_string(size);
    }
    header += "],\"data_offsets\":[" + std::to_string(offset) + "," +
              std::to_string(offset + entry->bytes) + "]}";
    offset += entry->bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

} // namespace

unsigned dtype_size(const std::string& dtype) {
  const size_t rank = rank_of(dtype);
  return rank < kDtypes.size() ? kDtypes[rank].size : 0;
}

bool is_floating(const std::string& dtype) {
  return dtype[0] == 'F' || dtype == "BF16" || dtype == "C64";
}

ModelFiles read_model_files(const std::string& path) {
  std::error_code none;
  if (!fs::exists(path, none)) {
    throw Error(kLauncherFailed, path + ": there is no such file or folder");
  }
  if (!fs::is_directory(path, none)) {
    const std::string suffix = ".json";
    const bool index =
        path.size() > suffix.size() &&
        path.compare(path.size() - suffix.size(), suffix.size(), suffix) == 0;
    return index ? read_index(path) : read_file(path);
  }
  const std::string whole = (fs::path(path) / "model.safetensors").string();
  const std::string index =
      (fs::path(path) / "model.safetensors.index.json").string();
  const bool has_whole = fs::exists(whole, none);
  const bool has_index = fs::exists(index, none);
  if (has_whole && has_index) {
    throw Error(
        kLauncherFailed,
        path +
            " has both model.safetensors and model.safetensors.index.json; "
            "name the one that is meant");
  }
  const auto processes = process_files(path);
  if (!processes.empty()) {
    if (has_whole || has_index) {
      throw Error(
          kLauncherFailed,
          path + " has files of processes (" + processes[0] +
              ") and a whole model; name the file that is meant");
    }
    return read_process_files(processes);
  }
  if (!has_whole && !has_index) {
    throw Error(
        kLauncherFailed,
        path +
            " has neither model.safetensors nor model.safetensors.index.json");
  }
  return has_whole ? read_file(whole) : read_index(index);
}

void write_merged(const ModelFiles& model, const std::string& path) {
  std::vector<const TensorEntry*> order;
  for (const TensorEntry& entry : model.tensors) {
    order.push_back(&entry);
  }
  std::sort(
      order.begin(), order.end(), [](const TensorEntry* a, const TensorEntry* b) {
        const size_t rank_a = rank_of(a->dtype);
        const size_t rank_b = rank_of(b->dtype);
        return rank_a != rank_b ? rank_a > rank_b : a->name < b->name;
      });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->name == order[i]->name) {
      throw Error(kLauncherFailed, order[i]->name + " is there twice");
    }
  }
  const std::string header = header_text(order, model.metadata);
  if (header.size() > kMaxHeader) {
    throw Error(
        kLauncherFailed,
        "the header of one file would be longer than readers take");
  }
  const std::string temporary =
      path + ".incomplete-" + std::to_string(::getpid());
  try {
    const FileDescriptor file(::open(
        temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) {
      throw_errno("cannot write " + temporary);
    }
    std::string length(8, '\0');
    for (size_t i = 0; i < 8; ++i) {
      length[i] = static_cast<char>(header.size() >> (8 * i) & 255);
    }
    write_at(file.get(), length.data(), 8, 0, temporary);
    write_at(file.get(), header.data(), header.size(), 8, temporary);
    uint64_t begin = 8 + header.size();
    std::map<std::string, FileDescriptor> sources;
    std::vector<char> buffer(size_t{1} << 20);
    const auto copy = [&](const std::string& from, uint64_t at, uint64_t to,
                          uint64_t bytes) {
      auto source = sources.find(from);
      if (source == sources.end()) {
        source = sources.emplace(from, open_to_read(from)).first;
      }
      for (uint64_t done = 0; done < bytes;) {
        const size_t count = static_cast<size_t>(
            std::min<uint64_t>(buffer.size(), bytes - done));
        read_at(source->second.get(), buffer.data(), count, at + done, from);
        write_at(file.get(), buffer.data(), count, to + done, temporary);
        done += count;
      }
    };
    for (const TensorEntry* entry : order) {
      if (entry->pieces.empty()) {
        copy(entry->file, entry->position, begin, entry->bytes);
      }
      for (const TensorPiece& piece : entry->pieces) {
        const Runs runs(*entry, piece);
        for (uint64_t run = 0; run < runs.count(); ++run) {
          copy(
              piece.file,
              piece.position + run * runs.size(),
              begin + runs.position(run, dtype_size(entry->dtype)),
              runs.size());
        }
      }
      begin += entry->bytes;
    }
    if (::fsync(file.get()) != 0 ||
        ::rename(temporary.c_str(), path.c_str()) != 0) {
      throw_errno("cannot write " + path);
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

} // namespace accel::launcher
