// torch::save's files, as far as the numbers in them can be compared.

#include <algorithm>
#include <cstring>

#include "tensor_archive.h"

namespace accel::verify {
namespace {

/// Little-endian numbers at an offset; zero behind the end.
template <typename T>
T number_at(const std::string& bytes, size_t at) {
  T value = 0;
  if (at <= bytes.size() && sizeof(T) <= bytes.size() - at) {
    std::memcpy(&value, bytes.data() + at, sizeof(T));
  }
  return value;
}

struct ZipEntry {
  /// As it is stored.
  std::string bytes;
  bool compressed = false;
};

/// The entries of a zip file; nothing where it is none.
std::optional<std::map<std::string, ZipEntry>> read_zip(
    const std::string& bytes) {
  constexpr size_t kEndSize = 22;
  if (bytes.size() < kEndSize || bytes.compare(0, 4, "PK\3\4") != 0) {
    return std::nullopt;
  }
  const size_t end = bytes.rfind("PK\5\6");
  if (end == std::string::npos) {
    return std::nullopt;
  }
  uint64_t count = number_at<uint16_t>(bytes, end + 10);
  uint64_t at = number_at<uint32_t>(bytes, end + 16);
  const size_t wide = bytes.rfind("PK\6\6");
  if (wide != std::string::npos && wide < end) {
    count = number_at<uint64_t>(bytes, wide + 32);
    at = number_at<uint64_t>(bytes, wide + 48);
  }
  std::map<std::string, ZipEntry> entries;
  for (uint64_t i = 0; i < count; ++i) {
    if (at > bytes.size() || bytes.size() - at < 46 ||
        bytes.compare(at, 4, "PK\1\2") != 0) {
      return std::nullopt;
    }
    const bool compressed = number_at<uint16_t>(bytes, at + 10) != 0;
    uint64_t size = number_at<uint32_t>(bytes, at + 20);
    uint64_t offset = number_at<uint32_t>(bytes, at + 42);
    const size_t name_size = number_at<uint16_t>(bytes, at + 28);
    const size_t extra_size = number_at<uint16_t>(bytes, at + 30);
    const size_t comment_size = number_at<uint16_t>(bytes, at + 32);
    if (bytes.size() - at - 46 < name_size + extra_size) {
      return std::nullopt;
    }
    const std::string name = bytes.substr(at + 46, name_size);
    // Sizes that do not fit are in the extra field with number 1, in the order
    // original size, stored size, offset, each only where it is needed.
    const size_t extra = at + 46 + name_size;
    if (number_at<uint16_t>(bytes, extra) == 1 && extra_size >= 4) {
      size_t field = extra + 4;
      if (number_at<uint32_t>(bytes, at + 24) == 0xffffffff) {
        field += 8;
      }
      if (size == 0xffffffff) {
        size = number_at<uint64_t>(bytes, field);
        field += 8;
      }
      if (offset == 0xffffffff) {
        offset = number_at<uint64_t>(bytes, field);
      }
    }
    if (offset > bytes.size() || bytes.size() - offset < 30) {
      return std::nullopt;
    }
    const uint64_t data = offset + 30 +
        number_at<uint16_t>(bytes, offset + 26) +
        number_at<uint16_t>(bytes, offset + 28);
    if (data > bytes.size() || size > bytes.size() - data) {
      return std::nullopt;
    }
    entries[name] = {bytes.substr(data, size), compressed};
    at += 46 + name_size + extra_size + comment_size;
  }
  return entries;
}

/// Which storage has which dtype, by the storages' keys. A pickle is a list of
/// instructions for a machine with a stack. A storage is a tuple ("storage",
/// class, key, device, size) that is handed to the instruction BINPERSID; all
/// that is needed is to follow what strings and class names are pushed.
class PickleScanner {
 public:
  explicit PickleScanner(const std::string& bytes) : bytes_(bytes) {}

  /// False where an instruction is not known.
  bool scan(std::map<std::string, std::string>& dtypes) {
    while (at_ < bytes_.size()) {
      const auto code = static_cast<unsigned char>(bytes_[at_++]);
      if (code == '.') {
        return true;
      }
      if (code == 'Q') { // BINPERSID: the tuple before it
        note_storage(dtypes);
        recent_.emplace_back();
      } else if (!step(code)) {
        return false;
      }
    }
    return true;
  }

