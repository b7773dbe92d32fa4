#include "data_sets.h"
#include "expectations.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/data/data_loader.h>
#include <accel/detail/communicator.h>
#include <accel/distributed/tensor.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <random>
#include <tuple>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::GradientState;
using accel::test::collect;
using accel::test::generator_state;
using accel::test::ids;
using accel::test::NoisyNumbers;
using accel::test::Numbers;
using accel::test::stacked;
using torch::data::DataLoaderOptions;
using torch::data::samplers::RandomSampler;
using torch::data::samplers::SequentialSampler;

namespace {

using Stacked = decltype(stacked(Numbers(1)));

static_assert(std::is_same_v<
              decltype(accel::data::make_data_loader(
                  std::declval<Stacked>(),
                  DataLoaderOptions(1))),
              decltype(torch::data::make_data_loader(
                  std::declval<Stacked>(),
                  DataLoaderOptions(1)))>);
static_assert(std::is_same_v<
              decltype(accel::data::make_data_loader<SequentialSampler>(
                  std::declval<Stacked>(),
                  4)),
              std::unique_ptr<torch::data::
                                  StatelessDataLoader<Stacked, SequentialSampler>>>);
static_assert(std::is_same_v<
              decltype(accel::data::make_data_loader(
                  std::declval<Numbers>(),
                  SequentialSampler(3),
                  4)),
              std::unique_ptr<torch::data::
                                  StatelessDataLoader<Numbers, SequentialSampler>>>);

void expect_equal(
    const std::vector<torch::data::Example<>>& ours,
    const std::vector<torch::data::Example<>>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(torch::equal(ours[i].data, theirs[i].data)) << "batch " << i;
    EXPECT_TRUE(torch::equal(ours[i].target, theirs[i].target))
        << "batch " << i;
  }
}

/// Random numbers are drawn in `next`, a few for every batch.
struct WithReplacement : torch::data::samplers::Sampler<> {
  explicit WithReplacement(size_t size) : size(size) {}
  void reset(std::optional<size_t> = std::nullopt) override {
    given = 0;
  }
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    if (given >= size) {
      return std::nullopt;
    }
    const auto count = std::min(batch_size, size - given);
    given += count;
    std::vector<size_t> indices;
    for (size_t i = 0; i < count; ++i) {
      indices.push_back(
          torch::randint(static_cast<int64_t>(size), {1}).item<int64_t>());
    }
    return indices;
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  size_t size;
  size_t given = 0;
};

/// Two passes with numbers drawn in the loop; `make` makes the loader.
template <typename Make>
std::vector<torch::data::Example<>> two_passes(Make&& make) {
  torch::manual_seed(11);
  auto loader = make();
  std::vector<torch::data::Example<>> seen;
  for (int pass = 0; pass < 2; ++pass) {
    for (auto& batch : *loader) {
      seen.push_back(batch);
      seen.push_back({torch::rand({3}), torch::zeros({1})});
    }
  }
  return seen;
}

template <typename Ours, typename Theirs>
void expect_same_program(Ours&& ours, Theirs&& theirs) {
  const auto expected = two_passes(theirs);
  const auto state = generator_state();
  const auto seen = two_passes(ours);
  expect_equal(seen, expected);
  EXPECT_TRUE(torch::equal(generator_state(), state));
  EXPECT_GT(expected.size(), 4u);
}

void expect_torchs_batches() {
  const std::vector<DataLoaderOptions> all = {
      DataLoaderOptions(4),
      DataLoaderOptions(4).drop_last(true),
      DataLoaderOptions(4).workers(2),
      DataLoaderOptions(5).workers(2).drop_last(true)};
  for (const auto& options : all) {
    const auto test = [&](auto data) {
      expect_same_program(
          [&] { return accel::data::make_data_loader(data, options); },
          [&] { return torch::data::make_data_loader(data, options); });
      using Sampler = SequentialSampler;
      expect_same_program(
          [&] { return accel::data::make_data_loader<Sampler>(data, options); },
          [&] {
            return torch::data::make_data_loader<Sampler>(data, options);
          });
    };
    test(stacked(Numbers(18)));
    if (options.workers() == 0) {
      test(stacked(NoisyNumbers(18)));
      expect_same_program(
          [&] {
            return accel::data::make_data_loader(
                stacked(NoisyNumbers(18)), WithReplacement(18), options);
          },
          [&] {
            return torch::data::make_data_loader(
                stacked(NoisyNumbers(18)), WithReplacement(18), options);
          });
    }
  }
}

