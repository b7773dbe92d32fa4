#include "distributed/lineage.h"

#include "core/gather_texts.h"
#include "core/read_values.h"
#include "distributed/each_tensor.h"
#include "distributed/recompute.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

namespace accel::distributed {
namespace {

/// Elements of a plain tensor that are looked at.
constexpr int64_t kSamples = 8;

/// An operator as it is kept for messages.
struct Entry {
  const char* op = "";
  int64_t window = 0;
  int64_t count = 0;
  double first = 0;
  double all = 0;
};

/// The newest operators of the program's thread: those of some steps.
class Log {
 public:
  void add(const Entry& entry) {
    if (entries_.size() < kMost) {
      entries_.push_back(entry);
    } else {
      entries_[next_ % kMost] = entry;
    }
    ++next_;
    entries_[(next_ - 1) % kMost].window = window_;
  }
  void begin_window() {
    ++window_;
  }
  /// From the oldest on.
  std::vector<Entry> entries() const {
    auto all = entries_;
    if (all.size() == kMost) {
      std::rotate(
          all.begin(), all.begin() + static_cast<int64_t>(next_ % kMost), all.end());
    }
    return all;
  }

 private:
  static constexpr size_t kMost = 8192;

  std::vector<Entry> entries_;
  size_t next_ = 0;
  int64_t window_ = 0;
};

ACCEL_QUICK_THREAD_LOCAL Log* program_log = nullptr;

Part* raw_part(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  return impl->key_set().has(kKey) ? static_cast<Part*>(impl->get_backend_meta())
                                   : nullptr;
}

/// An element as a number, for messages and to tell what differs by rounding.
double number_at(const char* at, at::ScalarType dtype) {
  const auto as = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
  };
  switch (dtype) {
    case at::kFloat:
      return as(float());
    case at::kDouble:
      return as(double());
    case at::kLong:
      return as(int64_t());
    case at::kInt:
      return as(int32_t());
    case at::kShort:
      return as(int16_t());
    case at::kChar:
      return as(int8_t());
    case at::kByte:
    case at::kBool:
      return as(uint8_t());
    case at::kHalf:
      return as(at::Half());
    case at::kBFloat16:
      return as(at::BFloat16());
    default:
      return 0;
  }
}

/// What the host can look at. Parameters are compared otherwise (core/same_parameters.h).
bool is_readable(const at::Tensor& plain) {
  return plain.defined() && plain.is_cpu() && plain.layout() == at::kStrided &&
      is_plain(plain) && plain.numel() > 0 && plain.has_storage() &&
      !(plain.requires_grad() && plain.is_leaf()) && !plain.is_quantized() &&
      plain.storage().data() != nullptr;
}

/// Calls `f` with the address of some elements.
template <typename F>
void each_sample(const at::Tensor& plain, const F& f) {
  const auto* bytes = static_cast<const char*>(plain.const_data_ptr());
  const auto size = static_cast<int64_t>(plain.element_size());
  const int64_t numel = plain.numel();
  const int64_t samples = std::min(kSamples, numel);
  const bool in_order = plain.is_contiguous();
  for (int64_t i = 0; i < samples; ++i) {
    int64_t element = samples == 1 ? 0 : i * (numel - 1) / (samples - 1);
    int64_t offset = in_order ? element : 0;
    for (int64_t d = in_order ? 0 : plain.dim(); d-- > 0;) {
      offset += element % plain.sizes()[d] * plain.strides()[d];
      element /= plain.sizes()[d];
    }
    f(bytes + offset * size);
  }
}

/// Without the "_" of operators in place.
uint64_t hash_of(const char* text, uint64_t hash) {
  for (; *text != 0 && (*text != '_' || text[1] != 0); ++text) {
    hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3ULL;
  }
  return hash;
}

/// Numbers of processes that compute alike are this near, relative to each other.
constexpr double kRounding = 1e-5;

bool are_near(double one, double other) {
  return one == other || (std::isnan(one) && std::isnan(other)) ||
      std::abs(one - other) <=
      kRounding * (std::max(std::abs(one), std::abs(other)) + 1e-30);
}

std::string text_of(const Entry& entry) {
  std::string text = entry.op;
  if (entry.count > 0) {
    std::array<char, 64> number{};
    std::snprintf(number.data(), number.size(), " with %.9g", entry.first);
    text += number.data();
    if (entry.count > 1) {
      text += " and other numbers";
    }
  }
  return text;
}

/// As the processes send them to each other.
constexpr int64_t kFields = 3;

struct Sent {
  int64_t op = 0;
  int64_t window = 0;
  double all = 0;
};
static_assert(sizeof(Sent) == kFields * sizeof(int64_t));

/// The operators of all processes, by rank. Collective.
std::vector<std::vector<Sent>> gathered(
    accel::detail::Communicator& communicator, const std::vector<Entry>& entries) {
  std::vector<Sent> mine;
  mine.reserve(entries.size());
  for (const auto& entry : entries) {
    mine.push_back(
        {static_cast<int64_t>(hash_of(entry.op, 0)), entry.window, entry.all});
  }
  const auto counts = communicator.all_gather(
      at::full({1}, static_cast<int64_t>(mine.size()), at::kLong));
  int64_t most = 1; // All send as much.
  for (const auto& count : counts) {
    most = std::max(most, count.item<int64_t>());
  }
  auto message = at::zeros({most, kFields}, at::kLong);
  std::memcpy(message.mutable_data_ptr(), mine.data(), mine.size() * sizeof(Sent));
  std::vector<std::vector<Sent>> all;
  const auto messages = communicator.all_gather(message);
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    auto& sent = all.emplace_back(static_cast<size_t>(counts[rank].item<int64_t>()));
    std::memcpy(sent.data(), messages[rank].const_data_ptr(), sent.size() * sizeof(Sent));
  }
  return all;
}

