#include "support.h"

#include <accel/checkpoint/model_files.h>

#include <nlohmann/json.hpp>

namespace accel::checkpoint::test {
namespace {

using Names = std::vector<std::string>;

at::Tensor golden_tensor(const std::string& key) {
  const auto expected =
      nlohmann::json::parse(read_file(golden("expected.json")));
  const auto rows = expected.at(key).get<std::vector<std::vector<double>>>();
  std::vector<at::Tensor> tensors;
  for (const auto& row : rows) {
    tensors.push_back(torch::tensor(row, torch::kFloat));
  }
  return torch::stack(tensors);
}

/// Two layers of which the second can be tied to the first.
struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(bool tied) {
    register_module("first", first);
    if (tied) {
      second->tie(first->weight);
    }
    register_module("second", second);
  }
  struct Layer : torch::nn::Module {
    Layer() {
      weight = register_parameter("weight", torch::randn({4, 4}));
      bias = register_parameter("bias", torch::randn({4}));
    }
    void tie(const at::Tensor& other) {
      parameters_["weight"] = weight = other;
    }
    at::Tensor weight, bias;
  };
  std::shared_ptr<Layer> first = std::make_shared<Layer>();
  std::shared_ptr<Layer> second = std::make_shared<Layer>();
};
TORCH_MODULE(Tied);

/// A dictionary of byte tensors of the given sizes.
StateDict of_sizes(const std::vector<int64_t>& sizes) {
  StateDict result;
  for (size_t i = 0; i < sizes.size(); ++i) {
    result.insert(
        "t" + std::to_string(i), torch::zeros({sizes[i]}, torch::kByte));
  }
  return result;
}

std::vector<std::vector<int64_t>> shard_sizes(
    const std::vector<int64_t>& sizes, uint64_t limit) {
  std::vector<std::vector<int64_t>> result;
  const auto tensors = of_sizes(sizes);
  for (const auto& shard : plan_shards(tensors, limit)) {
    result.emplace_back();
    for (const auto& name : shard.names) {
      result.back().push_back(tensors[name].numel());
    }
  }
  return result;
}

TEST(StateDict, NamesAndOrderArePythons) {
  auto inner =
      torch::nn::Sequential(torch::nn::BatchNorm1d(2), torch::nn::Linear(2, 2));
  // LibTorch's Sequential takes no Sequential.
  struct Pair : torch::nn::Module {
    explicit Pair(const torch::nn::Sequential& inner) {
      register_module("0", inner);
      register_module("1", torch::nn::Linear(2, 1));
    }
  };
  const auto model = std::make_shared<Pair>(inner);
  Names names;
  for (const auto& item : state_dict(*model)) {
    names.push_back(item.key());
  }
  EXPECT_EQ(
      names,
      (Names{
          "0.0.weight",
          "0.0.bias",
          "0.0.running_mean",
          "0.0.running_var",
          "0.0.num_batches_tracked",
          "0.1.weight",
          "0.1.bias",
          "1.weight",
          "1.bias"}));
  EXPECT_TRUE(state_dict(*model)["1.bias"].is_same(model->parameters().back()));
}

TEST(StateDict, LeavesOutWhatHasNoValue) {
  const TemporaryDirectory directory;
  torch::nn::Sequential model(
      torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(false)),
      torch::nn::InstanceNorm1d(torch::nn::InstanceNormOptions(2)));
  Names names;
  for (const auto& item : state_dict(*model)) {
    names.push_back(item.key());
  }
  EXPECT_EQ(names, (Names{"0.weight"}));
  save_model(*model, directory / "model");
  const auto before = model->parameters()[0].clone();
  torch::nn::init::zeros_(model->parameters()[0]);
  load_model(*model, directory / "model");
  EXPECT_TRUE(identical(model->parameters()[0], before));
}

