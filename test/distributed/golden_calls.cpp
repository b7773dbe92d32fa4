#include "golden_calls.h"

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <unordered_map>

namespace accel::distributed::test {
namespace {

using nlohmann::json;
using Place = std::function<at::Tensor(const at::Tensor&)>;
using Tensors = std::unordered_map<std::string, at::Tensor>;

std::ifstream open(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(
      file.good(), path, " cannot be read. Unpack "
      "test/distributed/golden/aten.tar.xz and name the folder: --golden=DIR.");
  return file;
}

Tensors read_tensors(const std::string& path) {
  static const std::unordered_map<std::string, at::ScalarType> dtypes{
      {"F64", at::kDouble}, {"F32", at::kFloat}, {"I64", at::kLong},
      {"I32", at::kInt},    {"U8", at::kByte},   {"BOOL", at::kBool}};
  auto file = open(path);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(length, '\0');
  file.read(header.data(), static_cast<std::streamsize>(length));
  const std::string body((std::istreambuf_iterator<char>(file)), {});
  Tensors tensors;
  const auto entries = json::parse(header);
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") {
      continue;
    }
    auto tensor = at::empty(
        entry["shape"].get<std::vector<int64_t>>(),
        dtypes.at(entry["dtype"].get<std::string>()));
    const size_t begin = entry["data_offsets"][0];
    const size_t end = entry["data_offsets"][1];
    TORCH_CHECK(
        end - begin == tensor.nbytes() && end <= body.size(),
        path, ": the entry ", name, " does not fit the file.");
    if (end > begin) {
      std::memcpy(tensor.mutable_data_ptr(), body.data() + begin, end - begin);
    }
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

/// A copy with these strides; dimensions of stride 0 are expanded.
at::Tensor with_strides(
    const at::Tensor& tensor,
    const std::vector<int64_t>& strides) {
  at::Tensor base = tensor;
  bool expanded = false;
  for (size_t d = 0; d < strides.size(); ++d) {
    if (strides[d] == 0 && tensor.size(d) > 1) {
      base = base.narrow(d, 0, 1);
      expanded = true;
    }
  }
  if (expanded) {
    return base.clone(at::MemoryFormat::Contiguous).expand(tensor.sizes());
  }
  auto copy = at::empty_strided(tensor.sizes(), strides, tensor.options());
  copy.copy_(tensor);
  return copy;
}

at::ScalarType dtype_of(const std::string& name) {
  static const std::unordered_map<std::string, at::ScalarType> dtypes{
      {"float64", at::kDouble}, {"float32", at::kFloat}, {"int64", at::kLong},
      {"int32", at::kInt},      {"bool", at::kBool},     {"uint8", at::kByte},
      {"bfloat16", at::kBFloat16}};
  return dtypes.at(name);
}

at::MemoryFormat memory_format_of(const std::string& name) {
  static const std::unordered_map<std::string, at::MemoryFormat> formats{
      {"contiguous_format", at::MemoryFormat::Contiguous},
      {"preserve_format", at::MemoryFormat::Preserve},
      {"channels_last", at::MemoryFormat::ChannelsLast}};
  return formats.at(name);
}

/// Turns the file's values into arguments.
class Reader {
 public:
  Reader(const Tensors& tensors, const Place& place)
      : tensors_(tensors), place_(place) {}

  c10::IValue value(const json& v, const c10::TypePtr& type) const {
    if (v.is_null()) {
      return {};
    }
    if (type->kind() == c10::TypeKind::OptionalType) {
      return value(v, type->expectRef<c10::OptionalType>().getElementType());
    }
    if (v.is_object()) {
      return object(v, type);
    }
    if (v.is_boolean()) {
      return v.get<bool>();
    }
    if (v.is_string()) {
      return v.get<std::string>();
    }
    if (v.is_array()) {
      return list(v, type);
    }
    if (type->kind() != c10::TypeKind::FloatType && v.is_number_integer()) {
      return v.get<int64_t>();
    }
    return v.get<double>();
  }

