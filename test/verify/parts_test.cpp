// The parts of `accel verify` that need no programs: texts, numbers, files,
// tolerances, traces.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "file_pairs.h"
#include "files_compare.h"
#include "tensor_archive.h"
#include "text_compare.h"
#include "tolerance.h"
#include "trace_compare.h"
#include "trace_reader.h"
#include "verdict.h"
#include "workplace.h"

namespace accel::verify {
namespace {

namespace fs = std::filesystem;

TextComparison compare(
    const std::string& a, const std::string& b, double relative = 1e-9) {
  return compare_texts(a, a, b, relative);
}

TEST(Texts, EqualTextsAreEqual) {
  const auto result = compare("epoch 1 loss 0.25\n", "epoch 1 loss 0.25\n");
  EXPECT_FALSE(result.different);
  EXPECT_EQ(result.numbers, 2u);
}

TEST(Texts, TheLastPrintedDigitMayDifferWhereRoundingReachesIt) {
  // Half of its worth is the part of it that rounding may be off: one of two.
  const auto result =
      compare("loss 1.23\nloss 1.25\n", "loss 1.24\nloss 1.25\n", 4e-3);
  EXPECT_FALSE(result.different) << result.first;
  EXPECT_EQ(result.last_digits, 1u);
  EXPECT_TRUE(compare("loss 1.23\n", "loss 1.26\n", 4e-3).different);
  EXPECT_FALSE(compare("1.23e-05\n", "1.24e-05\n", 4e-3).different);
  EXPECT_TRUE(compare("1.23e-05\n", "1.23e-04\n", 4e-3).different);
}

TEST(Texts, TheLastPrintedDigitMayNotDifferWhereItDoesNot) {
  const auto result =
      compare("accuracy 0.93\nloss 0.5\n", "accuracy 0.92\nloss 0.5\n");
  EXPECT_TRUE(result.different);
  EXPECT_TRUE(result.only_numbers);
  EXPECT_NE(result.first.find("line 1: number 1"), std::string::npos);
  EXPECT_TRUE(compare("loss 0.5\n", "loss 0.6\n").different);
}

TEST(Texts, NineDigitsAreWithinRounding) {
  EXPECT_FALSE(
      compare("loss 0.123456789\n", "loss 0.12345679\n").different);
  EXPECT_TRUE(
      compare("loss 0.123456789\n", "loss 0.123456799\n").different);
}

TEST(Texts, WholeNumbersMayNot) {
  const auto result = compare("341/360\n", "342/360\n");
  EXPECT_TRUE(result.different);
  EXPECT_TRUE(result.only_numbers);
  EXPECT_EQ(result.first.substr(0, 16), "line 1: number 1");
}

TEST(Texts, ADifferenceIsSaidInPartsOfTheNumber) {
  const auto result = compare("u 0.002 at 1\n", "u 0.0020000004 at 1\n");
  EXPECT_TRUE(result.different);
  EXPECT_NE(result.first.find("differs by 4e-10, 2e-07 of it"), std::string::npos)
      << result.first;
}

TEST(Texts, WhatRoundingLeavesOfLargerNumbersIsZero) {
  const auto compare = [](const std::string& a, const std::string& b) {
    return compare_texts(a, a, b, 1e-9, rounding_of_one(Dtype::kDouble));
  };
  const auto equal = compare("gap 0 loss 1\n", "gap -1.1e-16 loss 1\n");
  EXPECT_FALSE(equal.different) << equal.first;
  EXPECT_EQ(equal.left_of_larger, 1u);
  EXPECT_EQ(equal.largest, 0);
  EXPECT_TRUE(compare("gap 0\n", "gap 1e-12\n").different);
  EXPECT_TRUE(compare("rate 1e-05\n", "rate 2e-05\n").different);
  EXPECT_TRUE(compare("gap 0\n", "gap nan\n").different);
}

TEST(Texts, DigitsInWordsAreWords) {
  const auto result = compare("conv1 ok\n", "conv2 ok\n");
  EXPECT_TRUE(result.different);
  EXPECT_FALSE(result.only_numbers);
}

TEST(Texts, NanIsEqualOnlyToNan) {
  EXPECT_FALSE(compare("loss nan\n", "loss nan\n").different);
  EXPECT_TRUE(compare("loss nan\n", "loss 0.5\n").different);
  EXPECT_TRUE(compare("loss 0.5\n", "loss nan\n").different);
  EXPECT_TRUE(compare("loss inf\n", "loss -inf\n").different);
  EXPECT_TRUE(compare("loss 1.5\n", "loss inf\n").different);
  EXPECT_FALSE(compare("loss inf\n", "loss inf\n").different);
}

TEST(Texts, MoreLinesAreADifference) {
  EXPECT_TRUE(compare("a\n", "a\nb\n").different);
  EXPECT_TRUE(compare("a\nb\n", "a\n").different);
}

// Whole numbers alone on their lines: in most of them two runs of the original differ.
TEST(Texts, TimesAreKnownByTheirNeighbours) {
  const std::string original = "loss 1\n12\n15\n17\nloss 2\n";
  const std::string repeat = "loss 1\n13\n15\n16\nloss 2\n";
  const auto times =
      compare_texts(original, repeat, "loss 1\n30\n31\n33\nloss 2\n", 1e-9);
  EXPECT_FALSE(times.different) << times.first;
  EXPECT_EQ(times.ignored_numbers, 3u);
  // Not those of other words, nor where few differ, nor fractions.
  EXPECT_TRUE(
      compare_texts(original, repeat, "loss 1\n30\n31\n33\nloss 3\n", 1e-9).different);
  EXPECT_TRUE(compare_texts("1\n2\n3\n", "1\n2\n4\n", "1\n5\n3\n", 1e-9).different);
  EXPECT_TRUE(
      compare_texts("0.1\n0.2\n0.3\n", "0.4\n0.5\n0.3\n", "0.1\n0.2\n0.9\n", 1e-9)
          .different);
}

TEST(Texts, WhatTheOriginalDoesNotRepeatIsLeftOut) {
  const auto result =
      compare_texts("took 1.5 s, loss 0.25\n", "took 1.7 s, loss 0.25\n",
                    "took 9.9 s, loss 0.25\n", 1e-9);
  EXPECT_FALSE(result.different);
  EXPECT_EQ(result.ignored_numbers, 1u);
  EXPECT_TRUE(compare_texts("took 1.5 s, loss 0.25\n",
                            "took 1.7 s, loss 0.25\n",
                            "took 9.9 s, loss 0.75\n", 1e-9)
                  .different);
}

TEST(Texts, TimesAreLeftOutWhereTheyDiffer) {
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{
           {"elapsed=0.2s loss 1", "elapsed=0.3s loss 1"},
           {"epoch 1 (12 ms)", "epoch 1 (31 ms)"},
           {"[10/10] 3.1 it/s", "[10/10] 2.8 it/s"},
           {"Time: 0.1, loss 2", "Time: 0.2, loss 2"},
           {"took 1 | loss 2", "took 2 | loss 2"},
           {"9/10 [00:01<00:02] loss 2", "9/10 [00:01<00:03] loss 2"},
           {"Sat Nov 28 00:59:07 2026", "Sat Nov 28 00:59:09 2026"},
           {"[I train.cpp:42] loss 2", "[I train.cpp:44] loss 2"},
           {"src/net.hpp(7): loss 2", "src/net.hpp(9): loss 2"}}) {
    const auto result = compare(a, b);
    EXPECT_FALSE(result.different) << a << ": " << result.first;
    EXPECT_EQ(result.ignored_numbers, 1u) << a;
  }
  EXPECT_EQ(compare("took 2 s", "took 2 s").numbers, 1u);
  // No times: what stands behind a number may be the next one's name.
  EXPECT_TRUE(
      compare("first 0.5 second 0.1\n", "first 0.6 second 0.1\n").different);
  EXPECT_FALSE(compare("took 1 second\n", "took 2 second\n").different);
  EXPECT_TRUE(compare("loss 0.5 min 0.1\n", "loss 0.6 min 0.1\n").different);
  EXPECT_TRUE(compare("time step 3\n", "time step 4\n").different);
  EXPECT_TRUE(compare("time 3\n", "time 4\n").different);
  EXPECT_TRUE(compare("layer 3 size 4\n", "layer 4 size 4\n").different);
  EXPECT_TRUE(compare("conv2s\n", "conv3s\n").different);
  EXPECT_TRUE(compare("class 3:10\n", "class 3:11\n").different);
  EXPECT_TRUE(compare("12:345\n", "12:346\n").different);
  EXPECT_TRUE(compare("model.pt:3\n", "model.pt:4\n").different);
  EXPECT_TRUE(compare("f(3)\n", "f(4)\n").different);
}

TEST(Tolerances, GrowWithTheStepsAndStop) {
  const Tolerance tolerance{1e-5, 1, 1e-2};
  EXPECT_DOUBLE_EQ(tolerance.at(0), 1e-5);
  EXPECT_DOUBLE_EQ(tolerance.at(9), 1e-4);
  EXPECT_DOUBLE_EQ(tolerance.at(1000000), 1e-2);
}

TEST(Tolerances, PrecisionsAreOrdered) {
  EXPECT_LT(tolerance_for(Dtype::kDouble).at(100),
            tolerance_for(Dtype::kFloat).at(100));
  EXPECT_LT(tolerance_for(Dtype::kFloat).at(100),
            tolerance_for(Dtype::kBFloat16).at(100));
  EXPECT_EQ(tolerance_for(Dtype::kDouble, {0.5, 2.0}).at(0), 0.5);
}

TEST(Tolerances, DistanceOfValuesThatAreNoNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(distance(nan, nan), 0);
  EXPECT_TRUE(std::isinf(distance(nan, 1.0)));
  EXPECT_EQ(distance(1.0, 1.5), 0.5);
}

std::string safetensors(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
  return bytes + header + data;
}

TEST(Safetensors, AreRead) {
  const float values[] = {1.5f, -2.0f};
  const std::string data(reinterpret_cast<const char*>(values), 8);
  const auto tensors = read_safetensors(safetensors(
      R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", data));
  ASSERT_TRUE(tensors);
  EXPECT_EQ(tensors->at("w").values, (std::vector<double>{1.5, -2.0}));
}

TEST(Safetensors, WithOffsetsOutsideOfTheFileAreNone) {
  EXPECT_FALSE(read_safetensors(safetensors(
      R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}})",
      "12345678")));
  EXPECT_FALSE(read_safetensors(safetensors(
      R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
      "12345678")));
  EXPECT_FALSE(read_safetensors("a text that is long enough"));
  EXPECT_FALSE(read_safetensors(""));
}

