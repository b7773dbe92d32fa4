#include "support.h"

#include <accel/checkpoint/model_files.h>
#include <accel/checkpoint/optimizer_state.h>
#include <accel/checkpoint/random_state.h>
#include <accel/optim/optimizer.h>

#include <caffe2/serialize/inline_container.h>
#include <nlohmann/json.hpp>

#include <filesystem>

namespace accel::checkpoint::test {
namespace {

using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(
    std::vector<torch::optim::OptimizerParamGroup>)>;

template <typename Optimizer, typename Options>
Make make(Options options) {
  return [options](auto groups) {
    return std::make_unique<Optimizer>(std::move(groups), options);
  };
}

/// A training run: a model, its optimizer in two groups (one for LBFGS), and
/// data that is the same in every run.
struct Training {
  Training(const Make& make, bool two_groups = true) {
    torch::manual_seed(3);
    model = torch::nn::Sequential(
        torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
    model->to(torch::kDouble);
    x = torch::randn({16, 4}, torch::kDouble);
    y = torch::randn({16, 1}, torch::kDouble);
    auto all = model->parameters();
    std::vector<torch::optim::OptimizerParamGroup> groups;
    if (two_groups) {
      groups.emplace_back(
          std::vector<at::Tensor>(all.begin(), all.begin() + 2));
      groups.emplace_back(std::vector<at::Tensor>(all.begin() + 2, all.end()));
    } else {
      groups.emplace_back(all);
    }
    optimizer = make(std::move(groups));
  }

  double step() {
    return optimizer
        ->step([this] {
          optimizer->zero_grad();
          auto loss = torch::mse_loss(model->forward(x), y);
          loss.backward();
          return loss;
        })
        .item<double>();
  }

  std::vector<double> steps(int count) {
    std::vector<double> losses;
    for (int i = 0; i < count; ++i) {
      losses.push_back(step());
    }
    return losses;
  }

  torch::nn::Sequential model;
  at::Tensor x, y;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

/// Trains 4 steps, saves through files, and goes on in another run: the losses
/// must be those of a run that was not interrupted, to the last bit.
void expect_resumes(const Make& make, bool two_groups = true) {
  const TemporaryDirectory directory;
  Training whole(make, two_groups);
  // Options are part of the state.
  const auto change = [](Training& run) {
    for (auto& group : run.optimizer->param_groups()) {
      group.options().set_lr(group.options().get_lr() * 0.7);
    }
  };
  whole.steps(2);
  change(whole);
  whole.steps(2);
  const auto saved = optimizer_state(*whole.optimizer);
  save_safetensors(saved.tensors, directory / "optimizer");
  save_model(*whole.model, directory.path());
  const auto expected = whole.steps(5);

  Training resumed(make, two_groups);
  resumed.steps(3); // a state that has to go
  load_model(*resumed.model, directory.path());
  load_optimizer_state(
      *resumed.optimizer,
      {saved.json, load_safetensors(directory / "optimizer")});
  EXPECT_EQ(resumed.steps(5), expected);
  // And what it saves is the same again.
  const auto again = optimizer_state(*resumed.optimizer);
  const auto later = optimizer_state(*whole.optimizer);
  EXPECT_EQ(again.json, later.json);
  ASSERT_EQ(again.tensors.size(), later.tensors.size());
  for (const auto& item : again.tensors) {
    if (item.key() == "archive") {
      continue; // LibTorch writes addresses into it
    }
    EXPECT_TRUE(identical(item.value(), later.tensors[item.key()]))
        << item.key();
  }
}

/// An optimizer of a user's own, with a number of its own.
class Halving : public torch::optim::SGD {
 public:
  using SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    auto loss = SGD::step(std::move(closure));
    for (auto& group : param_groups()) {
      group.options().set_lr(
          group.options().get_lr() * (++steps_ > 3 ? 0.5 : 1));
    }
    return loss;
  }
  void save(torch::serialize::OutputArchive& archive) const override {
    SGD::save(archive);
    archive.write("steps", c10::IValue(steps_));
  }
  void load(torch::serialize::InputArchive& archive) override {
    SGD::load(archive);
    c10::IValue steps;
    archive.read("steps", steps);
    steps_ = steps.toInt();
  }

 private:
  int64_t steps_ = 0;
};

class Forgetful : public torch::optim::Optimizer {
 public:
  explicit Forgetful(std::vector<at::Tensor> parameters)
      : Optimizer(
            {torch::optim::OptimizerParamGroup(std::move(parameters))},
            std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure) override {
    return {};
  }
};

using namespace torch::optim;

TEST(OptimizerState, SGDResumes) {
  expect_resumes(make<SGD>(SGDOptions(0.1)));
  expect_resumes(make<SGD>(
      SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(1e-3)));
}

TEST(OptimizerState, AdamResumes) {
  expect_resumes(make<Adam>(AdamOptions(0.01).betas({0.8, 0.99})));
  expect_resumes(make<Adam>(AdamOptions(0.01).amsgrad(true)));
}

TEST(OptimizerState, AdamWResumes) {
  expect_resumes(make<AdamW>(AdamWOptions(0.01).weight_decay(0.1)));
  expect_resumes(make<accel::AcceleratedOptimizer<AdamW>>(AdamWOptions(0.01)));
}

TEST(OptimizerState, AdagradResumes) {
  expect_resumes(make<Adagrad>(
      AdagradOptions(0.05).lr_decay(0.01).initial_accumulator_value(0.1)));
}

TEST(OptimizerState, RMSpropResumes) {
  expect_resumes(make<RMSprop>(RMSpropOptions(0.01)));
  expect_resumes(
      make<RMSprop>(RMSpropOptions(0.01).momentum(0.9).centered(true)));
}

TEST(OptimizerState, LBFGSResumes) {
  expect_resumes(
      make<LBFGS>(LBFGSOptions(0.3).max_iter(4).history_size(3)), false);
  expect_resumes(
      make<LBFGS>(LBFGSOptions(1).max_iter(3).line_search_fn("strong_wolfe")),
      false);
}

TEST(OptimizerState, UsersOwnClassesKeepWhatTheirSaveWrites) {
  expect_resumes(make<Halving>(SGDOptions(0.1).momentum(0.9)));
  Training run(make<Halving>(SGDOptions(0.1)));
  EXPECT_EQ(optimizer_state(*run.optimizer).tensors.keys()[0], "archive");
  Forgetful forgetful(run.model->parameters());
  EXPECT_ERROR(optimizer_state(forgetful), "Forgetful");
  EXPECT_ERROR(optimizer_state(forgetful), "writes nothing");
}

TEST(OptimizerState, HasPythonsNamesAndNumbers) {
  Training run(make<AdamW>(AdamWOptions(0.25)));
  run.steps(2);
  const auto state = optimizer_state(*run.optimizer);
  const auto json = nlohmann::json::parse(state.json);
  EXPECT_EQ(json["optimizer"], "AdamW");
  EXPECT_EQ(json["param_groups"][0]["params"], nlohmann::json({0, 1}));
  EXPECT_EQ(json["param_groups"][1]["params"], nlohmann::json({2, 3}));
  EXPECT_EQ(json["param_groups"][1]["lr"], 0.25);
  EXPECT_EQ(json["param_groups"][1]["betas"], nlohmann::json({0.9, 0.999}));
  EXPECT_EQ(json["state"]["3"]["step"], 2);
  EXPECT_EQ(state.tensors["state.2.exp_avg"].sizes(), (at::IntArrayRef{1, 8}));
  EXPECT_EQ(state.tensors.size(), 8u);
}

TEST(OptimizerState, RefusesWhatDoesNotFitAndChangesNothing) {
  Training run(make<AdamW>(AdamWOptions(0.25)));
  run.steps(2);
  const auto good = optimizer_state(*run.optimizer);
  const auto with = [&](const std::function<void(nlohmann::json&)>& change,
                        StateDict tensors) {
    auto json = nlohmann::json::parse(good.json);
    change(json);
    return error_of([&] {
      load_optimizer_state(*run.optimizer, {json.dump(), tensors});
    });
  };
  const auto expect = [&](const std::string& part,
                          const std::function<void(nlohmann::json&)>& change) {
    const auto message = with(change, good.tensors);
    EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
  };
  expect("is that of 'Adam'", [](auto& j) { j["optimizer"] = "Adam"; });
  expect("format version 9", [](auto& j) { j["format_version"] = 9; });
  expect("has 1 parameter groups", [](auto& j) { j["param_groups"].erase(0); });
  expect("of 1 parameters, but", [](auto& j) {
    j["param_groups"][0]["params"] = {0};
  });
  expect("not numbered in order", [](auto& j) {
    j["param_groups"][0]["params"] = {1, 0};
  });
  expect("no 'lr'", [](auto& j) { j["param_groups"][0].erase("lr"); });
  expect("'lr' is '\"x\"', not a number", [](auto& j) {
    j["param_groups"][0]["lr"] = "x";
  });
  expect("option that is not known", [](auto& j) {
    j["param_groups"][0]["maximize"] = false;
  });
  expect(
      "not two numbers", [](auto& j) { j["param_groups"][0]["betas"] = {1}; });
  expect("not true or false", [](auto& j) {
    j["param_groups"][0]["amsgrad"] = 1;
  });
  expect("parameter '4'", [](auto& j) { j["state"]["4"] = j["state"]["3"]; });
  expect("parameter 'x'", [](auto& j) { j["state"]["x"] = j["state"]["3"]; });
  expect("no 'step'", [](auto& j) { j["state"]["3"].erase("step"); });
  expect("not known here", [](auto& j) { j["state"]["3"]["more"] = 1; });
  expect("not known here", [](auto& j) { j["state"].erase("3"); });

  StateDict wrong = good.tensors;
  wrong["state.2.exp_avg"] = torch::zeros({8, 1}, torch::kDouble);
  EXPECT_NE(
      with([](auto&) {}, wrong).find("'state.2.exp_avg' has the shape [8, 1]"),
      std::string::npos);
  EXPECT_ERROR(
      load_optimizer_state(*run.optimizer, {"{", StateDict()}), "not JSON");
  EXPECT_EQ(optimizer_state(*run.optimizer).json, good.json);
}

TEST(OptimizerState, NamesKeepParametersApart) {
  Training run(make<SGD>(SGDOptions(0.1).momentum(0.9)));
  run.steps(1);
  ParameterNames names;
  for (const auto& item : run.model->named_parameters()) {
    names[item.value().unsafeGetTensorImpl()] = item.key();
  }
  const auto state = optimizer_state(*run.optimizer, names);
  load_optimizer_state(*run.optimizer, state, names);
  load_optimizer_state(*run.optimizer, state);
  std::swap(
      names[run.model->parameters()[0].unsafeGetTensorImpl()],
      names[run.model->parameters()[2].unsafeGetTensorImpl()]);
  EXPECT_ERROR(
      load_optimizer_state(*run.optimizer, state, names),
      "parameter 0 was '\"0.weight\"' and is now '\"2.weight\"'");
}

TEST(OptimizerState, NumbersThatJsonLacksSurvive) {
  Training run(make<SGD>(SGDOptions(0.1)));
  run.optimizer->param_groups()[0].options().set_lr(
      std::numeric_limits<double>::infinity());
  run.optimizer->param_groups()[1].options().set_lr(0.1 + 0.2);
  const auto state = optimizer_state(*run.optimizer);
  Training other(make<SGD>(SGDOptions(0.5)));
  load_optimizer_state(*other.optimizer, state);
  EXPECT_EQ(
      other.optimizer->param_groups()[0].options().get_lr(),
      std::numeric_limits<double>::infinity());
  EXPECT_EQ(other.optimizer->param_groups()[1].options().get_lr(), 0.1 + 0.2);
}

TEST(PythonOptimizer, ReadsAcceleratesOptimizerBin) {
  auto model = golden_model();
  torch::optim::AdamW optimizer(model->parameters(), AdamWOptions(1));
  const auto path = golden("checkpoints/checkpoint_2/optimizer.bin");
  const auto state = read_python_optimizer(path, optimizer);
  load_optimizer_state(optimizer, state);
  const auto& options =
      static_cast<AdamWOptions&>(optimizer.param_groups()[0].options());
  const auto expected =
      nlohmann::json::parse(read_file(golden("expected.json")));
  EXPECT_EQ(options.lr(), expected["lr"].get<double>());
  EXPECT_EQ(options.weight_decay(), 0.01);
  ASSERT_EQ(optimizer.state().size(), 6u);
  for (const auto& parameter : model->parameters()) {
    const auto& entry = static_cast<AdamWParamState&>(
        *optimizer.state().at(parameter.unsafeGetTensorImpl()));
    EXPECT_EQ(entry.step(), 9);
    EXPECT_EQ(entry.exp_avg().sizes(), parameter.sizes());
    EXPECT_TRUE(entry.exp_avg_sq().ge(0).all().item<bool>());
    EXPECT_FALSE(entry.max_exp_avg_sq().defined());
  }
  // The file's own bytes of the last bias's state.
  const auto& last = static_cast<AdamWParamState&>(
      *optimizer.state().at(model->parameters().back().unsafeGetTensorImpl()));
  EXPECT_TRUE(identical(
      last.exp_avg(),
      torch::tensor(
          {-0.033935341984033585f,
           0.01493368111550808f,
           0.019001659005880356f})));
  torch::optim::Adam adam(model->parameters());
  EXPECT_ERROR(read_python_optimizer(path, adam), "decoupled_weight_decay");
  torch::optim::SGD sgd(model->parameters(), SGDOptions(0.1));
  EXPECT_ERROR(read_python_optimizer(path, sgd), "no 'dampening'");
  EXPECT_ERROR(read_python_optimizer("/nowhere", optimizer), "No such file");
}

TEST(PythonOptimizer, WhatAPickleWantsToRunIsNotRun) {
  const TemporaryDirectory directory;
  const auto mark = directory / "executed";
  const std::string command = "touch " + mark;
  // os.system(command), as Python's pickle writes it and runs it when loading.
  std::string pickle = "\x80\x02" "cposix\nsystem\nX";
  pickle += static_cast<char>(command.size());
  pickle += std::string(3, '\0') + command + "\x85R.";
  const auto path = directory / "optimizer.bin";
  {
    caffe2::serialize::PyTorchStreamWriter writer(path);
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    writer.writeEndOfFile();
  }
  torch::nn::Linear model(2, 2);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  EXPECT_ERROR(read_python_optimizer(path, optimizer), "posix");
  EXPECT_FALSE(std::filesystem::exists(mark));
}

/// A copy of one of Accelerate's files, its pickle changed.
void change_pickle(
    const std::string& from,
    const std::string& to,
    const std::function<void(std::string&)>& change) {
  caffe2::serialize::PyTorchStreamReader reader(from);
  caffe2::serialize::PyTorchStreamWriter writer(to);
  for (const auto& name : reader.getAllRecords()) {
    const auto record = reader.getRecord(name);
    std::string bytes(
        static_cast<const char*>(std::get<0>(record).get()),
        std::get<1>(record));
    if (name == "data.pkl") {
      change(bytes);
    }
    if (name.rfind(".data/", 0) != 0 && name != "version") {
      writer.writeRecord(name, bytes.data(), bytes.size());
    }
  }
  writer.writeEndOfFile();
}

TEST(PythonOptimizer, SizesThatAreNotThereAreRefused) {
  const TemporaryDirectory directory;
  const auto path = directory / "optimizer.bin";
  auto model = golden_model();
  torch::optim::AdamW optimizer(model->parameters(), AdamWOptions(1));
  const auto replace = [](std::string& text,
                          const std::string& from,
                          const std::string& to) {
    const size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos);
    text.replace(place, from.size(), to);
  };
  using std::string_literals::operator""s;
  const auto read_changed =
      [&](const std::function<void(std::string&)>& change) {
        change_pickle(
            golden("checkpoints/checkpoint_2/optimizer.bin"), path, change);
        return read_python_optimizer(path, optimizer);
      };
  // Unchanged, so that what follows is refused for what is changed.
  EXPECT_EQ(read_changed([](std::string&) {}).tensors.size(), 12u);
  // Two tensors of 40 x 6 floats, 240 elements each, come first.
  const std::string shape = "K\x28K\x06\x86"s;
  const std::string elements = "K\xf0"s;
  EXPECT_ERROR(
      read_changed([&](std::string& pickle) {
        replace(pickle, shape, "K\xffK\x06\x86"s);
      }),
      "960 bytes"); // newer releases of LibTorch see this one themselves
  EXPECT_ERROR(
      read_changed([&](std::string& pickle) {
        replace(pickle, elements, "K\xff"s);
        replace(pickle, shape, "K\x2aK\x06\x86"s);
      }),
      "ends at byte 1008 of a member that has only 960 bytes");
  // 68 GB of places, and 2 GB of text.
  EXPECT_ERROR(
      read_changed([&](std::string& pickle) {
        replace(pickle, "q\x00"s, "r\xff\xff\xff\xff"s);
      }),
      "place 4294967295 of the memo");
  EXPECT_ERROR(
      read_changed([&](std::string& pickle) {
        replace(pickle, "X\x05\0\0\0state"s, "X\x05\0\0\x80state"s);
      }),
      "goes on for 2147483653 bytes");
  EXPECT_ERROR(
      read_changed([&](std::string& pickle) { pickle.resize(100); }),
      "damaged or cut off");
  EXPECT_ERROR(
      read_changed([&](std::string& pickle) { pickle[2] = '\xff'; }),
      "is 255, which is no instruction");
}

TEST(Scheduler, StepLRResumes) {
  const auto train = [](int before, int after) {
    auto parameter = torch::zeros({1}, torch::requires_grad());
    torch::optim::SGD first({parameter}, SGDOptions(1));
    torch::optim::StepLR first_scheduler(first, 3, 0.5);
    for (int i = 0; i < before; ++i) {
      first_scheduler.step();
    }
    torch::optim::SGD second({parameter}, SGDOptions(1));
    torch::optim::StepLR second_scheduler(second, 3, 0.5);
    load_optimizer_state(second, optimizer_state(first));
    load_scheduler_state(second_scheduler, scheduler_state(first_scheduler));
    std::vector<double> rates;
    for (int i = 0; i < after; ++i) {
      second_scheduler.step();
      rates.push_back(second.param_groups()[0].options().get_lr());
    }
    return rates;
  };
  const auto whole = train(0, 12);
  for (int before = 1; before < 8; ++before) {
    EXPECT_EQ(
        train(before, 12 - before),
        std::vector<double>(whole.begin() + before, whole.end()))
        << before;
  }
  torch::optim::SGD optimizer({torch::zeros({1})}, SGDOptions(1));
  torch::optim::StepLR scheduler(optimizer, 3);
  EXPECT_ERROR(load_scheduler_state(scheduler, "{}"), "no 'step_count'");
  EXPECT_ERROR(
      load_scheduler_state(scheduler, "{\"step_count\":-1}"), "step_count");
}

TEST(RandomState, ComesBack) {
  torch::manual_seed(11);
  torch::randn({3}); // leaves a half-used pair of normal numbers
  const auto state = random_state();
  EXPECT_EQ(state["torch_cpu"].numel(), 5056);
  StateDict kept;
  for (const auto& item : state) {
    kept.insert(item.key(), item.value().clone());
  }
  const auto first = torch::randn({5});
  load_random_state(kept);
  EXPECT_TRUE(identical(torch::randn({5}), first));

  EXPECT_ERROR(load_random_state(StateDict()), "no 'torch_cpu'");
  StateDict cut;
  cut.insert("torch_cpu", kept["torch_cpu"].slice(0, 0, 100).clone());
  EXPECT_ERROR(load_random_state(cut), "[5056]");
  const auto next = torch::rand({1});
  load_random_state(kept);
  torch::randn({5});
  EXPECT_TRUE(identical(torch::rand({1}), next));
}

} // namespace
} // namespace accel::checkpoint::test