/// Those of one window.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

Range range_of(const std::vector<Sent>& entries, int64_t window) {
  const auto from = [&](int64_t first) {
    return static_cast<size_t>(
        std::find_if(
            entries.begin(), entries.end(),
            [&](const Sent& entry) { return entry.window >= first; }) -
        entries.begin());
  };
  return {from(window), from(window + 1)};
}

/// Where the processes' operators part, and by what.
struct Parting {
  /// Its place among this process's operators; none where it has no more in its window.
  std::optional<size_t> at;
  /// More than rounding, or another operator.
  bool found = false;
  bool rounded = false;
};

/// The first one, window by window: where one process has called more than another in a
/// window, the next one begins alike.
Parting first_parting(const std::vector<std::vector<Sent>>& all, size_t rank) {
  int64_t window = 0;
  int64_t last = -1;
  for (const auto& one : all) {
    // From the first one on that all have.
    window = std::max(window, one.empty() ? 0 : one.front().window);
    last = std::max(last, one.empty() ? -1 : one.back().window);
  }
  Parting result;
  for (; window <= last; ++window) {
    std::vector<Range> ranges;
    size_t most = 0;
    for (const auto& one : all) {
      ranges.push_back(range_of(one, window));
      most = std::max(most, ranges.back().end - ranges.back().begin);
    }
    const auto entry = [&](size_t of, size_t i) {
      const size_t at = ranges[of].begin + i;
      return at < ranges[of].end ? all[of][at] : Sent();
    };
    for (size_t i = 0; i < most; ++i) {
      const auto first = entry(0, i);
      for (size_t other = 1; other < all.size(); ++other) {
        const auto its = entry(other, i);
        result.rounded = result.rounded || its.all != first.all;
        if (its.op != first.op || !are_near(its.all, first.all)) {
          result.found = true;
          if (ranges[rank].begin + i < ranges[rank].end) {
            result.at = ranges[rank].begin + i;
          }
          return result;
        }
      }
    }
  }
  return result;
}

