#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attempt.h"
#include "launch_options.h"

namespace accel::launcher {

/// With what a launcher introduces itself at host 0.
struct Hello {
  /// Its --machine-rank, and the host's name.
  int machine = 0;
  std::string host;
  /// How many processes it would run.
  int processes = 0;
  /// What has to be equal on all hosts, with the names that messages have for
  /// it.
  std::vector<std::pair<std::string, std::string>> facts;
  /// Where it can be reached by the other hosts, to try that out.
  std::string address;
  int port = 0;
};

/// What launchers say to each other: a line of JSON that has the name of the
/// message and what belongs to it.
///
///   hello    to host 0: who it is
///   welcome  from host 0: it is one of those that are waited for
///   refused  from host 0: the job cannot begin, with the reason
///   reach    from host 0: try whether these hosts can be reached
///   reached  to host 0: those that could not, with the reasons
///   failed   a process has failed
///   stop     the user has ended a part of the job by this signal
///   finished to host 0: all processes of this host have ended
///   verdict  from host 0: what to do next
struct Message {
  std::string name;
  /// refused, reached
  std::string text;
  /// stop
  int signal = 0;
  std::vector<Hello> hosts;
  std::optional<Ending> ending;
  std::optional<Report> report;
  std::optional<Verdict> verdict;
};

/// One line.
std::string to_line(const Message& message);

/// Nothing where that is no message.
std::optional<Message> from_line(const std::string& line);

/// What this host says of itself. `program` is the file that is executed.
Hello own_hello(const LaunchOptions& options, const std::string& program);

/// What two hosts have been told differently, for people; empty where all is
/// equal.
std::string difference(const Hello& one, const Hello& other);

/// This host's name.
std::string host_name();

} // namespace accel::launcher