TEST(StateDict, LoadingChecksEverythingFirst) {
  auto model = golden_model();
  auto state = state_dict(*model);
  const auto before = model->parameters()[0].detach().clone();
  StateDict other;
  for (const auto& item : state) {
    if (item.key() == "3.bias") {
      continue;
    }
    other.insert(item.key(), item.value().detach() + 1);
  }
  other["3.weight"] = torch::zeros({3, 41});
  other["0.bias"] = torch::zeros({40}, torch::kDouble);
  other.insert("extra", torch::zeros({1}));
  const auto message = error_of([&] { load_state_dict(*model, other); });
  for (const char* part :
       {"Missing:\n  '3.bias'",
        "Unexpected:\n  'extra'",
        "'3.weight': the module's is Float [3, 40], the loaded one Float [3, "
        "41]",
        "'0.bias': the module's is Float [40], the loaded one Double [40]",
        "nothing was loaded"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << message;
  }
  EXPECT_TRUE(identical(model->parameters()[0], before));

  other["3.weight"] = torch::zeros({3, 40});
  EXPECT_ERROR(
      load_state_dict(*model, other, LoadOptions().strict(false)), "Double");
  const auto keys = load_state_dict(
      *model, other, LoadOptions().strict(false).convert_dtype(true));
  EXPECT_EQ(keys.missing, Names{"3.bias"});
  EXPECT_EQ(keys.unexpected, Names{"extra"});
  EXPECT_TRUE(identical(model->parameters()[0], before + 1));
  EXPECT_TRUE(identical(state["0.bias"], torch::zeros({40})));
}

TEST(StateDict, TiedWeightsAreSavedOnceAndLoadedFromEitherName) {
  const TemporaryDirectory directory;
  Tied model(true);
  EXPECT_EQ(state_dict(*model).size(), 4u);
  const auto saved = without_shared(state_dict(*model));
  EXPECT_EQ(saved.keys(), (Names{"first.weight", "first.bias", "second.bias"}));
  save_model(*model, directory.path());

  Tied loaded(true);
  const auto keys = load_model(*loaded, directory.path());
  EXPECT_TRUE(keys.missing.empty());
  EXPECT_TRUE(identical(loaded->second->weight, model->first->weight));
  // Another writer may have kept the other name.
  StateDict renamed;
  renamed.insert("second.weight", torch::ones({4, 4}));
  renamed.insert("first.bias", torch::ones({4}));
  renamed.insert("second.bias", torch::ones({4}));
  load_state_dict(*loaded, renamed);
  EXPECT_TRUE(identical(loaded->first->weight, torch::ones({4, 4})));
  // Both names with different values cannot both be right.
  renamed.insert("first.weight", torch::zeros({4, 4}));
  EXPECT_ERROR(load_state_dict(*loaded, renamed), "different values");
  renamed["first.weight"] = torch::ones({4, 4});
  load_state_dict(*loaded, renamed);
  // A model that is not tied needs both.
  Tied untied(false);
  EXPECT_ERROR(
      load_model(*untied, directory.path()), "Missing:\n  'second.weight'");
}

TEST(StateDict, PartialOverlapIsAnError) {
  const auto base = torch::zeros({10});
  StateDict tensors;
  tensors.insert("a", base.slice(0, 0, 6));
  tensors.insert("b", base.slice(0, 4));
  EXPECT_ERROR(without_shared(tensors), "'a' and 'b' overlap");
}

TEST(Model, LoadsWhatAccelerateSavedAndComputesTheSame) {
  for (const std::string path :
       {"model_whole",
        "model_whole/model.safetensors",
        "model_sharded",
        "model_sharded/model.safetensors.index.json",
        "checkpoints/checkpoint_2"}) {
    auto model = golden_model();
    load_model(*model, golden(path));
    model->eval();
    const auto output = model->forward(golden_tensor("input"));
    EXPECT_TRUE(torch::allclose(
        output, golden_tensor("output"), /*rtol=*/1e-6, /*atol=*/1e-6))
        << path;
  }
}

TEST(Model, SavesTheFilesThatAccelerateSaves) {
  const TemporaryDirectory directory;
  auto model = golden_model();
  load_checkpoint_in_model(*model, golden("model_whole"));
  save_model(*model, directory / "whole");
  save_model(*model, directory / "sharded", "1KB");
  for (const auto& [ours, theirs] :
       {std::pair("whole", "model_whole"),
        std::pair("sharded", "model_sharded")}) {
    size_t count = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(golden(theirs))) {
      const auto name = entry.path().filename().string();
      EXPECT_EQ(
          read_file(directory / (std::string(ours) + "/" + name)),
          read_file(entry.path().string()))
          << name;
      ++count;
    }
    const auto begin =
        std::filesystem::directory_iterator(directory / std::string(ours));
    EXPECT_EQ(static_cast<size_t>(std::distance(begin, {})), count) << ours;
  }
}