const char* const kBegin =
    "the processes have computed with different numbers, which operators on distributed "
    "tensors were given: a number, or a plain tensor, that is not the same on all "
    "processes. In match_single_device all compute the same, each for its part of the "
    "batch";
const char* const kRemedy =
    "Take numbers that depend on the process (its index, its own data, its clock) out of "
    "what is trained and measured, or give process 0's to all with "
    "accelerator.broadcast_object(value); load the same plain tensors everywhere. "
    "ACCEL_CHECK_VALUES=0 goes on without looking.";

} // namespace

uint64_t lineage_of(const at::Tensor& tensor) {
  Part* part = raw_part(tensor);
  if (part == nullptr) {
    return 0;
  }
  return part->view == nullptr ? part->lineage
      : part->lineage == 0     ? root_of(part)->lineage
                               : mixed(part->lineage, root_of(part)->lineage);
}

void inherit_lineage(const at::Tensor& to, uint64_t lineage) {
  if (Part* part = to.defined() ? raw_part(to) : nullptr) {
    part->lineage = 0;
    root_of(part)->lineage = lineage;
  }
}

uint64_t lineage_of_plain(const at::Tensor& whole) {
  if (!keeps_lineages || !is_readable(whole)) {
    return 0;
  }
  Lineage lineage("", 1);
  lineage.add(whole);
  return lineage.value();
}

void Lineage::add(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    mix(3);
  } else if (raw_part(tensor) != nullptr) {
    mix(lineage_of(tensor));
    from_parts_ = true;
  } else if (
      // What backward has saved may have elements that nobody has written (the scratch
      // memory of ctc_loss), and was computed from what forward has looked at.
      (tensor.unsafeGetTensorImpl()->is_wrapped_number() || !in_backward()) &&
      is_readable(tensor)) {
    add_values(tensor);
  }
}

void Lineage::add_values(const at::Tensor& plain) {
  const auto dtype = plain.scalar_type();
  const size_t size = std::min<size_t>(plain.element_size(), 2 * sizeof(uint64_t));
  each_sample(plain, [&](const char* at) {
    const double number = number_at(at, dtype);
    std::array<uint64_t, 2> bits{};
    if (!std::isnan(number)) { // One NaN is as good as another.
      std::memcpy(bits.data(), at, size);
    }
    mix(bits[0]);
    mix(bits[1]);
    note(number);
  });
}

void Lineage::add(double number) {
  uint64_t bits = 0;
  if (!std::isnan(number)) {
    std::memcpy(&bits, &number, sizeof bits);
  }
  mix(bits);
  note(number);
}

void Lineage::add(const at::Scalar& number) {
  if (number.isComplex()) {
    add(number.toComplexDouble().real());
    add(number.toComplexDouble().imag());
  } else if (number.isFloatingPoint()) {
    add(number.toDouble());
  } else if (number.isBoolean()) {
    add(number.toBool());
  } else {
    add(number.toLong());
  }
}

void Lineage::add(const c10::IValue& value) {
  if (value.isScalar()) {
    add(value.toScalar());
  } else if (value.isIntList()) {
    for (const int64_t number : value.toIntList()) {
      add(number);
    }
  } else if (value.isDoubleList()) {
    for (const double number : value.toDoubleList()) {
      add(number);
    }
  } else {
    each_tensor(value, [this](const at::Tensor& tensor) { add(tensor); });
  }
}

void Lineage::end() {
  if (program_log != nullptr) {
    program_log->add({op_, 0, count_, first_, all_});
  }
}

void Lineage::give(const at::Tensor& tensor, bool written, uint64_t number) const {
  if (!tensor.defined()) {
    return;
  }
  const uint64_t value = mixed(value_, number);
  if (Part* part = raw_part(tensor)) {
    (written ? root_of(part) : part)->lineage = value;
  } else if (from_parts_) {
    accel::detail::ReadValues::get().add_read_lineage(value);
  }
}

