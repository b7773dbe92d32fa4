#pragma once

#include <string>

#include "file_descriptor.h"

namespace accel::launcher {

/// A sheet between the launcher and its processes. Each has one of its own, on
/// which it may write that it stops because another one is gone, before it
/// stops; and there is one on which the launcher writes which one that is.
///
/// A program that catches its exceptions in `main` tears its connections down
/// before it ends, so that the others often end first. Their word that they
/// only follow is what tells the cause from the consequences. The runtime
/// library writes it (runtime/src/core/failure_note.h).
///
/// It lies in memory and needs no file.
class Note {
 public:
  Note();

  /// What a process opens to write on it: the value of ACCEL_FAILURE_NOTE.
  std::string path() const;

  /// What was written, without the last end of line; empty where nothing was.
  std::string read() const;

  void say(const std::string& text);
  void erase();

 private:
  FileDescriptor sheet_;
};

} // namespace accel::launcher
