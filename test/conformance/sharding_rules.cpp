// The index rules alone, all recorded cases.

#include "golden_files.h"

#include <accel/data/iterable_dataset_shard.h>
#include <accel/data/sharding.h>

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace {

using accel::data::BatchSamplerShard;
using accel::data::IterableDatasetShard;
using accel::data::ShardingOptions;
using accel::test::deviation;
using accel::test::golden;
using Indices = std::vector<size_t>;
using nlohmann::json;

struct Case {
  explicit Case(const json& record)
      : size(record.at("n")),
        batch_size(record.at("batch_size")),
        drop_last(record.at("drop_last")) {
    sharding.world = record.at("P");
    sharding.split_batches = record.at("split_batches");
    sharding.even_batches = record.value("even_batches", true);
  }

  int64_t size;
  int64_t batch_size;
  bool drop_last;
  ShardingOptions sharding;
};

/// A sequential sampler with torch's treatment of the last batch.
struct Sampler {
  std::optional<Indices> operator()() {
    const int64_t count =
        std::min(parameters.batch_size, parameters.size - position);
    if (count <= 0 ||
        (parameters.drop_last && count < parameters.batch_size)) {
      return std::nullopt;
    }
    Indices batch;
    for (int64_t i = 0; i < count; ++i) {
      batch.push_back(static_cast<size_t>(position++));
    }
    return batch;
  }

  Case parameters;
  int64_t position = 0;
};

std::vector<Indices> batches_of(const Case& parameters) {
  BatchSamplerShard<Indices> shard(
      parameters.sharding, parameters.batch_size, parameters.drop_last);
  Sampler sampler{parameters};
  std::vector<Indices> batches;
  while (auto batch = shard.next(sampler)) {
    batches.push_back(*batch);
  }
  EXPECT_EQ(shard.samples(), sampler.position);
  return batches;
}

Indices samples_of(const Case& parameters) {
  IterableDatasetShard<size_t> shard(
      parameters.sharding, parameters.batch_size, parameters.drop_last);
  int64_t position = 0;
  const auto stream = [&]() -> std::optional<size_t> {
    return position < parameters.size
        ? std::make_optional(static_cast<size_t>(position++))
        : std::nullopt;
  };
  Indices samples;
  while (auto sample = shard.next(stream)) {
    samples.push_back(*sample);
  }
  return samples;
}

} // namespace

TEST(BatchSamplerShard, AgreesWithAccelerate) {
  const auto& records = golden("sharding.json").at("batch_sampler_shard");
  int64_t other_lengths = 0;
  for (const auto& record : records) {
    SCOPED_TRACE(record.dump());
    Case parameters(record);
    if (record.contains("error")) {
      EXPECT_THROW(batches_of(parameters), c10::Error);
      continue;
    }
    for (int64_t rank = 0; rank < parameters.sharding.world; ++rank) {
      parameters.sharding.rank = rank;
      const auto batches = batches_of(parameters);
      EXPECT_EQ(json(batches), record.at("out").at(rank)) << "rank " << rank;
      const int64_t length = BatchSamplerShard<Indices>::batches(
          parameters.size,
          parameters.sharding,
          parameters.batch_size,
          parameters.drop_last);
      EXPECT_EQ(length, static_cast<int64_t>(batches.size()));
    }
    // What Accelerate reports is what it gives, but for one listed case.
    bool other = false;
    for (int64_t rank = 0; rank < parameters.sharding.world; ++rank) {
      other = other ||
          record.at("len").at(rank) != record.at("out").at(rank).size();
    }
    if (other) {
      EXPECT_TRUE(
          parameters.sharding.split_batches &&
          !parameters.sharding.even_batches);
      ++other_lengths;
    }
  }
  if (records.size() == 3328) {
    EXPECT_EQ(other_lengths, deviation("split-uneven-length").at("cases"));
  }
  EXPECT_GE(records.size(), 1u);
}

TEST(IterableDatasetShard, AgreesWithAccelerate) {
  const auto& records = golden("sharding.json").at("iterable_dataset_shard");
  int64_t other_lengths = 0;
  int64_t lost = 0;
  for (const auto& record : records) {
    SCOPED_TRACE(record.dump());
    Case parameters(record);
    const bool split_of_one = parameters.sharding.split_batches &&
        parameters.batch_size == 1 && parameters.sharding.world > 1;
    if (record.contains("error") || split_of_one) {
      EXPECT_THROW(samples_of(parameters), c10::Error);
      lost += record.contains("error") ? 0 : 1;
    }
    if (record.contains("error")) {
      continue;
    }
    bool other = false;
    for (int64_t rank = 0; rank < parameters.sharding.world; ++rank) {
      const auto& expected = record.at("out").at(rank);
      other = other || record.at("len").at(rank) != expected.size();
      parameters.sharding.rank = rank;
      if (split_of_one) {
        EXPECT_TRUE(expected.empty());
      } else {
        EXPECT_EQ(json(samples_of(parameters)), expected) << "rank " << rank;
      }
    }
    other_lengths += other ? 1 : 0;
  }
  if (records.size() == 1664) {
    EXPECT_EQ(other_lengths, deviation("iterable-length").at("cases"));
    EXPECT_EQ(lost, deviation("iterable-split-of-one").at("cases"));
  }
  EXPECT_GE(records.size(), 1u);
}
