// Checkpoints of divided models: whole, and in the parts that each process holds.

#include "training.h"

#include "build_paths.h"

#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace accel::test {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Loads SHARDED_FROM where it is given, trains SHARDED_STEPS from step
/// SHARDED_BEGIN, saves to SHARDED_TO.
ACCEL_RANK_FUNCTION(sharded_checkpoint) {
  const auto folder = variable("SHARDED_FOLDER") + "/";
  const auto how = variable("SHARDED_HOW"); // "plain", "sharded" or "tensor"
  const bool cut = how != "plain";
  Accelerator accelerator(
      how == "sharded" ? sharded() : AcceleratorOptions().match_single_device(true));
  const auto net = std::make_shared<Net>();
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  if (!variable("SHARDED_FROM").empty()) {
    accelerator.load_state(folder + variable("SHARDED_FROM"));
  }
  const bool parts = ad::is_distributed(net->table->weight);
  EXPECT_EQ(parts, cut && accelerator.num_processes() > 1);
  const int64_t begin = std::stol(variable("SHARDED_BEGIN"));
  for (int64_t i = begin; i < begin + std::stol(variable("SHARDED_STEPS")); ++i) {
    const double loss = step(&accelerator, net, optimizer, i);
    if (accelerator.is_main_process()) {
      char text[40];
      std::snprintf(text, sizeof text, "%.12f\n", loss);
      std::cout << text;
    }
  }
  SaveStateOptions options;
  options.asynchronous(variable("SHARDED_ASYNCHRONOUS") == "1");
  accelerator.save_state(folder + variable("SHARDED_TO"), options);
  accelerator.wait_for_checkpoint();
  const auto to = folder + variable("SHARDED_TO") + "_files";
  accelerator.save_model(net, to);
  const auto state = accelerator.get_state_dict(net);
  for (const auto& item : state) {
    EXPECT_FALSE(ad::is_distributed(item.value())) << item.key();
  }
  accelerator.save(optimizer, to + "/optimizer.pt");
  accelerator.wait_for_everyone();
  EXPECT_EQ(ad::is_distributed(net->table->weight), parts); // and is so again
}

TEST(ShardedCheckpoints, AreWholeAndFitAnyNumberOfProcesses) {
  const Folder folder;
  const auto go = [&](const char* how, int processes, const char* from,
                      const char* to, int begin, int steps, const char* async = "0") {
    return run_and_expect_success(
               "sharded_checkpoint", processes,
               folder.options({{"SHARDED_HOW", how}, {"SHARDED_FROM", from},
                               {"SHARDED_TO", to},
                               {"SHARDED_BEGIN", std::to_string(begin)},
                               {"SHARDED_STEPS", std::to_string(steps)},
                               {"SHARDED_ASYNCHRONOUS", async}}))
        .at(0)
        .output;
  };
  const auto same_files = [&](const std::string& a, const std::string& b) {
    for (const char* file :
         {"/model.safetensors", "/optimizer.safetensors", "/optimizer.json"}) {
      EXPECT_EQ(bytes_of(folder.path + "/" + a + file),
                bytes_of(folder.path + "/" + b + file)) << a << b << file;
    }
    for (const char* file : {"_files/model.safetensors", "_files/optimizer.pt"}) {
      EXPECT_EQ(bytes_of(folder.path + "/" + a + file).size(),
                bytes_of(folder.path + "/" + b + file).size()) << file;
    }
    EXPECT_EQ(bytes_of(folder.path + "/" + a + "_files/model.safetensors"),
              bytes_of(folder.path + "/" + b + "_files/model.safetensors"));
  };
  const auto all = go("plain", 1, "", "all", 0, 6);
  const auto first = go("sharded", 3, "", "three", 0, 3);
  EXPECT_EQ(all.substr(0, first.size()), first);
  const auto rest = all.substr(first.size());
  // Onto one process, as plain data parallelism, and back: the same files.
  go("plain", 1, "three", "one", 3, 0);
  same_files("three", "one");
  go("sharded", 2, "one", "two", 3, 0, "1");
  same_files("three", "two");
  go("plain", 2, "two", "plain2", 3, 0);
  same_files("three", "plain2");
  // And whoever loads them goes on as one device does.
  EXPECT_EQ(go("sharded", 2, "plain2", "a", 3, 3), rest);
  EXPECT_EQ(go("sharded", 4, "three", "b", 3, 3), rest);
  EXPECT_EQ(go("plain", 3, "two", "c", 3, 3), rest);
}

