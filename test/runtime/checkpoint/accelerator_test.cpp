// Checkpoints through the Accelerator, in one process: what goes into them, and
// what is refused because a number would be wrong.

#include "support.h"

#include <accel/checkpoint/state.h>
#include <accel/accel.h>
#include <accel/checkpoint/model_files.h>
#include <accel/optim/schedulers.h>

#include <random>

namespace {

using accel::checkpoint::test::identical;
using accel::checkpoint::test::read_file;
using accel::checkpoint::test::TemporaryDirectory;
using accel::checkpoint::test::write_file;

struct Numbers : torch::data::Dataset<Numbers> {
  explicit Numbers(size_t size) : count(size) {}
  torch::data::Example<> get(size_t index) override {
    return {
        torch::full({1}, static_cast<double>(index), torch::kDouble),
        torch::full({1}, static_cast<double>(index), torch::kDouble)};
  }
  torch::optional<size_t> size() const override {
    return count;
  }
  size_t count;
};

auto numbers(size_t size) {
  return Numbers(size).map(torch::data::transforms::Stack<>());
}

std::vector<double> values(const torch::Tensor& tensor) {
  const auto flat = tensor.contiguous().view(-1);
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

accel::AcceleratorOptions on_cpu() {
  return accel::AcceleratorOptions().cpu(true);
}

struct Small {
  Small()
      : model(1, 1),
        optimizer(model->parameters(), torch::optim::SGDOptions(0.1)) {}
  torch::nn::Linear model;
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer;
};

/// Draws its order in `next`, with an engine of its own, and says nothing of it
/// when it is saved.
struct SecretSampler : torch::data::samplers::Sampler<> {
  explicit SecretSampler(size_t count) : left(count) {}
  void reset(torch::optional<size_t> = torch::nullopt) override {
    left = 8;
  }
  torch::optional<std::vector<size_t>> next(size_t batch_size) override {
    if (left == 0) {
      return torch::nullopt;
    }
    std::vector<size_t> indices;
    for (; indices.size() < batch_size && left > 0; --left) {
      indices.push_back(engine() % 8);
    }
    return indices;
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  size_t left;
  std::mt19937 engine{1};
};

/// Counts something that only it knows.
struct OwnScheduler : torch::optim::LRScheduler {
  using LRScheduler::LRScheduler;
  std::vector<double> get_lrs() override {
    return get_current_lrs();
  }
};

struct Counter {
  std::string state_dict() const {
    return std::to_string(count);
  }
  void load_state_dict(const std::string& state) {
    TORCH_CHECK(state != "13", "unlucky");
    count = std::stoi(state);
  }
  int count = 0;
};

template <typename Loader>
std::vector<double> values_of_pass(Loader& loader) {
  std::vector<double> result;
  for (auto& batch : loader) {
    const auto part = values(batch.data);
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

} // namespace

TEST(AcceleratorCheckpoint, BringsEverythingBack) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  Small small;
  accel::AcceleratedScheduler<accel::optim::ExponentialLR> scheduler(
      small.optimizer, 0.5);
  accelerator.prepare(small.model, small.optimizer, scheduler);
  int epoch = 3;
  uint64_t large = ~uint64_t{0};
  float best = 0.1f;
  bool flag = true;
  std::string text("a\0b", 3);
  auto tensor = torch::arange(3, torch::kDouble);
  Counter counter;
  counter.count = 5;
  torch::nn::BatchNorm1d other(2);
  accelerator.register_for_checkpointing(
      epoch, large, best, flag, text, tensor, counter, other);
  scheduler.step();
  const auto weight = small.model->weight.detach().clone();
  EXPECT_EQ(accelerator.save_state(directory / "one"), directory / "one");
  const auto drawn = torch::rand({4});

  scheduler.step();
  {
    const torch::NoGradGuard no_grad;
    small.model->weight.zero_();
    other->weight.zero_();
  }
  epoch = 0;
  large = 0;
  best = 0;
  flag = false;
  text.clear();
  tensor.zero_();
  counter.count = 0;
  accelerator.load_state(directory / "one");
  EXPECT_TRUE(identical(small.model->weight, weight));
  EXPECT_EQ(small.optimizer.param_groups()[0].options().get_lr(), 0.05);
  EXPECT_EQ(scheduler.inner().last_epoch(), 1);
  EXPECT_EQ(epoch, 3);
  EXPECT_EQ(large, ~uint64_t{0});
  EXPECT_EQ(best, 0.1f);
  EXPECT_TRUE(flag);
  EXPECT_EQ(text, std::string("a\0b", 3));
  EXPECT_TRUE(tensor.equal(torch::arange(3, torch::kDouble)));
  EXPECT_EQ(counter.count, 5);
  EXPECT_TRUE(other->weight.equal(torch::ones({2})));
  EXPECT_TRUE(torch::rand({4}).equal(drawn));
}

TEST(AcceleratorCheckpoint, NamesAndLimits) {
  const TemporaryDirectory directory;
  EXPECT_ERROR(
      accel::Accelerator(on_cpu().automatic_checkpoint_naming(true)),
      "project_dir");
  accel::Accelerator accelerator(on_cpu()
                                     .automatic_checkpoint_naming(true)
                                     .total_limit(2)
                                     .project_dir(directory.path()));
  EXPECT_ERROR(accelerator.load_state(), "no complete checkpoint");
  Small small;
  accelerator.prepare(small.model, small.optimizer);
  int epoch = 0;
  accelerator.register_for_checkpointing(epoch);
  const std::string root = directory / "checkpoints";
  for (; epoch < 3; ++epoch) {
    EXPECT_EQ(
        accelerator.save_state(),
        root + "/checkpoint_" + std::to_string(epoch));
  }
  EXPECT_FALSE(std::filesystem::exists(root + "/checkpoint_0"));
  accelerator.load_state();
  EXPECT_EQ(epoch, 2);
  accelerator.load_state(root + "/checkpoint_1");
  EXPECT_EQ(epoch, 1);
  // Goes on counting behind the newest one.
  EXPECT_EQ(accelerator.save_state(), root + "/checkpoint_3");
  EXPECT_ERROR(accelerator.save_state("elsewhere"), "elsewhere");
}

TEST(AcceleratorCheckpoint, WhatDoesNotFitIsRefusedAndChangesNothing) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  EXPECT_ERROR(accelerator.save_state(), "needs a directory");
  Small small;
  accelerator.prepare(small.model, small.optimizer);
  {
    accel::AcceleratedScheduler<torch::optim::StepLR> scheduler(
        small.optimizer, 1, 0.5);
    accelerator.save_state(directory / "with");
    scheduler.step();
    scheduler.step();
    EXPECT_EQ(small.optimizer.param_groups()[0].options().get_lr(), 0.05);
    accelerator.load_state(directory / "with");
    EXPECT_EQ(small.optimizer.param_groups()[0].options().get_lr(), 0.1);
    scheduler.step();
    EXPECT_EQ(small.optimizer.param_groups()[0].options().get_lr(), 0.1);
    scheduler.step();
    EXPECT_EQ(small.optimizer.param_groups()[0].options().get_lr(), 0.05);
  }
  const auto weight = small.model->weight.detach().clone();
  {
    const torch::NoGradGuard no_grad;
    small.model->weight.add_(1);
  }
  EXPECT_ERROR(accelerator.load_state(directory / "with"), "scheduler");
  EXPECT_TRUE(identical(small.model->weight, weight + 1));
  {
    accel::AcceleratedScheduler<OwnScheduler> scheduler(small.optimizer);
    EXPECT_ERROR(
        accelerator.save_state(directory / "own"), "OwnScheduler cannot be");
  }
  torch::optim::SGD plain(small.model->parameters(), 0.1);
  accelerator.prepare(plain);
  EXPECT_ERROR(
      accelerator.save_state(directory / "plain"), "AcceleratedOptimizer");
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(directory.path()), {}),
      1);
}

