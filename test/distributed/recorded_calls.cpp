// Calls of operators that PyTorch's own tests have made (golden/README.md), each
// with its tensors placed at random on meshes of 2, 3 and 2 x 2 ranks: results,
// written arguments and writes through views are those of plain tensors.
//
// Also a command: recorded_calls --filter=aten::cat --seed=7 (--help).

#include "build_paths.h"
#include "compare.h"
#include "device.h"
#include "distributed/call.h"
#include "distributed/collectives.h"
#include "distributed/rules/table.h"
#include "golden_calls.h"
#include "placing.h"
#include "process_ranks.h"
#include "test_options.h"
#include "thread_ranks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <vector>

namespace accel::distributed::test {
namespace {

struct Options {
  std::vector<std::string> filter;
  uint64_t seed = 1;
  int64_t trials = 1;
  std::string world;
  int64_t line = 0;
  int64_t from = 0;
  std::string device = "cpu";
  std::string golden = build_paths::kGoldenAten;
  bool all = false;
  bool operators = false;
};

Options& options() {
  static Options all;
  return all;
}

const GoldenCalls& golden() {
  static const GoldenCalls* const calls = new GoldenCalls(options().golden);
  return *calls;
}

bool asked_for(const GoldenCall& call) {
  const auto& all = options();
  if (all.line != 0) {
    return call.line == all.line;
  }
  return call.line >= all.from &&
      is_asked_for(all.filter, call.name, call.op.schema().name());
}

/// The recorded arguments; their tensors go through `place` on the device.
torch::jit::Stack arguments_of(
    const GoldenCall& call,
    const std::function<at::Tensor(const at::Tensor&)>& place) {
  const auto moved = on_device(
      call.op.schema(),
      golden().arguments(call, [](const at::Tensor& tensor) { return tensor; }));
  return changed(moved, place);
}

/// Ends the program where the device computes nothing any more: what comes behind
/// would fail with it.
void end_if_lost(const GoldenCall& call) {
  if (device_works()) {
    return;
  }
  std::printf(
      "THE DEVICE computes nothing any more after line %lld, %s; go on with "
      "--from=%lld\n",
      static_cast<long long>(call.line), call.name.c_str(),
      static_cast<long long>(call.line + 1));
  std::fflush(stdout);
  std::_Exit(4);
}

bool draws(const GoldenCall& call) {
  return call.op.hasTag(at::Tag::nondeterministic_seeded);
}

/// The values of fresh memory are not compared.
bool is_fresh_memory(const GoldenCall& call) {
  const auto& name = call.op.schema().name();
  return name.find("empty") != std::string::npos ||
      name == "aten::resize_" || name == "aten::_reshape_alias_copy";
}

bool is_view(const GoldenCall& call) {
  const auto& schema = call.op.schema();
  return !schema.arguments().empty() && !schema.returns().empty() &&
      schema.arguments()[0].alias_info() != nullptr &&
      !schema.arguments()[0].alias_info()->isWrite();
}

/// What a call leaves behind.
struct Outcome {
  Snapshot results;
  Snapshot arguments;
  /// Of views: both sides after a write through the other one.
  std::vector<Snapshot> after_writes;
  /// Of random operators: what the generator gives next.
  at::Tensor next_random;
  /// Collectives that the call has made.
  int64_t moved = 0;
};

/// Writes into the first result and then into argument 0, and looks at both
/// each time. False where the tensors cannot be written.
bool write_through(
    torch::jit::Stack& arguments,
    torch::jit::Stack& results,
    std::vector<Snapshot>& after) {
  std::vector<at::Tensor> views;
  if (results[0].isTensor()) {
    views = {results[0].toTensor()};
  } else if (results[0].isTensorList()) {
    views = results[0].toTensorVector();
  }
  const auto base = arguments[0].isTensor() ? arguments[0].toTensor() : at::Tensor();
  if (views.empty() || !base.defined()) {
    return false;
  }
  const auto is_bool = base.scalar_type() == at::kBool;
  for (const auto& view : views) {
    if (is_bool) {
      view.logical_not_();
    } else {
      view.add_(1);
    }
  }
  after.push_back(snapshot(arguments));
  after.push_back(snapshot(results));
  if (is_bool) {
    base.logical_not_();
  } else {
    base.mul_(2);
  }
  after.push_back(snapshot(results));
  after.push_back(snapshot(arguments));
  return true;
}

Outcome make_call(
    const GoldenCall& call,
    torch::jit::Stack arguments,
    bool write) {
  const at::NoGradGuard no_grad;
  if (draws(call)) {
    at::manual_seed(17);
  }
  Outcome outcome;
  torch::jit::Stack results = arguments;
  // An operator may change the list that it was given.
  for (auto& value : arguments) {
    if (value.isTensorList()) {
      value = value.toTensorList().copy();
    } else if (value.isOptionalTensorList()) {
      value = value.toOptionalTensorList().copy();
    }
  }
  const auto before = traffic().gathers + traffic().reductions;
  call.op.callBoxed(results);
  outcome.moved = traffic().gathers + traffic().reductions - before;
  outcome.results = snapshot(written_results(call.op.schema(), results));
  outcome.arguments = snapshot(arguments);
  if (draws(call)) {
    outcome.next_random = at::rand({4}, device());
  }
  if (write && is_view(call) && !may_overlap(call.op.schema())) {
    write_through(arguments, results, outcome.after_writes);
  }
  return outcome;
}

/// A distributed tensor has no gaps, so that strides which come from an
/// argument with gaps are not expected.
bool arguments_are_dense(const Outcome& plain) {
  for (size_t i = 0; i < plain.arguments.tensors.size(); ++i) {
    if (plain.arguments.tensors[i].defined() &&
        !at::empty_strided(
             plain.arguments.sizes[i], plain.arguments.strides[i],
             at::device(at::kMeta))
             .is_non_overlapping_and_dense()) {
      return false;
    }
  }
  return true;
}

void expect_same(
    const GoldenCall& call,
    const Outcome& plain,
    const Outcome& got) {
  Tolerance tolerance;
  tolerance.only_shapes = is_fresh_memory(call);
  tolerance.strides =
      arguments_are_dense(plain) && !has_own_strides(call.op.schema());
  auto text = difference(plain.results, got.results, tolerance);
  if (!text.empty()) {
    throw Difference("result, " + text);
  }
  // An argument that nobody touched has the strides that it was given.
  tolerance.strides = false;
  text = difference(plain.arguments, got.arguments, tolerance);
  if (!text.empty()) {
    throw Difference("argument, " + text);
  }
  if (plain.next_random.defined() &&
      !at::equal(plain.next_random, got.next_random)) {
    throw Difference("the random generator stands elsewhere afterwards");
  }
  for (size_t i = 0; i < plain.after_writes.size(); ++i) {
    text = difference(plain.after_writes[i], got.after_writes[i], tolerance);
    if (!text.empty()) {
      static const char* const what[] = {
          "argument after a write to the view, ",
          "view after a write to it, ",
          "view after a write to its base, ",
          "base after a write to it, "};
      throw Difference(what[i] + text);
    }
  }
}

/// What was counted, of one mesh.
struct Tally {
  int64_t calls = 0;
  int64_t placed = 0;
  int64_t wrong = 0;
  int64_t threw = 0;
  int64_t refused_by_plain = 0;
  std::set<std::string> operators;
  std::set<std::string> bad_operators;
  struct PerOperator {
    int64_t calls = 0;
    int64_t no_gather = 0;
    int64_t rule = 0;
  };
  std::map<std::string, PerOperator> per_operator;
};

struct World {
  const char* name;
  std::vector<int64_t> sizes;
  /// Processes instead of threads.
  bool processes = false;
};

std::string first_line(const std::string& text) {
  return text.substr(0, std::min<size_t>(text.find('\n'), 400));
}

/// One placement of a call.
struct Trial {
  uint64_t seed = 0;
  bool placed = false;
  bool gathered = false;
};

/// One call in several placements, one behind the other on the same ranks. Returns
/// what is wrong with one of them, or nothing.
std::string try_placements(
    const GoldenCall& call,
    const Outcome& plain,
    const World& world,
    std::vector<Trial>& trials,
    bool write,
    bool& difference) {
  std::vector<std::atomic<bool>> placed(trials.size());
  std::vector<std::atomic<bool>> moved(trials.size());
  const auto try_one = [&](const DeviceMesh& mesh, size_t k) {
    Placer placer(mesh, trials[k].seed);
    auto arguments = arguments_of(
        call, [&](const at::Tensor& tensor) { return placer.place(tensor); });
    if (placer.placed() == 0) {
      return;
    }
    placed[k] = true;
    try {
      const auto got = make_call(call, std::move(arguments), write);
      moved[k] = moved[k] || got.moved != 0;
      expect_same(call, plain, got);
    } catch (const Difference& error) {
      throw Difference(error.what() + std::string("; placed") + placer.description());
    } catch (const c10::Error& error) {
      throw std::runtime_error(
          std::string(error.what_without_backtrace()) + "; placed" +
          placer.description());
    }
  };
  const auto body = [&](const DeviceMesh& mesh) {
    at::set_num_threads(1);
    for (size_t k = 0; k < trials.size(); ++k) {
      try_one(mesh, k);
    }
  };
  difference = false;
  std::string error;
  try {
    if (world.processes) {
      as_processes(world.sizes[0], body);
    } else {
      as_mesh(world.sizes, body);
    }
  } catch (const Difference& e) {
    difference = true;
    error = e.what();
  } catch (const std::exception& e) {
    error = e.what();
  }
  for (size_t k = 0; k < trials.size(); ++k) {
    // Processes keep it to themselves.
    trials[k].placed = placed[k] || world.processes;
    trials[k].gathered = moved[k];
  }
  return error;
}

void run_calls(const World& world, Tally& tally) {
  const auto& all = options();
  std::set<std::string> reported;
  for (const auto& call : golden().calls()) {
    if (!asked_for(call) || draws(call) != world.processes) {
      continue;
    }
    tally.operators.insert(call.name);
    ++tally.calls;
    for (const bool write : {false, true}) {
      if (write && !is_view(call)) {
        continue;
      }
      Outcome plain;
      try {
        if (!device().is_cpu()) {
          // What the CPU refuses could be the end of the device.
          make_call(
              call,
              golden().arguments(call, [](const at::Tensor& t) { return t; }),
              write);
        }
        plain = make_call(
            call,
            arguments_of(call, [](const at::Tensor& t) { return t; }),
            write);
        finish_device();
      } catch (const std::exception& error) {
        end_if_lost(call);
        if (all.all && !write) {
          std::printf(
              "refused by plain tensors: %s, line %lld: %s\n", call.name.c_str(),
              static_cast<long long>(call.line), first_line(error.what()).c_str());
        }
        tally.refused_by_plain += write ? 0 : 1;
        continue;
      }
      std::vector<Trial> trials(all.trials);
      for (int64_t trial = 0; trial < all.trials; ++trial) {
        trials[trial].seed =
            (all.seed * 1000003 + call.line) * 1009 + trial * 2 + write;
      }
      // Together, since ranks take longer to start than a call; where one of them
      // is wrong, each by itself.
      bool is_difference = false;
      const auto together =
          try_placements(call, plain, world, trials, write, is_difference);
      bool wrong_by_itself = false;
      for (auto& trial : trials) {
        std::string error;
        if (!together.empty()) {
          std::vector<Trial> one = {trial};
          error = try_placements(call, plain, world, one, write, is_difference);
          trial = one[0];
          wrong_by_itself = wrong_by_itself || !error.empty();
          if (&trial == &trials.back() && !wrong_by_itself) {
            error = "behind each other, not by themselves: " + together;
            trial.placed = true;
          }
        }
        if (!trial.placed) {
          continue;
        }
        ++tally.placed;
        auto& own = tally.per_operator[call.name];
        ++own.calls;
        own.no_gather += trial.gathered ? 0 : 1;
        own.rule = rule_of(call.op) != nullptr;
        if (error.empty()) {
          continue;
        }
        (is_difference ? tally.wrong : tally.threw)++;
        tally.bad_operators.insert(call.name);
        if (all.all || reported.insert(call.name).second) {
          std::printf(
              "%s %s on %s, line %lld%s: %s\n",
              is_difference ? "WRONG " : "THROWS", call.name.c_str(), world.name,
              static_cast<long long>(call.line), write ? " (written)" : "",
              first_line(error).c_str());
          std::fflush(stdout);
        }
        end_if_lost(call);
      }
    }
  }
}

void print(const World& world, const Tally& tally) {
  std::printf(
      "%s: %lld calls of %zu operators, %lld placed; %lld wrong, %lld throw "
      "(%zu operators); %lld calls that plain tensors refuse\n",
      world.name, static_cast<long long>(tally.calls), tally.operators.size(),
      static_cast<long long>(tally.placed), static_cast<long long>(tally.wrong),
      static_cast<long long>(tally.threw), tally.bad_operators.size(),
      static_cast<long long>(tally.refused_by_plain));
  for (const auto& name : tally.bad_operators) {
    std::printf("  bad: %s\n", name.c_str());
  }
  if (options().operators) {
    for (const auto& [name, own] : tally.per_operator) {
      std::printf(
          "  %-50s %s %5lld placed, %5lld without communication\n", name.c_str(),
          own.rule != 0 ? "rule " : "whole", static_cast<long long>(own.calls),
          static_cast<long long>(own.no_gather));
    }
  }
}

void test_on(const World& world) {
  if (!options().world.empty() && options().world != world.name &&
      !world.processes) {
    return;
  }
  if (world.processes && !device().is_cpu()) {
    GTEST_SKIP() << "a process that is forked cannot use the device";
  }
  at::set_num_threads(1);
  Tally tally;
  run_calls(world, tally);
  print(world, tally);
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_EQ(tally.threw, 0);
  if (options().filter.empty() && options().line == 0) {
    EXPECT_GT(tally.placed, world.processes ? 20 : 3000)
        << "hardly anything was compared";
  }
}

// Processes first: they are forked before threads have been started.
TEST(RecordedCalls, RandomNumbersInTwoProcesses) {
  test_on({"2 processes", {2}, true});
}
TEST(RecordedCalls, RandomNumbersInThreeProcesses) {
  test_on({"3 processes", {3}, true});
}
TEST(RecordedCalls, TwoRanks) {
  test_on({"2", {2}});
}
TEST(RecordedCalls, ThreeRanks) {
  test_on({"3", {3}});
}
TEST(RecordedCalls, MeshOfTwoByTwo) {
  test_on({"2x2", {2, 2}});
}

} // namespace
} // namespace accel::distributed::test

