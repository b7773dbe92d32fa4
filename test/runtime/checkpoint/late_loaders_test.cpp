// Data loaders and schedulers that a resumed run makes at other places than the run that
// was saved: what is drawn goes on as in a run that was not interrupted.

#include "support.h"

#include <accel/accel.h>
#include <accel/optim/schedulers.h>

#include <functional>
#include <optional>

namespace {

using accel::checkpoint::test::TemporaryDirectory;
using torch::data::samplers::RandomSampler;

struct Points : torch::data::Dataset<Points> {
  explicit Points(size_t size) : count(size) {}
  torch::data::Example<> get(size_t index) override {
    return {torch::full({1}, static_cast<double>(index)), torch::ones({1})};
  }
  torch::optional<size_t> size() const override {
    return count;
  }
  size_t count;
};

auto points(size_t size = 8) {
  return Points(size).map(torch::data::transforms::Stack<>());
}

using Loader = decltype(accel::data::make_data_loader(points(), 2));

/// What a program does with its loaders: the samples of each epoch, in their order.
struct Program {
  accel::Accelerator accelerator{accel::AcceleratorOptions().cpu(true)};
  torch::nn::Linear model{1, 1};
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer{
      model->parameters(), torch::optim::SGDOptions(0.1)};
  int64_t epoch = 0;
  std::vector<std::string> epochs = std::vector<std::string>(4);

  Program() {
    // As if the program had just been started.
    accelerator.free_memory();
    torch::manual_seed(1);
    accelerator.prepare(model, optimizer);
    accelerator.register_for_checkpointing(epoch);
  }

  template <typename AnyLoader>
  void loop(AnyLoader& loader, const std::function<void()>& in_body = nullptr) {
    for (auto& batch : *loader) {
      const auto step = accelerator.accumulate(model);
      accelerator.backward(model->forward(batch.data.to(torch::kFloat)).sum());
      optimizer.step();
      optimizer.zero_grad();
      for (int64_t i = 0; i < batch.data.size(0); ++i) {
        epochs.at(static_cast<size_t>(epoch)) +=
            std::to_string(batch.data[i].template item<int64_t>());
      }
      if (in_body) {
        in_body();
      }
    }
  }

  /// The epochs behind the first `count`.
  std::vector<std::string> behind(int64_t count) const {
    return {epochs.begin() + count, epochs.end()};
  }
};

/// Runs `run` in one go, with a checkpoint behind `stop` epochs, and again from there.
void expect_same_epochs(
    int64_t stop,
    const std::function<void(Program&, const std::string& load,
                             const std::function<void()>& save)>& run) {
  const TemporaryDirectory directory;
  Program whole;
  run(whole, "", [&] {
    if (whole.epoch == stop) {
      whole.accelerator.save_state(directory / "saved");
    }
  });
  Program rest;
  run(rest, directory / "saved", [] {});
  EXPECT_EQ(rest.behind(stop), whole.behind(stop));
  EXPECT_NE(whole.epochs[2], whole.epochs[3]);
  EXPECT_EQ(whole.epochs[3].size(), 8u);
}

void load(Program& program, const std::string& directory) {
  if (!directory.empty()) {
    program.accelerator.load_state(directory);
  }
}

} // namespace

// One for each epoch, of which the last one still exists when the checkpoint is saved: none
// of the resumed run is that one.
TEST(LateLoaders, OneForEachEpoch) {
  for (const int64_t stop : {2, 3}) {
    expect_same_epochs(stop, [](auto& program, const auto& from, const auto& save) {
      load(program, from);
      while (program.epoch < 4) {
        auto loader = accel::data::make_data_loader(points(), 2);
        program.loop(loader);
        ++program.epoch;
        save();
      }
    });
  }
}