AcceleratorOptions match() {
  return AcceleratorOptions().match_single_device(true);
}

} // namespace

TEST(DataLoader, WithoutAcceleratorGivesTorchsBatches) {
  expect_torchs_batches();
}

TEST(DataLoader, OneProcessGivesTorchsBatches) {
  for (const bool match_single_device : {false, true}) {
    Accelerator accelerator(
        AcceleratorOptions().match_single_device(match_single_device));
    expect_torchs_batches();
  }
}

TEST(DataLoader, TellsTheEndInTheBodyOfTheLastBatch) {
  auto& state = GradientState::get();
  for (const size_t workers : {0, 1, 3}) {
    for (const bool ordered : {true, false}) {
      for (const size_t size : {1, 7, 8}) {
        auto loader = accel::data::make_data_loader<SequentialSampler>(
            stacked(Numbers(size)),
            DataLoaderOptions(4).workers(workers).enforce_ordering(ordered));
        for (int pass = 0; pass < 2; ++pass) {
          size_t batches = 0;
          for (auto& batch : *loader) {
            ++batches;
            EXPECT_EQ(state.end_of_dataloader(), batches == (size + 3) / 4);
            EXPECT_EQ(state.remainder(), static_cast<int64_t>(size) % 4);
            EXPECT_TRUE(state.in_dataloader());
            EXPECT_GT(batch.data.size(0), 0);
          }
          EXPECT_EQ(batches, (size + 3) / 4);
          EXPECT_FALSE(state.in_dataloader());
          EXPECT_FALSE(state.end_of_dataloader());
          EXPECT_EQ(state.remainder(), -1);
        }
      }
    }
  }
}

TEST(DataLoader, OwnSamplersEndWhereTheSizeSays) {
  auto loader = accel::data::make_data_loader(
      stacked(Numbers(10)), WithReplacement(10), 4);
  std::vector<bool> ends;
  for ([[maybe_unused]] auto& batch : *loader) {
    ends.push_back(GradientState::get().end_of_dataloader());
  }
  EXPECT_EQ(ends, (std::vector<bool>{false, false, true}));
}

TEST(DataLoader, LoadersNestAndAreLeftEarly) {
  auto& state = GradientState::get();
  auto outer = accel::data::make_data_loader<SequentialSampler>(
      stacked(Numbers(6)), 3);
  int bodies = 0;
  for ([[maybe_unused]] auto& batch : *outer) {
    const bool last = ++bodies == 2;
    EXPECT_EQ(state.end_of_dataloader(), last);
    {
      auto inner = accel::data::make_data_loader<SequentialSampler>(
          stacked(Numbers(4)), 4);
      for ([[maybe_unused]] auto& other : *inner) {
        EXPECT_TRUE(state.end_of_dataloader());
      }
      EXPECT_EQ(state.end_of_dataloader(), last);
      for ([[maybe_unused]] auto& other : *inner) {
        break;
      }
    }
    EXPECT_EQ(state.end_of_dataloader(), last);
  }
  EXPECT_FALSE(state.in_dataloader());

  for ([[maybe_unused]] auto& batch : *outer) {
    break;
  }
  std::vector<int64_t> seen;
  for (auto& batch : *outer) {
    const auto part = ids(batch);
    seen.insert(seen.end(), part.begin(), part.end());
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_FALSE(state.in_dataloader());
}

TEST(DataLoader, WorkersErrorsReachTheLoop) {
  struct Failing : torch::data::datasets::Dataset<Failing> {
    torch::data::Example<> get(size_t index) override {
      TORCH_CHECK(index != 5, "sample five is broken");
      return Numbers(8).get(index);
    }
    std::optional<size_t> size() const override {
      return 8;
    }
  };
  for (const size_t workers : {0, 2}) {
    auto loader = accel::data::make_data_loader<SequentialSampler>(
        Failing().map(torch::data::transforms::Stack<>()),
        DataLoaderOptions(2).workers(workers));
    try {
      collect(*loader);
      FAIL() << "no error with " << workers << " workers";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("five"), std::string::npos);
    }
  }
}

// Several processes, match_single_device: everything is compared with torch's
// own loader over the same data set in the same process.

