#include "distributed/report.h"

#include <accel/export.h>

#include "distributed/watch.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <unordered_map>

namespace accel::distributed {
namespace {

using accel::detail::CallSite;

/// Lines of a table in the printed report; all are in the JSON.
constexpr size_t kLines = 20;
/// Places in the source that are told apart; more are counted together.
constexpr size_t kPlaces = 10000;

struct Sum {
  int64_t calls = 0;
  int64_t nanoseconds = 0;
  int64_t waited = 0;
  int64_t collectives = 0;
  int64_t bytes = 0;

  void add(const Sum& other) {
    calls += other.calls;
    nanoseconds += other.nanoseconds;
    waited += other.waited;
    collectives += other.collectives;
    bytes += other.bytes;
  }
  double milliseconds() const {
    return static_cast<double>(nanoseconds) * 1e-6;
  }
  /// "1.2 KiB".
  std::string size() const {
    const char* unit = "B";
    auto number = static_cast<double>(bytes);
    for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
      if (number >= 1024) {
        number /= 1024;
        unit = larger;
      }
    }
    char text[32];
    std::snprintf(
        text, sizeof text, bytes < 1024 ? "%.0f %s" : "%.1f %s", number, unit);
    return text;
  }
};

struct Key {
  const void* schema;
  Way way;
  CallSite site;
  bool operator==(const Key& other) const {
    return schema == other.schema && way == other.way && site == other.site;
  }
};
struct HashOfKey {
  size_t operator()(const Key& key) const {
    return key.site.hash() * 31 + reinterpret_cast<size_t>(key.schema) * 7 +
        static_cast<size_t>(key.way);
  }
};

struct Entry {
  std::string op;
  bool has_rule = false;
  std::string arguments;
  Sum sum;
  Sum in_steps; // of these, those in training steps
};

/// A line of the report.
struct Line {
  std::string op;
  Way way = Way::kPlain;
  std::string place;
  std::string reason;
  std::string arguments;
  Sum sum;
  Sum in_steps;
};

const char* name_of(Way way) {
  switch (way) {
    case Way::kInParts:
      return "in parts";
    case Way::kInPartsWithTraffic:
      return "in parts, communicating";
    case Way::kWhole:
      return "gathered, whole on every process";
    case Way::kPlain:
      return "plain, whole on every process";
    case Way::kLoading:
      return "in data sets, on every process";
    case Way::kUpdating:
      return "in optimizers, on every process";
  }
  return "";
}

const char* key_of(Way way) {
  switch (way) {
    case Way::kInParts:
      return "in_parts";
    case Way::kInPartsWithTraffic:
      return "in_parts_communicating";
    case Way::kWhole:
      return "whole";
    case Way::kPlain:
      return "plain";
    case Way::kLoading:
      return "loading";
    case Way::kUpdating:
      return "updating";
  }
  return "";
}

constexpr std::array<Way, 6> kWays{
    Way::kInParts,
    Way::kInPartsWithTraffic,
    Way::kWhole,
    Way::kPlain,
    Way::kLoading,
    Way::kUpdating};

template <typename... Arguments>
void write(std::ostream& out, const char* format, Arguments... arguments) {
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, format, arguments...);
  out << buffer;
}

} // namespace

struct PlacementReport::State {
  std::mutex mutex;
  std::unordered_map<Key, Entry, HashOfKey> entries;
  int64_t processes = 0;
  /// The largest batch that was shared out.
  int64_t rows = 0;
  /// Training steps that have begun and not ended.
  int64_t steps = 0;
  bool finished = false;
  bool expected = false;

  Sum total(Way way, bool in_steps = false) const {
    Sum sum;
    for (const auto& [key, entry] : entries) {
      if (key.way == way) {
        sum.add(in_steps ? entry.in_steps : entry.sum);
      }
    }
    return sum;
  }

  /// Percent of the time that was shared out, without data sets and optimizers
  /// where these are `left_out`; 0 where there is no time.
  double shared(bool left_out, bool in_steps) const {
    double all = 0;
    double parts = 0;
    for (const Way way : kWays) {
      const double time = total(way, in_steps).milliseconds();
      if (!left_out || (way != Way::kLoading && way != Way::kUpdating)) {
        all += time;
      }
      if (way == Way::kInParts || way == Way::kInPartsWithTraffic) {
        parts += time;
      }
    }
    return all > 0 ? 100 * parts / all : 0;
  }

