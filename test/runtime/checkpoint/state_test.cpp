#include "support.h"
#include "threads_as_processes.h"

#include <accel/checkpoint/optimizer_state.h>
#include <accel/checkpoint/random_state.h>
#include <accel/checkpoint/state.h>
#include <accel/checkpoint/state_dict.h>

#include <nlohmann/json.hpp>

namespace accel::checkpoint::test {
namespace {

namespace fs = std::filesystem;

/// A small training program with everything that has a state: batch norm,
/// dropout, shuffling, an optimizer with moments and a scheduler.
struct Program {
  Program()
      : model(
            torch::nn::Linear(5, 16),
            torch::nn::BatchNorm1d(16),
            torch::nn::Dropout(0.3),
            torch::nn::Linear(16, 1)),
        optimizer(model->parameters(), torch::optim::AdamWOptions(0.02)),
        scheduler(optimizer, 3, 0.5) {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    x = torch::randn({64, 5}, generator);
    y = torch::randn({64, 1}, generator);
  }

  double step() {
    const auto rows = torch::randperm(64).slice(0, 0, 16);
    optimizer.zero_grad();
    auto loss =
        torch::mse_loss(model->forward(x.index({rows})), y.index({rows}));
    loss.backward();
    optimizer.step();
    scheduler.step();
    ++steps;
    return loss.item<double>();
  }

  TrainingState state() {
    TrainingState result;
    result.models = {&*model};
    result.optimizers = {&optimizer};
    result.extras = {{"scheduler", scheduler_state(scheduler)}};
    result.loaders = nlohmann::json{{"batches", steps}}.dump();
    result.step = steps % 2;
    return result;
  }

  void load(const std::string& directory) {
    const auto loaded = load_state(directory, state());
    load_scheduler_state(scheduler, loaded.extras.at(0).second);
    steps = nlohmann::json::parse(loaded.loaders)["batches"];
    EXPECT_EQ(loaded.step, steps % 2);
    EXPECT_EQ(loaded.random, RandomOrigin::kOwn);
  }

  torch::nn::Sequential model;
  torch::optim::AdamW optimizer;
  torch::optim::StepLR scheduler;
  at::Tensor x, y;
  int steps = 0;
};

TEST(State, AResumedRunPrintsWhatTheUninterruptedOnePrints) {
  const TemporaryDirectory directory;
  torch::manual_seed(1);
  std::vector<double> whole, resumed;
  {
    Program program;
    for (int i = 0; i < 20; ++i) {
      if (i == 7) {
        save_state(directory / "c", program.state());
      }
      const double loss = program.step();
      if (i >= 7) {
        whole.push_back(loss);
      }
    }
  }
  torch::manual_seed(2);
  Program program;
  program.step();
  program.load(directory / "c");
  EXPECT_EQ(program.steps, 7);
  while (program.steps < 20) {
    resumed.push_back(program.step());
  }
  EXPECT_EQ(resumed, whole);
}

TEST(State, HasTheFilesOfTheDocumentation) {
  const TemporaryDirectory directory;
  Program first, second;
  auto state = first.state();
  state.models.push_back(&*second.model);
  state.optimizers.push_back(&second.optimizer);
  state.before_save = [](const std::string& temporary) {
    write_file(temporary + "/config.txt", "hook");
  };
  save_state(directory / "c", state);
  std::vector<std::string> names;
  for (const auto& file : verify_checkpoint(directory / "c").files) {
    names.push_back(file.name);
  }
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "config.txt",
          "custom_checkpoint_0.bin",
          "model.safetensors",
          "model_1.safetensors",
          "optimizer.json",
          "optimizer.safetensors",
          "optimizer_1.json",
          "optimizer_1.safetensors",
          "process_0.json",
          "random_states_0.safetensors",
          "state.json"}));
}

