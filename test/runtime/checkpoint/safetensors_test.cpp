#include "support.h"

#include <accel/checkpoint/safetensors.h>
#include <accel/checkpoint/state_dict.h>

#include <cstring>

namespace accel::checkpoint::test {
namespace {

/// A file with any header and data.
std::string file_of(const std::string& header, const std::string& data) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) {
    file[i] = static_cast<char>(header.size() >> (8 * i));
  }
  return file + header + data;
}

/// Opens a file of that content and touches every value; the error's message,
/// empty where all went well.
std::string open_error(const std::string& path, const std::string& content) {
  write_file(path, content);
  return error_of([&] {
    const SafetensorsFile file(path);
    for (const auto& info : file.tensors()) {
      const auto mapped = file.map(info.name);
      const auto read = file.read(info.name);
      EXPECT_TRUE(identical(mapped, read)) << info.name;
    }
  });
}

/// Values that cover the bit patterns of a dtype.
at::Tensor values_of(at::ScalarType dtype, std::vector<int64_t> shape) {
  auto tensor = torch::empty(shape, dtype);
  auto* bytes = static_cast<unsigned char*>(tensor.mutable_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) {
    bytes[i] = static_cast<unsigned char>(
        dtype == at::kBool ? (i * 7 / 3) % 2 : i * 37 + 11);
  }
  return tensor;
}

TEST(Safetensors, ReadsWhatPythonWrote) {
  const auto path = golden("model_whole/model.safetensors");
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 9u);
  // By dtype (I64 before F32), then by name.
  EXPECT_EQ(file.tensors()[0].name, "1.num_batches_tracked");
  EXPECT_EQ(file.tensors()[1].name, "0.bias");
  EXPECT_EQ(file.map("3.weight").sizes(), (at::IntArrayRef{3, 40}));
  EXPECT_EQ(file.find("3.weight")->size, 480u);
  EXPECT_EQ(file.map("1.num_batches_tracked").dim(), 0);
  EXPECT_EQ(file.map("1.num_batches_tracked").scalar_type(), at::kLong);
}

TEST(Safetensors, WritesTheBytesThatPythonWrites) {
  const TemporaryDirectory directory;
  for (const std::string name :
       {"model_whole/model.safetensors",
        "model_sharded/model-00001-of-00003.safetensors",
        "model_sharded/model-00002-of-00003.safetensors",
        "model_sharded/model-00003-of-00003.safetensors",
        "checkpoints/checkpoint_2/model.safetensors"}) {
    const auto tensors = load_safetensors(golden(name));
    // The order in the dictionary must not matter.
    StateDict reversed;
    for (size_t i = tensors.size(); i-- > 0;) {
      reversed.insert(tensors[i].key(), tensors[i].value());
    }
    save_safetensors(reversed, directory / "copy");
    EXPECT_EQ(read_file(directory / "copy"), read_file(golden(name))) << name;
  }
}

TEST(Safetensors, KeepsEveryDtype) {
  const TemporaryDirectory directory;
  StateDict tensors;
  for (const auto dtype :
       {at::kBool,
        at::kByte,
        at::kChar,
        at::kFloat8_e5m2,
        at::kFloat8_e4m3fn,
        at::kFloat8_e8m0fnu,
        at::kShort,
        at::kUInt16,
        at::kHalf,
        at::kBFloat16,
        at::kInt,
        at::kUInt32,
        at::kFloat,
        at::kComplexFloat,
        at::kDouble,
        at::kLong,
        at::kUInt64}) {
    const std::string name = c10::toString(dtype);
    tensors.insert(name + ".scalar", values_of(dtype, {}));
    tensors.insert(name + ".odd", values_of(dtype, {3, 1, 5}));
    tensors.insert(name + ".empty", values_of(dtype, {4, 0}));
  }
  const auto path = directory / "all.safetensors";
  save_safetensors(tensors, path);
  const auto mapped = load_safetensors(path);
  const auto copied = load_safetensors(path, /*copy=*/true);
  ASSERT_EQ(mapped.size(), tensors.size());
  const char* names[] = {
      "UInt64",
      "Long",
      "Double",
      "ComplexFloat",
      "Float",
      "UInt32",
      "Int",
      "BFloat16",
      "Half",
      "UInt16",
      "Short",
      "Float8_e8m0fnu",
      "Float8_e4m3fn",
      "Float8_e5m2",
      "Char",
      "Byte",
      "Bool"};
  for (size_t i = 0; i < mapped.size(); ++i) {
    const auto& key = mapped[i].key();
    EXPECT_EQ(key.rfind(names[i / 3], 0), 0u) << key << " is at " << i;
    EXPECT_TRUE(identical(mapped[i].value(), tensors[key])) << key;
    EXPECT_TRUE(identical(copied[key], tensors[key])) << key;
  }
}

