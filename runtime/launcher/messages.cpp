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
namespace {

using Json = nlohmann::json;

Json json_of(const Hello& hello) {
  return {
      {"machine", hello.machine},
      {"host", hello.host},
      {"processes", hello.processes},
      {"facts", hello.facts},
      {"address", hello.address},
      {"port", hello.port}};
}

Hello hello_of(const Json& json) {
  Hello hello;
  json.at("machine").get_to(hello.machine);
  json.at("host").get_to(hello.host);
  json.at("processes").get_to(hello.processes);
  json.at("facts").get_to(hello.facts);
  json.at("address").get_to(hello.address);
  json.at("port").get_to(hello.port);
  return hello;
}

Json json_of(const Ending& ending) {
  return {
      {"rank", ending.rank},
      {"pid", ending.pid},
      {"code", ending.code},
      {"status", ending.status},
      {"seconds", ending.seconds},
      {"asked", ending.asked},
      {"order", ending.order},
      {"note", ending.note},
      {"host", ending.host},
      {"last_errors", ending.last_errors}};
}

Ending ending_of(const Json& json) {
  Ending ending = Ending::of_running(json.at("rank"), json.at("pid"));
  json.at("code").get_to(ending.code);
  json.at("status").get_to(ending.status);
  json.at("seconds").get_to(ending.seconds);
  json.at("asked").get_to(ending.asked);
  json.at("order").get_to(ending.order);
  json.at("note").get_to(ending.note);
  json.at("host").get_to(ending.host);
  json.at("last_errors").get_to(ending.last_errors);
  return ending;
}

Json json_of(const Report& report) {
  Json endings = Json::array();
  for (const Ending& ending : report.endings) {
    endings.push_back(json_of(ending));
  }
  return {
      {"endings", endings},
      {"user_signal", report.user_signal},
      {"reader_gone", report.reader_gone}};
}

Report report_of(const Json& json) {
  Report report;
  for (const Json& ending : json.at("endings")) {
    report.endings.push_back(ending_of(ending));
  }
  json.at("user_signal").get_to(report.user_signal);
  json.at("reader_gone").get_to(report.reader_gone);
  return report;
}

Json json_of(const Verdict& verdict) {
  Json shares = Json::array();
  for (const Share& share : verdict.attempt.shares) {
    shares.push_back(
        {{"machine", share.machine},
         {"host", share.host},
         {"processes", share.processes}});
  }
  return {
      {"start", verdict.start},
      {"exit_code", verdict.exit_code},
      {"text", verdict.text},
      {"number", verdict.attempt.number},
      {"port", verdict.attempt.port},
      {"run_id", verdict.attempt.run_id},
      {"shares", shares}};
}

Verdict verdict_of(const Json& json) {
  Verdict verdict;
  json.at("start").get_to(verdict.start);
  json.at("exit_code").get_to(verdict.exit_code);
  json.at("text").get_to(verdict.text);
  json.at("number").get_to(verdict.attempt.number);
  json.at("port").get_to(verdict.attempt.port);
  json.at("run_id").get_to(verdict.attempt.run_id);
  for (const Json& share : json.at("shares")) {
    verdict.attempt.shares.push_back(
        {share.at("machine"), share.at("host"), share.at("processes")});
  }
  return verdict;
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
  for (const Hello& host : message.hosts) {
    json["hosts"].push_back(json_of(host));
  }
  if (message.ending) {
    json["ending"] = json_of(*message.ending);
  }
  if (message.report) {
    json["report"] = json_of(*message.report);
  }
  if (message.verdict) {
    json["verdict"] = json_of(*message.verdict);
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
    for (const Json& host : json.value("hosts", Json::array())) {
      message.hosts.push_back(hello_of(host));
    }
    if (json.contains("ending")) {
      message.ending = ending_of(json["ending"]);
    }
    if (json.contains("report")) {
      message.report = report_of(json["report"]);
    }
    if (json.contains("verdict")) {
      message.verdict = verdict_of(json["verdict"]);
    }
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
