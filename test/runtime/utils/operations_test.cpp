// Operations over what holds tensors, and process control, with real processes.

#include "expectations.h"
#include "multiprocess.h"
#include "support.h"

#include <accel/accel.h>
#include <accel/optim/schedulers.h>

#include <torch/torch.h>

#include <fstream>

using accel::test::run_and_expect_success;

namespace {

struct Sample {
  Sample(torch::Tensor image, torch::Tensor label)
      : image(std::move(image)), label(std::move(label)) {}
  torch::Tensor image;
  torch::Tensor label;
};

/// Without a `TensorsOf` of its own.
struct Graph {
  torch::Tensor nodes, edges;
  std::optional<torch::Tensor> weights;
  std::map<std::string, Sample> samples;
  std::vector<std::string> names;
  int64_t count = 0;
};

} // namespace

namespace accel {

template <>
struct TensorsOf<Sample> {
  template <typename F>
  static Sample map(const Sample& sample, F&& f) {
    auto image = f(sample.image);
    return {image, f(sample.label)};
  }
};

} // namespace accel

ACCEL_RANK_FUNCTION(operates_on_what_holds_tensors) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  const auto rank = accelerator.process_index();
  const auto one = torch::full({1}, rank, torch::kLong);
  const auto both = torch::tensor({0, 1}, torch::kLong);

  const auto list = accelerator.gather(std::vector<torch::Tensor>{one, one + 1});
  ASSERT_EQ(list.size(), 2u);
  EXPECT_TRUE(list[0].equal(both));
  EXPECT_TRUE(list[1].equal(both + 1));
  // A hash table's order may differ between processes; the keys' does not.
  std::unordered_map<std::string, torch::Tensor> table;
  for (int i = 0; i < 20; ++i) {
    const int n = rank == 0 ? i : 19 - i;
    table.emplace("key" + std::to_string(n), one + 10 * n);
  }
  for (const auto& [key, tensor] : accelerator.gather(table)) {
    EXPECT_TRUE(tensor.equal(both + 10 * std::stoi(key.substr(3)))) << key;
  }
  const auto tuple = accelerator.reduce(std::make_tuple(
      one, std::map<std::string, torch::Tensor>{{"a", one * 2}}));
  EXPECT_EQ(std::get<0>(tuple).item<int64_t>(), 1);
  EXPECT_EQ(std::get<1>(tuple).at("a").item<int64_t>(), 2);
  const auto sample =
      accelerator.gather_for_metrics(Sample{one.unsqueeze(1), one});
  EXPECT_TRUE(sample.image.equal(both.unsqueeze(1)));
  EXPECT_TRUE(sample.label.equal(both));
  const auto example = accelerator.broadcast(
      torch::data::Example<>(one.clone(), one.clone() + 5), 1);
  EXPECT_EQ(example.data.item<int64_t>(), 1);
  EXPECT_EQ(example.target.item<int64_t>(), 6);
  const auto padded = accelerator.pad_across_processes(
      std::optional<torch::Tensor>(torch::ones({rank + 1})), 0, -1);
  EXPECT_TRUE(padded->equal(
      rank == 0 ? torch::tensor({1.f, -1.f}) : torch::tensor({1.f, 1.f})));
  EXPECT_TRUE(accelerator.send_to_device(Sample{one, one}).label.is_cpu());

  EXPECT_EQ(
      accelerator.gather_object(std::vector<int>(rank == 0 ? 0 : 3, 7)),
      (std::vector<int>{7, 7, 7}));
  EXPECT_EQ(
      accelerator.gather_object(
          std::vector<std::string>{"a", std::string(rank, 'x')}),
      (std::vector<std::string>{"a", "", "a", "x"}));
}

// The bytes of one type are no objects of another.
ACCEL_RANK_FUNCTION(operates_on_other_types) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  const bool first = accelerator.process_index() == 0;
  const auto expect_both_named = [](const std::string& operation,
                                    const std::string& error) {
    EXPECT_NE(error.find(operation), error.npos) << error;
    EXPECT_NE(error.find("the type long on process 0"), error.npos) << error;
    EXPECT_NE(error.find("the type double on process 1"), error.npos) << error;
  };
  expect_both_named("gather_object", accel::test::error_of([&] {
    first ? (void)accelerator.gather_object(std::vector<long>{1})
          : (void)accelerator.gather_object(std::vector<double>{1});
  }));
  // As large as each other, so that nothing but the type differs.
  expect_both_named("broadcast_object", accel::test::error_of([&] {
    first ? (void)accelerator.broadcast_object(1L)
          : (void)accelerator.broadcast_object(1.0);
  }));
  // The processes are in step behind it.
  EXPECT_EQ(
      accelerator.gather_object(std::vector<int>{first ? 1 : 2}),
      (std::vector<int>{1, 2}));
}

TEST(Operations, OnOtherTypesAreAnErrorOfAll) {
  run_and_expect_success("operates_on_other_types", 2);
}