using Environment = std::map<std::string, std::optional<std::string>>;

Environment mesh(int replicate, int shard, int tensor) {
  return {{"ACCELERATE_USE_PARALLELISM_CONFIG", "true"},
          {"PARALLELISM_CONFIG_DP_REPLICATE_SIZE", std::to_string(replicate)},
          {"PARALLELISM_CONFIG_DP_SHARD_SIZE", std::to_string(shard)},
          {"PARALLELISM_CONFIG_TP_SIZE", std::to_string(tensor)}};
}

/// Trains, saves and loads in parts, on every mesh.
TEST(ShardedCheckpoints, InPartsFitAnyMesh) {
  const Folder folder;
  const auto go = [&](const char* how, int processes, Environment environment,
                      const char* from, const char* to, int begin, int steps) {
    environment.insert(
        {{"SHARDED_HOW", how}, {"SHARDED_FROM", from}, {"SHARDED_TO", to},
         {"SHARDED_BEGIN", std::to_string(begin)},
         {"SHARDED_STEPS", std::to_string(steps)},
         {"SHARDED_ASYNCHRONOUS", std::string(to) == "async" ? "1" : "0"},
         {"FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT"}});
    return run_and_expect_success(
               "sharded_checkpoint", processes, folder.options(environment))
        .at(0)
        .output;
  };
  const auto all = go("plain", 1, {}, "", "all", 0, 6);
  const auto first = go("sharded", 3, {}, "", "three", 0, 3);
  EXPECT_EQ(all.substr(0, first.size()), first);
  const auto rest = all.substr(first.size());
  // Nothing of the three is whole, and nothing is there twice.
  uint64_t bytes = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder.path + "/three")) {
    const auto name = entry.path().filename().string();
    EXPECT_NE(name, "model.safetensors");
    EXPECT_NE(name, "optimizer.safetensors");
    if (name.rfind("optimizer.process_", 0) == 0) {
      for (const auto& tensor :
           checkpoint::load_safetensors(entry.path().string(), /*copy=*/true)) {
        bytes += tensor.value().nbytes();
      }
    }
  }
  // What is frozen or not used has no state: 42 + 36 + 6 + 6 + 6 + 7 + 1 values.
  EXPECT_EQ(bytes, 2 * 104 * sizeof(double));
  // Onto one process, where the files are those of a run that was never divided.
  go("plain", 1, {}, "three", "one", 3, 0);
  const auto same_files = [&](const std::string& other) {
    for (const char* file :
         {"/model.safetensors", "/optimizer.safetensors", "/optimizer.json"}) {
      EXPECT_EQ(bytes_of(folder.path + "/one" + file),
                bytes_of(folder.path + "/" + other + file)) << other << file;
    }
  };
  // From mesh to mesh: the values stay what they were, bit for bit.
  go("sharded", 2, {}, "three", "two", 3, 0);
  go("sharded", 4, mesh(2, 2, 1), "two", "hybrid", 3, 0);
  go("tensor", 2, mesh(1, 1, 2), "hybrid", "tensor", 3, 0);
  go("sharded", 4, mesh(1, 2, 2), "tensor", "async", 3, 0);
  go("plain", 2, {}, "async", "whole", 3, 0);
  same_files("whole");
  // Of the groups that hold the same, one has written.
  EXPECT_TRUE(std::filesystem::exists(
      folder.path + "/hybrid/model.process_1.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(
      folder.path + "/hybrid/model.process_2.safetensors"));
  // And back, from files that are whole.
  go("sharded", 3, {}, "whole", "back", 3, 0);
  for (const char* file : {"/model.process_0.safetensors",
                           "/model.process_2.safetensors",
                           "/optimizer.process_1.safetensors"}) {
    EXPECT_EQ(bytes_of(folder.path + "/three" + file),
              bytes_of(folder.path + "/back" + file)) << file;
  }
  // Whoever loads them goes on as one device does.
  for (const char* from : {"three", "hybrid", "tensor", "async", "whole"}) {
    EXPECT_EQ(go("sharded", 2, {}, from, "a", 3, 3), rest) << from;
  }
  EXPECT_EQ(go("sharded", 4, mesh(1, 2, 2), "three", "b", 3, 3), rest);
  EXPECT_EQ(go("plain", 3, {}, "hybrid", "c", 3, 3), rest);
  // The tool makes the files that Python reads of each of them.
  for (const char* from : {"three", "two", "hybrid", "tensor", "async"}) {
    const std::string to = folder.path + "/" + from + ".safetensors";
    const std::string command = std::string(build_paths::kAccel) +
        " merge-weights " + folder.path + "/" + from + " " + to;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    EXPECT_EQ(bytes_of(to), bytes_of(folder.path + "/one/model.safetensors"));
  }
}