TEST(State, NumbersAndLimitsAreRightAfterAResume) {
  // Accelerate would remove checkpoint_1 and write checkpoint_0 here, and load
  // checkpoint_2, an older one, ever after.
  const TemporaryDirectory directory;
  Program program;
  const auto weight = program.model->parameters()[0];
  const auto save = [&](double value) {
    torch::NoGradGuard no_grad;
    weight.fill_(value);
    return save_state_numbered(directory.path(), 2, program.state());
  };
  EXPECT_EQ(save(1), directory / "checkpoint_0");
  EXPECT_EQ(save(2), directory / "checkpoint_1");
  EXPECT_EQ(save(3), directory / "checkpoint_2");
  Program restarted;
  restarted.load(*newest_checkpoint(directory.path()));
  EXPECT_EQ(save(99), directory / "checkpoint_3");
  restarted.load(*newest_checkpoint(directory.path()));
  EXPECT_EQ(restarted.model->parameters()[0][0][0].item<float>(), 99);
  EXPECT_FALSE(fs::exists(directory / "checkpoint_1"));
  EXPECT_TRUE(fs::exists(directory / "checkpoint_2"));
}

TEST(State, RefusesWhatDoesNotFitAndChangesNothing) {
  const TemporaryDirectory directory;
  Program program;
  program.step();
  save_state(directory / "c", program.state());
  Program other;
  const auto weight = other.model->parameters()[0].detach().clone();
  const auto random = random_state()["torch_cpu"].clone();
  auto state = other.state();
  state.models.clear();
  EXPECT_ERROR(
      load_state(directory / "c", state), "has 1 models, but the program 0");
  state = other.state();
  state.optimizers.push_back(&program.optimizer);
  EXPECT_ERROR(load_state(directory / "c", state), "has 1 optimizers");
  // The model fits, the optimizer does not: still nothing is changed.
  torch::optim::SGD sgd(other.model->parameters(), torch::optim::SGDOptions(1));
  state = other.state();
  state.optimizers = {&sgd};
  EXPECT_ERROR(
      load_state(directory / "c", state),
      "'optimizer.json' of optimizer 0 is that of 'AdamW', but the optimizer is "
      "'SGD'. Make and prepare the same");
  const auto file = directory / "c/optimizer.safetensors";
  auto content = read_file(file);
  content.back() ^= 1;
  write_file(file, content);
  EXPECT_ERROR(
      load_state(directory / "c", other.state()),
      "content of 'optimizer.safetensors'");
  EXPECT_TRUE(identical(other.model->parameters()[0], weight));
  EXPECT_TRUE(identical(random_state()["torch_cpu"], random));
  EXPECT_ERROR(
      load_state(golden("checkpoints/checkpoint_2"), other.state()),
      "not a complete checkpoint");

  state = program.state();
  state.extras = {{"a/b", ""}};
  EXPECT_ERROR(save_state(directory / "d", state), "'a/b' cannot name");
  state.extras = {{"a", ""}, {"a", ""}};
  EXPECT_ERROR(save_state(directory / "d", state), "have the name 'a'");
  state = program.state();
  state.loaders = "{";
  EXPECT_ERROR(save_state(directory / "d", state), "loaders' state");
  EXPECT_FALSE(fs::exists(directory / "d"));
}

