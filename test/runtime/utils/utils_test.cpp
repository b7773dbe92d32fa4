#include "support.h"

#include <accel/utils/environment.h>
#include <accel/utils/memory.h>
#include <accel/utils/random.h>
#include <accel/utils/split.h>

#include <torch/torch.h>

#include <new>
#include <numeric>

namespace {

using accel::split_between_processes;
using Integers = std::vector<int64_t>;

std::vector<Integers> rows(const torch::Tensor& tensor) {
  std::vector<Integers> result;
  for (int64_t i = 0; i < tensor.size(0); ++i) {
    const auto row = tensor[i].contiguous();
    result.emplace_back(
        row.data_ptr<int64_t>(), row.data_ptr<int64_t>() + row.numel());
  }
  return result;
}

} // namespace

TEST(Split, AsRecordedFromAccelerate) {
  int compared = 0;
  for (const auto& name : test::golden_files("operations_", "p.json")) {
    const auto golden = test::golden(name);
    const int64_t world = golden.at("num_processes");
    for (const auto& record : golden.at("split_between_processes")) {
      SCOPED_TRACE(record.dump());
      const int64_t length = record.at("length");
      const bool pad = record.at("apply_padding");
      const std::string kind = record.at("kind");
      Integers list(length);
      std::iota(list.begin(), list.end(), 0);
      Integers doubled = list;
      for (auto& value : doubled) {
        value *= 2;
      }
      const auto tensor = torch::arange(length).unsqueeze(1);
      const std::map<std::string, Integers> map{{"a", list}, {"b", doubled}};
      for (int64_t rank = 0; rank < world; ++rank) {
        const auto& expected = record.at("per_rank").at(rank);
        ++compared;
        if (expected.contains("error")) {
          // Python's IndexError: nothing to pad with.
          EXPECT_THROWS_WITH(
              split_between_processes(list, rank, world, pad),
              "nothing to pad with");
          EXPECT_THROWS_WITH(
              split_between_processes(tensor, rank, world, pad),
              "nothing to pad with");
        } else if (kind == "list") {
          EXPECT_EQ(
              split_between_processes(list, rank, world, pad),
              expected.get<Integers>());
        } else if (kind == "tensor") {
          EXPECT_EQ(
              rows(split_between_processes(tensor, rank, world, pad)),
              expected.get<std::vector<Integers>>());
        } else {
          ASSERT_EQ(kind, "dict");
          EXPECT_EQ(
              split_between_processes(map, rank, world, pad),
              (expected.get<std::map<std::string, Integers>>()));
        }
      }
    }
  }
  EXPECT_GT(compared, 0);
}

TEST(Split, MapsOfTensors) {
  const std::unordered_map<std::string, torch::Tensor> inputs{
      {"x", torch::arange(6).view({3, 2})}, {"y", torch::arange(3)}};
  const auto part = split_between_processes(inputs, 1, 2, true);
  EXPECT_TRUE(part.at("x").equal(torch::tensor({{4, 5}, {4, 5}})));
  EXPECT_TRUE(part.at("y").equal(torch::tensor({2, 2})));
  // Accelerate changes the caller's map; we do not.
  EXPECT_EQ(inputs.at("y").size(0), 3);

  EXPECT_THROWS_WITH(
      split_between_processes(
          std::map<std::string, Integers>{{"a", {1}}, {"b", {1, 2}}}, 0, 2),
      "one has 1 elements and another 2");
  EXPECT_THROWS_WITH(
      split_between_processes(torch::tensor(1), 0, 2), "scalar tensor");
  EXPECT_THROWS_WITH(
      split_between_processes(Integers{1}, 2, 2), "no process 2 of 2");
}

TEST(Environment, StrToBool) {
  for (const char* text : {"y", "Yes", "T", "true", "ON", "1"}) {
    EXPECT_TRUE(accel::str_to_bool(text)) << text;
  }
  for (const char* text : {"n", "No", "F", "false", "OFF", "0"}) {
    EXPECT_FALSE(accel::str_to_bool(text)) << text;
  }
  for (const char* text : {"", "2", "yess"}) {
    EXPECT_THROWS_WITH(accel::str_to_bool(text), "is no truth value");
  }
}