/// A parameter that somebody looks at as a whole, hooks, and a model that is not the
/// one that was saved.
ACCEL_RANK_FUNCTION(sharded_checkpoint_by_hand) {
  const auto path = variable("SHARDED_FOLDER") + "/state";
  Accelerator accelerator(sharded());
  const auto net = std::make_shared<Net>();
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  step(&accelerator, net, optimizer, 0);
  const auto row = net->first->weight.detach()[2];
  const auto sum = [&] {
    double all = 0;
    for (const auto& parameter : net->parameters()) {
      all += parameter.detach().abs().sum().item<double>();
    }
    return all;
  };
  const double saved = sum();
  std::vector<bool> whole;
  const auto look = [&](std::vector<nn::Module*>& models, const std::string&) {
    whole.push_back(!ad::is_distributed(models.at(0)->parameters().at(0)));
  };
  if (variable("FSDP_STATE_DICT_TYPE") == "SHARDED_STATE_DICT") {
    const auto hook = accelerator.register_save_state_pre_hook(look);
    accelerator.save_state(path);
  } else {
    accelerator.save_state(path); // one tensor after another
    whole.push_back(true);
  }
  EXPECT_TRUE(ad::is_distributed(net->table->weight));
  step(&accelerator, net, optimizer, 1);
  EXPECT_NE(sum(), saved);
  accelerator.load_state(path);
  EXPECT_EQ(sum(), saved);
  step(&accelerator, net, optimizer, 1);
  {
    const auto hook = accelerator.register_load_state_pre_hook(look);
    accelerator.load_state(path);
  }
  EXPECT_EQ(whole, std::vector<bool>({true, true}));
  EXPECT_EQ(sum(), saved);
  EXPECT_TRUE(ad::is_distributed(net->table->weight));
  // Everything is compared before anything is changed.
  const double before = step(&accelerator, net, optimizer, 1) + sum();
  nn::Linear other(nn::LinearOptions(3, 3));
  other->to(torch::kDouble);
  AcceleratedOptimizer<optim::SGD> sgd(other->parameters(), 0.1);
  accelerator.prepare(other, sgd);
  expect_error([&] { accelerator.load_state(path); }, "models, but the program");
  EXPECT_TRUE(ad::is_distributed(net->table->weight));
  EXPECT_NE(before, 0);
}