NotedCall::NotedCall(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    const torch::jit::Stack& stack)
    : lineage_(op.schema().name().c_str(), info.id), info_(info) {
  if (info.copies) {
    // Autograd's engine copies gradients, or detaches them, as it comes.
    const auto& copied = stack[stack.size() - info.arguments].toTensor();
    const Part* part = raw_part(copied);
    copied_ = lineage_of(copied);
    own_ = part != nullptr && part->view ? part->lineage : 0;
    return;
  }
  const size_t base = stack.size() - info.arguments;
  const auto is_written = [&](size_t i) {
    return std::find(info.writes.begin(), info.writes.end(), i) != info.writes.end();
  };
  for (size_t i = 0; i < info.arguments; ++i) {
    const auto& value = stack[base + i];
    const bool written = is_written(i);
    Part* part = nullptr;
    each_tensor(value, [&](const at::Tensor& tensor) {
      part = tensor.defined() ? raw_part(tensor) : nullptr;
      if (part != nullptr) {
        arguments_.push_back(PartPtr::reclaim_copy(part));
        if (written) {
          written_.push_back(tensor);
        }
      }
    });
    // What a plain one held before it is written may be anything; and what is
    // overwritten as a whole does not matter any more.
    if (!written || !value.isTensor() ||
        (part != nullptr && !(info.overwrites && part->view == nullptr))) {
      lineage_.add(value);
    }
  }
  lineage_.end();
}

void NotedCall::done(const torch::jit::Stack& stack) const {
  if (info_.copies) {
    if (Part* part = raw_part(stack.back().toTensor())) {
      part->lineage = part->view ? own_ : copied_;
    }
    return;
  }
  uint64_t number = 0;
  for (const auto& tensor : written_) {
    lineage_.give(tensor, /*written=*/true, number++);
  }
  const auto give = [&](const at::Tensor& result) {
    Part* part = result.defined() ? raw_part(result) : nullptr;
    const bool is_argument = std::any_of(
        arguments_.begin(), arguments_.end(),
        [&](const PartPtr& argument) { return argument.get() == part; });
    if (!is_argument || part == nullptr) {
      lineage_.give(result, /*written=*/false, number);
    }
    ++number;
  };
  for (size_t k = stack.size() - info_.results; k < stack.size(); ++k) {
    each_tensor(stack[k], give);
  }
  if (info_.reads_value) {
    accel::detail::ReadValues::get().add_read_lineage(lineage_.value());
  }
}

void keep_lineages(bool keep) {
  keeps_lineages = keep;
  static Log log;
  log = Log();
  program_log = keep ? &log : nullptr;
}

void begin_lineage_window() {
  if (program_log != nullptr) {
    program_log->begin_window();
  }
}

std::string lineage_difference(accel::detail::Communicator& communicator) {
  const auto entries =
      program_log != nullptr ? program_log->entries() : std::vector<Entry>();
  const auto parting = first_parting(
      gathered(communicator, entries), static_cast<size_t>(communicator.rank()));
  if (!parting.found && parting.rounded) {
    keep_lineages(false);
    return "";
  }
  const std::string text = !parting.found ? "an operator before the last ones that are kept"
      : parting.at                        ? text_of(entries[*parting.at])
                                          : "no more operators";
  std::string error = std::string("accel: ") + kBegin + ":";
  const auto texts = accel::detail::gather_texts(communicator, text, 127);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    error += "\n  process " + std::to_string(rank) + ": " + texts[rank];
  }
  return error + "\n" + kRemedy;
}

uint64_t id_of(const char* name, const char* overload) {
  return hash_of(overload, hash_of(name, 0xcbf29ce484222325ULL));
}

} // namespace accel::distributed
