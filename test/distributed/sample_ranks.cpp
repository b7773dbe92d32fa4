#include "sample_ranks.h"

#include "device.h"
#include "distributed/axis.h"
#include "distributed/part.h"
#include "distributed/rules/table.h"
#include "sample_runs.h"
#include "shared_memory_ranks.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>

namespace accel::distributed::test {
namespace {

constexpr int kDeviceIsLost = 4;
constexpr int kRankIsGone = 5;
constexpr std::chrono::seconds kControlPatience{120};

struct Counts {
  int64_t calls = 0;
  int64_t placed = 0;
  int64_t once = 0;
  int64_t twice = 0;
  int64_t wrong = 0;
  int64_t threw = 0;
  int64_t skipped = 0;
};

/// The file that says what this process does just now.
class Position {
 public:
  explicit Position(const std::string& file)
      : descriptor_(::open(file.c_str(), O_RDWR | O_CREAT, 0600)) {
    TORCH_CHECK(descriptor_ >= 0, "the file '", file, "' cannot be made");
  }
  ~Position() {
    ::close(descriptor_);
  }
  Position(const Position&) = delete;
  Position& operator=(const Position&) = delete;

  void write(
      const char* state,
      int64_t number,
      int64_t next,
      const Counts& counts,
      const std::string& name,
      const std::string& origin) const {
    char text[513];
    std::snprintf(
        text, sizeof text,
        "%s\t%lld\t%lld\t%lld\t%lld\t%lld\t%lld\t%lld\t%lld\t%lld\t%s\t%s\t",
        state, static_cast<long long>(number), static_cast<long long>(next),
        static_cast<long long>(counts.calls), static_cast<long long>(counts.placed),
        static_cast<long long>(counts.once), static_cast<long long>(counts.twice),
        static_cast<long long>(counts.wrong), static_cast<long long>(counts.threw),
        static_cast<long long>(counts.skipped), name.c_str(), origin.c_str());
    std::string line(text);
    // Always as long, so that nothing is left of the last one.
    line.resize(sizeof text - 2, ' ');
    line += '\n';
    [[maybe_unused]] const auto written =
        ::pwrite(descriptor_, line.data(), line.size(), 0);
  }

 private:
  int descriptor_;
};

/// Ends the process at once: a device that is lost cannot be left in order.
[[noreturn]] void leave(int status) {
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(status);
}

/// How the rule of sgn goes wrong, see RankOptions.
struct Broken {
  std::string how;
  int64_t rank = 0;
  bool lost = false;
};

Broken& broken() {
  static Broken how;
  return how;
}

bool still_works() {
  return !broken().lost && device_works();
}

void broken_sgn(const c10::OperatorHandle& /*op*/, torch::jit::Stack* stack) {
  const auto tensor = torch::jit::pop(*stack).toTensor();
  Part* part = part_of(tensor);
  if (part == nullptr) {
    stack->emplace_back(tensor.sgn());
    return;
  }
  if (broken().rank == 1 && broken().how != "wrong") {
    broken().lost = broken().how == "lost";
    if (broken().how == "exits") {
      leave(9);
    }
    // More often than the other rank gathers anything.
    for (int64_t k = 0; broken().how == "waits" && k < 100; ++k) {
      full_tensor(tensor);
    }
    TORCH_CHECK(false, "broken by --break-sgn");
  }
  // Parts of a sum are taken for rows.
  stack->emplace_back(make_tensor(
      *part->axis, part->local.sgn(), part->placement, tensor.sizes()));
}

/// One rank's walk through all runs.
class Walk {
 public:
  explicit Walk(const RankOptions& options)
      : options_(options),
        shared_(shared_ranks(options.store)),
        position_(options.store + ".at." + std::to_string(options.rank)),
        communicator_(
            shared_, options.rank, options.world,
            std::chrono::seconds(options.patience)) {
    if (options.rank == 0) {
      log_.open(options.store + ".log", std::ios::app);
    }
  }

  SampleCalls make_samples(
      const std::vector<std::string>& tables,
      const GoldenCalls* recorded) const {
    SampleOptions how;
    how.without = {options_.without.begin(), options_.without.end()};
    how.trying = [this](int64_t number, const std::string& name) {
      position_.write("sample", number, 0, counts_, name, "");
    };
    try {
      return sample_calls(tables, recorded, how);
    } catch (const DeviceIsLost&) {
      leave(kDeviceIsLost);
    }
  }

  int run(const SampleCalls& samples) {
    if (options_.rank == 0) {
      log_refused(samples);
    }
    int64_t number = 0;
    int64_t first = 0;
    for (const auto& sample : samples.calls) {
      ++number;
      if (!options_.asked_for(sample) ||
          number % options_.parts != options_.part) {
        continue;
      }
      const auto placed = placed_calls(
          sample, options_.world, placements_of(sample, options_.placements),
          options_.seed * 1000003 + number);
      const int64_t next = first + static_cast<int64_t>(placed.size());
      if (!placed.empty() && next > options_.from) {
        run_sample(sample, placed, first);
      }
      first = next;
    }
    position_.write("done", first, first, counts_, "", "");
    return counts_.wrong + counts_.threw == 0 ? 0 : 1;
  }

 private:
  void log_refused(const SampleCalls& samples) {
    for (const auto& line : samples.refused_lines) {
      log_ << "refused " << line << std::endl;
    }
    for (const auto& line : samples.unknown) {
      log_ << "unknown " << line << std::endl;
    }
    for (const auto& [name, why] : samples.refused_on_device) {
      log_ << "refused " << name << ": " << why << std::endl;
    }
  }

