#pragma once

#include "file_descriptor.h"

namespace accel::launcher {

/// One output stream of a process: it writes to `writer`, we read `reader`.
/// Both ends are close-on-exec; a reader whose writers are all gone reports
/// end of file (a pipe) or EIO (a terminal).
struct Channel {
  FileDescriptor reader;
  FileDescriptor writer;
};

/// A pipe.
Channel open_pipe();

/// A pseudo-terminal with the size of the terminal `like`, which passes every
/// byte on unchanged.
///
/// A program whose output went to a terminal must not notice that it is read
/// by a launcher: with a pipe the C library would hold back its lines in
/// blocks of 4 KiB, and the user would see no progress for minutes.
Channel open_terminal(int like);

/// A terminal where `destination` is one, else a pipe.
Channel open_channel_to(int destination);

} // namespace accel::launcher
