#include "checkpoint/safetensors_header.h"

#include "checkpoint/files.h"

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>

namespace accel::checkpoint {

namespace {

struct DtypeRow {
  const char* name;
  at::ScalarType dtype;
};

/// In the order in which the format ranks them, lowest first.
constexpr std::array<DtypeRow, 17> kDtypes{{
    {"BOOL", at::kBool},
    {"U8", at::kByte},
    {"I8", at::kChar},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"I16", at::kShort},
    {"U16", at::kUInt16},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I32", at::kInt},
    {"U32", at::kUInt32},
    {"F32", at::kFloat},
    {"C64", at::kComplexFloat},
    {"F64", at::kDouble},
    {"I64", at::kLong},
    {"U64", at::kUInt64},
}};

using Number = nlohmann::json::number_unsigned_t;

/// Takes a header apart while it is parsed. Building a tree first would hide
/// names that come twice and let the text decide how much memory is used.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  struct Entry {
    std::string name;
    std::string dtype;
    std::vector<uint64_t> shape;
    std::vector<uint64_t> offsets;
    bool has_dtype = false, has_shape = false, has_offsets = false;
  };

  explicit HeaderReader(const std::string& path) : path_(path) {}

  std::map<std::string, std::string> metadata;
  std::vector<Entry> entries;

  bool null() override {
    return unexpected("null");
  }
  bool boolean(bool value) override {
    return unexpected(value ? "true" : "false");
  }
  bool number_integer(number_integer_t value) override {
    return unexpected(std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected(text);
  }
  bool binary(binary_t&) override {
    return unexpected("binary data");
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (where_ != Where::kShape && where_ != Where::kOffsets) {
      return unexpected(std::to_string(value));
    }
    auto& entry = entries.back();
    auto& list = where_ == Where::kShape ? entry.shape : entry.offsets;
    constexpr size_t kMaxDimensions = 64;
    TORCH_CHECK(
        list.size() < (where_ == Where::kShape ? kMaxDimensions : 2),
        place(),
        " has too many numbers");
    list.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (where_ == Where::kMetadata) {
      metadata[key_] = value;
    } else if (where_ == Where::kTensor && key_ == "dtype") {
      entries.back().dtype = value;
      entries.back().has_dtype = true;
    } else {
      return unexpected(in_quotes(value));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (where_ == Where::kStart) {
      where_ = Where::kRoot;
    } else if (where_ == Where::kRoot) {
      in_metadata_ = key_ == "__metadata__";
      where_ = in_metadata_ ? Where::kMetadata : Where::kTensor;
      if (!in_metadata_) {
        entries.emplace_back();
        entries.back().name = key_;
      }
      keys_.clear();
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (where_ == Where::kRoot) {
      TORCH_CHECK(
          names_.insert(value).second,
          in_quotes(path_),
          ": the name ",
          in_quotes(value),
          " comes twice in the header");
    } else {
      TORCH_CHECK(
          keys_.insert(value).second,
          place(),
          ": the key ",
          in_quotes(value),
          " comes twice");
      TORCH_CHECK(
          in_metadata_ || value == "dtype" || value == "shape" ||
              value == "data_offsets",
          place(),
          " has the unknown key ",
          in_quotes(value));
    }
    key_ = value;
    return true;
  }

  bool end_object() override {
    where_ = where_ == Where::kRoot ? Where::kEnd : Where::kRoot;
    return true;
  }

  bool start_array(std::size_t) override {
    if (where_ != Where::kTensor || key_ == "dtype") {
      return unexpected("an array");
    }
    auto& entry = entries.back();
    where_ = key_ == "shape" ? Where::kShape : Where::kOffsets;
    (where_ == Where::kShape ? entry.has_shape : entry.has_offsets) = true;
    return true;
  }

  bool end_array() override {
    where_ = Where::kTensor;
    return true;
  }

  bool parse_error(
      std::size_t position,
      const std::string&,
      const nlohmann::json::exception& error) override {
    TORCH_CHECK(
        false,
        in_quotes(path_),
        ": the header is not JSON (byte ",
        position,
        "): ",
        in_quotes(error.what()));
  }

 private:
  enum class Where {
    kStart,
    kRoot,
    kMetadata,
    kTensor,
    kShape,
    kOffsets,
    kEnd
  };

  std::string place() const {
    std::string text = in_quotes(path_) + ": ";
    if (where_ == Where::kStart || where_ == Where::kEnd) {
      return text + "the header";
    }
    if (where_ == Where::kRoot) {
      return text + in_quotes(key_);
    }
    text += in_metadata_ ? "'__metadata__'"
                         : "tensor " + in_quotes(entries.back().name);
    return key_.empty() ? text : text + ", " + in_quotes(key_);
  }

  bool unexpected(const std::string& what) {
    TORCH_CHECK(false, place(), ": ", what, " is not expected here");
  }

  const std::string& path_;
  Where where_ = Where::kStart;
  bool in_metadata_ = false;
  std::string key_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> keys_;
};

/// Checks one entry by itself; offsets are still relative to the data.
TensorInfo check_entry(
    const HeaderReader::Entry& entry,
    uint64_t data_size,
    const std::string& path) {
  const std::string place =
      in_quotes(path) + ": tensor " + in_quotes(entry.name) + ": ";
  TORCH_CHECK(entry.has_dtype, place, "no dtype");
  TORCH_CHECK(entry.has_shape, place, "no shape");
  TORCH_CHECK(
      entry.has_offsets && entry.offsets.size() == 2,
      place,
      "data_offsets must be two numbers, [begin, end]");
  const auto dtype = dtype_of(entry.dtype);
  TORCH_CHECK(
      dtype, place, "the dtype ", in_quotes(entry.dtype), " is not known here");

  TensorInfo info{entry.name, *dtype, {}, 0, 0};
  // An upper bound for every product of sizes that LibTorch computes (strides
  // count an empty dimension as 1), so that none of them can overflow.
  uint64_t bound = c10::elementSize(*dtype);
  bool empty = false;
  for (const uint64_t size : entry.shape) {
    empty = empty || size == 0;
    TORCH_CHECK(
        size <=
            static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / bound,
        place,
        "the shape is too large: size ",
        size);
    bound *= std::max<uint64_t>(size, 1);
    info.shape.push_back(static_cast<int64_t>(size));
  }
  const uint64_t bytes = empty ? 0 : bound;
  const uint64_t begin = entry.offsets[0], end = entry.offsets[1];
  TORCH_CHECK(
      begin <= end && end <= data_size,
      place,
      "data_offsets [",
      begin,
      ", ",
      end,
      "] are not within the ",
      data_size,
      " bytes of data");
  TORCH_CHECK(
      end - begin == bytes,
      place,
      "data_offsets [",
      begin,
      ", ",
      end,
      "] are ",
      end - begin,
      " bytes, but ",
      entry.dtype,
      " ",
      at::IntArrayRef(info.shape),
      " takes ",
      bytes);
  info.offset = begin;
  info.size = bytes;
  return info;
}

} // namespace

const char* dtype_name(at::ScalarType dtype) {
  for (const auto& row : kDtypes) {
    if (row.dtype == dtype) {
      return row.name;
    }
  }
  return nullptr;
}

std::optional<at::ScalarType> dtype_of(const std::string& name) {
  for (const auto& row : kDtypes) {
    if (name == row.name) {
      return row.dtype;
    }
  }
  return std::nullopt;
}

int dtype_rank(at::ScalarType dtype) {
  const auto row = std::find_if(
      kDtypes.begin(), kDtypes.end(), [&](const DtypeRow& candidate) {
        return candidate.dtype == dtype;
      });
  return static_cast<int>(row - kDtypes.begin());
}

SafetensorsHeader parse_header(
    const std::string& json,
    uint64_t data_start,
    uint64_t file_size,
    const std::string& path) {
  TORCH_CHECK(
      !json.empty() && json[0] == '{',
      in_quotes(path),
      " is not a safetensors file: its header does not begin with '{'");
  // The parser would take it for the end of the text.
  TORCH_CHECK(
      json.find('\0') == std::string::npos,
      in_quotes(path),
      ": the header is not JSON: it contains a zero byte");
  HeaderReader reader(path);
  nlohmann::json::sax_parse(json, &reader);

  SafetensorsHeader header{std::move(reader.metadata), {}};
  const uint64_t data_size = file_size - data_start;
  header.tensors.reserve(reader.entries.size());
  for (const auto& entry : reader.entries) {
    header.tensors.push_back(check_entry(entry, data_size, path));
  }
  std::stable_sort(
      header.tensors.begin(),
      header.tensors.end(),
      [](const TensorInfo& a, const TensorInfo& b) {
        return std::make_pair(a.offset, a.size) <
               std::make_pair(b.offset, b.size);
      });
  uint64_t expected = 0;
  for (auto& tensor : header.tensors) {
    TORCH_CHECK(
        tensor.offset == expected,
        in_quotes(path),
        ": tensor ",
        in_quotes(tensor.name),
        " begins at byte ",
        tensor.offset,
        " of the data, but the one before it ends at ",
        expected,
        tensor.offset < expected ? ": they overlap" : ": there is a hole");
    expected += tensor.size;
    tensor.offset += data_start;
  }
  TORCH_CHECK(
      expected == data_size,
      in_quotes(path),
      " has ",
      data_size,
      " bytes of data, but its tensors end at ",
      expected);
  return header;
}

} // namespace accel::checkpoint