// A number that has become another one on the disk.
TEST(AcceleratorCheckpoint, DamagedValuesAreLoadedOnlyWhereThatIsAskedFor) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  Small small;
  accelerator.prepare(small.model, small.optimizer);
  const torch::NoGradGuard no_grad;
  small.model->weight.fill_(1);
  accelerator.save_state(directory / "saved");
  const std::string file = directory / "saved/model.safetensors";
  std::string bytes = read_file(file);
  bytes[bytes.size() - 1] = '\x40'; // 1.0f is 3f800000, 3.0f is 40400000
  bytes[bytes.size() - 2] = '\x40';
  write_file(file, bytes);

  small.model->weight.fill_(2);
  EXPECT_ERROR(accelerator.load_state(directory / "saved"), "is damaged");
  EXPECT_EQ(small.model->weight.item<float>(), 2);
  accelerator.load_state(
      directory / "saved", accel::LoadStateOptions().verify_checksums(false));
  EXPECT_EQ(small.model->weight.item<float>(), 3);
  // What can be seen without them is still an error.
  write_file(file, bytes + "more");
  EXPECT_ERROR(
      accelerator.load_state(
          directory / "saved",
          accel::LoadStateOptions().verify_checksums(false)),
      "bytes instead of");
}

TEST(AcceleratorCheckpoint, ModelsThatAreGoneAreLeftOut) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  for (int fold = 0; fold < 2; ++fold) {
    // One that a shared pointer holds, and one on the stack.
    torch::nn::Linear held(2, 2);
    torch::nn::LinearImpl on_stack(3, 3);
    accelerator.prepare(held, on_stack);
    accelerator.save_state(directory / "fold");
    EXPECT_TRUE(std::filesystem::exists(directory / "fold/model_1.safetensors"));
    EXPECT_FALSE(
        std::filesystem::exists(directory / "fold/model_2.safetensors"));
  }
  accelerator.save_state(directory / "none");
  EXPECT_FALSE(std::filesystem::exists(directory / "none/model.safetensors"));
}

