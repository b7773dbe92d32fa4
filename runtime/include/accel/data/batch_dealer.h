#pragma once

#include <accel/data/batch_codec.h>
#include <accel/data/cursor.h>
#include <accel/data/dealing.h>
#include <accel/data/generators.h>
#include <accel/data/rows.h>
#include <accel/data/sharding.h>
#include <accel/data/place_batch.h>
#include <accel/export.h>

#include <torch/data/example.h>

#include <c10/util/Exception.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace accel::data {

/// How the batches of a stream are dealt.
///
/// For the library itself: a program has no need to name it, and it may change.
struct DealingOptions {
  /// The processes and how they share.
  ShardingOptions sharding;
  /// Process 0 reads for all; otherwise every process reads the same stream.
  bool dispatch = true;
  /// Samples of a whole batch; the stream's last one may have fewer.
  int64_t batch_size = 1;
  /// Whether a last batch with fewer samples is left out.
  bool drop_last = false;
  /// (`match_single_device`.) So many batches of the stream make one.
  int64_t joined = 1;
  /// The step that follows is read before one is handed out, so that the last
  /// one is known. Always so in Accelerate's way of sharing.
  bool looks_ahead = true;
  /// The default generator moves while batches are read, as on one device, and
  /// the processes' must stay equal.
  bool generator_in_step = false;
  /// Where tensors that were on process 0's GPU go.
  at::Device device = at::kCPU;
};

/// Deals the batches of a stream out to the processes: of a data set that
/// decides itself what comes next, or where process 0 reads for all.
///
/// - `match_single_device`: the tensors of each batch become distributed
///   tensors, and a process is sent its rows; batches with fewer rows than
///   processes, and those that are no tensors of rows, all get in full.
/// - `dispatch`, as Accelerate's `DataLoaderDispatcher`: one batch for each
///   process (a part of one batch with `split_batches`); the last ones are put
///   together and cut into equal parts, filled up from the first rows of all.
///   Batches that cannot be put together because their other dimensions differ
///   stay whole; processes for which none is left get the first one again.
/// - else as Accelerate's `IterableDatasetShard`: the same, but the last parts
///   are as large as the others.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Batch>
class BatchDealer {
 public:
  /// Reads the next batch of the stream.
  using Fetch = std::function<std::optional<Batch>()>;

  /// What `next` returns.
  struct Step {
    /// Which rows this process has, and whether it is the last step.
    accel::detail::DealtStep about;
    /// Empty at the end, and where it was only to be left out.
    std::optional<Batch> batch;
  };

  /// Throws `c10::Error` where the options cannot be honoured.
  explicit BatchDealer(const DealingOptions& options) : options_(options) {
    const auto& sharding = options.sharding;
    TORCH_CHECK(
        !cuts_evenly() || options.batch_size % sharding.world == 0,
        "split_batches(true) needs a batch size that the number of processes "
        "divides, but the data loader's batch size is ",
        options.batch_size,
        " and there are ",
        sharding.world,
        " processes. Choose another batch size or number of processes, or "
        "leave split_batches off.");
    TORCH_CHECK(
        sharding.world == 1 || !options.dispatch || has_codec<Batch>::value,
        "accel: process 0 reads the data for all processes, but batches of the "
        "type ",
        c10::demangle_type<Batch>(),
        " cannot be sent. Specialise accel::data::BatchCodec for it, or let "
        "every process read (AcceleratorOptions().dispatch_batches(false)).");
    // Said before the pass, and not at its last step, which may be hours away.
    if (sharding.world > 1 && !match() && !has_joinable_rows<Batch>::value &&
        (cuts_evenly() || !options.drop_last)) {
      throw_cannot_cut();
    }
  }

  /// This process's part of the next step. Every process must call it; `fetch`
  /// is called where the stream is read. With `deliver = false` the step is
  /// left out: nobody gets its batch.
  Step next(const Fetch& fetch, bool deliver = true) {
    const bool several = options_.sharding.world > 1;
    if (!several) {
      return read(fetch, deliver).mine;
    }
    if (!options_.dispatch) {
      auto step = read(fetch, deliver).mine;
      accel::detail::check_same_stream(step.about);
      return step;
    }
    return options_.sharding.rank == 0 ? send(fetch, deliver)
                                       : receive(deliver);
  }

