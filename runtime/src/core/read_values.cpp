#include "core/read_values.h"

#include "core/gather_texts.h"
#include "distributed/lineage.h"

#include <accel/detail/alone.h>
#include <accel/utils/environment.h>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <utility>

namespace accel::detail {
namespace {

const char* const kReadsDiffer =
    "the processes have read different values out of one distributed tensor, and "
    "would go on differently";
const char* const kLossesDiffer =
    "backward was given a plain tensor as the loss, and it is not the same on "
    "all processes. In match_single_device a plain loss counts as that of the "
    "whole batch, which every process has computed alike";
const char* const kRemedy =
    "Seed every generator with a constant, not with the clock or a random "
    "device; read the same files everywhere; give what only one process knows "
    "to all with accelerator.broadcast_object(value). Where each process is to "
    "train on batches of its own, leave match_single_device off, or join them "
    "with accel::distributed::from_local. Where values differ by rounding only "
    "(other processors, kernels that add in any order), "
    "ACCEL_CHECK_VALUES=0 goes on without looking.";

uint64_t mix(uint64_t number) {
  number += 0x9e3779b97f4a7c15ULL;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9ULL;
  number = (number ^ (number >> 27)) * 0x94d049bb133111ebULL;
  return number ^ (number >> 31);
}

int64_t as_signed(uint64_t number) {
  int64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

/// One NaN is as good as another.
int64_t bits_of(double number) {
  if (std::isnan(number)) {
    return 0x7ff8000000000000;
  }
  int64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

double number_of(int64_t bits) {
  double number = 0;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

std::string text_of(double number) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}

int64_t bits_of(const c10::Scalar& number) {
  if (number.isComplex()) {
    const auto value = number.toComplexDouble();
    return as_signed(
        mix(static_cast<uint64_t>(bits_of(value.real()))) ^
        static_cast<uint64_t>(bits_of(value.imag())));
  }
  if (number.isFloatingPoint()) {
    return bits_of(number.toDouble());
  }
  return number.isBoolean() ? static_cast<int64_t>(number.toBool())
                            : number.toLong();
}

std::string text_of(const c10::Scalar& number) {
  if (number.isComplex()) {
    const auto value = number.toComplexDouble();
    return text_of(value.real()) + " + " + text_of(value.imag()) + "i";
  }
  if (number.isFloatingPoint()) {
    return text_of(number.toDouble());
  }
  if (number.isBoolean()) {
    return number.toBool() ? "true" : "false";
  }
  return std::to_string(number.toLong());
}

std::atomic<bool> failed{false};

/// Registered before anything of the program's own, and so called after it.
__attribute__((constructor)) void watch_exit() {
  ::on_exit(
      [](int status, void*) {
        if (exit_code_at_end(status) != status) {
          std::cout.flush();
          std::fflush(nullptr);
          ::_exit(exit_code_at_end(status));
        }
      },
      nullptr);
}

std::string message_about(
    const char* what,
    const std::vector<std::string>& values) {
  std::string text = std::string("accel: ") + what + ":";
  for (size_t rank = 0; rank < values.size(); ++rank) {
    text += "\n  process " + std::to_string(rank) + ": " + values[rank];
  }
  return text + "\n" + kRemedy;
}

/// Up to where numbers of a device are one number, rounded in several ways: what
/// processes compute of different data is further apart. 0 on the CPU, where they
/// add in one order.
double rounding_of(c10::Device device, at::ScalarType dtype) {
  if (device.is_cpu()) {
    return 0;
  }
  switch (dtype) {
    case at::kDouble:
    case at::kComplexDouble:
      return 1e-6;
    case at::kFloat:
    case at::kComplexFloat:
      return 1e-3;
    default:
      return at::isFloatingType(dtype) ? 3e-2 : 0;
  }
}

/// A NaN is near to nothing.
bool are_near(const std::vector<double>& numbers, double rounding) {
  return rounding > 0 &&
      std::all_of(numbers.begin(), numbers.end(), [&](double number) {
        const double largest = std::max(std::abs(number), std::abs(numbers[0]));
        return std::abs(number - numbers[0]) <= rounding * (largest + 1e-3);
      });
}

double size_of(const c10::Scalar& number) {
  return number.isComplex() ? std::abs(number.toComplexDouble())
                            : number.toDouble();
}

bool all_equal(const std::vector<int64_t>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [&](int64_t number) {
    return number == numbers[0];
  });
}

} // namespace

void fail_at_exit() {
  failed = true;
}

int exit_code_at_end(int status) {
  return failed && status == 0 ? 1 : status;
}

ReadValues& ReadValues::get() {
  // Never destroyed: tensors are read until the program has ended.
  static auto* const values = new ReadValues();
  return *values;
}

bool ReadValues::enabled() {
  static const bool on =
      parse_flag_from_env("ACCEL_CHECK_VALUES", /*fallback=*/true);
  return on;
}

void ReadValues::Values::add(Value value) {
  checksum = mix(checksum ^ static_cast<uint64_t>(value.bits));
  ++count;
  if (kept.size() < kKept) {
    kept.push_back(std::move(value));
  }
}

std::array<int64_t, Enclosed::kCount - 1> ReadValues::Window::digest() const {
  // The sum over the processes tells whether all are equal: of random numbers,
  // but not of small ones.
  return {
      as_signed(mix(static_cast<uint64_t>(reads.count))),
      as_signed(reads.checksum),
      as_signed(mix(losses.checksum ^ static_cast<uint64_t>(losses.count))),
      as_signed(mix(static_cast<uint64_t>(batch_count))),
      as_signed(mix(batches)),
      as_signed(mix(draws)),
      as_signed(mix(lineages)),
      as_signed(mix(static_cast<uint64_t>(lineage_count))),
      as_signed(mix(read_lineages))};
}

void ReadValues::add_read(
    const char* op,
    const c10::IValue& value,
    c10::Device device,
    at::ScalarType dtype) {
  // What is marked as one process's affair needs not be the others'.
  if (!value.isScalar() || AloneGuard::region() != nullptr) {
    return;
  }
  Value read;
  read.op = op;
  read.number = value.toScalar();
  read.bits = bits_of(read.number);
  read.rounding = rounding_of(device, dtype);
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t kept = window_.reads.kept.size();
  if (kept < kPlaces && (windows_ < kAlways || windows_ % kSometimes == 0)) {
    places_[kept] = CallSite::here();
    read.placed = true;
  }
  window_.reads.add(std::move(read));
}

void ReadValues::add_read_lineage(uint64_t lineage) {
  if (AloneGuard::region() != nullptr) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  window_.read_lineages = mix(window_.read_lineages ^ lineage);
  ++window_.lineage_count;
}

void ReadValues::add_lineage(uint64_t lineage) {
  const std::lock_guard<std::mutex> lock(mutex_);
  window_.lineages = mix(window_.lineages ^ lineage);
}

void ReadValues::add_loss(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1) {
    return; // backward says so itself
  }
  const at::NoGradGuard no_grad;
  settle_loss();
  const auto value = loss.detach();
  if (!value.is_cpu()) {
    const auto device = value.device();
    PendingLoss pending{
        at::empty(
            value.sizes(),
            value.options().device(at::kCPU).pinned_memory(true)),
        device,
        c10::Event(device.type())};
    pending.host.copy_(value, /*non_blocking=*/true);
    const c10::impl::VirtualGuardImpl guard(device.type());
    pending.done.record(guard.getStream(device));
    pending_loss_.emplace(std::move(pending));
    return;
  }
  Value read;
  read.number = value.item();
  read.bits = bits_of(read.number);
  const std::lock_guard<std::mutex> lock(mutex_);
  window_.losses.add(std::move(read));
}

void ReadValues::add_batch(
    const std::string& sampler, uint64_t fingerprint, bool has_workers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  has_workers_ = has_workers_ || has_workers;
  if (AloneGuard::region() != nullptr) {
    return;
  }
  ++window_.batch_count;
  window_.batches = mix(window_.batches ^ fingerprint);
  window_.sampler = sampler;
}

void ReadValues::add_draw(uint64_t state) {
  if (AloneGuard::region() != nullptr) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  window_.draws = mix(window_.draws ^ state);
}

std::string ReadValues::place_of(
    const std::vector<Value>& kept, size_t index) const {
  if (index >= std::min(kept.size(), kPlaces)) {
    return "";
  }
  const auto place = places_[index].describe();
  return place.empty() || kept[index].placed
      ? place
      : place + " (where it was some steps before)";
}

void ReadValues::settle_loss() {
  if (!pending_loss_) {
    return;
  }
  pending_loss_->done.synchronize();
  Value read;
  read.number = pending_loss_->host.item();
  read.bits = bits_of(read.number);
  read.rounding =
      rounding_of(pending_loss_->device, pending_loss_->host.scalar_type());
  pending_loss_.reset();
  const std::lock_guard<std::mutex> lock(mutex_);
  window_.losses.add(std::move(read));
}

bool ReadValues::is_due(bool met_others) {
  ++backwards_;
  return met_others || backwards_ <= kAlways || backwards_ % kSkips == 0;
}

std::array<int64_t, Enclosed::kCount> ReadValues::numbers() const {
  std::array<int64_t, Enclosed::kCount> all{};
  const auto digest = compared_.digest();
  std::copy(digest.begin(), digest.end(), all.begin());
  all.back() = more_;
  return all;
}

std::shared_ptr<Enclosed> ReadValues::begin(
    Communicator& communicator, bool enclose, uint64_t more) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    compared_ = std::exchange(window_, Window());
    ++windows_;
  }
  distributed::begin_lineage_window();
  more_ = as_signed(mix(more));
  wait_ = nullptr;
  enclosed_ = nullptr;
  if (enclose) {
    enclosed_ = std::make_shared<Enclosed>();
    enclosed_->numbers = numbers();
  } else {
    send(communicator);
  }
  return enclosed_;
}