 private:
  at::Tensor tensor(const std::string& name) const {
    return place_(tensors_.at(name).clone());
  }

  c10::IValue object(const json& v, const c10::TypePtr& type) const {
    if (v.contains("tensor")) {
      const auto& held = tensors_.at(v["tensor"].get<std::string>());
      return v.contains("stride")
          ? place_(with_strides(held, v["stride"].get<std::vector<int64_t>>()))
          : place_(held.clone());
    }
    if (v.contains("tensors")) {
      const auto element = type->expectRef<c10::ListType>().getElementType();
      if (element->kind() == c10::TypeKind::OptionalType) {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto& name : v["tensors"]) {
          list.push_back(
              name.is_null() ? std::optional<at::Tensor>()
                             : tensor(name.get<std::string>()));
        }
        return list;
      }
      std::vector<at::Tensor> list;
      for (const auto& name : v["tensors"]) {
        list.push_back(tensor(name.get<std::string>()));
      }
      return list;
    }
    if (v.contains("dtype")) {
      return dtype_of(v["dtype"]);
    }
    if (v.contains("layout")) {
      return at::kStrided;
    }
    if (v.contains("device")) {
      return at::Device(v["device"].get<std::string>());
    }
    if (v.contains("memory_format")) {
      return memory_format_of(v["memory_format"]);
    }
    TORCH_CHECK(v.contains("float"), "a value of unknown kind: ", v.dump());
    const std::string text = v["float"];
    const double infinity = std::numeric_limits<double>::infinity();
    return text == "inf"    ? infinity
        : text == "-inf"    ? -infinity
                            : std::numeric_limits<double>::quiet_NaN();
  }

  static c10::IValue list(const json& v, const c10::TypePtr& type) {
    const auto element = type->expectRef<c10::ListType>().getElementType();
    switch (element->kind()) {
      case c10::TypeKind::FloatType:
        return v.get<std::vector<double>>();
      case c10::TypeKind::BoolType: {
        c10::List<bool> list;
        for (const bool b : v) {
          list.push_back(b);
        }
        return list;
      }
      case c10::TypeKind::TensorType:
        return std::vector<at::Tensor>();
      case c10::TypeKind::OptionalType:
        return c10::List<std::optional<at::Tensor>>();
      default:
        return v.get<std::vector<int64_t>>();
    }
  }

  const Tensors& tensors_;
  const Place& place_;
};

} // namespace

struct GoldenCalls::Files {
  Tensors tensors;
  std::vector<json> calls;
};

GoldenCalls::GoldenCalls(const std::string& folder)
    : files_(std::make_unique<Files>()) {
  files_->tensors = read_tensors(folder + "/tensors.safetensors");
  auto file = open(folder + "/calls.jsonl");
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    auto call = json::parse(line);
    const std::string name = call["op"];
    const auto dot = name.find('.');
    const auto op = c10::Dispatcher::singleton().findSchema(
        {name.substr(0, dot),
         dot == std::string::npos ? "" : name.substr(dot + 1)});
    if (!op) {
      ++unknown_;
      continue;
    }
    calls_.push_back({name, *op, number, files_->calls.size()});
    files_->calls.push_back(std::move(call));
  }
}

GoldenCalls::~GoldenCalls() = default;

torch::jit::Stack GoldenCalls::arguments(
    const GoldenCall& call,
    const Place& place) const {
  const auto& recorded = files_->calls[call.index];
  const auto& positional = recorded["args"];
  const auto& named = recorded["kwargs"];
  const Reader reader(files_->tensors, place);
  torch::jit::Stack stack;
  const auto& arguments = call.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    if (i < positional.size()) {
      stack.push_back(reader.value(positional[i], argument.type()));
    } else if (named.contains(argument.name())) {
      stack.push_back(reader.value(named[argument.name()], argument.type()));
    } else if (argument.default_value()) {
      stack.push_back(*argument.default_value());
    } else {
      stack.emplace_back();
    }
  }
  return stack;
}

} // namespace accel::distributed::test
