#include "messages.h"

#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/xxh64.h"
#include "layout.h"

namespace accel::launcher {

// As the structures have them. What is missing or of another type is an error
// of `from_line`.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    Hello, machine, host, processes, facts, address, port)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    Ending,
    rank,
    pid,
    code,
    status,
    seconds,
    asked,
    order,
    note,
    host,
    last_errors,
    memory)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Report, endings, user_signal, reader_gone)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Share, machine, host, processes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Attempt, number, port, run_id, shares)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Verdict, start, attempt, exit_code, text)

namespace {

using Json = nlohmann::json;

/// A part that a message need not have.
template <typename T>
void read_part(const Json& json, const char* name, std::optional<T>& part) {
  if (json.contains(name)) {
    part = json[name].get<T>();
  }
}

/// Of the program's file; a different build trains differently, or not at all.
std::string checksum_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  checkpoint::Xxh64 hash;
  std::vector<char> buffer(size_t{1} << 20);
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    hash.update(buffer.data(), static_cast<size_t>(file.gcount()));
  }
  std::array<char, 17> text = {};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, hash.digest());
  return text.data();
}

} // namespace

std::string to_line(const Message& message) {
  Json json{{"accel", message.name}};
  if (!message.text.empty()) {
    json["text"] = message.text;
  }
  if (message.signal != 0) {
    json["signal"] = message.signal;
  }
  if (!message.hosts.empty()) {
    json["hosts"] = message.hosts;
  }
  if (message.ending) {
    json["ending"] = *message.ending;
  }
  if (message.report) {
    json["report"] = *message.report;
  }
  if (message.verdict) {
    json["verdict"] = *message.verdict;
  }
  // What programs print need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Message> from_line(const std::string& line) {
  try {
    const Json json = Json::parse(line);
    Message message;
    json.at("accel").get_to(message.name);
    message.text = json.value("text", "");
    message.signal = json.value("signal", 0);
    message.hosts = json.value("hosts", message.hosts);
    read_part(json, "ending", message.ending);
    read_part(json, "report", message.report);
    read_part(json, "verdict", message.verdict);
    return message;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string host_name() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

Hello own_hello(const LaunchOptions& options, const std::string& program) {
  Hello hello;
  hello.machine = options.machine_rank;
  hello.host = host_name();
  hello.processes = options.num_processes;
  hello.facts = {
      {"version of accel", kVersion},
      {"number of hosts (--num-machines)",
       std::to_string(options.num_machines)},
      {"number of processes", std::to_string(options.world_size)},
      {"program (checksum of its file)", checksum_of(program)},
      {"--max-restarts", std::to_string(options.max_restarts)},
      {"--min-processes", std::to_string(options.min_processes)},
      {"--resume", options.resume.value_or("never")}};
  return hello;
}

std::string difference(const Hello& one, const Hello& other) {
  for (const auto& [name, value] : one.facts) {
    for (const auto& [other_name, other_value] : other.facts) {
      if (name == other_name && value != other_value) {
        return "another " + name + " on " + other.host + " (--machine-rank " +
               std::to_string(other.machine) + ") than on " + one.host + " (" +
               std::to_string(one.machine) + "): " + other_value + " and " +
               value + ". Start the same program in the same way on all hosts";
      }
    }
  }
  return "";
}

} // namespace accel::launcher