  /// Calls from one place of the source through different calls are one line;
  /// the slowest first.
  std::vector<Line> lines(Way way) const {
    std::map<std::pair<std::string, std::string>, Line> by_place;
    for (const auto& [key, entry] : entries) {
      if (key.way != way) {
        continue;
      }
      auto place = key.site == CallSite() ? "" : key.site.describe();
      auto& line = by_place[{entry.op, place}];
      if (line.op.empty()) {
        line.op = entry.op;
        line.way = way;
        line.place = std::move(place);
        line.reason = way != Way::kWhole ? ""
            : entry.has_rule             ? "not in these placements"
                                         : "no rule";
        line.arguments = entry.arguments;
      }
      line.sum.add(entry.sum);
      line.in_steps.add(entry.in_steps);
    }
    std::vector<Line> sorted;
    for (auto& [key, line] : by_place) {
      sorted.push_back(std::move(line));
    }
    std::sort(sorted.begin(), sorted.end(), [](const Line& a, const Line& b) {
      return a.sum.nanoseconds > b.sum.nanoseconds;
    });
    return sorted;
  }

  void print_lines(std::ostream& out, Way way, const char* heading) const;
  /// How to see lines, where the program has none.
  void print_hint(std::ostream& out) const;
};

void PlacementReport::State::print_hint(std::ostream& out) const {
  for (const Way way : {Way::kWhole, Way::kInPartsWithTraffic}) {
    for (const auto& line : lines(way)) {
      if (!line.place.empty() && !CallSite::has_line(line.place)) {
        out << "\nPlaces are functions and offsets: to see lines, compile the "
               "program with -g (beside -O2) and have addr2line (of binutils) "
               "in PATH.\n";
        return;
      }
    }
  }
}

void PlacementReport::State::print_lines(
    std::ostream& out,
    Way way,
    const char* heading) const {
  const auto all = lines(way);
  if (all.empty()) {
    return;
  }
  out << '\n' << heading << '\n';
  const bool traffic = way == Way::kWhole || way == Way::kInPartsWithTraffic;
  write(
      out, "  %9s %8s%s  %-36s%s\n", "ms", "calls", traffic ? "       moved" : "",
      "operator", traffic ? " where" : "");
  for (size_t i = 0; i < std::min(all.size(), kLines); ++i) {
    const auto& line = all[i];
    write(
        out, "  %9.1f %8lld", line.sum.milliseconds(),
        static_cast<long long>(line.sum.calls));
    if (traffic) {
      write(out, "  %10s", line.sum.size().c_str());
    }
    write(out, "  %-36s", line.op.c_str());
    if (traffic) {
      out << ' ' << (line.place.empty() ? "(backward, or unknown)" : line.place);
    }
    out << '\n';
    if (!line.arguments.empty()) {
      out << "                                  " << (way == Way::kWhole ? line.reason + ": " : "")
          << line.arguments << '\n';
    }
  }
  if (all.size() > kLines) {
    Sum rest;
    for (size_t i = kLines; i < all.size(); ++i) {
      rest.add(all[i].sum);
    }
    write(
        out, "  %9.1f %8lld%s  %zu more\n", rest.milliseconds(),
        static_cast<long long>(rest.calls), traffic ? "            " : "",
        all.size() - kLines);
  }
}

PlacementReport::PlacementReport() : state_(new State()) {}

PlacementReport& PlacementReport::instance() {
  // Never destroyed: `finish` runs at the end of the program.
  static auto* const report = [] {
    std::atexit([] { instance().finish(); });
    return new PlacementReport();
  }();
  return *report;
}

void PlacementReport::set_processes(int64_t processes) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->processes = std::max(state_->processes, processes);
}

void PlacementReport::add_batch(int64_t rows) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->rows = std::max(state_->rows, rows);
}

void PlacementReport::begin_step() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  ++state_->steps;
}

void PlacementReport::end_step() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->steps = std::max<int64_t>(0, state_->steps - 1);
}

void PlacementReport::expect(int64_t processes) {
  set_processes(processes);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->expected = true;
}

void PlacementReport::add(const ReportedCall& call) {
  add_at(call, CallSite());
}

std::string* PlacementReport::add_at(
    const ReportedCall& call,
    const CallSite& site) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  Key key{&call.op.schema(), call.way, site};
  if (state_->entries.size() >= kPlaces &&
      state_->entries.find(key) == state_->entries.end()) {
    key.site = CallSite();
  }
  const auto [found, fresh] = state_->entries.try_emplace(key);
  auto& entry = found->second;
  if (fresh) {
    entry.op = c10::toString(call.op.operator_name());
    entry.has_rule = call.has_rule;
  }
  const Sum sum{
      1, call.nanoseconds, call.waited, call.collectives, call.bytes};
  entry.sum.add(sum);
  if (state_->steps > 0) {
    entry.in_steps.add(sum);
  }
  // Elements of an unordered map stay where they are.
  return fresh ? &entry.arguments : nullptr;
}

