// Sample calls of every operator that has a rule and of many that have none
// (sample_calls.h), each with its tensors placed in many ways on two and on three
// ranks: results, what is written, gradients and second gradients are those of
// plain tensors.
//
// Also a command: accel_sample_calls --filter=aten::cat --seed=7 (--help).

#include "build_paths.h"
#include "device.h"
#include "distributed/part.h"
#include "operators_page.h"
#include "process_ranks.h"
#include "sample_exclusions.h"
#include "sample_ranks.h"
#include "sample_runs.h"
#include "test_options.h"
#include "thread_ranks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

namespace accel::distributed::test {
namespace {

struct Options {
  std::vector<std::string> filter;
  uint64_t seed = 1;
  /// Of one call on one mesh; 0: placements_on says it.
  int64_t placements = 0;
  std::string world;
  bool all = false;
  bool samples = false;
  bool other_order = false;
  std::string device = "cpu";
  std::vector<std::string> tables;
  std::string golden = build_paths::kGoldenAten;
  /// Of processes that are started by themselves.
  RankOptions ranks;
};

Options& options() {
  static Options all;
  return all;
}

const SampleCalls& samples() {
  static const SampleCalls* const all = [] {
    at::set_num_threads(1);
    const GoldenCalls recorded(options().golden);
    SampleOptions of_samples;
    of_samples.other_order = options().other_order;
    return new SampleCalls(sample_calls(options().tables, &recorded, of_samples));
  }();
  return *all;
}

bool asked_for(const SampleCall& call) {
  return is_asked_for(options().filter, call.name, call.op.schema().name());
}

struct Tally {
  int64_t calls = 0;
  int64_t placed = 0;
  int64_t once = 0;
  int64_t twice = 0;
  int64_t wrong = 0;
  int64_t threw = 0;
  std::set<std::string> operators;
  std::set<std::string> bad;
};

/// Of a sample on plain tensors.
struct Plain {
  const SampleCall* sample = nullptr;
  Left left;
  Gradients gradients;
};

/// One placement of one sample. The ranks that are threads share `plain`. Processes
/// that are forked from one which has differentiated cannot: each of them has its own.
struct PlacedRun {
  const SampleCall* sample;
  PlacedCall placed;
  std::shared_ptr<const Plain> plain;
};

const Plain& plain_of(const SampleCall& sample, Plain& last) {
  if (last.sample != &sample) {
    last.left = run_plain(sample, last.gradients);
    last.sample = &sample;
  }
  return last;
}

/// What went wrong in which of the runs.
struct Failure {
  size_t index = 0;
  bool difference = false;
  std::string text;
};

/// Makes the runs from number `from` on; stops at the first failure.
bool run_from(
    const std::vector<int64_t>& mesh_sizes,
    bool processes,
    const std::vector<PlacedRun>& runs,
    size_t from,
    Failure& failure) {
  const auto body = [&](const DeviceMesh& mesh) {
    at::set_num_threads(1);
    Plain own;
    for (size_t k = from; k < runs.size(); ++k) {
      const auto number = std::to_string(k) + ": ";
      try {
        const auto& sample = *runs[k].sample;
        const auto& expected = runs[k].plain ? *runs[k].plain : plain_of(sample, own);
        run_placed(
            mesh, sample, runs[k].placed, expected.left, expected.gradients);
      } catch (const Difference& error) {
        throw Difference(number + error.what());
      } catch (const std::exception& error) {
        throw std::runtime_error(number + error.what());
      }
    }
  };
  try {
    processes ? as_processes(mesh_sizes[0], body) : as_mesh(mesh_sizes, body);
    return true;
  } catch (const Difference& error) {
    failure.difference = true;
    failure.text = error.what();
  } catch (const std::exception& error) {
    failure.difference = false;
    failure.text = error.what();
  }
  const auto colon = failure.text.find(": ");
  const auto number = failure.text.substr(0, colon);
  const bool numbered = !number.empty() &&
      number.find_first_not_of("0123456789") == std::string::npos;
  failure.index = numbered ? std::stoul(number) : runs.size();
  return false;
}

/// "2", "2x2".
std::string name_of(const std::vector<int64_t>& mesh_sizes) {
  std::string name;
  for (const auto size : mesh_sizes) {
    name += (name.empty() ? "" : "x") + std::to_string(size);
  }
  return name;
}

/// Makes all runs, and counts and prints the failures.
void run_all(
    const std::vector<int64_t>& mesh_sizes,
    bool processes,
    const std::vector<PlacedRun>& runs,
    Tally& tally) {
  tally.placed += static_cast<int64_t>(runs.size());
  Failure failure;
  for (size_t from = 0;
       from < runs.size() &&
       !run_from(mesh_sizes, processes, runs, from, failure);
       from = failure.index + 1) {
    (failure.difference ? tally.wrong : tally.threw)++;
    const auto* sample =
        failure.index < runs.size() ? runs[failure.index].sample : nullptr;
    if (sample == nullptr || tally.bad.insert(sample->name).second ||
        options().all) {
      std::printf(
          "%s %s on %s ranks, %s: %s\n", failure.difference ? "WRONG " : "THROWS",
          sample != nullptr ? sample->name.c_str() : "?",
          name_of(mesh_sizes).c_str(),
          sample != nullptr ? sample->origin.c_str() : "", failure.text.c_str());
      std::fflush(stdout);
    }
  }
}

/// What three ranks do otherwise than two shows in few placements.
int64_t placements_on(const std::vector<int64_t>& mesh_sizes) {
  return options().placements != 0 ? options().placements : mesh_sizes[0] == 3 ? 1 : 2;
}

/// Two placements of one size of each sample.
std::vector<PlacedCall> placed_at_random(
    const SampleCall& sample, int64_t placements, uint64_t seed) {
  std::vector<PlacedCall> placed;
  const bool other_size = sample.origin.find("N=8") != std::string::npos ||
      sample.origin.find("N=2") != std::string::npos;
  for (int64_t k = 0; k < std::max<int64_t>(1, placements / 2); ++k) {
    if (!other_size && sample.first_dtype) {
      placed.push_back({{}, seed * 31 + k});
    }
  }
  return placed;
}

void test_on(const std::vector<int64_t>& mesh_sizes, bool random_numbers) {
  if (!options().world.empty() && options().world != name_of(mesh_sizes)) {
    return;
  }
  const bool one_axis = mesh_sizes.size() == 1;
  const int64_t placements = placements_on(mesh_sizes);
  at::set_num_threads(1);
  Tally tally;
  uint64_t number = 0;
  std::vector<PlacedRun> runs;
  for (const auto& sample : samples().calls) {
    ++number;
    if (!asked_for(sample) || draws(sample) != random_numbers) {
      continue;
    }
    const uint64_t seed = options().seed * 1000003 + number;
    const auto placed = one_axis
        ? placed_calls(sample, mesh_sizes[0], placements_of(sample, placements), seed)
        : placed_at_random(sample, placements, seed);
    if (placed.empty()) {
      continue;
    }
    ++tally.calls;
    tally.operators.insert(sample.name);
    std::shared_ptr<Plain> plain;
    if (!random_numbers) {
      plain = std::make_shared<Plain>();
      const auto depth = plain_of(sample, *plain).gradients.depth;
      const auto count = static_cast<int64_t>(placed.size());
      tally.once += depth != Depth::kNone ? count : 0;
      tally.twice += depth == Depth::kTwice ? count : 0;
    }
    for (const auto& one : placed) {
      runs.push_back({&sample, one, plain});
    }
    // The ranks of one call take longer to start than the call.
    if (!random_numbers && runs.size() >= 200) {
      run_all(mesh_sizes, false, runs, tally);
      runs.clear();
    }
  }
  run_all(mesh_sizes, random_numbers, runs, tally);
  // How far random operators are differentiated, only their processes know.
  const auto gradients = random_numbers
      ? std::string()
      : c10::str(
            " (", tally.once, " with gradients, ", tally.twice, " with second ones)");
  std::printf(
      "%s ranks: %lld calls of %zu operators, %lld placed%s; %lld wrong, %lld "
      "throw (%zu operators)\n",
      name_of(mesh_sizes).c_str(), static_cast<long long>(tally.calls),
      tally.operators.size(), static_cast<long long>(tally.placed),
      gradients.c_str(), static_cast<long long>(tally.wrong),
      static_cast<long long>(tally.threw), tally.bad.size());
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_EQ(tally.threw, 0);
  if (options().filter.empty() && !options().other_order) {
    EXPECT_GT(tally.placed, random_numbers ? 200 * placements : one_axis ? 3750 * placements : 2000)
        << "hardly anything was compared";
  }
}

// Processes first: they are forked before anything has been differentiated, and
// before threads have been started.
TEST(SampleCalls, RandomNumbersInTwoProcesses) {
  test_on({2}, true);
}
TEST(SampleCalls, RandomNumbersInThreeProcesses) {
  test_on({3}, true);
}

TEST(SampleTable, EveryLineIsACallThatPlainTensorsAccept) {
  for (const auto& line : samples().refused_lines) {
    ADD_FAILURE() << line;
  }
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11
  for (const auto& line : samples().unknown) {
    ADD_FAILURE() << "does not fit: " << line;
  }
#endif
}

TEST(SampleTable, EveryOperatorWithARuleHasASample) {
  std::set<std::string> have;
  for (const auto& call : samples().calls) {
    have.insert(call.name);
  }
  int64_t with_rule = 0;
  int64_t without = 0;
  for (const auto& op : listed_operators()) {
    const bool has_sample = have.count(op.name) != 0;
    if (op.family.empty()) {
      without += has_sample ? 1 : 0;
      continue;
    }
    with_rule += has_sample ? 1 : 0;
    EXPECT_NE(has_sample, why_without_sample(op.name) != nullptr)
        << (has_sample ? "has a sample, and is listed as one that cannot: "
                       : "has no sample: ")
        << op.schema;
  }
  std::printf(
      "samples of %lld operators with a rule and of %lld without; %lld forms and "
      "dtypes that plain tensors refuse\n",
      static_cast<long long>(with_rule), static_cast<long long>(without),
      static_cast<long long>(samples().refused));
  EXPECT_GE(without, 200);
}

/// A rule that takes parts of a sum for rows, as if it were registered.
void wrong_sgn(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto tensor = torch::jit::pop(*stack).toTensor();
  Part* part = part_of(tensor);
  if (part == nullptr) {
    stack->emplace_back(tensor.sign());
    return;
  }
  stack->emplace_back(make_tensor(
      *part->axis, part->local.sign(), part->placement, tensor.sizes()));
}

TEST(SampleCalls, AWrongRuleIsFound) {
  install();
  const auto& all = samples().calls;
  const auto sample = std::find_if(all.begin(), all.end(), [](const auto& call) {
    return call.name == "aten::sgn" && call.origin.find("N=7") != std::string::npos;
  });
  ASSERT_NE(sample, all.end());
  const auto plain = std::make_shared<Plain>();
  plain_of(*sample, *plain);
  std::vector<PlacedRun> runs;
  for (const auto& placed : placed_calls(*sample, 2, 100, 1)) {
    runs.push_back({&*sample, placed, plain});
  }
  Failure failure;
  EXPECT_TRUE(run_from({2}, false, runs, 0, failure)) << failure.text;
  {
    auto library = torch::Library(
        torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    library.impl("sgn", torch::CppFunction::makeFromBoxedFunction<&wrong_sgn>());
    EXPECT_FALSE(run_from({2}, false, runs, 0, failure));
    EXPECT_TRUE(failure.difference) << failure.text;
    EXPECT_NE(failure.text.find("placed [7, 4]P"), std::string::npos)
        << failure.text;
  }
  EXPECT_TRUE(run_from({2}, false, runs, 0, failure)) << failure.text;
}

TEST(SampleCalls, TwoRanks) {
  test_on({2}, false);
}
TEST(SampleCalls, ThreeRanks) {
  test_on({3}, false);
}

/// By hand, --world=2x2: two minutes for what TwoRanks and ThreeRanks hardly
/// leave open. CI runs the recorded calls and the random programs on this mesh.
class MeshOfTwoByTwo : public ::testing::Test {
 public:
  void TestBody() override {
    test_on({2, 2}, false);
  }
};

} // namespace
} // namespace accel::distributed::test

namespace accel::distributed::test {
namespace {

void add_ranks(CLI::App& app, Options& all) {
  add_device(app, all.device);
  app.add_option(
      "--table", all.tables,
      "Files as samples.txt, in its place (and in that of samples_cuda.txt)");
  app.add_option(
      "--golden", all.golden,
      "The folder with calls.jsonl and tensors.safetensors; 'none' for no recorded "
      "calls");
  auto* const store = app.add_option(
      "--store", all.ranks.store,
      "This program is one rank, and meets the others in this file, which must be "
      "a new one (on_device.py starts them); --world is 2 or 3");
  app.add_option("--rank", all.ranks.rank, "Of --store")->needs(store)->envname("RANK");
  app.add_option("--from", all.ranks.from, "The first run of --store that is made")
      ->needs(store);
  app.add_option("--part", all.ranks.part, "Only samples of this part of --parts")
      ->needs(store);
  app.add_option("--parts", all.ranks.parts, "Of --store")
      ->needs(store)
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--patience", all.ranks.patience,
         "Seconds that a run of --store waits for another rank")
      ->needs(store)
      ->capture_default_str();
  app.add_option(
         "--without", all.ranks.without,
         "Numbers of calls that are not tried when samples are made")
      ->needs(store)
      ->delimiter(',');
  app.add_flag("--collect", all.ranks.collect, "Of --store: only makes the samples")
      ->needs(store);
  app.add_option(
         "--break-sgn", all.ranks.break_sgn,
         "Makes the rule of aten::sgn fail, to show that it is found")
      ->needs(store)
      ->check(CLI::IsMember({"wrong", "throws", "waits", "lost", "exits"}));
}

/// False, with a message, where there is no such device.
bool start_device(Options& all) {
  const auto folder = std::string(build_paths::kSource) + "/test/distributed/";
  try {
    set_device(all.device);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    std::fprintf(
        stderr, "--device %s: %s\n", all.device.c_str(),
        text.substr(0, text.find('\n')).c_str());
    return false;
  }
  if (all.tables.empty()) {
    all.tables = {folder + "samples.txt"};
    if (device().is_cuda()) {
      all.tables.push_back(folder + "samples_cuda.txt");
    }
  }
  if (!device().is_cpu() && all.ranks.store.empty() && !all.samples) {
    std::fprintf(
        stderr,
        "--device %s needs --store: backward of all threads is one thread there\n",
        all.device.c_str());
    return false;
  }
  return true;
}

int run_as_one_rank(Options& all) {
  auto& ranks = all.ranks;
  ranks.seed = all.seed;
  ranks.all = all.all;
  const char* const size = std::getenv("WORLD_SIZE");
  ranks.world = std::stoll(!all.world.empty() ? all.world : size != nullptr ? size : "2");
  ranks.placements = placements_on({ranks.world});
  ranks.asked_for = asked_for;
  std::optional<GoldenCalls> recorded;
  if (all.golden != "none") {
    recorded.emplace(all.golden);
  }
  return run_as_rank(ranks, all.tables, recorded ? &*recorded : nullptr);
}

} // namespace
} // namespace accel::distributed::test