TEST(AcceleratorCheckpoint, InTheMiddleOfAWindowIsRefused) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu().gradient_accumulation_steps(2));
  Small small;
  accelerator.prepare(small.model, small.optimizer);
  const auto micro_step = [&] {
    const auto step = accelerator.accumulate(small.model);
    accelerator.backward(small.model->forward(torch::ones({1, 1})).sum());
    small.optimizer.step();
  };
  micro_step();
  EXPECT_ERROR(
      accelerator.save_state(directory / "half"), "accumulation window");
  micro_step();
  accelerator.save_state(directory / "whole");
}

// A resumed run goes on with the next batch: what this one has not changed yet would be
// left out.
TEST(AcceleratorCheckpoint, BeforeTheOptimizersStepIsRefused) {
  const TemporaryDirectory directory;
  for (const bool match : {false, true}) {
    SCOPED_TRACE(match);
    accel::Accelerator accelerator(on_cpu().match_single_device(match));
    Small small, other;
    accelerator.prepare(small.model, small.optimizer, other.model, other.optimizer);
    auto loader = accel::data::make_data_loader(numbers(8), 2);
    const auto save = [&] { accelerator.save_state(directory / "saved"); };
    int batches = 0;
    for (auto& batch : *loader) {
      const auto step = accelerator.accumulate(small.model);
      const auto loss = [&](Small& one) {
        return one.model->forward(batch.data.to(torch::kFloat)).sum();
      };
      if (++batches == 1) {
        EXPECT_ERROR(save(), "before anything was learnt");
      } else if (batches == 3) {
        save(); // one that is left out
        continue;
      }
      accelerator.backward(loss(small));
      EXPECT_ERROR(save(), "no optimizer has stepped");
      if (batches == 2) {
        small.optimizer.zero_grad();
        save(); // an update that is left out
        continue;
      }
      small.optimizer.step();
      save();
      accelerator.backward(loss(other));
      EXPECT_ERROR(save(), "behind optimizer.step()");
      other.optimizer.step();
      save();
      small.optimizer.zero_grad();
      other.optimizer.zero_grad();
      save();
    }
    EXPECT_EQ(batches, 4);
  }
}

TEST(AcceleratorCheckpoint, BehindAStepWithAClosureAPassIsSaved) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  torch::nn::Linear model(1, 1);
  accel::AcceleratedOptimizer<torch::optim::LBFGS> optimizer(model->parameters());
  accelerator.prepare(model, optimizer);
  auto loader = accel::data::make_data_loader(numbers(4), 2);
  for (auto& batch : *loader) {
    const auto step = accelerator.accumulate(model);
    optimizer.step([&] {
      optimizer.zero_grad();
      auto loss = model->forward(batch.data.to(torch::kFloat)).square().mean();
      accelerator.backward(loss);
      return loss;
    });
    accelerator.save_state(directory / "saved");
  }
}