namespace {

/// `batch` has the sizes and the values of `whole`; this process holds its rows of
/// it, or all where there are fewer than processes.
void expect_distributed(
    Accelerator& accelerator,
    const torch::Tensor& batch,
    const torch::Tensor& whole) {
  const int64_t world = accelerator.num_processes();
  const int64_t n = whole.size(0);
  EXPECT_EQ(batch.sizes(), whole.sizes());
  EXPECT_TRUE(torch::equal(accelerator.full(batch), whole)) << n << " rows";
  EXPECT_EQ(
      accel::distributed::is_distributed(batch), world > 1 && n >= world)
      << n << " rows";
  if (accel::distributed::is_distributed(batch)) {
    // Contiguous parts in rank order, the first ones one row larger.
    const int64_t rank = accelerator.process_index();
    const int64_t extra = n % world;
    const int64_t first = rank * (n / world) + std::min(rank, extra);
    EXPECT_TRUE(torch::equal(
        accel::distributed::to_local(batch),
        whole.narrow(0, first, n / world + (rank < extra ? 1 : 0))))
        << n << " rows";
  }
}

/// Passes of both loaders from the same seed; ours gives distributed batches
/// with the same values.
template <typename Data>
void expect_rows(
    Accelerator& accelerator,
    const Data& data,
    DataLoaderOptions options) {
  const auto seed = 5;

  torch::manual_seed(seed);
  auto theirs = torch::data::make_data_loader(data, options);
  std::vector<torch::data::Example<>> expected;
  for (int pass = 0; pass < 2; ++pass) {
    for (auto& batch : *theirs) {
      expected.push_back(batch);
    }
  }
  const auto state = generator_state();

  torch::manual_seed(seed);
  auto ours = accel::data::make_data_loader(data, options);
  size_t number = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (auto& batch : *ours) {
      ASSERT_LT(number, expected.size());
      const auto& whole = expected[number++];
      expect_distributed(accelerator, batch.data, whole.data);
      expect_distributed(accelerator, batch.target, whole.target);
      EXPECT_EQ(
          GradientState::get().end_of_dataloader(),
          number == expected.size() / 2 || number == expected.size());
    }
  }
  EXPECT_EQ(number, expected.size());
  EXPECT_TRUE(torch::equal(generator_state(), state));
}

} // namespace

ACCEL_RANK_FUNCTION(loader_gives_rows) {
  Accelerator accelerator(match());
  for (const size_t size : {3, 13, 16, 17, 18}) {
    for (const bool drop_last : {false, true}) {
      const auto options = DataLoaderOptions(size == 3 ? 2 : 8)
                               .drop_last(drop_last);
      expect_rows(accelerator, stacked(Numbers(size)), options);
      for (const bool ordered : {true, false}) {
        auto with_workers = options;
        with_workers.workers(2).enforce_ordering(ordered);
        // torch's order is only known where it is enforced.
        if (ordered) {
          expect_rows(accelerator, stacked(Numbers(size)), with_workers);
        }
      }
    }
  }
}

TEST(DataLoader, GivesDistributedBatches) {
  for (const int world : {1, 2, 3, 4}) {
    accel::test::run_and_expect_success("loader_gives_rows", world);
  }
}

ACCEL_RANK_FUNCTION(loader_keeps_order) {
  Accelerator accelerator(match());
  torch::manual_seed(1);
  auto loader = accel::data::make_data_loader<SequentialSampler>(
      stacked(Numbers(40)),
      DataLoaderOptions(4).workers(3).enforce_ordering(false));
  int64_t first = 0;
  for (auto& batch : *loader) {
    EXPECT_EQ(ids(batch).front(), first);
    EXPECT_EQ(
        accel::distributed::to_local(batch.target)[0].item<int64_t>(),
        first + 2 * accelerator.process_index());
    first += 4;
  }
  EXPECT_EQ(first, 40);
}

TEST(DataLoader, ProcessesGetPartsOfTheSameBatch) {
  accel::test::run_and_expect_success("loader_keeps_order", 2);
}

namespace {

std::atomic<int64_t> samples_loaded{0};

struct CountedNumbers : torch::data::datasets::Dataset<CountedNumbers> {
  torch::data::Example<> get(size_t index) override {
    ++samples_loaded;
    return Numbers(25).get(index);
  }
  std::optional<size_t> size() const override {
    return 25;
  }
};

} // namespace