TEST(Safetensors, HalfPrecisionIsDecoded) {
  const uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x7c00};
  const auto values =
      decode_numbers("F16", reinterpret_cast<const char*>(half), 8);
  ASSERT_TRUE(values);
  EXPECT_EQ((*values)[0], 1.0);
  EXPECT_EQ((*values)[1], -2.0);
  EXPECT_EQ((*values)[2], std::ldexp(1.0, -24));
  EXPECT_TRUE(std::isinf((*values)[3]));
  const uint16_t brain[] = {0x3f80, 0xc000};
  EXPECT_EQ(
      *decode_numbers("BF16", reinterpret_cast<const char*>(brain), 4),
      (std::vector<double>{1.0, -2.0}));
}

/// A folder that is removed at the end.
class Folder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "parts-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    path = pattern;
  }
  void TearDown() override {
    fs::remove_all(path);
  }
  fs::path path;
};

class Files : public Folder {
 protected:
  /// Writes a file of two tensors into the folder of a run.
  WrittenFiles write(
      const std::string& run,
      const std::vector<double>& weight,
      const std::vector<double>& bias) {
    const auto bytes = [](const std::vector<double>& values) {
      return std::string(
          reinterpret_cast<const char*>(values.data()), 8 * values.size());
    };
    fs::create_directories(path / run);
    const std::string end = std::to_string(8 * weight.size());
    std::ofstream(path / run / "f", std::ios::binary) << safetensors(
        R"({"w":{"dtype":"F64","shape":[)" + std::to_string(weight.size()) +
            R"(],"data_offsets":[0,)" + end +
            R"(]},"b":{"dtype":"F64","shape":[)" +
            std::to_string(bias.size()) + R"(],"data_offsets":[)" + end + "," +
            std::to_string(8 * (weight.size() + bias.size())) + "]}}",
        bytes(weight) + bytes(bias));
    return {path / run, {"f"}};
  }
  FilesComparison compare(
      const std::vector<double>& weight,
      const std::vector<double>& bias,
      const std::vector<int64_t>& left_to_chance = {}) {
    const auto original = write("original", {1, 2, 3}, {1e-14, 2});
    return compare_files(
        original,
        original,
        write("migrated", weight, bias),
        1e-9,
        left_to_chance);
  }
};

