#pragma once

#include <accel/export.h>

#include <torch/arg.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <set>
#include <string>

namespace accel {

/// Python's levels and their numbers.
enum class LogLevel {
  kDebug = 10,
  kInfo = 20,
  kWarning = 30,
  kError = 40,
  kCritical = 50,
};

/// From "DEBUG", "INFO", "WARNING", "ERROR" or "CRITICAL", in any case. Throws
/// for anything else.
ACCEL_API LogLevel log_level(const std::string& name);

/// Which processes a message comes from.
struct LogOptions {
  /// Only from the main process; otherwise from every process, behind
  /// "[RANK r] ".
  TORCH_ARG(bool, main_process_only) = true;
  /// One process after the other, with a barrier between: a collective, which
  /// every process must call whatever its level. Needs
  /// `main_process_only(false)`.
  TORCH_ARG(bool, in_order) = false;
};

/// What loggers know about the processes. Without `set_log_processes` they are
/// those of the Accelerator.
struct LogProcesses {
  /// This process, from 0.
  int64_t rank = 0;
  /// How many processes there are.
  int64_t world = 1;
  /// Returns when every process has called it.
  std::function<void()> barrier;
};
/// What loggers shall know, in a program without an Accelerator.
ACCEL_API void set_log_processes(LogProcesses processes);
/// Undoes `set_log_processes`.
ACCEL_API void reset_log_processes();

/// Prints messages as `LEVEL:name:message` lines on standard error. A logger
/// can be made at any time; logging throws before the processes are known,
/// because a message of "the main process" would come from all of them.
class ACCEL_API Logger {
 public:
  explicit Logger(std::string name, LogLevel level = LogLevel::kWarning);

  /// Prints the message where the level is enabled. Not collective unless
  /// `in_order`.
  void log(
      LogLevel level,
      const std::string& message,
      const LogOptions& options = {});
  /// `log` with the level of its name.
  void debug(const std::string& message, const LogOptions& options = {}) {
    log(LogLevel::kDebug, message, options);
  }
  /// `log` with the level of its name.
  void info(const std::string& message, const LogOptions& options = {}) {
    log(LogLevel::kInfo, message, options);
  }
  /// `log` with the level of its name.
  void warning(const std::string& message, const LogOptions& options = {}) {
    log(LogLevel::kWarning, message, options);
  }
  /// `log` with the level of its name.
  void error(const std::string& message, const LogOptions& options = {}) {
    log(LogLevel::kError, message, options);
  }
  /// `log` with the level of its name.
  void critical(const std::string& message, const LogOptions& options = {}) {
    log(LogLevel::kCritical, message, options);
  }
  /// The same warning only the first time.
  void warning_once(const std::string& message, const LogOptions& options = {});

  /// Whether messages of this level are printed.
  bool is_enabled_for(LogLevel level) const {
    return level >= level_;
  }
  /// The lowest level that is printed.
  void set_level(LogLevel level) {
    level_ = level;
  }
  /// Null: standard error. The stream must outlive the logger's use.
  void set_stream(std::ostream* stream) {
    stream_ = stream;
  }

 private:
  void print(LogLevel level, const std::string& message);

  std::string name_;
  LogLevel level_;
  std::ostream* stream_ = nullptr;
  std::set<std::string> warned_;
};

/// The logger of that name, made with `level`, or with the environment
/// variable ACCELERATE_LOG_LEVEL, or with "WARNING". Lives until the end of the
/// program.
ACCEL_API Logger& get_logger(
    const std::string& name,
    const std::optional<std::string>& level = std::nullopt);

} // namespace accel