ACCEL_RANK_FUNCTION(operates_on_sparse_tensors) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  const auto sparse = torch::eye(2).to_sparse();
  const auto expect_refused = [](const std::string& operation,
                                 const std::string& error) {
    EXPECT_NE(error.find(operation + " was given a tensor of the layout Sparse"), error.npos)
        << error;
    EXPECT_NE(error.find("to_dense()"), error.npos) << error;
  };
  expect_refused(
      "gather", accel::test::error_of([&] { accelerator.gather(sparse); }));
  expect_refused(
      "reduce", accel::test::error_of([&] { accelerator.reduce(sparse); }));
  expect_refused(
      "broadcast", accel::test::error_of([&] { accelerator.broadcast(sparse); }));
}

TEST(Operations, SparseTensorsAreRefusedByName) {
  run_and_expect_success("operates_on_sparse_tensors", 2);
}

ACCEL_RANK_FUNCTION(operates_on_structs) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  const auto rank = accelerator.process_index();
  const auto one = torch::full({1}, rank, torch::kLong);
  const auto both = torch::tensor({0, 1}, torch::kLong);
  const auto all = accelerator.gather(
      Graph{one, one + 1, one + 2, {{"a", {one + 3, one + 4}}}, {"b"}, 7});
  EXPECT_TRUE(all.nodes.equal(both));
  EXPECT_TRUE(all.edges.equal(both + 1));
  ASSERT_TRUE(all.weights.has_value());
  EXPECT_TRUE(all.weights->equal(both + 2));
  EXPECT_TRUE(all.samples.at("a").image.equal(both + 3));
  EXPECT_TRUE(all.samples.at("a").label.equal(both + 4));
  EXPECT_EQ(all.names, std::vector<std::string>{"b"});
  EXPECT_EQ(all.count, 7);

  const auto rows = torch::arange(6, torch::kDouble);
  const Graph whole{rows, rows.slice(0, 0, 1), {}, {}, {}, 6};
  const auto cut = accelerator.distribute(whole);
  EXPECT_TRUE(accel::distributed::is_distributed(cut.nodes));
  EXPECT_FALSE(accel::distributed::is_distributed(cut.edges));
  EXPECT_TRUE(accelerator.full(cut).nodes.equal(rows));
  EXPECT_TRUE(whole.nodes.equal(rows)); // What is given stays.
}

TEST(Operations, OnStructs) {
  run_and_expect_success("operates_on_structs", 2);
}

namespace {
// What has no members that are known, or none that are tensors.
struct OfNumbers {
  int a, b;
};
struct WithArray {
  int sizes[3];
  torch::Tensor data;
};
struct WithBase : OfNumbers {
  torch::Tensor data;
};
struct WithReference {
  torch::Tensor& data;
};
class WithPrivate {
 public:
  torch::Tensor data;

 private:
  int count_ = 0;
};
struct WithConst {
  const torch::Tensor data;
};
struct MovedOnly {
  torch::Tensor data;
  std::unique_ptr<int> owned;
};
struct Node {
  torch::Tensor value;
  std::vector<Node> children;
};
struct Seventeen {
  torch::Tensor a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q;
};
static_assert(!accel::has_tensors<OfNumbers>::value);
static_assert(!accel::has_tensors<WithArray>::value);
static_assert(!accel::has_tensors<WithBase>::value);
static_assert(!accel::has_tensors<WithReference>::value);
static_assert(!accel::has_tensors<WithPrivate>::value);
static_assert(!accel::has_tensors<WithConst>::value);
static_assert(!accel::has_tensors<MovedOnly>::value);
static_assert(!accel::has_tensors<Node>::value);
static_assert(!accel::has_tensors<Seventeen>::value);

// And what has.
struct Sixteen {
  torch::Tensor a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
};
struct Nested {
  struct {
    torch::Tensor data;
    int sizes[1];
  } inner;
  std::array<int, 3> sizes;
  bool valid = true;
};
template <typename T>
struct Generic {
  T value;
  std::function<void()> done;
};
static_assert(accel::has_tensors<Graph>::value);
static_assert(accel::has_tensors<Sixteen>::value);
static_assert(accel::has_tensors<Nested>::value);
static_assert(accel::has_tensors<Generic<Graph>>::value);
static_assert(!accel::has_tensors<Generic<OfNumbers>>::value);
static_assert(accel::has_tensors<std::vector<Graph>>::value);
} // namespace

TEST(Operations, OnWhatHoldsTensors) {
  run_and_expect_success("operates_on_what_holds_tensors", 2);
}