// The resumed run is interrupted, too: its loaders count on behind those that were saved.
TEST(LateLoaders, OneForEachEpochOfARunThatWasResumed) {
  const TemporaryDirectory directory;
  const auto run = [&](Program& program, const std::string& from, int64_t end) {
    load(program, from);
    while (program.epoch < end) {
      auto loader = accel::data::make_data_loader(points(), 2);
      program.loop(loader);
      ++program.epoch;
      program.accelerator.save_state(directory / std::to_string(program.epoch));
    }
  };
  Program whole;
  run(whole, "", 4);
  Program next;
  run(next, directory / "2", 3);
  Program last;
  run(last, directory / "3", 4);
  EXPECT_EQ(last.epochs[3], whole.epochs[3]);
}

// Where the first one is interrupted nothing tells it from one that is made once.
TEST(LateLoaders, OneForEachEpochIsSeenWhenTheNextOneIsMade) {
  const TemporaryDirectory directory;
  const auto run = [&](Program& program) {
    auto loader = accel::data::make_data_loader(points(), 2);
    program.loop(loader);
    ++program.epoch;
    program.accelerator.save_state(directory / std::to_string(program.epoch));
  };
  Program whole;
  run(whole);
  run(whole);
  Program rest;
  load(rest, directory / "1");
  run(rest);
  testing::internal::CaptureStderr();
  run(rest);
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("made anew for each pass"), std::string::npos) << said;
}

// Made when it is first needed, behind an epoch of the resumed run, and kept: only what it
// draws itself is taken back.
TEST(LateLoaders, OneThatIsMadeWhenItIsNeeded) {
  for (const int64_t stop : {1, 2}) {
    expect_same_epochs(stop, [](auto& program, const auto& from, const auto& save) {
      auto loader = accel::data::make_data_loader(points(), 2);
      Loader other;
      load(program, from);
      while (program.epoch < 4) {
        program.loop(loader);
        if (other == nullptr) {
          other = accel::data::make_data_loader(points(), 4);
        }
        program.loop(other);
        program.epochs[static_cast<size_t>(program.epoch)].resize(8);
        ++program.epoch;
        save();
      }
    });
  }
}

// Right behind load_state, with a sampler of the program's or of the loader's.
TEST(LateLoaders, RightBehindIt) {
  for (const bool own_sampler : {false, true}) {
    expect_same_epochs(2, [&](auto& program, const auto& from, const auto& save) {
      load(program, from);
      const auto make = [&] {
        return own_sampler
            ? accel::data::make_data_loader(points(), RandomSampler(8), 2)
            : accel::data::make_data_loader(points(), 2);
      };
      auto loader = make();
      auto never_used = make();
      while (program.epoch < 4) {
        program.loop(loader);
        ++program.epoch;
        save();
      }
    });
  }
}

// One that is gone when the checkpoint is saved is made again in front of it.
TEST(LateLoaders, BehindOneThatIsGone) {
  using torch::data::samplers::SequentialSampler;
  expect_same_epochs(2, [&](auto& program, const auto& from, const auto& save) {
    load(program, from);
    {
      auto only_for_its_size = accel::data::make_data_loader<SequentialSampler>(points(), 2);
    }
    auto loader = accel::data::make_data_loader(points(), 2);
    while (program.epoch < 4) {
      program.loop(loader);
      ++program.epoch;
      save();
    }
  });
}

// What the program draws in between is not taken back; it is told.
TEST(LateLoaders, BehindOtherDraws) {
  const TemporaryDirectory directory;
  {
    Program program;
    auto loader = accel::data::make_data_loader(points(), 2);
    program.loop(loader);
    program.accelerator.save_state(directory / "saved");
  }
  Program program;
  load(program, directory / "saved");
  torch::rand({1});
  const auto before = at::globalContext().defaultGenerator(torch::kCPU).get_state();
  testing::internal::CaptureStderr();
  auto loader = accel::data::make_data_loader(points(), 2);
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("drawn between load_state and the making"), std::string::npos) << said;
  EXPECT_TRUE(
      before.equal(at::globalContext().defaultGenerator(torch::kCPU).get_state()));
}