TEST(ShardedCheckpoints, WhatIsLookedAtAsAWhole) {
  for (const int processes : {2, 3}) {
    const Folder folder;
    for (const char* type : {"SHARDED_STATE_DICT", "FULL_STATE_DICT"}) {
      run_and_expect_success(
          "sharded_checkpoint_by_hand", processes,
          folder.options({{"FSDP_STATE_DICT_TYPE", type}}));
    }
  }
}

/// The peak of `save_state` and of `load_state` above what a training of 12 layers of
/// 4 MiB has: with Adam's states 144 MiB, of which each of 4 processes has 36.
ACCEL_RANK_FUNCTION(sharded_checkpoint_memory) {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 16);
  torch::set_num_threads(1);
  Accelerator accelerator(sharded());
  nn::Sequential net;
  for (int i = 0; i < 12; ++i) {
    net->push_back(nn::Linear(nn::LinearOptions(1024, 1024).bias(false)));
  }
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 1e-4);
  accelerator.prepare(net, optimizer);
  optimizer.zero_grad();
  accelerator.backward(
      net->forward(accelerator.distribute(torch::ones({8, 1024}))).mean());
  optimizer.step();
  optimizer.zero_grad();
  const auto peak = [](const char* what, auto&& work) {
    std::ofstream("/proc/self/clear_refs") << 5;
    // Without pages of files, which the system takes back where it needs them.
    const double before = megabytes("RssAnon:");
    std::atomic<bool> done{false};
    double most = before;
    std::thread watch([&] {
      while (!done) {
        most = std::max(most, megabytes("RssAnon:"));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    work();
    done = true;
    watch.join();
    std::cout << what << ' ' << most - before << '\n';
  };
  const auto path = variable("SHARDED_FOLDER") + "/state";
  peak("save", [&] { accelerator.save_state(path); });
  peak("load", [&] { accelerator.load_state(path); });
  peak("model", [&] { accelerator.save_model(net, path + "_files", "10MB"); });
}

TEST(ShardedMemory, CheckpointsPutNothingOrOneTensorTogether) {
  const auto peaks = [](const char* type) {
    const Folder folder;
    std::map<std::string, double> most;
    for (const auto& result : run_and_expect_success(
             "sharded_checkpoint_memory", 4,
             folder.options({{"FSDP_STATE_DICT_TYPE", type}}))) {
      std::istringstream text(result.output);
      std::string what;
      for (double megabytes = 0; text >> what >> megabytes;) {
        most[what] = std::max(most[what], megabytes);
      }
    }
    std::cout << type << ": save " << most["save"] << " MB, load "
              << most["load"] << " MB, save_model " << most["model"] << " MB\n";
    return most;
  };
  auto whole = peaks("FULL_STATE_DICT");
  // One tensor of 4 MiB at a time, and what gathering it takes.
  EXPECT_LT(whole["save"], 24);
  EXPECT_LT(whole["model"], 24);
  auto parts = peaks("SHARDED_STATE_DICT");
  EXPECT_LT(parts["save"], 12);
  EXPECT_LT(parts["load"], 12);
  // Files that are whole are read in parts as well.
  EXPECT_LT(whole["load"], 12);
}

/// Saves one checkpoint after another under one name until process 1 is killed; or
/// loads what is there, and says what it is.
ACCEL_RANK_FUNCTION(sharded_checkpoint_killed) {
  const auto path = variable("SHARDED_FOLDER") + "/last";
  Accelerator accelerator(sharded());
  torch::manual_seed(3);
  nn::Sequential net(nn::Linear(64, 64), nn::Linear(64, 64));
  AcceleratedOptimizer<optim::SGD> optimizer(
      net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  accelerator.prepare(net, optimizer);
  const auto mark = [&](double value) {
    torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) {
      parameter.fill_(value);
    }
  };
  if (variable("SHARDED_HOW") == "load") {
    accelerator.load_state(path);
    const double value = net->parameters()[0][0][0].item<double>();
    for (const auto& parameter : net->parameters()) {
      EXPECT_TRUE(torch::equal(parameter, torch::full_like(parameter, value)));
    }
    accelerator.cout() << value << '\n';
    return;
  }
  const double begin = std::stod(variable("SHARDED_BEGIN"));
  for (double value = begin;; ++value) {
    mark(value);
    if (accelerator.process_index() == 1 && value == begin + 2) {
      std::thread([] {
        std::this_thread::sleep_for(
            std::chrono::microseconds(std::stol(variable("SHARDED_STEPS"))));
        ::kill(::getpid(), SIGKILL);
      }).detach();
    }
    accelerator.save_state(path);
  }
}

void kill_while_saving(const char* type) {
  const Folder folder;
  std::mt19937 random(7);
  double newest = 0;
  for (int round = 0; round < 5; ++round) {
    const auto environment = [&](const char* how) {
      return folder.options(
          {{"SHARDED_HOW", how}, {"SHARDED_BEGIN", std::to_string(newest)},
           {"SHARDED_STEPS", std::to_string(random() % 20000)},
           {"FSDP_STATE_DICT_TYPE", type}});
    };
    const auto results = run("sharded_checkpoint_killed", 3, environment("save"));
    EXPECT_EQ(results[1].signal, SIGKILL);
    for (const int rank : {0, 2}) {
      EXPECT_FALSE(results[rank].timed_out);
      EXPECT_FALSE(results[rank].success());
    }
    // On another number of processes: a whole checkpoint of one save.
    const double value = std::stod(
        run_and_expect_success(
            "sharded_checkpoint_killed", 2 + round % 2, environment("load"))
            .at(0)
            .output);
    EXPECT_GE(value, newest + 1); // which was complete before the kill
    newest = value;
  }
}

TEST(ShardedCheckpoints, KilledWhileSavingInParts) {
  kill_while_saving("SHARDED_STATE_DICT");
}

TEST(ShardedCheckpoints, KilledWhilePuttingTogether) {
  kill_while_saving("FULL_STATE_DICT");
}

/// Process 0 cannot write whole files, in the middle of one: the others hear of it,
/// what was there before stays, and the training goes on.
ACCEL_RANK_FUNCTION(sharded_checkpoint_full_disk) {
  ::signal(SIGXFSZ, SIG_IGN);
  const auto path = variable("SHARDED_FOLDER") + "/state";
  Accelerator accelerator(sharded());
  torch::manual_seed(3);
  nn::Sequential net(nn::Linear(256, 256), nn::Linear(256, 256), nn::Linear(256, 1));
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  const auto train = [&] {
    optimizer.zero_grad();
    const auto loss =
        net->forward(accelerator.distribute(torch::ones({8, 256}))).mean();
    accelerator.backward(loss);
    optimizer.step();
    return loss.item<double>();
  };
  const auto sum = [&] {
    double all = 0;
    for (const auto& parameter : net->parameters()) {
      all += parameter.detach().abs().sum().item<double>();
    }
    return all;
  };
  train();
  accelerator.save_state(path);
  accelerator.save_model(net, path + "_files");
  const double saved = sum();
  const auto file = bytes_of(path + "_files/model.safetensors");
  const double next = train();
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  if (accelerator.is_main_process()) {
    const rlimit least{300 << 10, before.rlim_max}; // one weight, not two
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &least), 0);
  }
  expect_error([&] { accelerator.save_state(path); }, "File too large");
  expect_error([&] { accelerator.save_model(net, path + "_files"); }, "File too large");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(bytes_of(path + "_files/model.safetensors"), file);
  accelerator.load_state(path);
  EXPECT_EQ(sum(), saved);
  EXPECT_EQ(train(), next);
  accelerator.save_state(path);
}

