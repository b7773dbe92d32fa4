#include "distributed/rules/common.h"

#include <numeric>

// Connectionist temporal classification: each process does its samples, which are
// dimension 1 of the probabilities.

namespace accel::distributed::ctc_loss_rules {
namespace {

/// The arguments that both operators have, from `first` on: log_probs
/// `[time, N, classes]`, targets `[N, length]` or all in one row, and the lengths
/// of inputs and of targets, as lists or as tensors.
struct Samples {
  size_t first = 0;
  /// Of the probabilities.
  Placement place;
  int64_t count = 0;
  std::vector<int64_t> input_lengths;
  std::vector<int64_t> target_lengths;
};

/// False where a length is not known to all processes.
bool read_lengths(const Call& call, size_t i, std::vector<int64_t>& lengths) {
  const auto& value = call.at(i);
  if (value.isIntList()) {
    lengths = value.toIntVector();
    return true;
  }
  if (!value.isTensor() || !value.toTensor().defined() ||
      part_of(value.toTensor()) != nullptr) {
    return false;
  }
  const auto numbers =
      value.toTensor().to(at::kCPU, at::kLong).contiguous();
  const auto* data = numbers.const_data_ptr<int64_t>();
  lengths.assign(data, data + numbers.numel());
  return true;
}

/// False where the samples are not cut.
bool cut_samples(const Call& call, size_t first, Samples& samples) {
  const auto& log_probs = call.tensor(first);
  const auto& targets = call.tensor(first + 1);
  auto place = call.place(first);
  if (log_probs.dim() != 3 || !call.info().writes.empty()) {
    return false;
  }
  if (!place.is_shard(1) && targets.dim() == 2 && call.place(first + 1).is_shard(0)) {
    place = call.place(first + 1).with_dim(1);
  }
  samples.first = first;
  samples.place = place;
  samples.count = log_probs.size(1);
  const auto count = static_cast<size_t>(samples.count);
  return place.is_shard(1) &&
      (targets.dim() == 1 || targets.size(0) == samples.count) &&
      read_lengths(call, first + 2, samples.input_lengths) &&
      read_lengths(call, first + 3, samples.target_lengths) &&
      samples.input_lengths.size() == count &&
      samples.target_lengths.size() == count;
}

/// This process's lengths, in the form in which they were given.
void use_lengths(
    Call& call,
    size_t i,
    const std::vector<int64_t>& lengths,
    int64_t begin,
    int64_t end) {
  if (call.at(i).isTensor()) {
    call.set(i, call.tensor(i).narrow(0, begin, end - begin));
  } else {
    call.set(
        i, std::vector<int64_t>(lengths.begin() + begin, lengths.begin() + end));
  }
}

void use_samples(Call& call, const Samples& samples) {
  const auto [begin, end] =
      call.axis().range(samples.count, samples.place.cut());
  const auto& lengths = samples.target_lengths;
  const size_t targets = samples.first + 1;
  call.use(samples.first, samples.place);
  if (call.tensor(targets).dim() == 2) {
    call.use(targets, samples.place.with_dim(0));
  } else {
    const auto before =
        std::accumulate(lengths.begin(), lengths.begin() + begin, int64_t{0});
    const auto own = std::accumulate(
        lengths.begin() + begin, lengths.begin() + end, int64_t{0});
    call.use_whole(targets);
    call.set(targets, call.tensor(targets).narrow(0, before, own));
  }
  use_lengths(call, samples.first + 2, samples.input_lengths, begin, end);
  use_lengths(call, samples.first + 3, lengths, begin, end);
}

/// Results: the loss of each sample, and the probabilities of all prefixes, of
/// which there are as many as the longest target has.
bool ctc_loss(Call& call) {
  Samples samples;
  if (!cut_samples(call, 0, samples)) {
    return false;
  }
  const auto& lengths = samples.target_lengths;
  const int64_t prefixes =
      2 * *std::max_element(lengths.begin(), lengths.end()) + 1;
  const Sizes of_alpha{samples.count, call.tensor(0).size(0), prefixes};
  use_samples(call, samples);
  call.run();
  const auto place = samples.place.with_dim(0);
  const auto alpha = call.local_result(1);
  if (alpha.size(2) < prefixes) {
    // Longer targets are on other processes.
    call.result(1) = at::constant_pad_nd(alpha, {0, prefixes - alpha.size(2)});
  }
  call.place_result(0, place, Sizes{samples.count});
  call.place_result(1, place, of_alpha);
  return true;
}

/// The gradient of each sample's loss, then the same arguments, the results, and
/// how they were computed.
bool ctc_loss_backward(Call& call) {
  Samples samples;
  if (!cut_samples(call, 1, samples) || call.tensor(0).dim() != 1) {
    return false;
  }
  const Sizes sizes = sizes_of(call.tensor(1));
  use_samples(call, samples);
  const auto place = samples.place.with_dim(0);
  for (const size_t i : {0, 5, 6}) {
    call.use(i, place);
  }
  call.run();
  call.place_result(0, samples.place, sizes);
  return true;
}

} // namespace

const Family& family() {
  static const char* const places = "samples";
  static const Family rows{
      {"aten::_ctc_loss", ctc_loss, places, "nothing"},
      {"aten::_ctc_loss_backward", ctc_loss_backward, places, "nothing"},
  };
  return rows;
}

} // namespace accel::distributed::ctc_loss_rules