TEST(Model, ShardsGreedilyAndInOrder) {
  using Sizes = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(
      shard_sizes({6, 6, 2, 6, 2, 2}, 10), (Sizes{{6}, {6, 2}, {6, 2, 2}}));
  // A tensor that is too large comes before the shard that is still open.
  EXPECT_EQ(shard_sizes({3, 20, 4, 5}, 10), (Sizes{{20}, {3, 4}, {5}}));
  EXPECT_EQ(shard_sizes({10, 10}, 10), (Sizes{{10}, {10}}));
  EXPECT_EQ(shard_sizes({4, 6}, 10), (Sizes{{4, 6}}));
  EXPECT_EQ(shard_sizes({11}, 10), (Sizes{{11}}));
  EXPECT_EQ(shard_sizes({}, 10), (Sizes{{}}));
  EXPECT_EQ(shard_sizes({0, 10, 0}, 10), (Sizes{{0, 10, 0}}));
  const auto shards = plan_shards(of_sizes({10, 10, 1}), 10, "model_1");
  ASSERT_EQ(shards.size(), 3u);
  EXPECT_EQ(shards[1].file, "model_1-00002-of-00003.safetensors");
  EXPECT_EQ(shards[1].size, 10u);
  EXPECT_EQ(plan_shards(of_sizes({10}), 10)[0].file, "model.safetensors");
  EXPECT_ERROR(plan_shards(of_sizes({1}), 0), "must not be 0");
}

TEST(Model, TiedExampleOfTheReference) {
  // Four Linear(10, 10), the last weight tied to the first, at most 1 KB.
  torch::nn::Sequential model;
  for (int i = 0; i < 4; ++i) {
    model->push_back(torch::nn::Linear(10, 10));
  }
  StateDict tensors = state_dict(*model);
  tensors["3.weight"] = tensors["0.weight"];
  const auto shards = plan_shards(without_shared(tensors), parse_size("1KB"));
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(
      shards[0].names, (Names{"0.weight", "0.bias", "1.weight", "1.bias"}));
  EXPECT_EQ(shards[0].size, 880u);
  EXPECT_EQ(shards[1].names, (Names{"2.weight", "2.bias", "3.bias"}));
  EXPECT_EQ(shards[0].size + shards[1].size, 1360u);
}