void ReadValues::send(Communicator& communicator) {
  const auto mine = numbers();
  sum_ = at::empty({static_cast<int64_t>(mine.size())}, at::kLong);
  std::copy(mine.begin(), mine.end(), sum_.mutable_data_ptr<int64_t>());
  wait_ = communicator.all_reduce_async(sum_);
}

bool ReadValues::wait(Communicator& communicator) {
  if (enclosed_ == nullptr && !wait_) {
    return true;
  }
  if (enclosed_ == nullptr || !enclosed_->compared) {
    if (!wait_) {
      send(communicator); // No gradients were sent.
    }
    std::exchange(wait_, nullptr)();
    enclosed_ = std::make_shared<Enclosed>();
    const auto mine = numbers();
    const auto size = static_cast<uint64_t>(communicator.size());
    const auto* sum = sum_.const_data_ptr<int64_t>();
    for (size_t i = 0; i < mine.size(); ++i) {
      // All of them differ from the mean, or, but for one chance in 2^64, none.
      enclosed_->differ[i] = static_cast<uint64_t>(sum[i]) !=
          static_cast<uint64_t>(mine[i]) * size;
    }
  }
  return !enclosed_->differ.back();
}

void ReadValues::end(Communicator& communicator) {
  const auto enclosed = std::exchange(enclosed_, nullptr);
  if (enclosed == nullptr) {
    return;
  }
  TORCH_CHECK(
      enclosed->differ[3] || !enclosed->differ[4],
      "accel: the processes have drawn different batches from a data loader (the last "
      "one has the sampler ",
      compared_.sampler,
      "). In match_single_device all draw those of one device, and each loads its rows "
      "of them. A sampler must draw from LibTorch's default generator, or from one that "
      "is seeded alike on all processes; torch::data::samplers::DistributedRandomSampler "
      "and DistributedSequentialSampler are to be left out, the loader deals out the "
      "samples. ACCEL_CHECK_VALUES=0 goes on without looking.");
  if (enclosed->differ[5]) {
    const std::string other_draws =
        "accel: the processes have drawn other random numbers in operators on distributed "
        "tensors (dropout, noise): their generators are not in the same state, or one "
        "process alone has drawn. In match_single_device all processes draw the numbers of "
        "one device: seed them alike (torch::manual_seed(seed) without the process's "
        "number), draw on all of them or on none, and have the model in the same mode "
        "(train, eval). ACCEL_CHECK_VALUES=0 goes on without looking.";
    fail(other_draws, communicator);
  }
  if (enclosed->differ[2]) {
    look_closer(communicator, compared_.losses, /*losses=*/true);
  }
  if (!enclosed->differ[0] && enclosed->differ[1]) {
    look_closer(communicator, compared_.reads, /*losses=*/false);
  }
  if (distributed::keeps_lineages &&
      (enclosed->differ[6] || (!enclosed->differ[7] && enclosed->differ[8]))) {
    const auto error = distributed::lineage_difference(communicator);
    if (!error.empty()) {
      fail(error, communicator);
      distributed::keep_lineages(false); // They differ from here on.
    }
  }
}