ACCEL_RANK_FUNCTION(controls_processes) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  const auto rank = accelerator.process_index();
  const auto index = [&] { return rank; };
  EXPECT_EQ(accelerator.on_main_process(index).has_value(), rank == 0);
  EXPECT_EQ(accelerator.on_last_process(index).has_value(), rank == 1);
  EXPECT_EQ(accelerator.on_process(1, index).value_or(-1), rank == 1 ? 1 : -1);
  EXPECT_EQ(accelerator.on_local_main_process(index).has_value(), rank == 0);
  EXPECT_EQ(accelerator.on_local_process(1, index).has_value(), rank == 1);

  EXPECT_FALSE(accelerator.check_trigger());
  if (rank == 1) {
    accelerator.set_trigger();
  }
  EXPECT_TRUE(accelerator.check_trigger());
  EXPECT_FALSE(accelerator.check_trigger());

  const std::string path = std::getenv("ACCEL_TEST_FILE");
  {
    auto first = accelerator.main_process_first();
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      std::ofstream(path) << "made";
    }
    EXPECT_EQ(test::read_file(path), "made");
  }
  // The others go on when the first one's work fails.
  try {
    auto first = accelerator.local_main_process_first();
    TORCH_CHECK(rank != 0, "failed");
  } catch (const c10::Error&) {
    EXPECT_EQ(rank, 0);
  }
  accelerator.wait_for_everyone();
}

TEST(Operations, ProcessControl) {
  const test::TemporaryDirectory directory;
  accel::test::RunOptions options;
  options.environment["ACCEL_TEST_FILE"] = (directory.path() / "file").string();
  run_and_expect_success("controls_processes", 2, options);
}

TEST(Operations, SchedulersOfAllKindsAreSavedOnce) {
  const test::TemporaryDirectory directory;
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  torch::nn::Linear model(1, 1);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      model->parameters(), torch::optim::SGDOptions(1.0));
  using namespace accel::optim;
  auto exponential = std::make_shared<ExponentialLR>(optimizer, 0.5);
  auto constant = std::make_shared<ConstantLR>(optimizer, 0.5, 4);
  SequentialLR sequential(optimizer, {exponential, constant}, {2});
  accel::AcceleratedScheduler<StepLR> step(optimizer, 2, 0.1);
  ReduceLROnPlateau plateau(optimizer, ReduceLROnPlateauOptions().patience(0));
  accelerator.prepare(model, optimizer, sequential, step);
  EXPECT_EQ(accel::detail::living_schedulers().size(), 3u);
  const auto advance = [&] {
    sequential.step();
    step.step();
    plateau.step(1);
    return optimizer.param_groups()[0].options().get_lr();
  };
  advance();
  accelerator.save_state((directory.path() / "state").string());
  std::vector<double> expected;
  for (int i = 0; i < 4; ++i) {
    expected.push_back(advance());
  }
  accelerator.load_state((directory.path() / "state").string());
  for (const double lr : expected) {
    EXPECT_EQ(advance(), lr);
  }
  torch::optim::StepLR plain(optimizer, 1, 0.5);
  accelerator.prepare(plain);
  EXPECT_THROWS_WITH(
      accelerator.save_state((directory.path() / "no").string()),
      "AcceleratedScheduler");
}

TEST(Operations, OptionsOfTheGradScalerAreChecked) {
  EXPECT_THROWS_WITH(
      accel::resolve(accel::AcceleratorOptions().grad_scaler(
          accel::GradScalerOptions().growth_factor(0.5))),
      "growth_factor 0.5");
}

TEST(Tensors, OfAnyStructure) {
  using Batch = std::map<std::string, torch::Tensor>;
  const Batch a{{"x", torch::arange(6).view({3, 2})}, {"y", torch::arange(3)}};
  const Batch b{{"x", torch::ones({1, 2}, torch::kLong)},
                {"y", torch::full({1}, 9, torch::kLong)}};
  EXPECT_EQ(accel::find_batch_size(a), 3);
  EXPECT_EQ(accel::find_device(a), torch::Device(torch::kCPU));
  EXPECT_EQ(accel::find_device(std::vector<torch::Tensor>()), std::nullopt);
  const auto all = accel::concatenate(std::vector<Batch>{a, b});
  EXPECT_TRUE(all.at("y").equal(torch::tensor({0, 1, 2, 9})));
  EXPECT_EQ(all.at("x").sizes(), (std::vector<int64_t>{4, 2}));
  const auto part = accel::slice_tensors(all, 1, -1);
  EXPECT_TRUE(part.at("y").equal(torch::tensor({1, 2})));
  const auto floats = accel::convert_to_fp32(std::make_pair(
      torch::ones(1, torch::kBFloat16), torch::ones(1, torch::kDouble)));
  EXPECT_EQ(floats.first.scalar_type(), torch::kFloat);
  EXPECT_EQ(floats.second.scalar_type(), torch::kDouble);
  EXPECT_THROWS_WITH(
      accel::find_batch_size(std::vector<torch::Tensor>()), "without tensors");
  EXPECT_THROWS_WITH(
      accel::find_batch_size(torch::tensor(1)), "has no rows");
  EXPECT_THROWS_WITH(
      accel::concatenate(std::vector<std::vector<torch::Tensor>>{
          {torch::ones(1)}, {}}),
      "with 1 and with 0 tensors");
  EXPECT_THROWS_WITH(
      accel::concatenate(std::vector<torch::Tensor>()), "no values");
}