 private:
  /// The batches of one step, as they were read.
  struct Round {
    std::vector<Batch> batches;
    /// Of each; -1 where rows cannot be counted.
    std::vector<int64_t> rows;

    int64_t total() const {
      int64_t sum = 0;
      for (const int64_t count : rows) {
        sum += count;
      }
      return rows.empty() || rows[0] < 0 ? -1 : sum;
    }
  };

  struct Dealt {
    Step mine;
    /// Everybody's, where this process deals.
    std::vector<Batch> parts;
  };

  bool match() const {
    return options_.sharding.match_single_device;
  }
  bool cuts_evenly() const {
    return options_.sharding.world > 1 && !match() &&
        options_.sharding.split_batches;
  }
  int64_t world() const {
    return options_.sharding.world;
  }

  /// Structs of the program's own, which nobody has said how to cut: every process
  /// gets them whole, and their tensors are distributed then.
  static constexpr bool places_whole() {
    return !has_rows<Batch>::value && accel::detail::is_struct_of_tensors<Batch>();
  }

  int64_t rows_of(const Batch& batch) const {
    if constexpr (has_joinable_rows<Batch>::value) {
      return RowsOf<Batch>::count(batch);
    } else if constexpr (places_whole()) {
      return match() ? samples_of(batch, options_.batch_size) : -1;
    } else {
      return -1;
    }
  }

  [[noreturn]] static void throw_cannot_cut() {
    TORCH_CHECK(
        false,
        "accel: a batch of the type ",
        c10::demangle_type<Batch>(),
        " has to be cut into the processes' parts, with split_batches(true) each "
        "one and else the last ones of a pass, but it is not known how. "
        "Specialise accel::data::RowsOf for it (take, count and join), or leave "
        "the last ones out (DataLoaderOptions().drop_last(true)).");
  }

  static Batch take(const Batch& batch, int64_t offset, int64_t rows, int64_t all) {
    if constexpr (has_rows<Batch>::value) {
      return RowsOf<Batch>::take(batch, offset, rows, all);
    } else {
      throw_cannot_cut();
    }
  }

  static Batch join(const std::vector<Batch>& batches) {
    if constexpr (has_joinable_rows<Batch>::value) {
      return batches.size() == 1 ? batches[0] : RowsOf<Batch>::join(batches);
    } else {
      throw_cannot_cut();
    }
  }

  // ---- Reading.

  std::optional<Batch> fetch_one(const Fetch& fetch) {
    if (exhausted_) {
      return std::nullopt;
    }
    auto batch = fetch();
    // Accelerate's loaders leave a short batch out; torch's for stateful data
    // sets do not, and one device is what has to be matched.
    const int64_t rows = batch ? rows_of(*batch) : 0;
    TORCH_CHECK(rows != 0 || !batch, "The data set returned an empty batch.");
    const bool dropped = batch && options_.drop_last && world() > 1 &&
        !match() && rows >= 0 && rows < options_.batch_size;
    exhausted_ = !batch || dropped;
    return exhausted_ ? std::nullopt : std::move(batch);
  }

  Round read_round(const Fetch& fetch) {
    const int64_t batches = match()         ? options_.joined
        : cuts_evenly() || world() == 1 ? 1
                                        : world();
    const auto wanted = static_cast<size_t>(batches);
    Round round;
    while (round.batches.size() < wanted) {
      auto batch = fetch_one(fetch);
      if (!batch) {
        break;
      }
      round.rows.push_back(rows_of(*batch));
      round.batches.push_back(std::move(*batch));
    }
    if (match()) {
      return round.batches.size() > 1 ? joined(std::move(round))
                                      : std::move(round);
    }
    if (options_.drop_last && round.batches.size() < wanted) {
      return {};
    }
    return round;
  }

  /// The batches as one.
  Round joined(Round round) const {
    TORCH_CHECK(
        has_joinable_rows<Batch>::value && joinable(round),
        "accel: with split_batches(false) the batches of ",
        round.batches.size(),
        " processes are to be one, but those of the type ",
        c10::demangle_type<Batch>(),
        " that the data set has returned cannot be put together. Specialise "
        "accel::data::RowsOf for the type (take, count and join), return "
        "batches whose other dimensions are equal, or leave "
        "split_batches(false) out.");
    Round one;
    one.rows = {round.total()};
    one.batches.push_back(join(round.batches));
    return one;
  }

