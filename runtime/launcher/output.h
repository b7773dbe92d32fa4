#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "channel.h"
#include "file_descriptor.h"
#include "interleaver.h"
#include "line_splitter.h"
#include "writer.h"

namespace accel::launcher {

enum class OutputMode {
  /// What process 0 writes, byte for byte; whole lines of the others, each
  /// behind "[rank] ".
  kAll,
  /// The same without the others' standard output.
  kMain,
  /// Whole lines of every process, each behind "[rank] ".
  kPrefix,
  /// Whole lines as they are; with one process every byte as it comes.
  kPlain,
  /// DIR/rank-R.stdout.log and DIR/rank-R.stderr.log, byte for byte.
  kFiles,
};

/// The output of all processes on its way to the launcher's own.
///
/// Standard output goes to standard output, standard error to standard error,
/// each process's in its order.
class Output {
 public:
  /// Files are written into `directory`, with kFiles instead of anything else,
  /// otherwise in addition unless it is empty. It is made where it is missing.
  Output(OutputMode mode, std::string directory, int num_processes);
  ~Output();

  /// What a new process writes to.
  struct Ends {
    FileDescriptor standard_output;
    FileDescriptor standard_error;
  };

  /// Opens the streams of process `rank`. The returned ends are given to the
  /// process and then closed, otherwise the streams never end. With `again`
  /// files are continued, not overwritten.
  Ends open(int rank, bool again = false);

  /// Before the streams of an attempt are opened, the first process of which is
  /// shown as `first_rank`: forgets those of the last one, of which all
  /// processes have ended and `finish` is done.
  void begin(int first_rank);

  /// Appends what is to be polled: nothing from the processes while the
  /// launcher's reader cannot keep up (they wait then, as they would without
  /// a launcher).
  void append_poll(std::vector<pollfd>& fds) const;

  /// Reads once from every stream that `fds` reports as ready, and writes what
  /// has waited long enough.
  void handle_poll(const std::vector<pollfd>& fds);

  /// When `handle_poll` has to be called at the latest.
  std::chrono::steady_clock::time_point deadline() const;

  /// True while a stream has not reached its end.
  bool open_streams() const;

  /// Reads what lies ready and hands out unfinished last lines. To be called
  /// when no process is left. Returns false when it has to be called again
  /// after waiting, since the launcher's reader is slow.
  bool finish();

  /// Prints "accel: `text`" on standard error, on a line of its own; a text of
  /// several lines gets the prefix on each.
  void message(std::string_view text);

  /// True when whoever read standard output or standard error has gone.
  bool reader_gone() const;

  /// True when everything handed out has been written.
  bool flushed() const {
    return writer_.idle();
  }

  /// The last lines that process `rank` wrote to standard error.
  std::vector<std::string> last_errors(int rank) const;

  /// Says what output could not be written and why; empty where all was. A
  /// reader that went away on purpose (`| head`) does not count.
  std::string lost() const;

 private:
  struct Stream;

  std::string file_name(int rank, int kind) const;
  Interleaver& place_of(int kind);
  void read_once(Stream& stream);
  void close(Stream& stream);
  void pass_on(Stream& stream, std::string_view bytes);
  void add_line(Stream& stream, std::string_view text, bool progress);

  OutputMode mode_;
  std::string directory_;
  int num_processes_;
  int first_rank_ = 0;
  Writer writer_;
  /// Of standard output and standard error; the first one is that of both where
  /// they go to the same terminal, file or pipe.
  Interleaver places_[2];
  bool one_place_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::deque<std::string>> last_errors_;
  std::string lost_file_;
};

} // namespace accel::launcher