TEST(Safetensors, HeaderIsExactlyTheFormats) {
  const TemporaryDirectory directory;
  StateDict tensors;
  tensors.insert("b\"\n\xc3\xa4", torch::tensor({1, 2}, torch::kByte));
  tensors.insert("a", torch::tensor({1.5f}));
  save_safetensors(tensors, directory / "f", {{"k", "v"}});
  std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1],)"
      R"("data_offsets":[0,4]},"b\"\n)"
      "\xc3\xa4"
      R"(":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(
      read_file(directory / "f"),
      file_of(header, std::string("\0\0\xc0\x3f\1\2", 6)));
  save_safetensors(StateDict(), directory / "none", {});
  EXPECT_EQ(read_file(directory / "none"), file_of("{}      ", ""));
  EXPECT_EQ(load_safetensors(directory / "none").size(), 0u);
}

TEST(Safetensors, WritesStridedTensorsInRowOrder) {
  const TemporaryDirectory directory;
  const auto base = torch::arange(12, torch::kFloat).reshape({3, 4});
  StateDict tensors;
  tensors.insert("t", base.t());
  tensors.insert("conj", torch::randn({3}, torch::kComplexFloat).conj());
  save_safetensors(tensors, directory / "f");
  const auto loaded = load_safetensors(directory / "f");
  EXPECT_TRUE(identical(loaded["t"], base.t().contiguous()));
  EXPECT_TRUE(identical(loaded["conj"], tensors["conj"].resolve_conj()));
}

TEST(Safetensors, RefusesSharedMemoryAndWhatTheFormatLacks) {
  const TemporaryDirectory directory;
  const auto path = directory / "f";
  const auto base = torch::zeros({8});
  const auto save = [&](const at::Tensor& a, const at::Tensor& b) {
    StateDict tensors;
    tensors.insert("first", a);
    tensors.insert("second", b);
    save_safetensors(tensors, path);
  };
  EXPECT_ERROR(save(base, base), "'first' and 'second' share memory");
  EXPECT_ERROR(save(base.slice(0, 0, 5), base.slice(0, 4)), "share memory");
  EXPECT_ERROR(save(base, torch::zeros({2}, torch::kMeta)), "meta device");
  EXPECT_ERROR(save(base, at::Tensor()), "undefined");
  EXPECT_ERROR(save(base, torch::eye(3).to_sparse()), "not dense");
  EXPECT_ERROR(
      save(base, torch::zeros({2}, torch::kComplexDouble)), "ComplexDouble");
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  // Parts that do not touch are fine (parameters in one flat storage).
  save(base.slice(0, 0, 4), base.slice(0, 4));
  EXPECT_EQ(load_safetensors(path).size(), 2u);

  StateDict reserved;
  reserved.insert("__metadata__", base);
  EXPECT_ERROR(save_safetensors(reserved, path), "__metadata__");
  StateDict latin1;
  latin1.insert("\xe4", base);
  EXPECT_ERROR(save_safetensors(latin1, path), "not UTF-8");
}