TEST(ShardedCheckpoints, FullDiskWhilePuttingTogether) {
  const Folder folder;
  run_and_expect_success("sharded_checkpoint_full_disk", 3, folder.options({}));
}

/// Two hosts, each with a folder of its own and a process that writes: both have the
/// whole model, of parts that lie on both. One that cannot write does not stop the other
/// from putting tensors together, and both hear of it.
ACCEL_RANK_FUNCTION(sharded_checkpoint_hosts) {
  ::signal(SIGXFSZ, SIG_IGN);
  const int64_t rank = std::stol(variable("RANK"));
  ::setenv("LOCAL_RANK", std::to_string(rank % 2).c_str(), 1);
  ::setenv("LOCAL_WORLD_SIZE", "2", 1);
  ::setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  const auto host = [](int64_t number) {
    return variable("SHARDED_FOLDER") + "/host" + std::to_string(number);
  };
  const auto path = host(rank / 2);
  Accelerator accelerator(sharded().save_on_each_node(true));
  torch::manual_seed(3);
  nn::Sequential net(nn::Linear(256, 256), nn::Linear(256, 256));
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  optimizer.zero_grad();
  accelerator.backward(
      net->forward(accelerator.distribute(torch::ones({8, 256}))).mean());
  optimizer.step();
  accelerator.save_state(path + "/state");
  accelerator.save_model(net, path + "/model");
  accelerator.wait_for_everyone();
  for (const char* file : {"/state/model.safetensors", "/state/optimizer.safetensors",
                           "/model/model.safetensors"}) {
    EXPECT_EQ(bytes_of(host(0) + file), bytes_of(host(1) + file)) << file;
  }
  EXPECT_GT(bytes_of(path + "/model/model.safetensors").size(), 2 * 256 * 256 * 4);
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  if (rank == 2) {
    const rlimit least{300 << 10, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &least), 0);
  }
  expect_error([&] { accelerator.save_state(path + "/state"); }, "File too large");
  expect_error([&] { accelerator.save_model(net, path + "/model"); }, "File too large");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  accelerator.load_state(path + "/state");
}