  void barrier() {
    if (!shared_.control_barrier(options_.world, kControlPatience)) {
      std::fprintf(stderr, "another rank does not come any more\n");
      leave(kRankIsGone);
    }
  }

  void run_sample(
      const SampleCall& sample,
      const std::vector<PlacedCall>& placed,
      int64_t first) {
    const int64_t next = first + static_cast<int64_t>(placed.size());
    position_.write("plain", first, next, counts_, sample.name, sample.origin);
    Gradients gradients;
    std::string why;
    const auto plain = run_plain_here(sample, gradients, why);
    if (!agree_on_plain(plain ? static_cast<int>(gradients.depth) : -1, why)) {
      ++counts_.skipped;
      log_ << "skipped " << sample.name << ", " << sample.origin << ": " << why
           << std::endl;
      return;
    }
    counts_.calls += options_.from <= first ? 1 : 0;
    log_ << "operator " << sample.name << std::endl;
    for (int64_t k = std::max(first, options_.from); k < next; ++k) {
      position_.write("run", k, next, counts_, sample.name, sample.origin);
      ++counts_.placed;
      counts_.once += gradients.depth != Depth::kNone ? 1 : 0;
      counts_.twice += gradients.depth == Depth::kTwice ? 1 : 0;
      run_one(sample, placed[k - first], *plain, gradients, k);
    }
  }

  std::optional<Left> run_plain_here(
      const SampleCall& sample,
      Gradients& gradients,
      std::string& why) const {
    std::optional<Left> left;
    try {
      left = run_plain(sample, gradients);
    } catch (const std::exception& error) {
      why = error.what();
      why = why.substr(0, why.find('\n'));
    }
    if (!device_works()) {
      leave(kDeviceIsLost);
    }
    return left;
  }

  /// Whether the plain call has ended alike, and with results, on all ranks.
  bool agree_on_plain(int outcome, std::string& why) {
    auto& all = shared_.plain[samples_++ % 2];
    all[options_.rank] = outcome;
    barrier();
    for (int64_t rank = 0; rank < options_.world; ++rank) {
      if (all[rank] != outcome) {
        why = "plain runs end in different ways; here " + why;
        return false;
      }
    }
    return outcome >= 0;
  }

  void run_one(
      const SampleCall& sample,
      const PlacedCall& placed,
      const Left& plain,
      const Gradients& gradients,
      int64_t index) {
    auto& failed = shared_.failed[runs_++ % 2];
    auto* axis = new Axis(&communicator_, mesh_++, 0, "axis0");
    const auto fail = [&](int kind, const char* what) {
      shared_.note_failure(kind, what);
      failed = true;
      shared_.stopped = true;
    };
    try {
      run_placed(DeviceMesh({axis}), sample, placed, plain, gradients);
    } catch (const Difference& error) {
      fail(3, error.what());
    } catch (const std::exception& error) {
      fail(2, error.what());
    }
    axis->close();
    barrier();
    if (failed) {
      settle_failure(sample, index, failed);
    }
  }

  /// All ranks look at the failure, and make ready for the next run.
  void settle_failure(
      const SampleCall& sample,
      int64_t index,
      std::atomic<bool>& failed) {
    const bool difference = shared_.failure == 3;
    (difference ? counts_.wrong : counts_.threw)++;
    if (!still_works()) {
      shared_.lost = true;
    }
    barrier();
    if (options_.rank == 0) {
      report(sample, index, difference);
    }
    if (shared_.lost) {
      position_.write(
          "run", index, index + 1, counts_, sample.name, sample.origin);
      if (options_.rank == 0) {
        std::printf(
            "THE DEVICE computes nothing any more after run %lld\n",
            static_cast<long long>(index));
      }
      leave(kDeviceIsLost);
    }
    if (options_.rank == 0) {
      shared_.failure = 0;
      shared_.arrived = 0;
      shared_.stopped = false;
      failed = false;
    }
    barrier();
  }

  void report(const SampleCall& sample, int64_t index, bool difference) {
    log_ << "bad " << sample.name << std::endl;
    if (bad_.insert(sample.name).second || options_.all) {
      std::printf(
          "%s %s on %lld ranks, %s, run %lld: %s\n",
          difference ? "WRONG " : "THROWS", sample.name.c_str(),
          static_cast<long long>(options_.world), sample.origin.c_str(),
          static_cast<long long>(index), shared_.message);
      std::fflush(stdout);
    }
  }

  const RankOptions& options_;
  SharedRanks& shared_;
  Position position_;
  SharedMemoryCommunicator communicator_;
  /// Of rank 0; the others' is not open, and takes nothing.
  std::ofstream log_;
  Counts counts_;
  std::set<std::string> bad_;
  int64_t samples_ = 0;
  int64_t runs_ = 0;
  int64_t mesh_ = 1;
};

} // namespace

int run_as_rank(
    const RankOptions& options,
    const std::vector<std::string>& tables,
    const GoldenCalls* recorded) {
  at::set_num_threads(1);
  Walk walk(options);
  const auto samples = walk.make_samples(tables, recorded);
  if (options.collect) {
    leave(0);
  }
  std::optional<torch::Library> library;
  if (!options.break_sgn.empty()) {
    install();
    broken().how = options.break_sgn;
    broken().rank = options.rank;
    library.emplace(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    library->impl("sgn", torch::CppFunction::makeFromBoxedFunction<&broken_sgn>());
  }
  const int status = walk.run(samples);
  // No destructors: threads of the device may still be about.
  leave(status);
}

} // namespace accel::distributed::test
