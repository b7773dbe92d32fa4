#include "summary.h"

#include <csignal>
#include <cstdio>

#include "signals.h"

namespace accel::launcher {
namespace {

std::string format_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f s", seconds < 10 ? 2 : 0, seconds);
  return text;
}

std::string join(const std::vector<std::string>& parts) {
  std::string result;
  for (const std::string& part : parts) {
    result += (result.empty() ? "" : ", ") + part;
  }
  return result;
}

} // namespace

bool Ending::failed() const {
  return code != CLD_EXITED || status != 0;
}

int Ending::exit_code() const {
  return code == CLD_EXITED ? status : 128 + status;
}

std::string Ending::describe() const {
  if (code == CLD_EXITED) {
    return "exit code " + std::to_string(status);
  }
  return "ended by " + describe_signal(status) +
         (code == CLD_DUMPED ? ", core dumped" : "");
}

std::string summarize_failure(
    const std::vector<Ending>& endings,
    size_t first,
    const std::vector<std::string>& last_errors) {
  const Ending& cause = endings[first];
  std::string text = "rank " + std::to_string(cause.rank) + " (pid " +
                     std::to_string(cause.pid) + ") failed" +
                     (endings.size() > 1 ? " first: " : ": ") +
                     cause.describe() + ", " + format_seconds(cause.seconds) +
                     " after the start";
  if (cause.exit_code() == 128 + SIGKILL && cause.asked) {
    text += ", since it did not end when asked to";
  } else if (cause.code == CLD_KILLED && cause.status == SIGKILL) {
    text +=
        "\n  Nothing in a program raises SIGKILL by accident: somebody killed "
        "it, or the kernel did when memory ran out (see dmesg).";
  }
  if (!last_errors.empty()) {
    text += "\nits last lines on standard error:";
    for (const std::string& line : last_errors) {
      text += "\n  " + line;
    }
  }
  std::vector<std::string> stopped;
  std::vector<std::string> killed;
  std::vector<std::string> finished;
  for (const Ending& other : endings) {
    const std::string name = std::to_string(other.rank);
    if (&other == &cause) {
      continue;
    }
    if (!other.failed()) {
      finished.push_back(name);
    } else if (other.asked) {
      (other.exit_code() == 128 + SIGKILL ? killed : stopped).push_back(name);
    } else {
      text += "\nrank " + name + " then failed too: " + other.describe() +
              ", " + format_seconds(other.seconds - cause.seconds) + " later";
    }
  }
  if (!stopped.empty()) {
    text += "\nstopped because of that: rank " + join(stopped);
  }
  if (!killed.empty()) {
    text +=
        "\nkilled, since it did not end when asked to: rank " + join(killed);
  }
  if (!finished.empty()) {
    text += "\nended with exit code 0: rank " + join(finished);
  }
  return text;
}

} // namespace accel::launcher