TEST(Model, RemovesWhatAnEarlierSaveLeft) {
  const TemporaryDirectory directory;
  namespace fs = std::filesystem;
  auto model = golden_model();
  for (const char* name :
       {"model-00007-of-00009.safetensors",
        "model-0001-of-00009.safetensors",
        "model-00001-of-00002.bin",
        "notes.txt"}) {
    write_file(directory / name, "x");
  }
  save_model(*model, directory.path());
  EXPECT_FALSE(fs::exists(directory / "model-00007-of-00009.safetensors"));
  EXPECT_TRUE(fs::exists(directory / "model-0001-of-00009.safetensors"));
  EXPECT_TRUE(fs::exists(directory / "model-00001-of-00002.bin"));
  EXPECT_TRUE(fs::exists(directory / "notes.txt"));
  // Whole, then sharded, then whole: a loader never sees two models.
  save_model(*model, directory.path(), "1KB");
  EXPECT_FALSE(fs::exists(directory / "model.safetensors"));
  load_model(*model, directory.path());
  save_model(*model, directory.path(), 500);
  EXPECT_FALSE(fs::exists(directory / "model-00001-of-00003.safetensors"));
  load_model(*model, directory.path());
  save_model(*model, directory.path());
  EXPECT_FALSE(fs::exists(directory / "model.safetensors.index.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 4);
  load_model(*model, directory.path());
}

TEST(Model, RefusesDirectoriesAndIndexesThatCannotBeRight) {
  const TemporaryDirectory directory;
  auto model = golden_model();
  EXPECT_ERROR(load_model(*model, directory.path()), "holds neither");
  EXPECT_ERROR(load_model(*model, directory / "none"), "No such file");
  save_model(*model, directory.path(), "1KB");
  const auto index_path = directory / "model.safetensors.index.json";
  const auto good = nlohmann::json::parse(read_file(index_path));
  const auto with = [&](const std::function<void(nlohmann::json&)>& change) {
    auto index = good;
    change(index);
    write_file(index_path, index.dump());
    return error_of([&] { load_model(*model, directory.path()); });
  };
  EXPECT_EQ(with([](auto&) {}), "");
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(
      has,
      with([](auto& i) { i["weight_map"]["0.bias"] = "../model.safetensors"; }),
      "not the name of a file beside the index");
  EXPECT_PRED2(
      has,
      with([](auto& i) {
        i["weight_map"]["0.bias"] = "model-00001-of-00003.safetensors";
      }),
      "but it is not");
  EXPECT_PRED2(
      has,
      with([](auto& i) { i["weight_map"].erase("0.bias"); }),
      "does not say so");
  EXPECT_PRED2(
      has, with([](auto& i) { i["weight_map"]["0.bias"] = 3; }), "not a text");
  EXPECT_PRED2(
      has, with([](auto& i) { i["weight_map"] = 3; }), "not a JSON object");
  EXPECT_PRED2(has, with([](auto& i) { i = 3; }), "not a JSON object");
  write_file(index_path, "{\"weight_map\":{");
  EXPECT_ERROR(load_model(*model, directory.path()), "not JSON");
  write_file(index_path, std::string(100000, '['));
  EXPECT_ERROR(load_model(*model, directory.path()), "nested too deeply");
  write_file(index_path, good.dump());
  write_file(directory / "model.safetensors", "x");
  EXPECT_ERROR(load_model(*model, directory.path()), "holds both");
  EXPECT_ERROR(
      save_model(*model, directory / "model.safetensors"),
      "a file of that name");
}

TEST(Model, ParsesSizesAsAccelerateDoes) {
  EXPECT_EQ(parse_size("1KB"), 1000u);
  EXPECT_EQ(parse_size("5MB"), 5000000u);
  EXPECT_EQ(parse_size("10GB"), 10000000000u);
  EXPECT_EQ(parse_size("2TB"), 2000000000000u);
  EXPECT_EQ(parse_size("1.5 mb"), 1500000u);
  EXPECT_EQ(parse_size(" 3GiB "), 3u << 30);
  EXPECT_EQ(parse_size("1KiB"), 1024u);
  for (const char* bad :
       {"",
        "KB",
        "10",
        "10B",
        "10XB",
        "10 G B",
        "-1KB",
        "1..5KB",
        ".KB",
        "1e3KB",
        "1KBB",
        "99999999TB",
        "99999999999999999999KB",
        "0x1KB"}) {
    EXPECT_ERROR(parse_size(bad), "is not a size");
  }
}

} // namespace
} // namespace accel::checkpoint::test