TEST(State, SeveralProcessesWriteOneCheckpoint) {
  const TemporaryDirectory directory;
  Program program;
  const auto errors = run_processes(3, [&](const Processes& processes) {
    auto state = program.state();
    state.step = 10 + processes.rank;
    state.loaders = std::to_string(processes.rank);
    const auto path =
        save_state_numbered(directory.path(), 1, state, processes);
    EXPECT_EQ(path, directory / "checkpoint_0");
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  const auto path = directory / "checkpoint_0";
  EXPECT_EQ(verify_checkpoint(path).world_size, 3);

  // More processes than there were: the others have rank 0's place, and since
  // the generators were equal on all of them, theirs as well.
  const auto saved = random_state()["torch_cpu"].clone();
  std::vector<LoadedState> loaded(4);
  run_processes(4, [&](const Processes& processes) {
    Program own;
    loaded[processes.rank] = load_state(path, own.state(), processes);
  });
  EXPECT_EQ(loaded[2].step, 12);
  EXPECT_EQ(loaded[2].loaders, "2");
  EXPECT_EQ(loaded[2].random, RandomOrigin::kOwn);
  EXPECT_EQ(loaded[3].step, 10);
  EXPECT_EQ(loaded[3].loaders, "0");
  EXPECT_EQ(loaded[3].random, RandomOrigin::kShared);
  EXPECT_TRUE(identical(random_state()["torch_cpu"], saved));
}

// The processes check a part of the files each: none may believe one that another is
// still checking.
TEST(State, DamageIsSaidBeforeWhatADamagedFileSays) {
  const TemporaryDirectory directory;
  Program program;
  save_state(directory / "c", program.state());
  const auto file = directory / "c/state.json";
  auto text = read_file(file);
  const auto digit = text.find('1', text.find("models"));
  ASSERT_NE(digit, std::string::npos) << text;
  text[digit] = '2';
  write_file(file, text);
  const auto errors = run_processes(4, [&](const Processes& processes) {
    Program own;
    load_state(directory / "c", own.state(), processes);
  });
  for (const auto& error : errors) {
    EXPECT_NE(error.find("content of 'state.json' is not what was saved"), error.npos)
        << error;
  }
}

TEST(State, ProcessesThatWereNotThereGetGeneratorsOfTheirOwn) {
  const TemporaryDirectory directory;
  Program program;
  torch::manual_seed(4);
  save_state(directory / "c", program.state());
  const auto draw = [&](int64_t rank) {
    Program own;
    const auto loaded = load_state(
        directory / "c", own.state(), {rank, 3, [](const std::string& text) {
                                         return std::vector<std::string>(
                                             3, text);
                                       }});
    EXPECT_EQ(
        loaded.random, rank == 0 ? RandomOrigin::kOwn : RandomOrigin::kDerived);
    return torch::rand({4});
  };
  const auto first = draw(0), second = draw(1), third = draw(2);
  EXPECT_FALSE(identical(first, second));
  EXPECT_FALSE(identical(second, third));
  EXPECT_TRUE(identical(draw(1), second));
}

TEST(State, WhenOneProcessFailsAllFailAndTheOldCheckpointStays) {
  const TemporaryDirectory directory;
  Program program;
  save_state(directory / "c", program.state());
  const auto errors = run_processes(3, [&](const Processes& processes) {
    auto state = program.state();
    if (processes.rank == 1) {
      state.before_save = [](const std::string&) {
        TORCH_CHECK(false, "disk on fire");
      };
    }
    save_state(directory / "c", state, processes);
  });
  EXPECT_NE(
      errors[0].find("failed on process 1: disk on fire"), std::string::npos);
  EXPECT_EQ(errors[1], "disk on fire");
  EXPECT_NE(
      errors[2].find("failed on process 1: disk on fire"), std::string::npos);
  EXPECT_EQ(verify_checkpoint(directory / "c").world_size, 1);
  EXPECT_FALSE(fs::exists(directory / ".c.incomplete"));

  // One process's mistake is everyone's error before anybody has changed.
  const auto load_errors = run_processes(2, [&](const Processes& processes) {
    Program own;
    auto state = own.state();
    const auto before = own.model->parameters()[0].detach().clone();
    if (processes.rank == 1) {
      state.models.clear();
    }
    try {
      load_state(directory / "c", state, processes);
    } catch (...) {
      EXPECT_TRUE(identical(own.model->parameters()[0], before));
      throw;
    }
  });
  EXPECT_NE(load_errors[0].find("failed on process 1"), std::string::npos);
  EXPECT_NE(load_errors[1].find("has 1 models"), std::string::npos);
}

} // namespace
} // namespace accel::checkpoint::test