 private:
  bool step(unsigned char code) {
    switch (code) {
      case 0x80: // PROTO
        at_ += 1;
        return true;
      case 'c': { // GLOBAL: two lines
        const std::string module = line();
        push(module + "." + line());
        return true;
      }
      case 'X': // BINUNICODE
        push(text(number_at<uint32_t>(bytes_, at_), 4));
        return true;
      case 0x8c: // SHORT_BINUNICODE
        push(text(number_at<uint8_t>(bytes_, at_), 1));
        return true;
      case 'q': // BINPUT
        memo_[number_at<uint8_t>(bytes_, at_)] = last();
        at_ += 1;
        return true;
      case 'r': // LONG_BINPUT
        memo_[number_at<uint32_t>(bytes_, at_)] = last();
        at_ += 4;
        return true;
      case 'h': // BINGET
        push(memo_[number_at<uint8_t>(bytes_, at_)]);
        at_ += 1;
        return true;
      case 'j': // LONG_BINGET
        push(memo_[number_at<uint32_t>(bytes_, at_)]);
        at_ += 4;
        return true;
      case 'K': // BININT1
        at_ += 1;
        push("");
        return true;
      case 'M': // BININT2
        at_ += 2;
        push("");
        return true;
      case 'J': // BININT
        at_ += 4;
        push("");
        return true;
      case 'G': // BINFLOAT
        at_ += 8;
        push("");
        return true;
      case 0x8a: // LONG1
        at_ += 1 + number_at<uint8_t>(bytes_, at_);
        push("");
        return true;
      case 'N': // NONE
      case 0x88: // NEWTRUE
      case 0x89: // NEWFALSE
        push("");
        return true;
      case '(': // MARK
        recent_.clear();
        return true;
      // What builds objects of what was pushed.
      case 't': case 0x85: case 0x86: case 0x87: case ')': case ']': case '}':
      case 'R': case 'b': case 's': case 'u': case 'a': case 'e': case 'd':
      case 'l': case 0x81: case '0': case '2':
        return true;
      default:
        return false;
    }
  }

  void note_storage(std::map<std::string, std::string>& dtypes) {
    for (size_t i = 0; i + 2 < recent_.size(); ++i) {
      if (recent_[i] == "storage") {
        dtypes[recent_[i + 2]] = recent_[i + 1];
      }
    }
  }

  void push(std::string value) {
    recent_.push_back(std::move(value));
  }
  std::string last() const {
    return recent_.empty() ? "" : recent_.back();
  }
  std::string text(size_t size, size_t prefix) {
    at_ += prefix;
    if (at_ > bytes_.size() || size > bytes_.size() - at_) {
      at_ = bytes_.size();
      return "";
    }
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  std::string line() {
    const size_t end = std::min(bytes_.find('\n', at_), bytes_.size());
    std::string result = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return result;
  }

  const std::string& bytes_;
  size_t at_ = 0;
  /// What was pushed since the last mark.
  std::vector<std::string> recent_;
  std::map<uint32_t, std::string> memo_;
};

/// "F32" of "torch.FloatStorage"; empty where it is not known.
std::string dtype_of_class(const std::string& name) {
  static const std::map<std::string, std::string> known = {
      {"torch.DoubleStorage", "F64"}, {"torch.FloatStorage", "F32"},
      {"torch.HalfStorage", "F16"},   {"torch.BFloat16Storage", "BF16"},
      {"torch.LongStorage", "I64"},   {"torch.IntStorage", "I32"},
      {"torch.ShortStorage", "I16"},  {"torch.CharStorage", "I8"},
      {"torch.ByteStorage", "U8"},    {"torch.BoolStorage", "BOOL"}};
  const auto found = known.find(name);
  return found == known.end() ? "" : found->second;
}

/// "x/data.pkl" -> "data.pkl": the first folder is the file's own name.
std::string below_top(const std::string& path) {
  return path.substr(path.find('/') + 1);
}

} // namespace

std::optional<StoredTensors> read_torch_archive(
    const std::string& bytes, std::map<std::string, std::string>& others) {
  const auto entries = read_zip(bytes);
  if (!entries) {
    return std::nullopt;
  }
  std::map<std::string, std::string> dtypes;
  bool has_pickle = false;
  for (const auto& [path, entry] : *entries) {
    const std::string name = below_top(path);
    if (name == "data.pkl" || name == "constants.pkl") {
      has_pickle = true;
      if (entry.compressed) {
        return std::nullopt;
      }
      const std::string folder =
          name.substr(0, name.size() - std::strlen(".pkl"));
      std::map<std::string, std::string> found;
      if (!PickleScanner(entry.bytes).scan(found)) {
        return std::nullopt;
      }
      for (const auto& [key, type] : found) {
        dtypes[folder + "/" + key] = dtype_of_class(type);
      }
    }
  }
  if (!has_pickle) {
    return std::nullopt;
  }
  StoredTensors tensors;
  for (const auto& [path, entry] : *entries) {
    const std::string name = below_top(path);
    if (name == ".data/serialization_id") {
      continue; // a checksum of the rest
    }
    const auto dtype = dtypes.find(name);
    auto values = dtype == dtypes.end() || entry.compressed
        ? std::nullopt
        : decode_numbers(
              dtype->second, entry.bytes.data(), entry.bytes.size());
    if (values) {
      const auto count = static_cast<int64_t>(values->size());
      tensors[name] = {dtype->second, {count}, std::move(*values)};
    } else {
      others[name] = entry.bytes;
    }
  }
  return tensors;
}

} // namespace accel::verify