TEST_F(Files, AreComparedAsTensors) {
  EXPECT_FALSE(compare({1, 2, 3 + 1e-12}, {1e-14, 2}).different);
  EXPECT_TRUE(compare({1, 2, 3 + 1e-6}, {1e-14, 2}).different);
  EXPECT_TRUE(compare({1, 2}, {3, 1e-14}).different);
}

// A program that writes its weights with ofstream::write or fwrite.
TEST_F(Files, OfRawNumbersAreComparedAsNumbers) {
  const auto dump = [&](const std::string& run, const auto& values, int header) {
    fs::create_directories(path / run);
    std::ofstream file(path / run / "f", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
    file.write(
        reinterpret_cast<const char*>(values.data()),
        static_cast<std::streamsize>(values.size() * sizeof(values[0])));
    return WrittenFiles{path / run, {"f"}};
  };
  const auto differ = [&](const auto& a, const auto& b, int header = 3) {
    const auto original = dump("original", a, 3);
    return compare_files(original, original, dump("migrated", b, header), 1e-6, {})
        .different;
  };
  using Floats = std::vector<float>;
  using Doubles = std::vector<double>;
  EXPECT_FALSE(differ(Floats{1, 0.5f, 3}, Floats{1, 0.50000006f, 3}));
  EXPECT_TRUE(differ(Floats{1, 0.5f, 3}, Floats{1, 0.50001f, 3}));
  EXPECT_TRUE(differ(Floats{1, 0.5f, 3}, Floats{1, 0.50000006f}));
  EXPECT_TRUE(differ(Floats{1, 0.5f, 3}, Floats{1, 0.50000006f, 3}, 4));
  Doubles a;
  Doubles b;
  Floats c;
  for (int i = 1; i <= 40; ++i) {
    a.push_back(i * 0.1);
    b.push_back(i * 0.1 * (1 + 1e-12));
    c.push_back(1.0f + static_cast<float>(i) * 1e-5f);
  }
  EXPECT_FALSE(differ(a, b));
  b[7] *= 1 + 1e-4;
  EXPECT_TRUE(differ(a, b));
  EXPECT_TRUE(differ(Floats(40, 1), c));
}

// Rounding may take the only byte away that no text has.
TEST_F(Files, OfRawNumbersMayLookLikeText) {
  const auto dump = [&](const std::string& run, const std::string& bytes) {
    fs::create_directories(path / run);
    std::ofstream(path / run / "f", std::ios::binary) << bytes;
    return WrittenFiles{path / run, {"f"}};
  };
  const auto differ = [&](const std::string& a, const std::string& b) {
    const auto original = dump("original", a);
    return compare_files(original, original, dump("migrated", b), 1e-6, {}).different;
  };
  const std::string zero("\x00\x40\x9a\x3e", 4);
  EXPECT_FALSE(differ(zero, "\xff\x3f\x9a\x3e"));
  EXPECT_FALSE(differ("\xff\x3f\x9a\x3e", zero));
  EXPECT_TRUE(differ(zero, "\xff\x3f\x9b\x3e"));
  EXPECT_FALSE(differ("\x01\x40\x9a\x3e", "\x02\x40\x9a\x3e"));
  // Texts stay texts.
  EXPECT_FALSE(differ("\x1b[1mloss\x1b[0m 0.25\t\n", "\x1b[1mloss\x1b[0m 0.2500000001\t\n"));
}

TEST_F(Files, AreLeftToChanceOnlyWhereTheTrainingIs) {
  const std::string finding =
      compare({1, 2, 3}, {5, 6}).files.at(0).finding;
  EXPECT_NE(finding.find("tensor b differs"), std::string::npos) << finding;
  const auto result = compare({1, 2, 3}, {5, 6}, {2});
  EXPECT_FALSE(result.different);
  EXPECT_EQ(result.files.at(0).left_out, "b");
  EXPECT_TRUE(compare({1, 2, 4}, {5, 6}, {2}).different);
  EXPECT_TRUE(compare({1, 2, 3}, {5, 6}, {3}).different);
}

std::string text(const std::vector<FilePair>& pairs) {
  std::string result;
  for (const auto& pair : pairs) {
    result += pair.original + "|" + pair.repeat + "|" + pair.migrated + "\n";
  }
  return result;
}

TEST(FilePairs, AreOfOneName) {
  EXPECT_EQ(
      text(pair_files({"a", "b", "run1.txt"}, {"a", "b", "run1.txt"}, {"a", "c", "run2.txt"})),
      "a|a|a\nb|b|\n||c\nrun1.txt|run1.txt|\n||run2.txt\n");
}

TEST(FilePairs, HaveOtherTimesInTheirNames) {
  EXPECT_EQ(
      text(pair_files(
          {"log/11-27_01-20-09/loss.csv", "net.pt", "s_10.png", "s_9.png"},
          {"log/11-27_01-20-10/loss.csv", "net.pt", "s_11.png", "s_12.png"},
          {"log/11-27_01-20-11/loss.csv", "net.pt", "s_13.png", "s_14.png"})),
      "log/11-27_01-20-09/loss.csv|log/11-27_01-20-10/loss.csv|log/11-27_01-20-11/loss.csv\n"
      "net.pt|net.pt|net.pt\n"
      "s_10.png|s_12.png|s_14.png\n"
      "s_9.png|s_11.png|s_13.png\n");
  // Within the same second as the original, and as its second run.
  EXPECT_EQ(text(pair_files({"t1"}, {"t2"}, {"t1"})), "t1|t2|t1\n");
  EXPECT_EQ(text(pair_files({"t1"}, {"t2"}, {"t2"})), "t1|t2|t2\n");
}

TEST(FilePairs, AreAsManyAsTheOriginalHas) {
  EXPECT_EQ(text(pair_files({"t1"}, {"t2"}, {"t3", "t4"})), "t1|t2|t3\n||t4\n");
  EXPECT_EQ(text(pair_files({"t1"}, {"t2"}, {})), "t1|t2|\n");
  // Another number of files each time says nothing.
  EXPECT_EQ(text(pair_files({"t1"}, {}, {"t3"})), "t1||\n||t3\n");
}

TEST_F(Files, OfOtherNamesAreCompared) {
  const auto write_text = [&](const std::string& run, const std::string& name, const std::string& text) {
    fs::create_directories(path / run);
    std::ofstream(path / run / name) << text;
    return WrittenFiles{path / run, {name}};
  };
  const auto original = write_text("original", "t1", "loss 0.25\n");
  const auto repeat = write_text("repeat", "t2", "loss 0.25\n");
  const auto equal = compare_files(original, repeat, write_text("equal", "t3", "loss 0.25\n"), 1e-9, {});
  EXPECT_FALSE(equal.different) << equal.files.at(0).finding;
  EXPECT_NE(equal.files.at(0).finding.find("t3"), std::string::npos) << equal.files.at(0).finding;
  EXPECT_TRUE(compare_files(original, repeat, write_text("other", "t3", "loss 0.5\n"), 1e-9, {}).different);
}

class Workplaces : public Folder {};

TEST_F(Workplaces, BeginWithTheUsersFilesAndKeepWhatIsWritten) {
  fs::create_directories(path / "user/data");
  fs::create_directories(path / "user/.git");
  std::ofstream(path / "user/a.txt") << "a";
  std::ofstream(path / "user/data/b.txt") << "b";
  std::ofstream(path / "user/.git/c") << "c";
  const Workplace workplace(path / "user", path / "runs/one/work");
  EXPECT_TRUE(fs::exists(workplace.directory() / "data/b.txt"));
  EXPECT_FALSE(fs::exists(workplace.directory() / ".git"));
  EXPECT_TRUE(workplace.written().empty());

  std::ofstream(workplace.directory() / "data/new.txt") << "new";
  std::ofstream(workplace.directory() / "a.txt") << "changed";
  EXPECT_EQ(workplace.written(),
            (std::vector<std::string>{"a.txt", "data/new.txt"}));
  std::ifstream mine(path / "user/a.txt");
  std::string text;
  mine >> text;
  EXPECT_EQ(text, "a");
}

TEST_F(Workplaces, AreAmongTheSameNeighbours) {
  fs::create_directories(path / "user/project/build");
  fs::create_directories(path / "user/project/data");
  fs::create_directories(path / "user/sets");
  std::ofstream(path / "user/project/data/b.txt") << "b";
  std::ofstream(path / "user/sets/c.txt") << "c";
  const Workplace workplace(path / "user/project/build", path / "runs/one/w");
  EXPECT_TRUE(fs::exists(workplace.directory() / "../data/b.txt"));
  EXPECT_TRUE(fs::exists(workplace.directory() / "../../sets/c.txt"));
  std::ofstream(workplace.directory() / "../new.txt") << "new";
  EXPECT_FALSE(fs::exists(path / "user/project/new.txt"));
}

TEST_F(Workplaces, NoticeThatALargeFileWasWrittenTo) {
  fs::create_directories(path / "user");
  std::ofstream(path / "user/large") << "x";
  fs::resize_file(path / "user/large", 17u << 20);
  const Workplace workplace(path / "user", path / "runs/one/work");
  EXPECT_TRUE(fs::is_symlink(workplace.directory() / "large"));
  EXPECT_TRUE(workplace.damaged().empty());
  std::ofstream(workplace.directory() / "large", std::ios::app) << "y";
  EXPECT_EQ(workplace.damaged().size(), 1u);
}

class Traces : public Folder {
 protected:
  static void add(std::string& bytes, Record type, const std::string& content) {
    const uint64_t size = content.size();
    bytes += static_cast<char>(type);
    bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
    bytes += content;
  }
  std::string example() {
    std::string bytes(kTraceMagic, sizeof(kTraceMagic));
    add(bytes, Record::kInfo, R"({"rank": 1, "world_size": 2})");
    Encoder encoder;
    encoder.add(7.5)
        .add(Dtype::kDouble)
        .add(uint32_t{kGlobal})
        .add(int64_t{16})
        .add(uint32_t{0});
    add(bytes, Record::kBackward, encoder.bytes());
    add(bytes, Record::kEnd, "");
    return bytes;
  }
  Trace read(const std::string& bytes) {
    std::ofstream(path / "t", std::ios::binary) << bytes;
    return read_trace((path / "t").string());
  }
};

TEST_F(Traces, AreRead) {
  const Trace trace = read(example());
  EXPECT_EQ(trace.rank, 1);
  ASSERT_EQ(trace.backwards.size(), 1u);
  EXPECT_EQ(trace.backwards[0].loss, 7.5);
  EXPECT_EQ(trace.backwards[0].rows, 16);
  EXPECT_TRUE(trace.complete);
}

TEST_F(Traces, OfAKilledProgramKeepWhatIsWhole) {
  const std::string all = example();
  // Without the end, and with a part of the backward.
  const Trace trace = read(all.substr(0, all.size() - 12));
  EXPECT_EQ(trace.rank, 1);
  EXPECT_TRUE(trace.backwards.empty());
  EXPECT_FALSE(trace.complete);
}

TEST_F(Traces, OfAnotherKindAreRefused) {
  EXPECT_THROW(read("something else"), std::runtime_error);
}

TracedTensor tensor(uint32_t id, const std::string& name, double value) {
  TracedTensor result;
  result.id = id;
  result.name = name;
  result.sizes = {4};
  result.initial = {value, {value, value}};
  return result;
}

TEST(Pairs, EqualValuesGoTogetherWhateverTheOrder) {
  Trace a;
  Trace b;
  a.tensors = {tensor(0, "x", 1), tensor(1, "y", 2)};
  b.tensors = {tensor(0, "y", 2), tensor(1, "x", 1)};
  const auto pairs = pair_tensors(a, b);
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].second->name, "x");
  EXPECT_EQ(pairs[1].second->name, "y");
}