// In the middle of a pass of the second of the loaders that were made for each epoch: they
// count as they exist.
TEST(LateLoaders, InTheMiddleOfTheSecondOne) {
  const TemporaryDirectory directory;
  Program whole;
  int64_t batches = 0;
  while (whole.epoch < 4) {
    auto loader = accel::data::make_data_loader(points(), 2);
    whole.loop(loader, [&] {
      if (++batches == 6) {
        whole.accelerator.save_state(directory / "saved");
      }
    });
    ++whole.epoch;
  }
  Program rest;
  bool loaded = false;
  while (rest.epoch < 4) {
    auto loader = accel::data::make_data_loader(points(), 2);
    if (!std::exchange(loaded, true)) {
      load(rest, directory / "saved");
    }
    rest.loop(loader);
    ++rest.epoch;
  }
  EXPECT_EQ(rest.behind(2), whole.behind(2));
  EXPECT_EQ(rest.epochs[1], whole.epochs[1].substr(4));
}

// Folds and attempts begin with free_memory: what they have made before does not count.
TEST(LateLoaders, WhatIsGoneDoesNotCount) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  const auto fold = [&](const std::string& save, const std::string& from) {
    accelerator.free_memory();
    torch::manual_seed(1);
    torch::nn::Linear model(1, 1);
    accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
        model->parameters(), torch::optim::SGDOptions(0.1));
    accel::AcceleratedScheduler<accel::optim::ExponentialLR> scheduler(
        optimizer, 0.5);
    accelerator.prepare(model, optimizer, scheduler);
    auto loader = accel::data::make_data_loader(points(), 2);
    EXPECT_EQ(accel::detail::resumable(*loader).number(), 0);
    if (!from.empty()) {
      accelerator.load_state(from);
    }
    std::string samples;
    int batches = 0;
    for (auto& batch : *loader) {
      const auto step = accelerator.accumulate(model);
      accelerator.backward(model->forward(batch.data.to(torch::kFloat)).sum());
      optimizer.step();
      scheduler.step();
      samples += std::to_string(batch.data[0].item<int64_t>());
      if (++batches == 2 && !save.empty()) {
        accelerator.save_state(save);
      }
    }
    return samples + " " +
        std::to_string(optimizer.param_groups()[0].options().get_lr());
  };
  fold("", "");
  const std::string whole = fold(directory / "saved", "");
  EXPECT_EQ(fold("", directory / "saved"), whole.substr(2));
}

// Checkpoints of releases that counted loaders that were gone have no places.
TEST(LateLoaders, OfAnEarlierRelease) {
  const TemporaryDirectory directory;
  const auto read = [&](Loader& loader, Program& program) {
    int batches = 0;
    program.loop(loader, [&] {
      if (++batches == 2) {
        program.accelerator.save_state(directory / "saved");
      }
    });
    return program.epochs[0];
  };
  Program whole;
  auto gone = accel::data::make_data_loader(points(), 2);
  auto loader = accel::data::make_data_loader(points(), 2);
  gone.reset();
  const auto samples = read(loader, whole);
  const auto file = directory / "saved/process_0.json";
  auto text = accel::checkpoint::test::read_file(file);
  const auto place = text.find("place");
  ASSERT_NE(place, std::string::npos);
  accel::checkpoint::test::write_file(file, text.replace(place, 5, "plane"));

  loader.reset();
  Program rest;
  const auto load_unchecked = [&] {
    rest.accelerator.load_state(
        directory / "saved", accel::LoadStateOptions().verify_checksums(false));
  };
  auto first = accel::data::make_data_loader(points(), 2);
  EXPECT_ERROR(load_unchecked(), "which does not exist");
  auto second = accel::data::make_data_loader(points(), 2);
  load_unchecked();
  rest.loop(second);
  EXPECT_EQ(rest.epochs[0], samples.substr(4));
}
