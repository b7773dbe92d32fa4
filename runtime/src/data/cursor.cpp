#include <accel/data/cursor.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace accel::detail {
namespace {

std::vector<ResumableLoader*>& loaders() {
  // Never destroyed: loaders may be, at the program's end, after it.
  static auto* all = new std::vector<ResumableLoader*>();
  return *all;
}

int64_t& loaders_made() {
  static int64_t made = 0;
  return made;
}

void set_generator_state(const at::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

} // namespace

ResumableLoader::ResumableLoader() : number_(loaders_made()++) {
  loaders().push_back(this);
}

namespace {

struct ExpectedLoaders {
  std::map<int64_t, LoaderCursor> cursors;
  at::Tensor generator;
  /// One behind all numbers of the checkpoint.
  int64_t end = 0;
  /// A pass has begun since `load_state`.
  bool looped = false;
  /// Loaders that were made since, and that the checkpoint has not: what gives each one
  /// a number.
  std::map<ResumableLoader*, std::function<void(int64_t)>> others;
  /// Loaders of the checkpoint whose draws were taken back when they were made.
  struct Taken {
    /// Null when it is gone.
    ResumableLoader* loader;
    LoaderCursor cursor;
  };
  std::vector<Taken> taken;
};

ExpectedLoaders& expected_loaders() {
  static auto* expected = new ExpectedLoaders();
  return *expected;
}

/// Of a loader that is made for each pass nothing says whether it is the one that was
/// there when the checkpoint was saved, until the next one is made.
void warn_of_loader_made_again(const LoaderCursor& made) {
  auto& taken = expected_loaders().taken;
  const auto found = std::find_if(taken.begin(), taken.end(), [&](const auto& one) {
    return one.loader == nullptr && one.cursor.same_loader(made);
  });
  if (found != taken.end()) {
    taken.erase(found);
    TORCH_WARN(
        "accel: a data loader (sampler ",
        made.sampler,
        ") that was made behind load_state was taken for the one that existed when "
        "the checkpoint was saved, but it is made anew for each pass: its pass has "
        "not had the random numbers of a run that was not interrupted. Let such a "
        "loader go out of scope before save_state, or make it once.");
  }
}

/// Loaders were made that the checkpoint has not, and a pass has begun: they are such as
/// are made for each pass, as those were that were gone when it was saved. They count
/// behind those of the checkpoint, and so do those that follow.
void count_behind_checkpoint() {
  auto& expected = expected_loaders();
  for (auto* loader : loaders()) { // as they were made
    const auto other = expected.others.find(loader);
    if (other != expected.others.end() && loader->number() < expected.end) {
      other->second(expected.end++);
    }
  }
  loaders_made() = std::max(loaders_made(), expected.end);
  expected.others.clear();
  expected.cursors.clear();
}

} // namespace

ResumableLoader::~ResumableLoader() {
  auto& all = loaders();
  all.erase(std::remove(all.begin(), all.end(), this), all.end());
  expected_loaders().others.erase(this);
  for (auto& one : expected_loaders().taken) {
    if (one.loader == this) {
      one.loader = nullptr;
    }
  }
}

const std::vector<ResumableLoader*>& living_loaders() {
  return loaders();
}

void expect_loaders(std::map<int64_t, LoaderCursor> cursors, at::Tensor generator) {
  ExpectedLoaders expected;
  expected.end = cursors.empty() ? 0 : cursors.rbegin()->first + 1;
  expected.cursors = std::move(cursors);
  expected.generator = std::move(generator);
  expected_loaders() = std::move(expected);
}

void number_loaders_anew() {
  expected_loaders() = {};
  loaders_made() = 0;
  for (auto* loader : loaders()) {
    loader->number_ = loaders_made()++;
  }
}

void note_pass() {
  expected_loaders().looped = true;
  if (!expected_loaders().others.empty()) {
    count_behind_checkpoint();
  }
}

LoaderEntry::LoaderEntry() {
  if (!expected_loaders().cursors.empty()) {
    before_ = generator_state();
  }
}

void LoaderEntry::sampler_is_new(const std::function<void()>& make_one) {
  const auto& saved = expected_loaders().generator;
  if (!before_.defined() || expected_loaders().looped || before_.equal(saved)) {
    return;
  }
  at::Tensor behind_it;
  {
    const GeneratorInState again(saved);
    make_one();
    behind_it = generator_state();
  }
  if (behind_it.equal(before_)) {
    before_ = saved;
  }
}

void LoaderEntry::enter(ResumableLoader& loader) const {
  auto& expected = expected_loaders();
  if (!expected.taken.empty()) {
    warn_of_loader_made_again(loader.cursor());
  }
  if (!before_.defined()) {
    return;
  }
  const auto found = expected.cursors.find(loader.number());
  if (found == expected.cursors.end()) {
    expected.others[&loader] = [&loader](int64_t number) { loader.number_ = number; };
    if (expected.looped) {
      count_behind_checkpoint();
    }
    return;
  }
  LoaderCursor saved = std::move(found->second);
  expected.cursors.erase(found);
  if (!saved.same_loader(loader.cursor())) {
    return; // Of another program, which loads the rest.
  }
  if (!expected.looped && !before_.equal(expected.generator)) {
    TORCH_WARN(
        "accel: random numbers were drawn between load_state and the making of a "
        "data loader (sampler ",
        saved.sampler,
        ") that existed when the checkpoint was saved. They are not taken back: "
        "where the run that was saved had drawn them before it made that loader, "
        "what follows differs from it. Make data sets and samplers that draw, and "
        "whatever else does, before load_state.");
  }
  if (!generator_state().equal(before_)) {
    set_generator_state(before_);
    expected.taken.push_back({&loader, saved});
  }
  if (!saved.sampler_state.empty()) {
    loader.resume(std::move(saved));
  }
}

ResumableLoader& checked_resumable(ResumableLoader* loader) {
  TORCH_CHECK(
      loader != nullptr,
      "accel: this data loader was made by torch::data::make_data_loader, so "
      "that accel cannot say which batches it gives. Make it with "
      "accel::data::make_data_loader.");
  return *loader;
}

void throw_other_batches(const std::string& sampler, int64_t batches) {
  TORCH_CHECK(
      false,
      "accel: the pass over the data set cannot go on where it was when the "
      "checkpoint was saved: the sampler ",
      sampler,
      " draws other indices for its first ",
      batches,
      " batches now. It must draw in reset(), with LibTorch's default "
      "generator only, and what else it depends on must be in its save() and "
      "load().");
}

uint64_t mix_fingerprint(uint64_t fingerprint, uint64_t value) {
  // The mixing step of splitmix64.
  uint64_t mixed = fingerprint ^ (value + 0x9E3779B97F4A7C15);
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return mixed ^ (mixed >> 31);
}

at::Tensor generator_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

GeneratorInState::GeneratorInState(const at::Tensor& state)
    : own_(generator_state()) {
  set_generator_state(state);
}

GeneratorInState::~GeneratorInState() {
  set_generator_state(own_);
}

} // namespace accel::detail