  uint64_t fingerprint_of(const Round& round) const {
    uint64_t fingerprint = 0;
    for (size_t i = 0; i < round.batches.size(); ++i) {
      fingerprint = accel::detail::mix_fingerprint(
          fingerprint, static_cast<uint64_t>(round.rows[i]));
      if constexpr (has_codec<Batch>::value) {
        BatchWriter writer(BatchWriter::Keep::kFingerprint);
        BatchCodec<Batch>::write(writer, round.batches[i]);
        fingerprint = accel::detail::mix_fingerprint(
            fingerprint, writer.fingerprint());
      }
    }
    return fingerprint;
  }

  Dealt read(const Fetch& fetch, bool deliver) {
    Round round =
        ahead_ ? *std::exchange(ahead_, std::nullopt) : read_round(fetch);
    if (options_.looks_ahead && !round.batches.empty()) {
      ahead_ = read_round(fetch);
    }
    Dealt dealt;
    auto& about = dealt.mine.about;
    about.batch = !round.batches.empty();
    if (!about.batch) {
      return dealt;
    }
    about.last = ahead_ && ahead_->batches.empty();
    about.rows = round.total();
    about.fingerprint = fingerprint_of(round);
    if (world() > 1 && !match()) {
      remember_first(round);
      about.remainder = remainder_of(about);
    }
    if (deliver) {
      dealt.parts = deal(std::move(round), about.last);
      const auto mine = options_.dispatch || world() == 1
          ? size_t{0}
          : static_cast<size_t>(options_.sharding.rank);
      dealt.mine.batch = placed(std::move(dealt.parts[mine]), about.rows);
    }
    return dealt;
  }

  /// Whether a batch of so many rows becomes a distributed one.
  bool distributes(int64_t rows) const {
    return match() && (has_tensor_rows<Batch>::value || places_whole()) && rows > 0 &&
        options_.sharding.cuts(rows);
  }

  /// This process's part of a batch of `rows` rows, distributed where it is one.
  std::optional<Batch> placed(std::optional<Batch> part, int64_t rows) const {
    return part && distributes(rows)
        ? place_batch(std::move(*part), rows, /*by_rows=*/!places_whole())
        : std::move(part);
  }

  int64_t remainder_of(const accel::detail::DealtStep& about) const {
    if (!about.last) {
      return -1;
    }
    if (options_.dispatch) {
      return about.rows;
    }
    return options_.drop_last || about.rows < 0 ? -1 : about.rows % step_rows();
  }

  /// Rows of a full step of all processes.
  int64_t step_rows() const {
    return options_.batch_size * (cuts_evenly() ? 1 : world());
  }

  // ---- Dealing.

  /// What the last step is filled up from.
  void remember_first(const Round& round) {
    if (first_ || round.total() < 0) {
      return;
    }
    if constexpr (has_joinable_rows<Batch>::value) {
      const auto all = joinable(round) ? join(round.batches) : round.batches[0];
      const int64_t rows = rows_of(all);
      first_ = options_.dispatch
          ? take(all, 0, std::min(rows, world()), rows)
          : all;
    }
  }

  static bool joinable(const Round& round) {
    if constexpr (has_joinable_rows<Batch>::value) {
      return std::all_of(
          round.batches.begin(), round.batches.end(), [&](const Batch& batch) {
            return rows_joinable(round.batches[0], batch);
          });
    }
    return false;
  }

  std::vector<Batch> deal(Round round, bool last) {
    if (world() == 1) {
      return std::move(round.batches);
    }
    if (match()) {
      std::vector<Batch> parts;
      for (int64_t rank = 0; rank < world(); ++rank) {
        if (!distributes(round.rows[0]) || places_whole()) {
          parts.push_back(round.batches[0]);
          continue;
        }
        const auto range =
            options_.sharding.rows(round.rows[0], rank);
        parts.push_back(take(
            round.batches[0], range.offset, range.rows, round.rows[0]));
      }
      return parts;
    }
    // A batch for each process.
    const auto other_size = [&](int64_t rows) {
      return rows !=
          (options_.dispatch ? round.rows[0] : options_.batch_size);
    };
    if (!cuts_evenly() &&
        static_cast<int64_t>(round.batches.size()) == world() &&
        (round.rows[0] < 0 ||
         std::none_of(round.rows.begin(), round.rows.end(), other_size))) {
      return std::move(round.batches);
    }
    if (round.rows[0] < 0) {
      throw_cannot_cut();
    }
    return joinable(round) ? cut(round, last) : keep_whole(round, last);
  }

