// Batches that are dealt out after they were read: stateful data sets, streams,
// process 0 reading for all, and processes that run out.

#include "data_sets.h"
#include "expectations.h"
#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>
#include <string>
#include <vector>

namespace {

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::GradientState;
using accel::test::ids;
using accel::test::run_all;
using torch::data::DataLoaderOptions;
using Example = torch::data::Example<>;
using Ids = std::vector<int64_t>;

/// Sample i is ([i + noise, i + noise], i), in batches as they are asked for.
/// The noise is drawn while a batch is read.
struct NoisyStream : accel::test::UnsizedStream<NoisyStream, Example> {
  explicit NoisyStream(int64_t size, double noise = 1)
      : count(size), noise(noise) {}

  std::optional<Example> get_batch(size_t wanted) override {
    const int64_t rows =
        std::min(static_cast<int64_t>(wanted), count - position);
    if (rows <= 0) {
      return std::nullopt;
    }
    if (position == fails_at) {
      throw std::runtime_error("the disk is full");
    }
    const auto target = torch::arange(position, position + rows);
    position += rows;
    auto data = target.to(torch::kDouble).unsqueeze(1).repeat({1, 2});
    if (noise != 0) {
      data += noise * torch::rand({rows, 2}, torch::kDouble);
    }
    return Example(data, target);
  }
  void reset() override {
    position = 0;
  }

  int64_t count;
  double noise;
  int64_t position = 0;
  int64_t fails_at = -1;
};

/// Batch b has two rows of b + 1 columns; there are `count` batches.
struct Ragged : accel::test::UnsizedStream<Ragged, torch::Tensor> {
  explicit Ragged(int64_t count) : count(count) {}
  std::optional<torch::Tensor> get_batch(size_t) override {
    if (next == count) {
      return std::nullopt;
    }
    const int64_t number = next++;
    return torch::full({2, number + 1}, number, torch::kLong);
  }
  void reset() override {
    next = 0;
  }
  int64_t count;
  int64_t next = 0;
};

/// A chunk is five numbers.
struct Chunks : torch::data::datasets::ChunkDataReader<int64_t> {
  using BatchType = ChunkType;
  using DataType = ExampleType;
  std::vector<int64_t> read_chunk(size_t index) override {
    std::vector<int64_t> chunk(5);
    std::iota(chunk.begin(), chunk.end(), static_cast<int64_t>(5 * index));
    return chunk;
  }
  size_t chunk_count() override {
    return 4;
  }
  void reset() override {}
};

/// Numbers on demand; how many, the sampler says.
struct Counter
    : torch::data::datasets::StreamDataset<Counter, std::vector<int64_t>> {
  std::vector<int64_t> get_batch(size_t size) override {
    std::vector<int64_t> batch(size);
    std::iota(batch.begin(), batch.end(), next);
    next += static_cast<int64_t>(size);
    return batch;
  }
  std::optional<size_t> size() const override {
    return std::nullopt;
  }
  int64_t next = 0;
};

torch::nn::Sequential make_net() {
  torch::manual_seed(3);
  torch::nn::Sequential net(
      torch::nn::Linear(2, 4),
      torch::nn::Dropout(0.5),
      torch::nn::Linear(4, 1));
  net->to(torch::kDouble);
  return net;
}

/// Losses of two passes on one device, with torch alone.
template <typename Loader>
std::vector<double> losses_of_one_device(Loader& loader) {
  auto net = make_net();
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  torch::manual_seed(8);
  std::vector<double> losses;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : loader) {
      const auto loss = net->forward(batch.data).pow(2).mean();
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      losses.push_back(loss.template item<double>());
    }
  }
  return losses;
}

template <typename Loader>
std::vector<double> losses_of_all(Accelerator& accelerator, Loader& loader) {
  auto net = make_net();
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      net->parameters(), 1e-3);
  accelerator.prepare(net, optimizer);
  torch::manual_seed(8);
  std::vector<double> losses;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : loader) {
      auto step = accelerator.accumulate(net);
      const auto loss = net->forward(batch.data).pow(2).mean();
      optimizer.zero_grad();
      accelerator.backward(loss);
      optimizer.step();
      losses.push_back(
          accelerator.reduce(loss, "mean").template item<double>());
    }
  }
  return losses;
}

void expect_same_losses(
    const std::vector<double>& actual,
    const std::vector<double>& expected,
    const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-9 * std::abs(expected[i]))
        << what << ", step " << i;
  }
}

/// The message of the error that `f` throws.
template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

} // namespace