void ReadValues::fail(const std::string& error, const Communicator& communicator) const {
  TORCH_CHECK(has_workers_, error);
  if (communicator.rank() == 0) {
    TORCH_WARN_ONCE(
        error,
        " It may be the workers of a data loader that draw: they do so in any order, "
        "each time another one, on one device, too.");
  }
}

void ReadValues::look_closer(
    Communicator& communicator,
    const Values& mine,
    bool losses) {
  // Which is the first that differs: the bits of what is kept, and the numbers
  // themselves behind them, which tell how near they are.
  constexpr auto kept = static_cast<int64_t>(kKept);
  auto bits = at::zeros({2, kept}, at::kLong);
  bits[1].fill_(bits_of(std::numeric_limits<double>::quiet_NaN()));
  for (size_t i = 0; i < mine.kept.size(); ++i) {
    const auto& value = mine.kept[i];
    bits.mutable_data_ptr<int64_t>()[i] = value.bits;
    bits.mutable_data_ptr<int64_t>()[kKept + i] = bits_of(size_of(value.number));
  }
  const auto all = communicator.all_gather(bits);
  size_t first = kKept;
  bool rounded = false;
  for (size_t i = 0; i < kKept && first == kKept; ++i) {
    std::vector<int64_t> these;
    std::vector<double> values;
    for (const auto& other : all) {
      these.push_back(other.const_data_ptr<int64_t>()[i]);
      values.push_back(number_of(other.const_data_ptr<int64_t>()[kKept + i]));
    }
    if (all_equal(these)) {
      continue;
    }
    const double rounding = i < mine.kept.size() ? mine.kept[i].rounding : 0;
    are_near(values, rounding) ? rounded = true : first = i;
  }
  if (first == kKept && rounded) {
    return; // What is further behind is not known to be more than rounding.
  }
  std::string text = "one behind the first " + std::to_string(kKept) +
      " since the last comparison";
  if (first < mine.kept.size()) {
    const auto& value = mine.kept[first];
    const auto site =
        losses ? CallSite::here().describe() : place_of(mine.kept, first);
    text = text_of(value.number) + (losses ? "" : std::string(", by ") + value.op) +
        (site.empty() ? "" : ", at " + site) +
        (first == 0 ? ""
                    : ", number " + std::to_string(first + 1) +
                 " since the last comparison");
  } else if (first < kKept) {
    text = "none, after " + std::to_string(mine.count);
  }
  const auto values = gather_texts(communicator, text, 1023);
  TORCH_CHECK(
      false, message_about(losses ? kLossesDiffer : kReadsDiffer, values));
}