void PlacementReport::print(std::ostream& out) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  Sum total;
  for (const Way way : kWays) {
    total.add(state_->total(way));
  }
  const double milliseconds = std::max(total.milliseconds(), 1e-9);
  out << "accel: placement report of process 0";
  if (state_->processes > 0) {
    out << " of " << state_->processes;
  }
  out << '\n';
  write(
      out, "%.1f %% of the operators' time was shared out",
      state_->shared(/*left_out=*/false, /*in_steps=*/false));
  if (state_->total(Way::kLoading).calls + state_->total(Way::kUpdating).calls > 0) {
    write(
        out, ", %.1f %% without data sets and optimizers",
        state_->shared(/*left_out=*/true, /*in_steps=*/false));
  }
  if (state_->total(Way::kInParts, /*in_steps=*/true).calls > 0) {
    write(
        out, ", %.1f %% in training steps",
        state_->shared(/*left_out=*/true, /*in_steps=*/true));
  }
  out << ".\n\n";
  write(
      out, "  %9s %8s  %10s %7s  %s\n", "ms", "calls", "moved", "share",
      "how operators ran");
  for (const Way way : kWays) {
    const auto sum = state_->total(way);
    write(
        out, "  %9.1f %8lld  %10s %6.1f%%  %s\n", sum.milliseconds(),
        static_cast<long long>(sum.calls), sum.size().c_str(),
        100 * sum.milliseconds() / milliseconds, name_of(way));
  }
  if (total.waited > 0) {
    write(
        out, "  %9.1f %37s  waiting for other processes, in no share\n",
        static_cast<double>(total.waited) * 1e-6, "");
  }
  state_->print_lines(
      out, Way::kWhole,
      "Gathered and done whole by every process. Look here first:");
  state_->print_lines(
      out, Way::kInPartsWithTraffic, "In parts, with communication:");
  state_->print_lines(
      out, Way::kPlain,
      "On plain tensors, which every process has in full. To share them out, "
      "distribute what they start from:");
  state_->print_hint(out);
}

void PlacementReport::print_json(std::ostream& out) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  using nlohmann::json;
  json report{{"processes", state_->processes}, {"rows", state_->rows}};
  const auto numbers = [](const Sum& sum) {
    return json{
        {"milliseconds", sum.milliseconds()},
        {"waited_milliseconds", static_cast<double>(sum.waited) * 1e-6},
        {"calls", sum.calls},
        {"collectives", sum.collectives},
        {"bytes", sum.bytes}};
  };
  for (const Way way : kWays) {
    report["totals"][key_of(way)] = numbers(state_->total(way));
    report["totals_in_steps"][key_of(way)] = numbers(state_->total(way, /*in_steps=*/true));
    auto& list = report["operators"][key_of(way)] = json::array();
    for (const auto& line : state_->lines(way)) {
      auto entry = numbers(line.sum);
      entry["operator"] = line.op;
      entry["milliseconds_in_steps"] = line.in_steps.milliseconds();
      if (!line.place.empty()) {
        entry["where"] = line.place;
      }
      if (!line.reason.empty()) {
        entry["reason"] = line.reason;
      }
      if (!line.arguments.empty()) {
        entry["arguments"] = line.arguments;
      }
      list.push_back(std::move(entry));
    }
  }
  out << report.dump(1) << '\n';
}

void PlacementReport::finish() {
  bool nothing = false;
  bool alone = false;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->finished ||
        (state_->entries.empty() && !state_->expected)) {
      return;
    }
    state_->finished = true;
    nothing = state_->entries.empty();
    alone = state_->processes <= 1;
  }
  const auto& path = watch().report_file;
  if (path.empty() && nothing) {
    std::cerr << "accel: placement report: no operator was given a distributed "
                 "tensor. "
              << (alone ? "With one process nothing is shared out."
                        : "Batches of accel's loaders are distributed with "
                          "match_single_device, any tensor with "
                          "accelerator.distribute(tensor).")
              << std::endl;
    return;
  }
  if (path.empty()) {
    std::ostringstream text;
    print(text);
    std::cerr << text.str() << std::flush;
    return;
  }
  std::ofstream file(path);
  print_json(file);
  file.close();
  if (!file) {
    std::cerr << "accel: the placement report cannot be written to " << path
              << "; ACCEL_PLACEMENT_REPORT=1 prints it instead." << std::endl;
  }
}

} // namespace accel::distributed

/// For `accel verify --max-steps`, which ends a process past `atexit`.
extern "C" ACCEL_API void accel_finish_placement_report() {
  accel::distributed::PlacementReport::instance().finish();
}