int main(int argc, char** argv) {
  using namespace accel::distributed::test;
  auto& all = options();
  CLI::App app(
      "Calls samples of every operator that has a rule, with their tensors placed "
      "in many ways, and compares with plain tensors");
  add_filter(app, all.filter);
  app.add_option("--seed", all.seed, "Of the placements")->capture_default_str();
  app.add_option(
         "--placements", all.placements,
         "Of each call and mesh: all of them where there are no more, else as many "
         "at random (of forms and other dtypes two fifths of that). Default: 3, and 1 "
         "on three ranks")
      ->check(CLI::PositiveNumber);
  add_world(app, all.world);
  app.add_flag(
      "--all", all.all, "Prints every failure, not the first of each operator");
  app.add_flag(
      "--other-order", all.other_order,
      "Images lie channels-last and matrices by columns");
  app.add_flag("--samples", all.samples, "Prints the samples");
  add_ranks(app, all);
  int status = 0;
  if (!parse_options(app, argc, argv, status)) {
    return status;
  }
  if (!start_device(all)) {
    return 2;
  }
  if (!all.ranks.store.empty()) {
    return run_as_one_rank(all);
  }
  if (all.samples) {
    for (const auto& call : samples().calls) {
      std::printf("%-50s %s\n", call.name.c_str(), call.origin.c_str());
    }
    return 0;
  }
  if (all.world == "2x2") {
    ::testing::RegisterTest(
        "SampleCalls", "MeshOfTwoByTwo", nullptr, nullptr, __FILE__, __LINE__,
        []() -> ::testing::Test* { return new MeshOfTwoByTwo; });
  }
  return RUN_ALL_TESTS();
}