TEST(Environment, PatchesAndPutsBack) {
  setenv("ACCEL_TEST_SET", "before", 1);
  unsetenv("ACCEL_TEST_UNSET");
  {
    const auto guard = accel::patch_environment(
        {{"accel_test_set", "5"}, {"accel_test_unset", "yes"}});
    EXPECT_STREQ(getenv("ACCEL_TEST_SET"), "5");
    EXPECT_EQ(
        accel::get_int_from_env({"ACCEL_TEST_MISSING", "ACCEL_TEST_SET"}, 7),
        5);
    EXPECT_TRUE(accel::parse_flag_from_env("ACCEL_TEST_UNSET"));
    EXPECT_THROWS_WITH(
        accel::get_int_from_env({"ACCEL_TEST_UNSET"}, 7),
        "ACCEL_TEST_UNSET must be a whole number, but is 'yes'");
    EXPECT_THROWS_WITH(
        accel::parse_flag_from_env("ACCEL_TEST_SET"), "ACCEL_TEST_SET");
    setenv("ACCEL_TEST_OTHER", "stays", 1);
  }
  EXPECT_STREQ(getenv("ACCEL_TEST_SET"), "before");
  EXPECT_EQ(getenv("ACCEL_TEST_UNSET"), nullptr);
  EXPECT_STREQ(getenv("ACCEL_TEST_OTHER"), "stays");
  EXPECT_EQ(accel::get_int_from_env({"ACCEL_TEST_UNSET"}, 7), 7);
  EXPECT_TRUE(accel::parse_flag_from_env("ACCEL_TEST_UNSET", true));
}

TEST(Environment, ClearsAndPutsBack) {
  setenv("ACCEL_TEST_SET", "before", 1);
  unsetenv("ACCEL_TEST_NEW");
  try {
    const auto guard = accel::clear_environment();
    EXPECT_EQ(getenv("ACCEL_TEST_SET"), nullptr);
    EXPECT_EQ(getenv("PATH"), nullptr);
    setenv("ACCEL_TEST_NEW", "1", 1);
    throw 1;
  } catch (int) {
  }
  EXPECT_STREQ(getenv("ACCEL_TEST_SET"), "before");
  EXPECT_NE(getenv("PATH"), nullptr);
  EXPECT_EQ(getenv("ACCEL_TEST_NEW"), nullptr);
}

TEST(Random, SeedsEveryGenerator) {
  accel::set_seed(42);
  const auto first = torch::rand({4});
  const int second = std::rand();
  torch::rand({3});
  accel::set_seed(42);
  EXPECT_TRUE(torch::rand({4}).equal(first));
  EXPECT_EQ(std::rand(), second);

  accel::set_seed(
      42, accel::SetSeedOptions().device_specific(true).process_index(1));
  const auto on_process_1 = torch::rand({4});
  torch::manual_seed(43);
  EXPECT_TRUE(torch::rand({4}).equal(on_process_1));

  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  accel::set_seed(1, accel::SetSeedOptions().deterministic(true));
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST(ExecutableBatchSize, ShrinksByATenthUntilItFits) {
  // accelerate.md, §2.20: what Accelerate tries, beginning with 128.
  const Integers documented{128, 115, 103, 92, 82, 73, 65, 58, 52, 46,
                            41,  36,  32,  28, 25, 22, 19, 17, 15, 13,
                            11,  9,   8,   7,  6,  5,  4,  3,  2,  1};
  Integers tried;
  EXPECT_THROWS_WITH(
      accel::find_executable_batch_size([&](int64_t batch_size) {
        tried.push_back(batch_size);
        throw std::bad_alloc();
      }),
      "No executable batch size found, reached zero.");
  EXPECT_EQ(tried, documented);

  tried.clear();
  const auto result = accel::find_executable_batch_size(
      [&](int64_t batch_size) {
        tried.push_back(batch_size);
        if (batch_size > 50) {
          // What the allocator really says.
          torch::empty({int64_t{1} << 50});
        }
        return std::to_string(batch_size);
      },
      accel::FindExecutableBatchSizeOptions().starting_batch_size(60));
  EXPECT_EQ(result, "48");
  EXPECT_EQ(tried, (Integers{60, 54, 48}));
}

TEST(ExecutableBatchSize, OtherErrorsArePassedOn) {
  int calls = 0;
  EXPECT_THROWS_WITH(
      accel::find_executable_batch_size([&](int64_t) -> int {
        ++calls;
        throw std::runtime_error("shape mismatch");
      }),
      "shape mismatch");
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(accel::should_reduce_batch_size(
      std::runtime_error("CUDA out of memory. Tried to allocate 2 GiB")));
  EXPECT_FALSE(accel::should_reduce_batch_size(std::runtime_error("memory")));
  EXPECT_THROWS_WITH(
      accel::find_executable_batch_size(
          [](int64_t) { throw std::bad_alloc(); },
          accel::FindExecutableBatchSizeOptions().reduce(
              [](int64_t batch_size) { return batch_size; })),
      "must return a smaller batch size, but made 128 of 128");
}

TEST(ExecutableBatchSize, ProcessesAgree) {
  // This process could do all sizes, another one only up to 100.
  Integers tried;
  std::vector<bool> reported;
  accel::find_executable_batch_size(
      [&](int64_t batch_size) { tried.push_back(batch_size); },
      accel::FindExecutableBatchSizeOptions().any_process([&](bool mine) {
        reported.push_back(mine);
        return tried.back() > 100;
      }));
  EXPECT_EQ(tried, (Integers{128, 115, 103, 92}));
  EXPECT_EQ(reported, std::vector<bool>(4, false));
}
