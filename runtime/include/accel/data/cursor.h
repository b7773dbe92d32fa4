#pragma once

#include <accel/export.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace accel::detail {

/// Where a data loader stands, as a checkpoint has it.
struct LoaderCursor {
  /// What the loader is; a resumed run must have made an equal one.
  std::string sampler;
  /// -1 where the data set does not know its size.
  int64_t size = -1;
  int64_t batch_size = 0;
  bool drop_last = false;
  /// How batches were shared: "match_single_device", "split_batches" or
  /// "batch_per_process", between how many processes.
  std::string sharing;
  int64_t world = 1;

  /// Whether it may be the place of a loader that was made like this one's.
  bool same_loader(const LoaderCursor& other) const {
    return sampler == other.sampler && size == other.size &&
        batch_size == other.batch_size && drop_last == other.drop_last;
  }

  /// A pass has begun and the program has not seen its end.
  bool in_pass = false;
  /// The program is inside the loop body that works on the last of them (an
  /// accumulation step is open).
  bool in_body = false;
  /// The loop was left before the end of the pass.
  bool left = false;
  /// Batches of the pass that the program has been given, and the sum of their
  /// fingerprints: whether a resumed run draws the same ones.
  int64_t batches = 0;
  uint64_t fingerprint = 0;
  /// They are the first ones that were drawn, none is missing in between.
  bool in_order = true;
  /// The default CPU generator as the sampler found it when the pass began.
  at::Tensor generator;
  /// What the sampler's own `save` writes, as of before the pass; empty for
  /// samplers whose passes are made from the generator alone.
  std::string sampler_state;
};

ACCEL_API void number_loaders_anew();

/// What a checkpoint and `skip_first_batches` need of a data loader. Those that
/// live are listed in the order in which they were made.
class ACCEL_API ResumableLoader {
 public:
  ResumableLoader();
  virtual ~ResumableLoader();
  ResumableLoader(const ResumableLoader&) = delete;
  ResumableLoader& operator=(const ResumableLoader&) = delete;

  /// How many were made before it since the program's start, or since its numbers began
  /// anew: by this a resumed run knows one that it makes behind `load_state`.
  int64_t number() const {
    return number_;
  }

  virtual LoaderCursor cursor() const = 0;

  /// The next pass goes on where `cursor`, which is one of an equal loader,
  /// stood. Throws at the beginning of that pass where the sampler draws other
  /// batches than it had.
  virtual void resume(LoaderCursor cursor) = 0;

  /// The next pass leaves out its first `batches` batches of this process, counted
  /// from its beginning: one that `resume` lets go on begins at the later place.
  virtual void skip_first_batches(int64_t batches) = 0;

  /// The loop was left: nothing of the pass is left to do.
  virtual void leave() = 0;

  /// How many batches this process gets in a whole pass; empty where only a pass
  /// can tell.
  virtual std::optional<int64_t> batches() const = 0;

 private:
  friend class LoaderEntry;
  friend ACCEL_API void number_loaders_anew();
  int64_t number_;
};

ACCEL_API const std::vector<ResumableLoader*>& living_loaders();

/// Those that live are the first ones, and no other is expected.
ACCEL_API void number_loaders_anew();

/// Loaders of a checkpoint that the program has not made when it loads, by their
/// numbers, and the default CPU generator's state behind that.
ACCEL_API void expect_loaders(
    std::map<int64_t, LoaderCursor> cursors, at::Tensor generator);
/// A pass over a loader begins.
ACCEL_API void note_pass();

/// Lives while a loader is made. Of one that is expected the sampler goes on as it was
/// saved, and what was drawn from the default CPU generator to make it is taken back:
/// in the run that was saved that was drawn before. Nothing else is ever taken back.
/// Each process for itself.
class ACCEL_API LoaderEntry {
 public:
  /// Before anything of the loader is made.
  LoaderEntry();
  /// The loader's sampler exists already; `make_one` makes such a one. Where nothing
  /// but that has been drawn since `load_state`, it belongs to the loader.
  void sampler_is_new(const std::function<void()>& make_one);
  /// The loader has been made.
  void enter(ResumableLoader& loader) const;

 private:
  /// The generator's state; undefined where no loader is expected.
  at::Tensor before_;
};

/// The loader as its interface; throws for one that
/// `accel::data::make_data_loader` has not made.
template <typename Loader>
ResumableLoader& resumable(Loader& loader);
ACCEL_API ResumableLoader& checked_resumable(ResumableLoader* loader);

template <typename Loader>
ResumableLoader& resumable(Loader& loader) {
  return checked_resumable(dynamic_cast<ResumableLoader*>(&loader));
}

/// Throws `c10::Error` saying that `sampler` has drawn other batches than when
/// the checkpoint was saved.
[[noreturn]] ACCEL_API void throw_other_batches(
    const std::string& sampler,
    int64_t batches);

/// Mixes a number into a fingerprint; the same on all machines.
ACCEL_API uint64_t mix_fingerprint(uint64_t fingerprint, uint64_t value);

/// The default CPU generator's state is `state` while it lives; then again what
/// it was.
class ACCEL_API GeneratorInState {
 public:
  explicit GeneratorInState(const at::Tensor& state);
  ~GeneratorInState();
  GeneratorInState(const GeneratorInState&) = delete;
  GeneratorInState& operator=(const GeneratorInState&) = delete;

 private:
  at::Tensor own_;
};

/// The default CPU generator's state.
ACCEL_API at::Tensor generator_state();

} // namespace accel::detail
