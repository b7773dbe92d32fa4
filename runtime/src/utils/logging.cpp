#include <accel/detail/communicator.h>
#include <accel/utils/logging.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>

namespace accel {
namespace {

struct Level {
  const char* name;
  LogLevel level;
};
constexpr Level kLevels[] = {
    {"DEBUG", LogLevel::kDebug},
    {"INFO", LogLevel::kInfo},
    {"WARNING", LogLevel::kWarning},
    {"ERROR", LogLevel::kError},
    {"CRITICAL", LogLevel::kCritical}};

const char* level_name(LogLevel level) {
  for (const auto& entry : kLevels) {
    if (entry.level == level) {
      return entry.name;
    }
  }
  return "LOG";
}

std::optional<LogProcesses>& processes_set() {
  static std::optional<LogProcesses> value;
  return value;
}

LogProcesses processes(const std::string& logger) {
  if (processes_set()) {
    return *processes_set();
  }
  detail::Communicator* communicator = nullptr;
  try {
    communicator = &detail::communicator();
  } catch (const c10::Error&) {
    TORCH_CHECK(
        false,
        "The logger '",
        logger,
        "' is used before it is known which process this is. Construct the "
        "accel::Accelerator first.");
  }
  return {communicator->rank(), communicator->size(), [communicator] {
            communicator->barrier();
          }};
}

} // namespace

LogLevel log_level(const std::string& name) {
  std::string upper = name;
  std::transform(
      upper.begin(), upper.end(), upper.begin(), [](unsigned char c) {
        return static_cast<char>(std::toupper(c));
      });
  for (const auto& entry : kLevels) {
    if (upper == entry.name) {
      return entry.level;
    }
  }
  TORCH_CHECK(
      false,
      "'",
      name,
      "' is no log level; use DEBUG, INFO, WARNING, ERROR or CRITICAL.");
}

void set_log_processes(LogProcesses value) {
  TORCH_CHECK(
      value.rank >= 0 && value.rank < value.world,
      "There is no process ",
      value.rank,
      " of ",
      value.world,
      ".");
  processes_set() = std::move(value);
}

void reset_log_processes() {
  processes_set().reset();
}

Logger::Logger(std::string name, LogLevel level)
    : name_(std::move(name)), level_(level) {}

void Logger::log(
    LogLevel level, const std::string& message, const LogOptions& options) {
  TORCH_CHECK(
      !options.in_order() || !options.main_process_only(),
      "A message of the main process alone has no order; use "
      "LogOptions().main_process_only(false).in_order(true).");
  const LogProcesses all = processes(name_);
  const bool enabled = is_enabled_for(level);
  if (options.main_process_only()) {
    if (enabled && all.rank == 0) {
      print(level, message);
    }
    return;
  }
  const std::string text =
      all.world > 1 ? "[RANK " + std::to_string(all.rank) + "] " + message
                    : message;
  if (!options.in_order()) {
    if (enabled) {
      print(level, text);
    }
    return;
  }
  // The barriers do not depend on the level, which processes may differ in.
  for (int64_t rank = 0; rank < all.world; ++rank) {
    if (enabled && rank == all.rank) {
      print(level, text);
    }
    if (all.barrier) {
      all.barrier();
    }
  }
}

void Logger::warning_once(
    const std::string& message, const LogOptions& options) {
  if (warned_.insert(message).second) {
    warning(message, options);
  }
}

void Logger::print(LogLevel level, const std::string& message) {
  std::ostream& stream = stream_ != nullptr ? *stream_ : std::cerr;
  // One call for one line: the lines of several processes do not mix.
  stream << (std::string(level_name(level)) + ":" + name_ + ":" + message +
             "\n")
         << std::flush;
}

Logger& get_logger(
    const std::string& name, const std::optional<std::string>& level) {
  // Never destroyed: a program may log to its very end.
  static auto& mutex = *new std::mutex;
  static auto& loggers = *new std::map<std::string, std::unique_ptr<Logger>>;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& logger = loggers[name];
  if (!logger) {
    const char* variable = std::getenv("ACCELERATE_LOG_LEVEL");
    logger = std::make_unique<Logger>(
        name, log_level(level.value_or(variable ? variable : "WARNING")));
  } else if (level) {
    logger->set_level(log_level(*level));
  }
  return *logger;
}

} // namespace accel
