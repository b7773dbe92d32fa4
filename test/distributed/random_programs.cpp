// Random programs over tensors, beside plain LibTorch: operators, views, writes
// through views, branches on values, detached and used again, backward (twice),
// optimizer steps, tensors placed at random in between. Whatever plain tensors
// give, distributed ones give on 2, 3 and 2 x 2 ranks. A program that does not is
// shrunk to the instructions that it takes, and printed.
//
// A test of a few seconds for CI; also a command for long runs (--help).

#include "distributed/recompute.h"
#include "random_programs.h"
#include "test_options.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace accel::distributed::test {
namespace {

struct Options {
  double seconds = 20;
  uint64_t seed = 1;
  int64_t programs = 0;
  int64_t length = 30;
  std::string world;
  int64_t failures = 5;
  std::vector<uint64_t> found;
  bool print = false;
  bool recompute = false;
  bool layers = false;
  bool all_strides = false;
};

Options& options() {
  static Options all;
  return all;
}

TEST(RandomPrograms, GiveWhatPlainTensorsGive) {
  at::set_num_threads(1);
  const auto& all = options();
  std::vector<World> worlds{{"2", {2}}, {"3", {3}}, {"2x2", {2, 2}}};
  if (all.world == "1") {
    worlds = {{"1", {}}};
  }
  recompute_on_mesh() = all.recompute;
  all_strides() = all.all_strides;
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(
               std::chrono::steady_clock::now() - begin)
        .count();
  };
  int64_t programs = 0;
  int64_t instructions = 0;
  int64_t failures = 0;
  const auto limit = all.found.empty() ? all.programs
                                       : static_cast<int64_t>(all.found.size());
  while (seconds() < all.seconds && (limit == 0 || programs < limit) &&
         failures < all.failures) {
    const uint64_t seed = all.found.empty()
        ? all.seed + static_cast<uint64_t>(programs)
        : all.found[static_cast<size_t>(programs)];
    const auto& world = *std::find_if(
        worlds.begin(), worlds.end(), [&](const World& w) {
          return all.world.empty() ? w.name == worlds[seed % worlds.size()].name
                                   : w.name == all.world;
        });
    auto program = make_program(seed, all.length, all.layers);
    const auto plain = run_plain(program, seed);
    ++programs;
    instructions += static_cast<int64_t>(program.size());
    if (all.print) {
      std::printf("program %llu:\n%s", static_cast<unsigned long long>(seed),
                  text_of(program).c_str());
    }
    const auto failure = failure_of(program, seed, world, plain);
    if (failure.empty()) {
      continue;
    }
    ++failures;
    const auto small = shrink(program, seed, world);
    const auto plain_of_small = run(small, seed, nullptr);
    const auto traces = traces_of(small, seed, world);
    std::printf(
        "--seed=%llu --programs=1 --length=%lld --world=%s%s%s: %s\n  shrunk to %zu "
        "instructions: %s\n  plain:\n%s  distributed:\n%s",
        static_cast<unsigned long long>(seed),
        static_cast<long long>(all.length), world.name.c_str(),
        all.layers ? " --layers" : "",
        all.all_strides ? " --all-strides" : "", failure.c_str(),
        small.size(),
        failure_of(small, seed, world, plain_of_small).c_str(),
        traces.first.c_str(), traces.second.c_str());
    std::fflush(stdout);
  }
  std::printf(
      "%lld programs, %lld instructions, %.0f seconds, %lld failures\n",
      static_cast<long long>(programs), static_cast<long long>(instructions),
      seconds(), static_cast<long long>(failures));
  EXPECT_EQ(failures, 0);
  if (all.recompute || all.world == "1") {
    std::printf("%llu times computed again\n",
                static_cast<unsigned long long>(Recompute::times()));
    EXPECT_GT(Recompute::times(), 0);
  }
  EXPECT_GT(programs, 0);
}

} // namespace
} // namespace accel::distributed::test

int main(int argc, char** argv) {
  using namespace accel::distributed::test;
  auto& all = options();
  CLI::App app("Programs of random operators, beside plain LibTorch");
  app.add_option("--seconds", all.seconds, "How long")->capture_default_str();
  app.add_option(
         "--seed", all.seed,
         "Of the first program; the next one has the next seed")
      ->capture_default_str();
  app.add_option(
         "--seeds", all.found, "Only the programs of these seeds: 5,17,200")
      ->delimiter(',');
  app.add_option("--programs", all.programs, "Stops after so many; 0: never")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--length", all.length, "Instructions of a program")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--world", all.world,
                 "Only this mesh: 2, 3 or 2x2; 1: plain tensors that are computed again")
      ->check(CLI::IsMember({"1", "2", "3", "2x2"}));
  app.add_flag(
      "--recompute", all.recompute,
      "What autograd saves is let go between instructions, and computed again");
  app.add_flag(
      "--layers", all.layers,
      "Every second instruction is a layer of torch::nn or a function of several operators");
  app.add_flag(
      "--all-strides", all.all_strides,
      "Strides of dimensions of one entry must be the plain ones', too");
  app.add_option("--failures", all.failures, "Stops after so many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--print", all.print, "Prints every program");
  int status = 0;
  return parse_options(app, argc, argv, status) ? RUN_ALL_TESTS() : status;
}
