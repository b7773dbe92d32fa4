#include "summary.h"

#include <csignal>
#include <cstdio>
#include <tuple>

#include "error.h"
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

std::vector<std::string> telling_lines(const std::vector<std::string>& lines) {
  constexpr size_t kShown = 10;
  std::vector<std::string> result;
  size_t frames = 0;
  const auto note_frames = [&] {
    if (frames > 0) {
      result.push_back("(" + std::to_string(frames) + " stack frames)");
      frames = 0;
    }
  };
  for (const std::string& line : lines) {
    if (line.rfind("frame #", 0) == 0) {
      ++frames;
    } else if (!line.empty()) {
      note_frames();
      result.push_back(line);
    }
  }
  note_frames();
  if (result.size() > kShown) {
    result.erase(result.begin(), result.end() - static_cast<ptrdiff_t>(kShown));
  }
  return result;
}

bool Ending::failed() const {
  return code != CLD_EXITED || status != 0;
}

int Ending::exit_code() const {
  if (code == kLost) {
    return kLauncherFailed;
  }
  return code == CLD_EXITED ? status : 128 + status;
}

std::string Ending::describe() const {
  if (code == kLost) {
    return "lost with its host";
  }
  const std::string how = code == CLD_EXITED
                              ? "exit code " + std::to_string(status)
                              : "ended by " + describe_signal(status) +
                                    (code == CLD_DUMPED ? ", core dumped" : "");
  return how + (memory.empty() ? "" : ", probably out of memory");
}

const Ending* find_cause(const std::vector<Ending>& endings) {
  const auto precedence = [](const Ending& ending) {
    return std::make_tuple(ending.asked, !ending.note.empty(), ending.order);
  };
  const Ending* cause = nullptr;
  for (const Ending& ending : endings) {
    if (ending.failed() &&
        (!cause || precedence(ending) < precedence(*cause))) {
      cause = &ending;
    }
  }
  return cause;
}

std::string summarize_failure(
    const std::vector<Ending>& endings, const Ending& cause) {
  const bool lost = cause.code == Ending::kLost;
  std::string text = "rank " + std::to_string(cause.rank);
  if (lost) {
    text += " on " + cause.host;
  } else {
    text += " (pid " + std::to_string(cause.pid) +
            (cause.host.empty() ? ")" : " on " + cause.host + ")");
  }
  text += std::string(" failed") + (endings.size() > 1 ? " first: " : ": ") +
          cause.describe() + ", " + format_seconds(cause.seconds) +
          " after the start";
  if (cause.exit_code() == 128 + SIGKILL && cause.asked) {
    text += ", since it did not end when asked to";
  } else if (!cause.memory.empty()) {
    text +=
        "\n  " + cause.memory +
        " Fewer processes, smaller batches or accumulation need less: accel "
        "estimate-memory.";
  } else if (cause.code == CLD_KILLED && cause.status == SIGKILL) {
    text +=
        "\n  Nothing in a program raises SIGKILL by accident: somebody killed "
        "it, or the kernel did when memory ran out (see dmesg).";
  }
  if (!cause.note.empty()) {
    text += "\nit says: " + cause.note;
  }
  const std::vector<std::string>& lines = cause.last_errors;
  if (!lines.empty()) {
    text += lost ? "\nof the connection to its host:"
                 : "\nits last lines on standard error:";
    for (const std::string& line : lines) {
      text += "\n  " + line;
    }
  }
  std::vector<std::string> followed;
  std::vector<std::string> stopped;
  std::vector<std::string> killed;
  std::vector<std::string> finished;
  std::vector<std::string> lost_too;
  for (const Ending& other : endings) {
    const std::string name =
        std::to_string(other.rank) +
        (other.host.empty() ? "" : " on " + other.host);
    if (other.rank == cause.rank) {
      continue;
    }
    if (other.code == Ending::kLost && lost && other.host == cause.host) {
      lost_too.push_back(std::to_string(other.rank));
    } else if (!other.failed()) {
      finished.push_back(name);
    } else if (other.asked) {
      (other.exit_code() == 128 + SIGKILL ? killed : stopped).push_back(name);
    } else if (!other.note.empty()) {
      // Behind the colon is what the others' connections said.
      followed.push_back(
          name + " (" + other.describe() + ", in " +
          other.note.substr(0, other.note.find(": ")) + ")");
    } else {
      text += "\nrank " + name + " then failed too: " + other.describe() +
              ", " + format_seconds(other.seconds - cause.seconds) + " later";
    }
  }
  if (!lost_too.empty()) {
    text += "\nlost with it: rank " + join(lost_too);
  }
  if (!followed.empty()) {
    text += "\ncould not go on without the others: rank " + join(followed);
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
