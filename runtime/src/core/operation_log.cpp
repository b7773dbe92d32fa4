#include "core/operation_log.h"

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>

namespace accel::detail {

using Kind = ProcessStatus::Kind;

namespace {

thread_local const PurposeGuard* purpose = nullptr;
thread_local std::shared_ptr<Enclosed> enclosed;

/// FNV-1a over words; equal on all machines.
struct Fingerprint {
  uint64_t value = 14695981039346656037ULL;

  void add(uint64_t word) {
    value = (value ^ word) * 1099511628211ULL;
    value ^= value >> 32;
  }
  void add(const char* text) {
    for (; *text != '\0'; ++text) {
      value = (value ^ static_cast<unsigned char>(*text)) * 1099511628211ULL;
    }
    add(uint64_t{0});
  }
};

uint64_t fingerprint_of(const Operation& operation, uint64_t detail) {
  Fingerprint fingerprint;
  fingerprint.add(operation.name);
  fingerprint.add(operation.purpose);
  fingerprint.add(
      operation.dtype ? static_cast<uint64_t>(*operation.dtype) + 1 : 0);
  fingerprint.add(operation.sizes.size());
  for (const int64_t size : operation.sizes) {
    fingerprint.add(static_cast<uint64_t>(size));
  }
  fingerprint.add(detail);
  return fingerprint.value;
}

} // namespace

PurposeGuard::PurposeGuard(
    const char* name, at::IntArrayRef sizes, uint64_t detail)
    : name_(name), sizes_(sizes), detail_(detail), previous_(purpose) {
  purpose = this;
}

PurposeGuard::~PurposeGuard() {
  purpose = previous_;
}

EncloseGuard::EncloseGuard(std::shared_ptr<Enclosed> numbers) {
  enclosed = std::move(numbers);
}

EncloseGuard::~EncloseGuard() {
  enclosed.reset();
}

std::string Operation::describe() const {
  std::ostringstream text;
  text << name << " #" << number;
  if (dtype) {
    text << " of " << *dtype << ' ' << at::IntArrayRef(sizes);
  }
  if (*purpose != '\0') {
    text << " for " << purpose;
  }
  if (group != nullptr) {
    text << " along " << group->name;
  }
  return text.str();
}

std::string describe_out_of_step(
    const std::vector<std::string>& operations,
    const OperationGroupPtr& group) {
  std::string text =
      "the processes are out of step: not all of them call the same operations "
      "in the same order, with equal sizes. Perhaps one is under a condition "
      "that differs between them (is_main_process(), the time, a file that only "
      "one of them sees), or one has more batches than another.";
  for (size_t rank = 0; rank < operations.size(); ++rank) {
    const auto process =
        group == nullptr ? static_cast<int64_t>(rank) : group->processes[rank];
    text +=
        "\n  process " + std::to_string(process) + " is in " + operations[rank];
  }
  return text;
}

std::string describe_with_place(const Operation& operation) {
  const auto site =
      operation.site == CallSite() ? CallSite::here() : operation.site;
  const std::string place = site.describe();
  return operation.describe() + (place.empty() ? "" : ", called at " + place);
}

std::string ProcessStatus::to_text() const {
  return nlohmann::json{
      {"kind", static_cast<int>(kind)},
      {"channel", channel},
      {"group", group},
      {"number", number},
      {"operation", operation},
      {"site", site},
      {"seconds", seconds},
      {"wait", wait},
      {"question", question},
      {"begun", begun},
      {"begun_in_groups", begun_in_groups}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

ProcessStatus ProcessStatus::from_text(const std::string& text) {
  ProcessStatus status;
  try {
    const auto json = nlohmann::json::parse(text);
    json.at("channel").get_to(status.channel);
    json.at("group").get_to(status.group);
    json.at("number").get_to(status.number);
    json.at("operation").get_to(status.operation);
    json.at("site").get_to(status.site);
    json.at("seconds").get_to(status.seconds);
    json.at("wait").get_to(status.wait);
    json.at("question").get_to(status.question);
    json.at("begun").get_to(status.begun);
    json.at("begun_in_groups").get_to(status.begun_in_groups);
    status.kind = static_cast<Kind>(json.at("kind").get<int>());
    if (status.channel < 0 || status.channel > 2) {
      return {};
    }
  } catch (const nlohmann::json::exception&) {
    return {}; // Not an answer.
  }
  return status;
}

void OperationLog::add_group(const OperationGroupPtr& group) {
  const std::lock_guard<std::mutex> lock(mutex_);
  slots_.emplace_back();
  slots_.back().group = group;
}

size_t OperationLog::slot_of(
    Channel channel, const OperationGroupPtr& group) const {
  if (group == nullptr) {
    return static_cast<size_t>(channel);
  }
  size_t slot = 3;
  while (slots_[slot].group != group) {
    ++slot;
  }
  return slot;
}

Operation OperationLog::begin(
    Channel channel,
    const OperationGroupPtr& group,
    const char* name,
    const at::Tensor& tensor) {
  Operation operation;
  operation.channel = channel;
  operation.group = group;
  operation.name = name;
  uint64_t detail = 0;
  if (tensor.defined()) {
    operation.dtype = tensor.scalar_type();
    const auto sizes =
        purpose != nullptr ? purpose->sizes_ : tensor.sizes();
    operation.sizes.append(sizes.begin(), sizes.end());
  }
  if (purpose != nullptr) {
    operation.purpose = purpose->name_;
    detail = purpose->detail_;
  }
  if (enclosed != nullptr) {
    operation.enclosed = enclosed;
    ++detail; // Who carries something meets nobody who does not.
  }
  operation.fingerprint = fingerprint_of(operation, detail);
  if (channel == Channel::kMain) {
    // The others are called from forward and backward only.
    operation.site = CallSite::here();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  operation.number = ++slots_[slot_of(channel, group)].begun;
  return operation;
}

OperationLog::Waiting::Waiting(OperationLog& log, const Operation& operation)
    : log_(log) {
  const std::lock_guard<std::mutex> lock(log_.mutex_);
  slot_ = log_.slot_of(operation.channel, operation.group);
  auto& slot = log_.slots_[slot_];
  slot.operation = operation;
  slot.waiting = true;
  slot.since = Clock::now();
  slot.wait = ++log_.waits_;
  log_.last_ = slot_;
}

OperationLog::Waiting::~Waiting() {
  const std::lock_guard<std::mutex> lock(log_.mutex_);
  auto& slot = log_.slots_[slot_];
  slot.waiting = false;
  slot.since = Clock::now();
}

void OperationLog::add_site(
    Channel channel, const OperationGroupPtr& group, const CallSite& site) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& slot = slots_[slot_of(channel, group)];
  if (slot.waiting && slot.operation.site == CallSite()) {
    slot.operation.site = site;
  }
}

void OperationLog::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  left_ = true;
}

const OperationLog::Slot* OperationLog::longest() const {
  const Slot* result = nullptr;
  for (const auto& slot : slots_) {
    if (slot.waiting && (result == nullptr || slot.since < result->since)) {
      result = &slot;
    }
  }
  return result;
}

std::optional<OperationLog::Clock::time_point> OperationLog::waiting_since()
    const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto* slot = longest();
  return slot == nullptr ? std::nullopt
                         : std::optional<Clock::time_point>(slot->since);
}

ProcessStatus OperationLog::status() const {
  ProcessStatus status;
  CallSite site;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto* slot = longest();
    status.kind = slot != nullptr ? Kind::kWaiting
        : left_                   ? Kind::kLeft
                                  : Kind::kElsewhere;
    if (slot == nullptr) {
      slot = &slots_[last_];
    }
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (i < status.begun.size()) {
        status.begun[i] = slots_[i].begun;
      } else {
        status.begun_in_groups[slots_[i].group->key] = slots_[i].begun;
      }
    }
    if (slot->operation.number > 0) {
      status.channel = static_cast<int64_t>(slot->operation.channel);
      status.group = slot->group == nullptr ? "" : slot->group->key;
      status.number = slot->operation.number;
      status.operation = slot->operation.describe();
      status.seconds =
          std::chrono::duration<double>(Clock::now() - slot->since).count();
      status.wait = slot->wait;
      site = slot->operation.site;
      if (site == CallSite()) {
        status.site = "forward or backward";
      } else if (site == described_site_) {
        status.site = description_;
      }
    }
  }
  if (status.number > 0 && status.site.empty()) {
    status.site = site.describe();
    const std::lock_guard<std::mutex> lock(mutex_);
    described_site_ = site;
    description_ = status.site;
  }
  return status;
}