TEST(Pairs, OtherSizesNeverDo) {
  Trace a;
  Trace b;
  a.tensors = {tensor(0, "x", 1)};
  b.tensors = {tensor(0, "x", 1)};
  b.tensors[0].sizes = {5};
  EXPECT_TRUE(pair_tensors(a, b).empty());
}

/// Whether trainings with these losses are found to differ.
bool losses_differ(
    const std::vector<double>& a,
    const std::vector<double>& b,
    Dtype dtype) {
  const auto run = [&](const std::vector<double>& losses) {
    Trace trace;
    trace.complete = true;
    for (const double loss : losses) {
      TracedBackwardCall call;
      call.loss = loss;
      call.dtype = dtype;
      trace.backwards.push_back(call);
    }
    return trace;
  };
  const Trace original = run(a);
  const Trace migrated = run(b);
  return compare_traces(original, "", {&migrated}, "", {}).first.has_value();
}

// A log likelihood is a sum of terms that cancel: near zero it is rounding of them.
TEST(Losses, ThatTakeBothSignsAreMeasuredByTheLargest) {
  constexpr auto kDouble = Dtype::kDouble;
  EXPECT_FALSE(losses_differ({1, -0.01}, {1, -0.01 + 5e-11}, kDouble));
  EXPECT_TRUE(losses_differ({1, -0.01}, {1, -0.01 + 5e-10}, kDouble));
  EXPECT_TRUE(losses_differ({1, 0.01}, {1, 0.01 + 5e-11}, kDouble));
}