TEST(AcceleratorCheckpoint, APassIsSavedInsideOfItsBodyOnly) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  auto loader =
      accel::data::make_data_loader<torch::data::samplers::SequentialSampler>(
          numbers(8), 2);
  accelerator.save_state(directory / "before");
  for (auto& batch : *loader) {
    (void)batch;
    EXPECT_ERROR(
        accelerator.save_state(directory / "no"), "accelerator.accumulate");
    auto body = accelerator.accumulate();
    accelerator.save_state(directory / "inside");
    EXPECT_ERROR(
        accelerator.load_state(directory / "inside"), "inside of the loop");
    break;
  }
  // The loop has taken its batch with it.
  accelerator.save_state(directory / "left");
  torch::Tensor kept;
  for (auto& batch : *loader) {
    auto body = accelerator.accumulate();
    kept = batch.data;
    break;
  }
  // It cannot be known whether the loop was left.
  EXPECT_ERROR(accelerator.save_state(directory / "no"), "leave(*loader)");
  kept = torch::Tensor();
  accelerator.save_state(directory / "left");

  const auto first = [&] {
    for (auto& batch : *loader) {
      const auto result = values(batch.data);
      accelerator.leave(*loader);
      return result;
    }
    return std::vector<double>();
  };
  accelerator.load_state(directory / "left");
  EXPECT_EQ(first(), (std::vector<double>{0, 1}));
  accelerator.load_state(directory / "inside");
  EXPECT_EQ(first(), (std::vector<double>{2, 3}));
  // Once only.
  EXPECT_EQ(first(), (std::vector<double>{0, 1}));
}

// Loops without a guard that are left leave nothing behind; a loop that trains
// without one, and a body that has advanced its iterator, cannot be seen through.
TEST(AcceleratorCheckpoint, OtherLoopsMayBeLeft) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  using torch::data::samplers::SequentialSampler;
  auto loader = accel::data::make_data_loader<SequentialSampler>(numbers(8), 2);
  auto evaluation =
      accel::data::make_data_loader<SequentialSampler>(numbers(8), 2);
  const auto evaluate = [&] {
    for (auto& batch : *evaluation) {
      EXPECT_EQ(batch.data.size(0), 2);
      break;
    }
  };
  evaluate();
  accelerator.save_state(directory / "between");
  int batches = 0;
  for ([[maybe_unused]] auto& batch : *loader) {
    evaluate();
    auto step = accelerator.accumulate();
    evaluate();
    if (++batches == 2) {
      accelerator.save_state(directory / "two");
      break;
    }
  }
  accelerator.load_state(directory / "two");
  for (auto& batch : *loader) {
    EXPECT_EQ(values(batch.data), (std::vector<double>{4, 5}));
    break;
  }
  // The evaluation begins anew.
  for (auto& batch : *evaluation) {
    EXPECT_EQ(values(batch.data), (std::vector<double>{0, 1}));
    break;
  }

  auto weight = torch::ones({}).requires_grad_();
  for (auto& batch : *loader) {
    accelerator.backward((batch.data.detach() * weight).sum());
    // As a program that copies batches to a device may do.
    batch = {};
    EXPECT_ERROR(
        accelerator.save_state(directory / "no"), "accelerator.accumulate");
    break;
  }
  accelerator.leave(*loader);

  auto iterator = loader->begin();
  {
    auto step = accelerator.accumulate();
    EXPECT_EQ(values(iterator->data), (std::vector<double>{0, 1}));
    ++iterator;
    EXPECT_ERROR(
        accelerator.save_state(directory / "no"), "do not advance");
  }
  {
    auto step = accelerator.accumulate();
    EXPECT_EQ(values(iterator->data), (std::vector<double>{2, 3}));
    accelerator.save_state(directory / "two of four");
  }
  iterator = loader->end();
  accelerator.load_state(directory / "two of four");
  EXPECT_EQ(
      values(loader->begin()->data), (std::vector<double>{4, 5}));
}

TEST(AcceleratorCheckpoint, PassesGoOnWithWorkers) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  auto loader = accel::data::make_data_loader(
      numbers(11), torch::data::DataLoaderOptions(2).workers(2));
  std::vector<double> expected;
  for (auto& batch : *loader) {
    auto body = accelerator.accumulate();
    const auto part = values(batch.data);
    expected.insert(expected.end(), part.begin(), part.end());
    if (expected.size() == 4) {
      accelerator.save_state(directory / "four");
    }
  }
  EXPECT_EQ(expected.size(), 11u);
  accelerator.load_state(directory / "four");
  std::vector<double> rest;
  int64_t remainder = 0;
  for (auto& batch : *loader) {
    auto body = accelerator.accumulate();
    const auto part = values(batch.data);
    rest.insert(rest.end(), part.begin(), part.end());
    remainder = accel::GradientState::get().remainder();
  }
  EXPECT_EQ(rest, std::vector<double>(expected.begin() + 4, expected.end()));
  EXPECT_EQ(remainder, 1);
}

