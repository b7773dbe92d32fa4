// Examples for the reference of data loaders.

#include <accel/accel.h>
#include <accel/data/seedable_random_sampler.h>
#include <torch/torch.h>

#include <optional>
#include <sstream>
#include <vector>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t index) override {
    return {torch::full({4}, double(index)), torch::zeros({1})};
  }
  torch::optional<size_t> size() const override {
    return 256;
  }
};

// @example accel::data accel::data::SeedableRandomSampler
void loaders() {
  auto data = Points().map(torch::data::transforms::Stack<>());
  auto shuffled = accel::data::make_data_loader(data, 64);
  auto in_order =
      accel::data::make_data_loader<torch::data::samplers::SequentialSampler>(data, 64);
  accel::data::SeedableRandomSampler sampler(256, /*seed=*/42);
  sampler.set_epoch(3);
  auto reproducible = accel::data::make_data_loader(data, sampler, 64);
  TORCH_CHECK(sampler.epoch() == 3);
}

// @example accel::data::SeedableRandomSampler
void order_of_a_pass() {
  accel::data::SeedableRandomSampler sampler(256, 42);
  sampler.reset();
  while (auto indices = sampler.next(64)) {
    TORCH_CHECK(indices->size() == 64);
  }
  torch::serialize::OutputArchive saved;
  sampler.save(saved);
  std::stringstream stream;
  saved.save_to(stream);
  torch::serialize::InputArchive loaded;
  loaded.load_from(stream);
  sampler.load(loaded);
}

// @example accel::data::BatchSamplerShard accel::data::IterableDatasetShard accel::data::ShardingOptions accel::data::ShardingOptions::Axis
void shares(int64_t rank) {
  accel::data::ShardingOptions sharding;
  sharding.rank = rank;
  sharding.world = 2;
  sharding.match_single_device = false;
  sharding.split_batches = false;
  sharding.even_batches = true;
  sharding.dispatch_batches = false;
  sharding.load_whole_batches = false;
  sharding.join_uneven = false;
  TORCH_CHECK(sharding.batches_in_one() == 1);

  accel::data::ShardingOptions::Axis axis;
  axis.size = 2;
  axis.of_data = true;
  axis.of_positions = false;
  sharding.mesh = {axis};
  TORCH_CHECK(sharding.data_groups() == 2 && sharding.rows(/*n=*/5, /*process=*/0).rows == 3);
  TORCH_CHECK(sharding.cuts(5) && !sharding.cuts(1));
  sharding.mesh.clear();

  using Indices = std::vector<size_t>;
  accel::data::BatchSamplerShard<Indices> shard(sharding, /*batch_size=*/4, /*drop_last=*/false);
  torch::data::samplers::SequentialSampler sampler(10);
  while (auto batch = shard.next([&] { return sampler.next(4); })) {
    TORCH_CHECK(batch->size() == 4);
  }
  TORCH_CHECK(shard.samples() == 10);
  TORCH_CHECK(accel::data::BatchSamplerShard<Indices>::batches(10, sharding, 4, false) == 2);
  TORCH_CHECK(!shard.ghost() && !shard.uneven());

  accel::data::IterableDatasetShard<int> stream_shard(sharding, 4, false);
  int number = 0;
  while (auto mine = stream_shard.next(
             [&]() -> std::optional<int> { return number < 10 ? std::optional(number++) : std::nullopt; })) {
    TORCH_CHECK(*mine < 10);
  }
}

// A batch type of one's own.
struct Images {
  torch::Tensor image;
  int64_t length = 0;
};

// @example accel::data::BatchCodec accel::data::BatchWriter accel::data::BatchReader
template <>
struct accel::data::BatchCodec<Images> {
  static void write(BatchWriter& to, const Images& batch) {
    to.tensor(batch.image);
    to.number(batch.length);
    to.bytes("end", 3);
  }
  static Images read(BatchReader& from) {
    Images batch{from.tensor(), from.number()};
    char end[3];
    from.bytes(end, 3);
    return batch;
  }
};

void there_and_back(const Images& batch) {
  accel::data::BatchWriter writer(accel::data::BatchWriter::Keep::kAll);
  accel::data::BatchCodec<Images>::write(writer, batch);
  auto bytes = torch::from_blob(
      const_cast<char*>(writer.text().data()), {int64_t(writer.text().size())}, torch::kByte);
  accel::data::BatchReader reader(bytes, torch::kCPU);
  TORCH_CHECK(accel::data::BatchCodec<Images>::read(reader).length == batch.length);
  TORCH_CHECK(writer.fingerprint() != 0);
}

// @example accel::data::has_codec
static_assert(accel::data::has_codec<torch::Tensor>::value);

// @example accel::data::RowsOf accel::data::has_rows
template <>
struct accel::data::RowsOf<Images> {
  static Images take(const Images& batch, int64_t offset, int64_t rows, int64_t) {
    return {batch.image.slice(0, offset, offset + rows), batch.length};
  }
};
static_assert(accel::data::has_rows<Images>::value);

// @example accel::TensorsOf accel::has_tensors accel::if_holds_tensors
template <>
struct accel::TensorsOf<Images> {
  template <typename F>
  static Images map(const Images& batch, F&& f) {
    return {f(batch.image), batch.length};
  }
};
static_assert(accel::has_tensors<Images>::value);

template <typename T, accel::if_holds_tensors<T> = 0>
T doubled(const T& value) {
  return accel::map_tensors(value, [](const torch::Tensor& x) { return x * 2; });
}

Images twice(const Images& batch) {
  return doubled(batch);
}

// @example accel::data::loads_rows accel::data::transforms_rows accel::data::has_batch_size
struct MyStack : torch::data::transforms::Collation<torch::data::Example<>> {
  torch::data::Example<> apply_batch(std::vector<torch::data::Example<>> examples) override {
    return torch::data::transforms::Stack<>().apply_batch(std::move(examples));
  }
};
template <>
struct accel::data::transforms_rows<MyStack> : std::true_type {};

struct InBatches : torch::data::datasets::BatchDataset<InBatches, torch::Tensor> {
  torch::Tensor get_batch(torch::ArrayRef<size_t> indices) override {
    return torch::zeros({int64_t(indices.size()), 4});
  }
  torch::optional<size_t> size() const override {
    return 256;
  }
};
template <>
struct accel::data::loads_rows<InBatches> : std::true_type {};
template <>
struct accel::data::has_batch_size<InBatches> : std::true_type {};