TEST(Safetensors, MappedTensorsOutliveTheFileAndDoNotChangeIt) {
  const TemporaryDirectory directory;
  const auto path = directory / "f";
  StateDict tensors;
  tensors.insert("a", torch::arange(1000, torch::kDouble));
  tensors.insert("b", torch::ones({10}));
  save_safetensors(tensors, path);
  const auto before = read_file(path);
  at::Tensor a, b;
  {
    const SafetensorsFile file(path);
    a = file.map("a");
    b = file.map("b");
    EXPECT_EQ(
        static_cast<char*>(b.data_ptr()) - static_cast<char*>(a.data_ptr()),
        8000);
  }
  a.add_(1);
  EXPECT_EQ(read_file(path), before);
  std::filesystem::remove(path);
  EXPECT_TRUE(identical(a, torch::arange(1, 1001, torch::kDouble)));
  EXPECT_TRUE(identical(b, torch::ones({10})));
}

TEST(Safetensors, CopiesWhatIsNotAligned) {
  const TemporaryDirectory directory;
  const auto path = directory / "f";
  // Old writers did not pad the header: data begins at byte 8 + 55.
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  ASSERT_NE(header.size() % 4, 0u);
  write_file(path, file_of(header, std::string("\0\0\xc0\x3f", 4)));
  EXPECT_EQ(load_safetensors(path)["a"].item<float>(), 1.5f);
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const TemporaryDirectory directory;
  const auto whole =
      read_file(golden("model_sharded/model-00003-of-00003.safetensors"));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(open_error(directory / "cut", whole.substr(0, size)), "")
        << size << " bytes";
  }
  EXPECT_NE(open_error(directory / "cut", whole + "x"), "");
  EXPECT_EQ(open_error(directory / "cut", whole), "");
}

TEST(Safetensors, EveryBitFlipInTheHeaderIsSurvived) {
  const TemporaryDirectory directory;
  const auto whole =
      read_file(golden("model_sharded/model-00001-of-00003.safetensors"));
  int errors = 0;
  for (size_t bit = 0; bit < (8 + 104) * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    errors += open_error(directory / "flip", flipped).empty() ? 0 : 1;
  }
  // Flips that only change a name, or one space into another kind, go unseen.
  EXPECT_GT(errors, 600);
}