TEST(AcceleratorCheckpoint, ASamplerThatDrawsOtherBatchesIsAnError) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  auto loader =
      accel::data::make_data_loader(numbers(8), SecretSampler(8), 2);
  for (auto& batch : *loader) {
    (void)batch;
    auto body = accelerator.accumulate();
    accelerator.save_state(directory / "secret");
  }
  accelerator.load_state(directory / "secret");
  EXPECT_ERROR(loader->begin(), "SecretSampler draws other indices");
}

TEST(AcceleratorCheckpoint, AnotherLoaderIsAnError) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  {
    auto loader = accel::data::make_data_loader(numbers(8), 2);
    for (auto& batch : *loader) {
      (void)batch;
      auto body = accelerator.accumulate();
      accelerator.save_state(directory / "eight");
    }
  }
  EXPECT_ERROR(
      accelerator.load_state(directory / "eight"), "which does not exist");
  auto other = accel::data::make_data_loader(numbers(6), 2);
  EXPECT_ERROR(
      accelerator.load_state(directory / "eight"), "data loader 0 was another one");
}

TEST(AcceleratorCheckpoint, SkipsTheFirstBatches) {
  accel::Accelerator accelerator(on_cpu());
  auto loader = accel::data::make_data_loader(numbers(9), 2);
  const auto pass = [&] {
    torch::manual_seed(3);
    return values_of_pass(*loader);
  };
  const auto all = pass();
  accelerator.skip_first_batches(*loader, 2);
  EXPECT_EQ(pass(), std::vector<double>(all.begin() + 4, all.end()));
  EXPECT_EQ(pass(), all);
  accelerator.skip_first_batches(*loader, 9);
  EXPECT_TRUE(pass().empty());
  EXPECT_ERROR(accelerator.skip_first_batches(*loader, -1), "-1");
  auto plain = torch::data::make_data_loader(numbers(9), 2);
  EXPECT_ERROR(
      accelerator.skip_first_batches(*plain, 1), "accel::data::make_data_loader");
}

// As Accelerate's examples do: load_state, then skip_first_batches(resume_step).
TEST(AcceleratorCheckpoint, SkippingCountsFromTheBeginningOfAPassThatGoesOn) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  auto loader =
      accel::data::make_data_loader<torch::data::samplers::SequentialSampler>(
          numbers(9), 2);
  const auto pass = [&] { return values_of_pass(*loader); };
  const auto all = pass();
  int64_t done = 0;
  for (auto& batch : *loader) {
    (void)batch;
    auto body = accelerator.accumulate();
    if (++done == 2) {
      accelerator.save_state(directory / "two");
    }
  }
  const auto go_on = [&](int64_t skipped) {
    accelerator.load_state(directory / "two");
    accelerator.skip_first_batches(*loader, skipped);
    return pass();
  };
  const std::vector<double> behind_two(all.begin() + 4, all.end());
  EXPECT_EQ(go_on(2), behind_two);
  EXPECT_EQ(pass(), all); // Nothing of it is left.
  EXPECT_EQ(go_on(1), behind_two);
  EXPECT_EQ(pass(), all);
  EXPECT_EQ(go_on(3), std::vector<double>(all.begin() + 6, all.end()));
  EXPECT_EQ(pass(), all);
  // Of several calls the last one counts.
  accelerator.skip_first_batches(*loader, 3);
  accelerator.skip_first_batches(*loader, 2);
  EXPECT_EQ(pass(), behind_two);
}