std::string describe(const std::vector<ProcessStatus>& processes) {
  std::ostringstream text;
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    const auto& status = processes[rank];
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f s", status.seconds);
    const std::string operation = status.number == 0
        ? "none"
        : status.operation +
            (status.site.empty() ? "" : ", called at " + status.site);
    text << (rank == 0 ? "" : "\n") << "  process " << rank << ' ';
    switch (status.kind) {
      case Kind::kSilent:
        text << "gives no answer";
        break;
      case Kind::kElsewhere:
        text << "computes, or waits for something else; its last operation, "
             << (status.number == 0 ? "" : std::string(seconds) + " ago")
             << (status.number == 0 ? "" : ": ") << operation;
        break;
      case Kind::kWaiting:
        text << "has waited " << seconds << " in " << operation;
        break;
      case Kind::kLeft:
        text << "has ended; its last operation: " << operation;
        break;
    }
  }
  return text.str();
}

namespace {

/// Whether a process takes part in the operation that another one waits in.
bool takes_part(const ProcessStatus& process, const ProcessStatus& waiting) {
  return waiting.group.empty() ||
      process.begun_in_groups.count(waiting.group) != 0;
}

uint64_t begun_there(const ProcessStatus& process, const ProcessStatus& waiting) {
  return waiting.group.empty()
      ? process.begun[static_cast<size_t>(waiting.channel)]
      : process.begun_in_groups.at(waiting.group);
}

bool same_place(const ProcessStatus& one, const ProcessStatus& other) {
  return one.channel == other.channel && one.group == other.group &&
      one.number == other.number;
}

} // namespace

bool out_of_step(const std::vector<ProcessStatus>& processes, double stuck) {
  std::vector<const ProcessStatus*> waiting;
  for (const auto& status : processes) {
    if (status.kind != Kind::kWaiting) {
      continue;
    }
    for (const auto& other : processes) {
      if (other.kind == Kind::kLeft && takes_part(other, status) &&
          begun_there(other, status) < status.number) {
        return true;
      }
    }
    if (status.seconds >= stuck) {
      waiting.push_back(&status);
    }
  }
  for (const auto* one : waiting) {
    for (const auto* other : waiting) {
      if (same_place(*one, *other) && other->operation != one->operation) {
        return true;
      }
    }
  }
  if (waiting.size() != processes.size()) {
    return false;
  }
  // Where all that belong to an operation are in it, it goes on.
  return std::none_of(
      waiting.begin(), waiting.end(), [&](const ProcessStatus* one) {
        return std::all_of(
            waiting.begin(), waiting.end(), [&](const ProcessStatus* other) {
              return !takes_part(*other, *one) || same_place(*one, *other);
            });
      });
}

} // namespace accel::detail