// 7 samples in batches of 3, noise drawn by the data set between the dropout's
// draws: what one device computes.
ACCEL_RANK_FUNCTION(streams_as_on_one_device) {
  auto plain = torch::data::make_data_loader(NoisyStream(7), 3);
  const auto expected = losses_of_one_device(*plain);
  auto plain_map = torch::data::make_data_loader(
      accel::test::stacked(accel::test::NoisyNumbers(7)), 3);
  const auto expected_map = losses_of_one_device(*plain_map);
  for (const bool dispatch : {true, false}) {
    Accelerator accelerator(AcceleratorOptions()
                                .match_single_device(true)
                                .dispatch_batches(dispatch));
    auto loader = accel::data::make_data_loader(NoisyStream(7), 3);
    expect_same_losses(
        losses_of_all(accelerator, *loader), expected, "a stream");
    EXPECT_TRUE(accelerator.gather(accel::test::generator_state().view({1, -1}))
                    .eq(accel::test::generator_state())
                    .all()
                    .item<bool>());
    auto map = accel::data::make_data_loader(
        accel::test::stacked(accel::test::NoisyNumbers(7)), 3);
    expect_same_losses(
        losses_of_all(accelerator, *map), expected_map, "with a sampler");
  }
}
TEST(Dealt, StreamsAsOnOneDevice) {
  run_all("streams_as_on_one_device");
}

namespace {

/// Draws numbers that are not LibTorch's: three batches of them.
struct HostStream : accel::test::UnsizedStream<HostStream, torch::Tensor> {
  std::optional<torch::Tensor> get_batch(size_t size) override {
    if (++batches > 3) {
      return std::nullopt;
    }
    auto batch = torch::empty({static_cast<int64_t>(size)}, torch::kLong);
    for (int64_t i = 0; i < batch.size(0); ++i) {
      batch[i] = std::rand();
    }
    return batch;
  }
  void reset() override {
    batches = 0;
  }
  int batches = 0;
};

} // namespace

ACCEL_RANK_FUNCTION(streams_that_all_read) {
  std::srand(4);
  std::vector<torch::Tensor> expected;
  auto plain = torch::data::make_data_loader(HostStream(), 6);
  for (auto& batch : *plain) {
    expected.push_back(batch);
  }
  const int next = std::rand();

  Accelerator accelerator(AcceleratorOptions()
                              .match_single_device(true)
                              .load_whole_batches(true));
  std::srand(4);
  size_t number = 0;
  auto loader = accel::data::make_data_loader(HostStream(), 6);
  for (auto& batch : *loader) {
    ASSERT_LT(number, expected.size());
    EXPECT_TRUE(torch::equal(accelerator.full(batch), expected[number++]));
  }
  EXPECT_EQ(number, 3u);
  // The others have drawn as process 0 has.
  EXPECT_EQ(std::rand(), next);
}
TEST(Dealt, StreamsThatAllReadDrawAlike) {
  run_all("streams_that_all_read");
}