TEST(AcceleratorCheckpoint, HooksTakePart) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  torch::nn::Linear first(1, 1), second(2, 2);
  accelerator.prepare(first, second);
  auto save = accelerator.register_save_state_pre_hook(
      [&](std::vector<torch::nn::Module*>& models, const std::string& path) {
        ASSERT_EQ(models.size(), 2u);
        models.pop_back();
        accel::checkpoint::test::write_file(path + "/config.json", "{}\n");
      });
  auto load = accelerator.register_load_state_pre_hook(
      [&](std::vector<torch::nn::Module*>& models, const std::string& path) {
        models.pop_back();
        EXPECT_EQ(
            accel::checkpoint::test::read_file(path + "/config.json"), "{}\n");
      });
  accelerator.save_state(directory / "hooked");
  EXPECT_FALSE(
      std::filesystem::exists(directory / "hooked/model_1.safetensors"));
  accelerator.load_state(directory / "hooked");
  load.remove();
  EXPECT_ERROR(accelerator.load_state(directory / "hooked"), "1 models");
  save.remove();
  accelerator.save_state(directory / "all");
  accelerator.load_state(directory / "all");
}

TEST(AcceleratorCheckpoint, RegisteredObjectsAreCounted) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  Counter counter;
  counter.count = 13;
  accelerator.register_for_checkpointing(counter);
  accelerator.save_state(directory / "one");
  EXPECT_ERROR(accelerator.load_state(directory / "one"), "unlucky");
  int8_t more = 1;
  accelerator.register_for_checkpointing(more);
  EXPECT_ERROR(
      accelerator.load_state(directory / "one"), "object_0, object_1");
  accelerator.clear();
  int64_t large = 1000;
  accelerator.register_for_checkpointing(large);
  accelerator.save_state(directory / "large");
  accelerator.clear();
  accelerator.register_for_checkpointing(more);
  EXPECT_ERROR(
      accelerator.load_state(directory / "large"), "the number 1000");
  EXPECT_EQ(more, 1);
}

TEST(AcceleratorCheckpoint, AnObjectOfAnotherKindIsAnError) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  int64_t number = 1;
  accelerator.register_for_checkpointing(number);
  accelerator.save_state(directory / "number");
  accelerator.clear();
  // Its bytes, "1", are a text, too.
  std::string text = "words";
  accelerator.register_for_checkpointing(text);
  EXPECT_ERROR(
      accelerator.load_state(directory / "number"),
      "a whole number as object_0, but the program has registered a std::string");
  EXPECT_EQ(text, "words");
  // Earlier versions did not say what it was.
  accel::checkpoint::TrainingState state;
  state.extras = {{"object_0", "1"}};
  accel::checkpoint::save_state(directory / "old", state);
  accelerator.load_state(directory / "old");
  EXPECT_EQ(text, "1");
}

TEST(AcceleratorCheckpoint, SavesModels) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(on_cpu());
  torch::nn::Sequential model(
      torch::nn::Linear(10, 10), torch::nn::Linear(10, 10));
  accelerator.prepare(model);
  accelerator.save_model(model, directory / "model", "0.5KB");
  EXPECT_TRUE(std::filesystem::exists(
      directory / "model/model.safetensors.index.json"));
  torch::nn::Sequential other(
      torch::nn::Linear(10, 10), torch::nn::Linear(10, 10));
  accel::checkpoint::load_model(*other, directory / "model");
  const auto saved = accelerator.get_state_dict(model);
  EXPECT_EQ(saved.size(), 4u);
  EXPECT_TRUE(identical(
      saved["1.weight"], accelerator.get_state_dict(other)["1.weight"]));
  EXPECT_EQ(&accelerator.unwrap_model(model), &model);
}

TEST(AcceleratorCheckpoint, GradScalerGoesOn) {
  accel::GradScaler scaler(accel::GradScalerOptions().init_scale(8));
  accel::GradScalerState state = scaler.state_dict();
  EXPECT_EQ(state.scale, 8);
  EXPECT_EQ(state.growth_interval, 2000);
  state.scale = 1024;
  state.growth_interval = 3;
  state.growth_tracker = 2;
  scaler.load_state_dict(state);
  EXPECT_EQ(scaler.get_scale(), 1024);
  EXPECT_EQ(scaler.growth_tracker(), 2);
  // The third good step in a row lets it grow.
  auto parameter = torch::ones({1}).set_requires_grad(true);
  torch::optim::SGD optimizer({parameter}, 0.1);
  scaler.scale(parameter.sum()).backward();
  EXPECT_EQ(parameter.grad().item<float>(), 1024);
  scaler.step(optimizer, [&] { optimizer.step(); });
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 2048);
  EXPECT_EQ(scaler.growth_tracker(), 0);
  state.backoff_factor = 2;
  EXPECT_ERROR(scaler.load_state_dict(state), "backoff_factor 2");
}