TEST(Safetensors, EachBrokenFieldHasItsMessage) {
  const TemporaryDirectory directory;
  const auto path = directory / "broken.safetensors";
  const std::string eight(8, '\0');
  const auto entry = [](const std::string& fields) {
    return "{\"w\":{" + fields + "}}";
  };
  const struct {
    std::string header, data, message;
  } cases[] = {
      {"[]", "", "does not begin with '{'"},
      {" {}", "", "does not begin with '{'"},
      {"{", "", "not JSON"},
      {"{}x", "", "not JSON"},
      {std::string("{}\0", 3), "", "not JSON"},
      {"{\"\xff\":{}}", "", "not JSON"},
      {"{\"w\":1}", "", "'w': 1 is not expected"},
      {"{\"w\":null}", "", "null is not expected"},
      {"{\"w\":[]}", "", "an array is not expected"},
      {"{\"w\":{\"dtype\":{}}}", "", "an object is not expected"},
      {"{\"__metadata__\":{\"a\":1}}", "", "1 is not expected"},
      {"{\"__metadata__\":[]}", "", "an array is not expected"},
      {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", "", "comes twice"},
      {entry(R"("shape":[2],"data_offsets":[0,8])"), eight, "'w': no dtype"},
      {entry(R"("dtype":"F32","data_offsets":[0,8])"), eight, "no shape"},
      {entry(R"("dtype":"F32","shape":[2])"), eight, "two numbers"},
      {entry(R"("dtype":"F32","shape":[2],"data_offsets":[8])"),
       eight,
       "two numbers"},
      {entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"),
       eight,
       "too many numbers"},
      {entry(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"),
       eight,
       "dtype 'F33'"},
      {entry(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"),
       eight,
       "7 is not expected"},
      {entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
       eight,
       "takes 12"},
      {entry(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"),
       eight,
       "-2 is not expected"},
      {entry(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"),
       eight,
       "2.0 is not expected"},
      {entry(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"),
       eight,
       "'2' is not expected"},
      {entry(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"),
       eight,
       "2 is not expected"},
      {entry(
           R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"),
       eight,
       "too large"},
      {entry(
           R"("dtype":"F32","shape":[0,9223372036854775807,4],"data_offsets":[0,0])"),
       "",
       "too large"},
      {entry(
           R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8])"),
       eight,
       "too large"},
      {entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,9])"),
       eight,
       "not within the 8 bytes"},
      {entry(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"),
       eight,
       "not within"},
      {entry(
           R"("dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615])"),
       eight,
       "not within"},
      {entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"),
       eight,
       "there is a hole"},
      {entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"),
       eight,
       "tensors end at 4"},
      {entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)"),
       eight,
       "unknown key 'x'"},
      {entry(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"),
       eight,
       "comes twice"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       eight,
       "'w' comes twice"},
      {R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       eight,
       "they overlap"},
      {entry(R"("dtype":"BOOL","shape":[8],"data_offsets":[0,8])"),
       std::string("\0\1\0\2\0\0\0\0", 8),
       "its element 3 is 2"},
  };
  for (const auto& c : cases) {
    const auto message = open_error(path, file_of(c.header, c.data));
    EXPECT_NE(message.find(c.message), std::string::npos)
        << c.header << "\n  says: " << message;
    EXPECT_NE(message.find("broken.safetensors"), std::string::npos) << message;
  }
  EXPECT_NE(
      open_error(
          path, std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8) + "{}")
          .find("18446744073709551615 bytes"),
      std::string::npos);
  EXPECT_NE(
      open_error(path, file_of("{}", "").replace(0, 1, "\x03")).find("cut off"),
      std::string::npos);
  // Deep nesting must not exhaust the stack.
  EXPECT_NE(
      open_error(path, file_of("{\"w\":" + std::string(1000000, '['), "")), "");
}

TEST(Safetensors, ForeignFilesAreErrors) {
  const TemporaryDirectory directory;
  EXPECT_ERROR(SafetensorsFile(directory / "none"), "No such file");
  EXPECT_ERROR(SafetensorsFile(directory.path()), "a directory");
  EXPECT_ERROR(
      SafetensorsFile(golden("checkpoints/checkpoint_2/optimizer.bin")),
      "not a safetensors file");
  EXPECT_ERROR(SafetensorsFile(golden("expected.json")), "not a safetensors");
  EXPECT_ERROR(
      SafetensorsFile(golden("model_whole/model.safetensors")).map("x"),
      "has no tensor 'x'");
}

TEST(Safetensors, ReadIntoGoesIntoStridesAndIsSeenByAutograd) {
  const SafetensorsFile file(golden("model_whole/model.safetensors"));
  auto destination = torch::zeros({40, 3}).t();
  file.read_into("3.weight", destination);
  EXPECT_TRUE(identical(destination, file.map("3.weight")));
  auto dense = torch::zeros({3, 40});
  const auto version = dense._version();
  file.read_into("3.weight", dense);
  EXPECT_GT(dense._version(), version);
  auto wrong = torch::zeros({3, 41});
  EXPECT_ERROR(file.read_into("3.weight", wrong), "[3, 41]");
}

TEST(Safetensors, AFailedSaveLeavesTheOldFile) {
  const TemporaryDirectory directory;
  const auto path = directory / "f";
  StateDict good;
  good.insert("a", torch::ones({2}));
  save_safetensors(good, path);
  StateDict bad;
  bad.insert("a", torch::ones({2}));
  bad.insert("b", bad["a"]);
  EXPECT_ERROR(save_safetensors(bad, path), "share memory");
  EXPECT_TRUE(identical(load_safetensors(path)["a"], torch::ones({2})));
  EXPECT_ERROR(save_safetensors(good, directory / "no/such/dir"), "No such");
}

} // namespace
} // namespace accel::checkpoint::test