int main(int argc, char** argv) {
  using namespace accel::distributed::test;
  auto& all = options();
  CLI::App app(
      "Calls the operators that PyTorch's own tests call, with their arguments "
      "placed in many ways, and compares with the plain call");
  add_filter(app, all.filter);
  app.add_option("--seed", all.seed, "Of the placements")->capture_default_str();
  app.add_option("--trials", all.trials, "Placements of each call on each mesh")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  add_world(app, all.world);
  app.add_option("--line", all.line, "Only the call on this line of calls.jsonl")
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--golden", all.golden,
         "The folder with calls.jsonl and tensors.safetensors")
      ->check(CLI::ExistingDirectory);
  app.add_flag(
      "--all", all.all, "Prints every failure, not the first of each operator");
  app.add_flag(
      "--operators", all.operators,
      "Prints for every operator how often it gathered nothing");
  add_device(app, all.device);
  app.add_option("--from", all.from, "Only calls from this line on");
  int status = 0;
  if (!parse_options(app, argc, argv, status)) {
    return status;
  }
  try {
    set_device(all.device);
  } catch (const std::exception& error) {
    std::fprintf(
        stderr, "--device %s: %s\n", all.device.c_str(),
        first_line(error.what()).c_str());
    return 2;
  }
  return RUN_ALL_TESTS();
}