// A cross entropy of nearly nothing is made of logits of the size that they have.
TEST(Losses, OfNearlyNothingAreMeasuredByTheLargest) {
  constexpr auto kFloat = Dtype::kFloat;
  EXPECT_FALSE(losses_differ({2, 5e-4}, {2, 5e-4 + 3e-7}, kFloat));
  EXPECT_TRUE(losses_differ({2, 5e-4}, {2, 5e-4 + 1e-6}, kFloat));
  EXPECT_TRUE(losses_differ({2, 5e-4}, {2, 5e-4 + 3e-7}, Dtype::kDouble));
  EXPECT_FALSE(losses_differ({2, 5e-4}, {2, 5e-4 + 1e-12}, Dtype::kDouble));
}

TEST(Notes, OneForAllTensorsThatAreLeftOut) {
  TraceComparison trace;
  const auto add = [&](const std::string& name) -> TensorRow& {
    trace.tensors.emplace_back();
    trace.tensors.back().name = name;
    return trace.tensors.back();
  };
  add("weight");
  EXPECT_EQ(notes_on_left_out(trace), std::vector<std::string>());
  add("a").undetermined = true;
  const std::string one =
      "a has no gradient but rounding, so its value is random; it was not compared";
  EXPECT_EQ(notes_on_left_out(trace), std::vector<std::string>{one});
  const std::string rest =
      " have no gradient but rounding, so their values are random; they were not compared";
  add("b").undetermined = true;
  EXPECT_EQ(notes_on_left_out(trace), std::vector<std::string>{"a and b" + rest});
  add("c").undetermined = true;
  add("d").undetermined = true;
  EXPECT_EQ(
      notes_on_left_out(trace), std::vector<std::string>{"a, b, c and d" + rest});
  add("e").undetermined = true;
  auto& mean = add("mean");
  mean.undetermined = true;
  mean.follows = "a";
  add("f").unused_gradient = true;
  EXPECT_EQ(
      notes_on_left_out(trace),
      (std::vector<std::string>{
          "mean follows a, whose value is random; it was not compared",
          "a, b, c and 2 more" + rest,
          "f is never changed: its gradient, on which nothing steps, is that of a "
          "part of the batch and was not compared"}));
}

