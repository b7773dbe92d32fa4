//===- Progress.h - How far a long run is -----------------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_TOOL_PROGRESS_H
#define ACCEL_MIGRATE_TOOL_PROGRESS_H

#include "llvm/ADT/Twine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <mutex>

namespace accel::migrate {

/// One line of a terminal that says how much of the work is done and how long
/// the rest takes; nothing where the standard error is no terminal, or there is
/// only one thing to do. May be used by several threads.
class Progress {
public:
  explicit Progress(bool Quiet)
      : Shown(!Quiet && llvm::errs().is_displayed()) {}

  /// `All` things begin that take about as long as each other.
  void begin(llvm::StringRef Doing, size_t All) {
    std::lock_guard<std::mutex> Guard(Mutex);
    Verb = Doing.str();
    Count = All;
    Done = 0;
    Start = std::chrono::steady_clock::now();
    show();
  }

  void advance() {
    std::lock_guard<std::mutex> Guard(Mutex);
    ++Done;
    show();
  }

  /// Before anything else is written to the terminal.
  void clear() {
    std::lock_guard<std::mutex> Guard(Mutex);
    if (OnScreen)
      llvm::errs() << "\r\033[K";
    OnScreen = false;
  }

private:
  void show() {
    if (!Shown || Count < 2)
      return;
    llvm::errs() << "\r\033[K";
    OnScreen = Done < Count;
    if (!OnScreen)
      return;
    llvm::errs() << Verb << ' ' << Done + 1 << " of " << Count;
    if (Done) {
      const double Elapsed = std::chrono::duration<double>(
                                 std::chrono::steady_clock::now() - Start)
                                 .count();
      const auto Left =
          static_cast<unsigned>(Elapsed / Done * (Count - Done) + 0.5);
      llvm::errs() << ", " << Left / 60 << ':'
                   << llvm::format("%02u", Left % 60) << " left";
    }
  }

  const bool Shown;
  bool OnScreen = false;
  std::mutex Mutex;
  std::string Verb;
  size_t Count = 0, Done = 0;
  std::chrono::steady_clock::time_point Start;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_TOOL_PROGRESS_H