ACCEL_RANK_FUNCTION(accumulates_over_a_stream) {
  Accelerator accelerator(AcceleratorOptions()
                              .match_single_device(true)
                              .gradient_accumulation_steps(2));
  auto loader = accel::data::make_data_loader(NoisyStream(7, 0), 2);
  std::vector<bool> sync, end;
  for (auto& batch : *loader) {
    auto step = accelerator.accumulate();
    sync.push_back(accelerator.sync_gradients());
    end.push_back(GradientState::get().end_of_dataloader());
    EXPECT_EQ(
        accelerator.gather_for_metrics(batch.target).size(0),
        sync.size() < 4 ? 2 : 1);
  }
  EXPECT_EQ(sync, (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(end, (std::vector<bool>{false, false, false, true}));
}
TEST(Dealt, KnowsTheEndWhereItMatters) {
  run_all("accumulates_over_a_stream");
}

ACCEL_RANK_FUNCTION(ragged_batches) {
  Accelerator accelerator;
  const int64_t world = accelerator.num_processes();
  auto loader = accel::data::make_data_loader(Ragged(5), 2);
  Ids seen, metrics;
  for (auto& batch : *loader) {
    // Two processes share the last one.
    EXPECT_EQ(batch.size(0), world == 2 && batch.size(1) == 5 ? 1 : 2);
    EXPECT_TRUE(batch.eq(batch.size(1) - 1).all().item<bool>());
    seen.push_back(batch[0][0].item<int64_t>());
    const auto rows =
        accelerator.gather_for_metrics(batch.select(1, 0)).contiguous();
    const auto* first = rows.data_ptr<int64_t>();
    metrics.insert(metrics.end(), first, first + rows.numel());
  }
  const Ids expected = world == 1 ? Ids{0, 1, 2, 3, 4}
      : world == 2 ? (accelerator.is_main_process() ? Ids{0, 2, 4}
                                                    : Ids{1, 3, 4})
                   : std::vector<Ids>{{0, 3}, {1, 4}, {2, 3}}.at(
                         accelerator.process_index());
  EXPECT_EQ(seen, expected);
  // Nothing is counted twice.
  EXPECT_EQ(metrics, (Ids{0, 0, 1, 1, 2, 2, 3, 3, 4, 4}));
}
TEST(Dealt, RaggedBatchesStayWhole) {
  run_all("ragged_batches");
}

ACCEL_RANK_FUNCTION(chunks_and_streams) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  using Chunked = torch::data::datasets::ChunkDataset<
      Chunks,
      torch::data::samplers::RandomSampler,
      torch::data::samplers::RandomSampler>;
  for (const size_t workers : {0, 2}) {
    auto loader = accel::data::make_data_loader(
        torch::data::datasets::make_shared_dataset<Chunked>(
            Chunks(),
            torch::data::samplers::RandomSampler(4),
            torch::data::samplers::RandomSampler(5),
            torch::data::datasets::ChunkDatasetOptions(2, 3)),
        DataLoaderOptions(3).workers(workers));
    for (int epoch = 0; epoch < 2; ++epoch) {
      Ids all;
      for (auto& batch : *loader) {
        const auto part = accelerator.gather_for_metrics(
            torch::tensor(batch, torch::kLong));
        const auto* first = part.data_ptr<int64_t>();
        all.insert(all.end(), first, first + part.numel());
      }
      std::sort(all.begin(), all.end());
      Ids expected(20);
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(all, expected);
    }
  }

  auto stream = accel::data::make_data_loader(
      Counter(), torch::data::samplers::StreamSampler(8), 3);
  Ids all;
  for (auto& batch : *stream) {
    const auto part =
        accelerator.gather_for_metrics(torch::tensor(batch, torch::kLong));
    const auto* first = part.data_ptr<int64_t>();
    all.insert(all.end(), first, first + part.numel());
  }
  EXPECT_EQ(all, (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
}
TEST(Dealt, ChunksAndStreams) {
  run_all("chunks_and_streams");
}

ACCEL_RANK_FUNCTION(dealing_goes_wrong) {
  {
    Accelerator accelerator;
    auto stream = NoisyStream(9);
    stream.fails_at = 6;
    auto loader = accel::data::make_data_loader(stream, 3);
    const auto error = error_of([&] { accel::test::collect(*loader); });
    EXPECT_NE(error.find("the disk is full"), error.npos) << error;
  }
  {
    Accelerator accelerator(AcceleratorOptions().dispatch_batches(false));
    torch::manual_seed(accelerator.process_index());
    auto loader = accel::data::make_data_loader(NoisyStream(9), 3);
    const auto error = error_of([&] { accel::test::collect(*loader); });
    EXPECT_NE(error.find("have read other batches"), error.npos) << error;
    EXPECT_NE(error.find("with other content"), error.npos) << error;
  }
  {
    // 3 + 2 samples in the middle of a pass cannot be cut into equal parts.
    struct Uneven : NoisyStream {
      using NoisyStream::NoisyStream;
      std::optional<Example> get_batch(size_t) override {
        return NoisyStream::get_batch(++asked % 2 != 0 ? 3 : 2);
      }
      int asked = 0;
    };
    Accelerator accelerator;
    auto loader = accel::data::make_data_loader(Uneven(30), 3);
    const auto error = error_of([&] { accel::test::collect(*loader); });
    EXPECT_NE(error.find("cannot be cut into equal parts"), error.npos)
        << error;
  }
}
TEST(Dealt, WhatGoesWrongIsAnErrorEverywhere) {
  accel::test::run_and_expect_success("dealing_goes_wrong", 2);
}

ACCEL_RANK_FUNCTION(goes_on_with_a_stream) {
  for (const bool match : {true, false}) {
    Accelerator accelerator(AcceleratorOptions().match_single_device(match));
    const auto pass = [&](auto& loader) {
      std::vector<Ids> seen;
      for (auto& batch : loader) {
        seen.push_back(ids(batch));
      }
      return seen;
    };
    auto loader = accel::data::make_data_loader(NoisyStream(13), 2);
    torch::manual_seed(1);
    const auto complete = pass(*loader);

    torch::manual_seed(1);
    accel::detail::LoaderCursor cursor;
    std::vector<Ids> seen;
    for (auto& batch : *loader) {
      seen.push_back(ids(batch));
      if (seen.size() == 2) {
        cursor = accel::detail::resumable(*loader).cursor();
        break;
      }
    }
    EXPECT_EQ(cursor.batches, 2);
    torch::manual_seed(99);
    auto other = accel::data::make_data_loader(NoisyStream(13), 2);
    accel::detail::resumable(*other).resume(cursor);
    for (const auto& batch : pass(*other)) {
      seen.push_back(batch);
    }
    EXPECT_EQ(seen, complete);

    // Other data are noticed.
    auto changed = accel::data::make_data_loader(NoisyStream(13, 2), 2);
    accel::detail::resumable(*changed).resume(cursor);
    const auto error = error_of([&] { pass(*changed); });
    EXPECT_NE(error.find("cannot go on where it was"), error.npos) << error;

    const std::vector<Ids> behind_two(complete.begin() + 2, complete.end());
    accelerator.skip_first_batches(*other, 2);
    EXPECT_EQ(pass(*other), behind_two);
    // From the beginning, of a pass that goes on as well; and of that one only.
    accel::detail::resumable(*other).resume(cursor);
    accelerator.skip_first_batches(*other, 2);
    EXPECT_EQ(pass(*other), behind_two);
    EXPECT_EQ(pass(*other), complete);
  }
}
TEST(Dealt, GoesOnInTheMiddleOfAPass) {
  run_all("goes_on_with_a_stream");
}

namespace {
struct Sentence {
  torch::Tensor words;
  std::string language;
};
struct Sentences : accel::test::UnsizedStream<Sentences, std::vector<Sentence>> {
  std::optional<std::vector<Sentence>> get_batch(size_t) override {
    if (++given > 2) {
      return std::nullopt;
    }
    return std::vector<Sentence>{
        {torch::arange(given), "language " + std::to_string(given)}};
  }
  void reset() override {
    given = 0;
  }
  int64_t given = 0;
};
} // namespace

template <>
struct accel::data::BatchCodec<Sentence> {
  static void write(BatchWriter& to, const Sentence& sentence) {
    BatchCodec<torch::Tensor>::write(to, sentence.words);
    BatchCodec<std::string>::write(to, sentence.language);
  }
  static Sentence read(BatchReader& from) {
    Sentence sentence;
    sentence.words = BatchCodec<torch::Tensor>::read(from);
    sentence.language = BatchCodec<std::string>::read(from);
    return sentence;
  }
};

ACCEL_RANK_FUNCTION(types_of_ones_own) {
  Accelerator accelerator;
  auto loader = accel::data::make_data_loader(Sentences(), 1);
  int64_t number = accelerator.process_index();
  for (auto& batch : *loader) {
    ++number;
    ASSERT_EQ(batch.size(), 1u);
    EXPECT_TRUE(batch[0].words.equal(torch::arange(number)));
    EXPECT_EQ(batch[0].language, "language " + std::to_string(number));
  }
}
TEST(Dealt, TypesOfOnesOwn) {
  accel::test::run_and_expect_success("types_of_ones_own", 2);
}

// Everything that is known goes through bytes and comes back.
TEST(Dealt, Codec) {
  using accel::data::BatchCodec;
  using Value = std::tuple<
      std::map<std::string, torch::Tensor>,
      std::unordered_map<std::string, int>,
      std::optional<std::string>,
      std::pair<std::vector<bool>, std::array<double, 2>>,
      torch::Tensor>;
  const Value value{
      {{"a", torch::arange(6).view({2, 3}).t()}, {"b", torch::tensor(1.5)}},
      {{"x", 1}, {"y", -2}},
      "text",
      {{true, false, true}, {0.5, -1}},
      torch::Tensor()};
  accel::data::BatchWriter writer;
  BatchCodec<Value>::write(writer, value);
  const auto bytes = torch::tensor(
      std::vector<uint8_t>(writer.text().begin(), writer.text().end()));
  accel::data::BatchReader reader(bytes, torch::kCPU);
  const auto read = BatchCodec<Value>::read(reader);
  EXPECT_TRUE(std::get<0>(read).at("a").equal(std::get<0>(value).at("a")));
  EXPECT_TRUE(std::get<0>(read).at("b").equal(std::get<0>(value).at("b")));
  EXPECT_EQ(std::get<0>(read).at("b").dim(), 0);
  EXPECT_EQ(std::get<1>(read), std::get<1>(value));
  EXPECT_EQ(std::get<2>(read), std::get<2>(value));
  EXPECT_EQ(std::get<3>(read), std::get<3>(value));
  EXPECT_FALSE(std::get<4>(read).defined());
  accel::data::BatchReader short_reader(
      bytes.narrow(0, 0, bytes.size(0) - 1), torch::kCPU);
  EXPECT_THROW(BatchCodec<Value>::read(short_reader), c10::Error);
}

// The last process has one batch less than the others, of which one is short.
ACCEL_RANK_FUNCTION(joins_uneven_inputs) {
  Accelerator accelerator;
  const int64_t world = accelerator.num_processes();
  const int64_t rank = accelerator.process_index();
  torch::manual_seed(5);
  torch::nn::Linear net(2, 1);
  net->to(torch::kDouble);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      net->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9));
  accelerator.prepare(net, optimizer);

  // The same by hand.
  torch::nn::Linear expected(2, 1);
  expected->to(torch::kDouble);
  {
    torch::NoGradGuard no_grad;
    expected->weight.copy_(net->weight);
    expected->bias.copy_(net->bias);
  }
  torch::optim::SGD expected_optimizer(
      expected->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9));
  const auto data = [](int64_t begin, int64_t end) {
    return torch::arange(begin, end, torch::kDouble)
        .unsqueeze(1)
        .repeat({1, 2});
  };
  const int64_t size = world == 1 ? 11 : 4 * (2 * world - 1) - 1;
  std::vector<double> expected_losses;
  for (int64_t first = 0; first < size; first += 4 * world) {
    torch::Tensor loss = torch::zeros({}, torch::kDouble);
    int64_t batches = 0;
    for (int64_t r = 0; r < world; ++r) {
      const int64_t begin = first + 4 * r;
      if (begin < size) {
        ++batches;
        loss = loss +
            expected->forward(data(begin, std::min(begin + 4, size)))
                .pow(2)
                .mean();
      }
    }
    expected_losses.push_back(
        loss.item<double>() / static_cast<double>(batches));
    expected_optimizer.zero_grad();
    (loss / world).backward();
    expected_optimizer.step();
  }

  auto loader = accel::data::make_data_loader<
      torch::data::samplers::SequentialSampler>(
      accel::test::stacked(accel::test::Numbers(static_cast<size_t>(size))),
      4);
  Ids seen;
  std::vector<double> losses;
  int64_t batches = 0;
  double counting = 0;
  {
    auto join = accelerator.join_uneven_inputs(/*even_batches=*/false);
    for (auto& batch : *loader) {
      auto step = accelerator.accumulate(net);
      // The optimizer sees the mean of the losses that count.
      const auto whole = optimizer.step([&] {
        optimizer.zero_grad();
        const auto loss = net->forward(batch.data).pow(2).mean();
        accelerator.backward(loss);
        return loss;
      });
      losses.push_back(whole.item<double>());
      ++batches;
      const auto all = accelerator.gather_for_metrics(batch.target);
      const auto* first = all.data_ptr<int64_t>();
      seen.insert(seen.end(), first, first + all.numel());
      const auto last = GradientState::get().end_of_dataloader();
      const bool ghost = last && world > 1 && rank == world - 1;
      EXPECT_EQ(GradientState::get().ghost(), ghost);
      // A mean over the processes that have something.
      counting += accelerator
                      .gather_for_metrics(torch::full(
                          {1}, ghost ? 1e9 : 1.0, torch::kDouble))
                      .mean()
                      .item<double>();
    }
  }
  const int64_t steps = (size + 4 * world - 1) / (4 * world);
  EXPECT_EQ(batches, steps);
  expect_same_losses(losses, expected_losses, "losses of the steps");
  EXPECT_DOUBLE_EQ(counting, static_cast<double>(steps));
  Ids all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
  EXPECT_TRUE(torch::allclose(net->weight, expected->weight, 1e-12, 1e-14));
  EXPECT_TRUE(torch::allclose(net->bias, expected->bias, 1e-12, 1e-14));

  // A loop that is left says nothing about what follows.
  {
    auto join = accelerator.join_uneven_inputs(/*even_batches=*/false);
    for (auto& batch : *loader) {
      (void)batch;
      auto step = accelerator.accumulate(net);
      if (GradientState::get().end_of_dataloader()) {
        break;
      }
    }
  }
  EXPECT_FALSE(GradientState::get().ghost());
  EXPECT_FALSE(GradientState::get().uneven());

  // Afterwards as before.
  batches = 0;
  for (auto& batch : *loader) {
    EXPECT_EQ(batch.target.size(0), world == 1 && batches == 2 ? 3 : 4);
    ++batches;
  }
}
TEST(Dealt, JoinsUnevenInputs) {
  run_all("joins_uneven_inputs");
}