  /// Puts the batches together and cuts them into equal parts.
  std::vector<Batch> cut(const Round& round, bool last) {
    int64_t rows = round.total();
    const bool fits =
        options_.dispatch ? rows % world() == 0 : rows == step_rows();
    TORCH_CHECK(
        fits || last,
        "accel: in the middle of a pass the data set returned ",
        rows,
        " samples for a step of ",
        world(),
        " processes, which ",
        options_.dispatch ? "cannot be cut into equal parts"
                          : "must be the batch size for each",
        ". Return batches of batch_size samples but for the last one, or use "
        "match_single_device(true), which shares batches of any size.");
    std::vector<Batch> all = round.batches;
    if (!fits) {
      const int64_t wanted = options_.dispatch
          ? (rows + world() - 1) / world() * world()
          : step_rows();
      // Where the first samples have another shape, those at hand must do.
      const Batch filler =
          rows_joinable(all.front(), *first_) ? *first_ : all.front();
      const int64_t there = rows_of(filler);
      while (rows < wanted) {
        const int64_t more = std::min(there, wanted - rows);
        all.push_back(take(filler, 0, more, there));
        rows += more;
      }
    }
    const auto whole = join(all);
    std::vector<Batch> parts;
    for (int64_t rank = 0; rank < world(); ++rank) {
      const int64_t part = rows / world();
      parts.push_back(take(whole, rank * part, part, rows));
    }
    return parts;
  }

  /// Batches whose other dimensions differ.
  std::vector<Batch> keep_whole(const Round& round, bool last) {
    const int64_t rows = *std::max_element(round.rows.begin(), round.rows.end());
    std::vector<Batch> parts;
    for (size_t i = 0; i < round.batches.size(); ++i) {
      const bool may_be_short = last && i + 1 == round.batches.size();
      TORCH_CHECK(
          round.rows[i] == rows || may_be_short,
          "accel: in the middle of a pass the data set returned batches of ",
          rows,
          " and of ",
          round.rows[i],
          " samples whose other dimensions differ, so that they cannot be put "
          "together and cut into equal parts. Return batches of batch_size "
          "samples but for the last one, or use match_single_device(true).");
      std::vector<Batch> filled{round.batches[i]};
      for (int64_t have = round.rows[i]; have < rows;) {
        const int64_t more = std::min(round.rows[i], rows - have);
        filled.push_back(take(round.batches[i], 0, more, round.rows[i]));
        have += more;
      }
      parts.push_back(join(filled));
    }
    while (static_cast<int64_t>(parts.size()) < world()) {
      parts.push_back(parts.front());
    }
    return parts;
  }

  // ---- Between the processes.

  Step send(const Fetch& fetch, bool deliver) {
    Dealt dealt;
    std::vector<std::string> messages;
    const accel::detail::GeneratorMark mark;
    try {
      dealt = read(fetch, deliver);
      if constexpr (has_codec<Batch>::value) {
        for (size_t rank = 0; rank < dealt.parts.size(); ++rank) {
          BatchWriter writer;
          if (rank > 0) {
            BatchCodec<Batch>::write(writer, dealt.parts[rank]);
          }
          messages.push_back(writer.text());
        }
      }
    } catch (const std::exception& error) {
      accel::detail::send_failure(error);
      throw;
    }
    accel::detail::send_step(
        dealt.mine.about,
        messages,
        options_.generator_in_step && mark.moved());
    return std::move(dealt.mine);
  }

  Step receive(bool deliver) {
    auto received = accel::detail::receive_step();
    Step step;
    step.about = received.step;
    if (step.about.batch) {
      if constexpr (has_codec<Batch>::value) {
        if (deliver) {
          BatchReader reader(received.part, options_.device);
          step.batch =
              placed(BatchCodec<Batch>::read(reader), step.about.rows);
        }
      }
    }
    return step;
  }

  DealingOptions options_;
  bool exhausted_ = false;
  std::optional<Round> ahead_;
  std::optional<Batch> first_;
};

// In the library: what most data sets give, stacked and not.
extern template class ACCEL_API BatchDealer<torch::data::Example<>>;
extern template class ACCEL_API
    BatchDealer<std::vector<torch::data::Example<>>>;

} // namespace accel::data