ACCEL_RANK_FUNCTION(loader_loads_own_rows) {
  Accelerator accelerator(match());
  const int64_t world = accelerator.num_processes();
  for (const size_t workers : {0, 2}) {
    // Batches of 6 and one of a single sample, which all load.
    auto loader = accel::data::make_data_loader<SequentialSampler>(
        CountedNumbers().map(torch::data::transforms::Stack<>()),
        DataLoaderOptions(6).workers(workers));
    for (int pass = 0; pass < 2; ++pass) {
      samples_loaded = 0;
      int64_t first = 0;
      for (auto& batch : *loader) {
        EXPECT_EQ(ids(batch).front(), first);
        first += 6;
      }
      EXPECT_EQ(first, 30);
      EXPECT_EQ(samples_loaded, 24 / world + 1) << workers << " workers";
    }
  }
}

TEST(DataLoader, AProcessLoadsItsRowsOnly) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("loader_loads_own_rows", world);
  }
}

ACCEL_RANK_FUNCTION(loader_with_random_data_set) {
  Accelerator accelerator(match());
  expect_rows(accelerator, stacked(NoisyNumbers(19)), DataLoaderOptions(8));
  // Only some samples draw, so that in some batches only some processes do.
  expect_rows(accelerator, stacked(NoisyNumbers(33, 7)), DataLoaderOptions(4));
  expect_rows(accelerator, stacked(NoisyNumbers(33, 30)), DataLoaderOptions(8));
}

TEST(DataLoader, RandomDataSetsGiveOneDevicesSamples) {
  for (const int world : {1, 2, 3, 4}) {
    accel::test::run_and_expect_success("loader_with_random_data_set", world);
  }
}

namespace {

/// Draws numbers that are not LibTorch's, which nobody sees.
struct HostNoise : torch::data::datasets::Dataset<HostNoise> {
  torch::data::Example<> get(size_t index) override {
    std::normal_distribution<double> noise;
    const double own = noise(generator) + static_cast<double>(std::rand() % 100);
    return {
        torch::full({2}, static_cast<double>(index) + own, torch::kDouble),
        torch::tensor(static_cast<int64_t>(index))};
  }
  std::optional<size_t> size() const override {
    return 19;
  }
  std::mt19937 generator{3};
};

/// The next number of `std::rand` after a pass.
template <typename Loader>
std::vector<torch::Tensor> noise_of(Loader& loader, int& next) {
  std::srand(1);
  std::vector<torch::Tensor> seen;
  for (auto& batch : loader) {
    seen.push_back(batch.data);
  }
  next = std::rand();
  return seen;
}

} // namespace

ACCEL_RANK_FUNCTION(loader_of_whole_batches) {
  Accelerator accelerator(match().load_whole_batches(true));
  const auto data = HostNoise().map(torch::data::transforms::Stack<>());
  // One worker draws in a fixed order, too.
  for (const size_t workers : {0, 1}) {
    const auto options = DataLoaderOptions(8).workers(workers);
    torch::manual_seed(2);
    auto theirs = torch::data::make_data_loader(data, options);
    torch::manual_seed(2);
    auto ours = accel::data::make_data_loader(data, options);
    for (int pass = 0; pass < 2; ++pass) {
      int expected_next = 0;
      int next = 0;
      torch::manual_seed(5);
      const auto expected = noise_of(*theirs, expected_next);
      torch::manual_seed(5);
      const auto seen = noise_of(*ours, next);
      ASSERT_EQ(seen.size(), expected.size());
      for (size_t i = 0; i < seen.size(); ++i) {
        expect_distributed(accelerator, seen[i], expected[i]);
      }
      EXPECT_EQ(next, expected_next);
    }
  }
}

TEST(DataLoader, WholeBatchesHaveOneDevicesDraws) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("loader_of_whole_batches", world);
  }
}

namespace {

/// Batches of a type that accel finds no tensors in.
struct Opaque {
  Opaque(torch::Tensor data) : data(std::move(data)) {}
  torch::Tensor data;
};
struct OpaqueBatches
    : torch::data::datasets::BatchDataset<OpaqueBatches, Opaque> {
  Opaque get_batch(torch::ArrayRef<size_t> indices) override {
    const auto size = static_cast<int64_t>(indices.size());
    return {draws ? torch::rand({size}) : torch::zeros({size})};
  }
  std::optional<size_t> size() const override {
    return 10;
  }
  bool draws = true;
};

struct Tuples : torch::data::datasets::BatchDataset<
                    Tuples,
                    std::tuple<torch::Tensor, std::vector<double>>> {
  std::tuple<torch::Tensor, std::vector<double>> get_batch(
      torch::ArrayRef<size_t> indices) override {
    const auto noise =
        torch::rand({static_cast<int64_t>(indices.size())}, torch::kDouble);
    const auto* first = noise.data_ptr<double>();
    return {noise, {first, first + noise.numel()}};
  }
  std::optional<size_t> size() const override {
    return 10;
  }
};

} // namespace