// Adam divides rounding by rounding in the bias in front of a batch norm, whose
// running mean has that bias in it.
TEST(Finals, OfARunningMeanFollowABiasThatIsLeftToChance) {
  const auto run = [](double bias, double mean) {
    Trace trace;
    trace.complete = true;
    trace.tensors = {
        tensor(0, "Conv2d#1.weight", 1), tensor(1, "Conv2d#1.bias", 2),
        tensor(2, "BatchNorm2d#1.running_mean", 0.5)};
    trace.tensors[2].kind = TensorKind::kBuffer;
    trace.tensors[0].final = Fingerprint{1.5, {1.5, 1.5}};
    trace.tensors[1].final = Fingerprint{bias, {bias, bias}};
    trace.tensors[2].final = Fingerprint{mean, {mean, mean}};
    TracedBackwardCall call;
    call.loss = 1;
    call.dtype = Dtype::kDouble;
    call.parameters[0] = {{1, {1, 1}}, Fingerprint{1, {1, 1}}};
    call.parameters[1] = {{2, {2, 2}}, Fingerprint{1e-17, {1e-17, 1e-17}}};
    trace.backwards = {call};
    return trace;
  };
  const auto different = [&](double bias, double mean) {
    const Trace original = run(2, 1);
    const Trace migrated = run(bias, mean);
    const auto compared = compare_traces(original, "", {&migrated}, "", {});
    EXPECT_TRUE(compared.tensors[1].undetermined);
    EXPECT_EQ(
        compared.tensors[2].follows,
        compared.tensors[2].undetermined ? "Conv2d#1.bias [4]" : "");
    return compared.tensors[2].different;
  };
  EXPECT_FALSE(different(2, 1));
  EXPECT_FALSE(different(2 + 1e-6, 1 + 2e-6));
  EXPECT_TRUE(different(2 + 1e-6, 1 + 1e-4));
  EXPECT_TRUE(different(2, 1 + 1e-6));
}

} // namespace
} // namespace accel::verify