std::string ReadValues::to_text() {
  settle_loss();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto json_of = [](const Values& values) {
    std::vector<std::string> kept;
    std::vector<double> rounding;
    for (const auto& value : values.kept) {
      kept.push_back(text_of(value.number));
      rounding.push_back(value.rounding);
    }
    return nlohmann::json{
        {"count", values.count},
        {"checksum", values.checksum},
        {"values", kept},
        {"rounding", rounding}};
  };
  return nlohmann::json{
      {"reads", json_of(window_.reads)}, {"losses", json_of(window_.losses)}}
      .dump();
}

std::string ReadValues::difference(
    const std::vector<std::string>& texts) const {
  std::vector<nlohmann::json> all;
  for (const auto& text : texts) {
    all.push_back(nlohmann::json::parse(text, nullptr, /*exceptions=*/false));
    if (all.back().is_discarded()) {
      return "";
    }
  }
  for (const bool losses : {true, false}) {
    const char* const key = losses ? "losses" : "reads";
    std::vector<int64_t> counts;
    std::vector<int64_t> checksums;
    for (const auto& one : all) {
      counts.push_back(one.at(key).at("count").get<int64_t>());
      checksums.push_back(
          as_signed(one.at(key).at("checksum").get<uint64_t>()));
    }
    if (all_equal(checksums) || (!losses && !all_equal(counts))) {
      continue;
    }
    size_t first = 0;
    const auto value_of = [&](const nlohmann::json& one) -> std::string {
      const auto& values = one.at(key).at("values");
      return first < values.size() ? values[first].get<std::string>() : "none";
    };
    const auto same = [&] {
      return std::all_of(all.begin(), all.end(), [&](const auto& one) {
        return value_of(one) == value_of(all[0]);
      });
    };
    const auto near = [&] {
      std::vector<double> numbers;
      for (const auto& one : all) {
        numbers.push_back(std::strtod(value_of(one).c_str(), nullptr));
      }
      const auto& rounding = all[0].at(key).at("rounding");
      return first < rounding.size() &&
          are_near(numbers, rounding[first].get<double>());
    };
    bool rounded = false;
    for (; first < kKept && (same() || near()); ++first) {
      rounded = rounded || !same();
    }
    if (first == kKept && rounded) {
      continue;
    }
    std::vector<std::string> values;
    for (const auto& one : all) {
      values.push_back(
          first < kKept ? value_of(one)
                        : "one behind the first " + std::to_string(kKept));
    }
    const auto& mine = losses ? window_.losses.kept : window_.reads.kept;
    const auto place = losses ? std::string() : place_of(mine, first);
    return message_about(
        (std::string(losses ? kLossesDiffer : kReadsDiffer) +
         (place.empty() ? "" : "; read at " + place))
            .c_str(),
        values);
  }
  return "";
}

void ReadValues::restart() {
  const std::lock_guard<std::mutex> lock(mutex_);
  window_ = {};
  compared_ = {};
  has_workers_ = false;
  windows_ = 0;
  backwards_ = 0;
  pending_loss_.reset();
  enclosed_ = nullptr;
  wait_ = nullptr;
}

} // namespace accel::detail