namespace {

/// `tensor_of` of the batches of one pass, from a seed, and a number drawn after.
template <typename Loader, typename Of>
std::vector<torch::Tensor> tensors_of_pass(Loader& loader, const Of& tensor_of) {
  torch::manual_seed(4);
  std::vector<torch::Tensor> tensors;
  for (auto& batch : loader) {
    tensors.push_back(tensor_of(batch));
  }
  tensors.push_back(torch::rand({2}));
  return tensors;
}

/// Every process has whole batches, those of one device.
template <typename Data, typename Of>
void expect_whole_batches(const Data& data, const Of& tensor_of) {
  auto theirs = torch::data::make_data_loader<SequentialSampler>(data, 5);
  const auto expected = tensors_of_pass(*theirs, tensor_of);
  auto ours = accel::data::make_data_loader<SequentialSampler>(data, 5);
  const auto seen = tensors_of_pass(*ours, tensor_of);
  ASSERT_EQ(seen.size(), 3U);
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_FALSE(accel::distributed::is_distributed(seen[i]));
    EXPECT_TRUE(torch::equal(seen[i], expected[i])) << "batch " << i;
  }
}

} // namespace

ACCEL_RANK_FUNCTION(loader_keeps_batch_types) {
  Accelerator accelerator(match());
  expect_whole_batches(Tuples(), [](const auto& batch) {
    const auto& [tensor, list] = batch;
    EXPECT_TRUE(torch::equal(tensor, torch::tensor(list, torch::kDouble)));
    return tensor;
  });
  for (const bool draws : {false, true}) {
    OpaqueBatches opaque;
    opaque.draws = draws;
    expect_whole_batches(opaque, [](const auto& batch) { return batch.data; });
  }
}

TEST(DataLoader, OtherBatchTypesStayWhole) {
  for (const int world : {2, 3}) {
    accel::test::run_and_expect_success("loader_keeps_batch_types", world);
  }
}

// Accelerate's way of sharing; the index rules are test/conformance's subject.

ACCEL_RANK_FUNCTION(loader_shuffles_alike) {
  Accelerator accelerator;
  const auto rank = accelerator.state().process_index();
  const auto world = accelerator.state().num_processes();
  torch::manual_seed(100 + rank);
  auto loader = accel::data::make_data_loader<RandomSampler>(
      stacked(Numbers(36)), 3);
  std::vector<int64_t> previous;
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<int64_t> mine;
    for (auto& batch : *loader) {
      const auto part = ids(batch);
      mine.insert(mine.end(), part.begin(), part.end());
    }
    EXPECT_NE(mine, previous);
    previous = mine;
    const auto all = accel::detail::communicator().all_gather(
        torch::tensor(mine, torch::kLong));
    EXPECT_TRUE(torch::equal(
        std::get<0>(torch::cat(all).sort()), torch::arange(36)));
  }
  EXPECT_EQ(previous.size(), 36u / world);
}

TEST(DataLoader, ShufflesAlikeWithDifferentSeeds) {
  for (const int world : {2, 3}) {
    accel::test::run_and_expect_success("loader_shuffles_alike", world);
  }
}

ACCEL_RANK_FUNCTION(loader_refuses_drawing_samplers) {
  Accelerator accelerator;
  auto loader = accel::data::make_data_loader(
      stacked(Numbers(10)), WithReplacement(10), 4);
  EXPECT_THROW(collect(*loader), c10::Error);
}

TEST(DataLoader, RefusesSamplersThatWouldPart) {
  accel::test::run_and_expect_success("loader_refuses_drawing_samplers", 2);
}

// ---- Samplers that give each process other indices.

namespace {

void train_on(Accelerator& accelerator, int64_t replicas, int64_t rank) {
  torch::nn::Linear net(1, 1);
  accelerator.prepare(net);
  auto loader = accel::data::make_data_loader(
      stacked(Numbers(24)),
      torch::data::samplers::DistributedRandomSampler(24, replicas, rank),
      6);
  for (auto& batch : *loader) {
    auto step = accelerator.accumulate(net);
    accelerator.backward(
        net->forward(batch.data.to(torch::kFloat).view({-1, 1})).pow(2).mean());
  }
}

} // namespace