TEST(ShardedCheckpoints, EachHostPutsItsFilesTogether) {
  const Folder folder;
  run_and_expect_success("sharded_checkpoint_hosts", 4, folder.options({}));
}

/// Version 2 of FSDP saves in parts, unless somebody says otherwise.
ACCEL_RANK_FUNCTION(sharded_checkpoint_version) {
  const auto type = [](const FullyShardedDataParallelPlugin& plugin) {
    return resolve(AcceleratorOptions().match_single_device(true).fsdp_plugin(plugin))
        .state_dict_type;
  };
  using Plugin = FullyShardedDataParallelPlugin;
  const bool second = variable("FSDP_VERSION") == "2";
  EXPECT_EQ(type(Plugin()),
            second ? StateDictType::kShardedStateDict : StateDictType::kFullStateDict);
  EXPECT_EQ(type(Plugin().fsdp_version(1)), StateDictType::kFullStateDict);
  EXPECT_EQ(type(Plugin().fsdp_version(2)), StateDictType::kShardedStateDict);
  EXPECT_EQ(type(Plugin().fsdp_version(2).state_dict_type(StateDictType::kFullStateDict)),
            StateDictType::kFullStateDict);
  expect_error([&] { type(Plugin().fsdp_version(3)); }, "fsdp_version is 3");
  const auto path = variable("SHARDED_FOLDER") + "/state";
  Accelerator accelerator(sharded());
  const auto net = std::make_shared<Net>();
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  accelerator.save_state(path);
  EXPECT_EQ(std::filesystem::exists(path + "/model.process_1.safetensors"), second);
  EXPECT_EQ(std::filesystem::exists(path + "/model.safetensors"), !second);
}

TEST(ShardedCheckpoints, SecondVersionSavesInParts) {
  for (const char* version : {"1", "2"}) {
    const Folder folder;
    run_and_expect_success(
        "sharded_checkpoint_version", 2,
        folder.options({{"FSDP_VERSION", version}}));
  }
}

} // namespace
} // namespace accel::test