ACCEL_RANK_FUNCTION(loader_of_other_indices) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  train_on(accelerator, accelerator.num_processes(), accelerator.process_index());
}
ACCEL_RANK_FUNCTION(loader_of_the_same_indices) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  train_on(accelerator, 1, 0);
}
ACCEL_RANK_FUNCTION(loader_that_deals_out_twice) {
  Accelerator accelerator;
  train_on(accelerator, accelerator.num_processes(), accelerator.process_index());
}

TEST(DataLoader, SamplersThatDealOutThemselvesAreAnError) {
  for (const auto& result : accel::test::run("loader_of_other_indices", 2)) {
    EXPECT_FALSE(result.success());
    EXPECT_NE(result.error.find("have drawn different batches"), std::string::npos)
        << result.error;
  }
  for (const auto& result : accel::test::run("loader_that_deals_out_twice", 2)) {
    EXPECT_FALSE(result.success());
    EXPECT_NE(result.error.find("would be shared out once more"), std::string::npos)
        << result.error;
  }
  accel::test::run_and_expect_success("loader_of_the_same_indices", 2);
}

ACCEL_RANK_FUNCTION(loaders_of_no_batch_size) {
  for (const bool dispatch : {false, true}) {
    Accelerator accelerator(
        AcceleratorOptions().cpu(true).dispatch_batches(dispatch));
    const auto error = accel::test::error_of(
        [] { accel::data::make_data_loader(stacked(Numbers(4)), 0); });
    EXPECT_TRUE(accel::test::contains(error, "the batch size 0")) << error;
  }
}

TEST(DataLoader, ABatchSizeOfZeroIsAnError) {
  for (const int world : {1, 2}) {
    accel::test::run_and_expect_success("loaders_of_no_batch_size", world);
  }
}

namespace {

/// What `num_batches` says before a pass, in its middle and behind it is what the pass
/// gives, and nothing is drawn for it.
template <typename Loader>
void expect_counted(Accelerator& accelerator, Loader& loader) {
  const auto before = generator_state();
  const auto said = accelerator.num_batches(*loader);
  EXPECT_TRUE(before.equal(generator_state()));
  int64_t given = 0;
  for (auto& batch : *loader) {
    (void)batch;
    ++given;
    EXPECT_EQ(accelerator.num_batches(*loader), said);
  }
  EXPECT_EQ(said, std::make_optional(given));
  EXPECT_EQ(accelerator.num_batches(*loader), said);
}

} // namespace

ACCEL_RANK_FUNCTION(loaders_that_are_counted) {
  const auto options = [] { return AcceleratorOptions().cpu(true); };
  for (const auto& way :
       {options(), options().split_batches(true), options().even_batches(false),
        options().dispatch_batches(true),
        options().dispatch_batches(true).split_batches(true),
        options().match_single_device(true),
        options().match_single_device(true).split_batches(false)}) {
    Accelerator accelerator(way);
    for (const size_t samples : {1, 12, 13, 29, 36}) {
      for (const bool drop_last : {false, true}) {
        const auto of = DataLoaderOptions(6).drop_last(drop_last);
        auto shuffled = accel::data::make_data_loader(stacked(Numbers(samples)), of);
        expect_counted(accelerator, shuffled);
        // The sampler's samples count, not the data set's.
        auto some = accel::data::make_data_loader(
            stacked(Numbers(40)), SequentialSampler(samples), of);
        expect_counted(accelerator, some);
        auto seeded = accel::data::make_data_loader(
            stacked(Numbers(samples)),
            accel::data::SeedableRandomSampler(samples, 3), of);
        expect_counted(accelerator, seeded);
      }
    }
  }
  {
    // Of a sampler of one's own only a pass can tell.
    Accelerator accelerator(match());
    auto own = accel::data::make_data_loader(
        stacked(Numbers(8)), WithReplacement(8), 2);
    EXPECT_EQ(accelerator.num_batches(*own), std::nullopt);
    auto theirs = torch::data::make_data_loader(stacked(Numbers(8)), 2);
    EXPECT_TRUE(accel::test::contains(
        accel::test::error_of([&] { accelerator.num_batches(*theirs); }),
        "accel::data::make_data_loader"));
  }
}

TEST(DataLoader, SaysHowManyBatchesAPassHas) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("loaders_that_are_counted", world);
  }
}
