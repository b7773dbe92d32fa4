#include "output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "error.h"

namespace accel::launcher {
namespace {

constexpr size_t kRemembered = 100;
constexpr size_t kRememberedBytes = 2000;
/// How long a line waits that somebody may be waiting for: for the rest of a
/// line that is written in pieces, but not for the end of a progress bar.
constexpr std::chrono::milliseconds kLinePatience(500);

bool same_file(int one, int other) {
  struct stat a;
  struct stat b;
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

FileDescriptor open_or_throw(const std::string& path, int flags) {
  FileDescriptor fd(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (!fd) {
    throw_errno("cannot open " + path);
  }
  return fd;
}

} // namespace

struct Output::Stream {
  int rank;
  /// STDOUT_FILENO or STDERR_FILENO: what it is, and where it goes.
  int kind;
  FileDescriptor reader;
  /// The bytes go here too, with kFiles only here.
  FileDescriptor file;
  std::string path;
  std::string prefix;
  bool only_file;
  /// Every byte as it comes; otherwise whole lines.
  bool raw;
  bool to_terminal;
  LineSplitter lines;
};

Output::Output(OutputMode mode, std::string directory, int num_processes)
    : mode_(mode),
      directory_(std::move(directory)),
      num_processes_(num_processes),
      places_{
          Interleaver([this](int fd, std::string_view bytes) {
            writer_.write(fd, bytes);
          }),
          Interleaver([this](int fd, std::string_view bytes) {
            writer_.write(fd, bytes);
          })},
      one_place_(same_file(STDOUT_FILENO, STDERR_FILENO)),
      last_errors_(static_cast<size_t>(num_processes)) {
  if (!directory_.empty() && ::mkdir(directory_.c_str(), 0777) != 0 &&
      errno != EEXIST) {
    throw_errno("cannot make the output folder " + directory_);
  }
}

Output::~Output() = default;

std::string Output::file_name(int rank, int kind) const {
  return directory_ + (directory_.back() == '/' ? "" : "/") + "rank-" +
         std::to_string(first_rank_ + rank) +
         (kind == STDOUT_FILENO ? ".stdout.log" : ".stderr.log");
}

Interleaver& Output::place_of(int kind) {
  return places_[kind == STDOUT_FILENO || one_place_ ? 0 : 1];
}

void Output::begin(int first_rank) {
  first_rank_ = first_rank;
  streams_.clear();
  for (auto& lines : last_errors_) {
    lines.clear();
  }
}

Output::Ends Output::open(int rank, bool again) {
  Ends ends;
  for (int kind : {STDOUT_FILENO, STDERR_FILENO}) {
    FileDescriptor& end =
        kind == STDOUT_FILENO ? ends.standard_output : ends.standard_error;
    const bool main_process = first_rank_ + rank == 0;
    const bool hidden = mode_ == OutputMode::kMain && kind == STDOUT_FILENO &&
                        !main_process;
    if (hidden && directory_.empty()) {
      end = open_or_throw("/dev/null", O_WRONLY);
      continue;
    }
    auto stream = std::make_unique<Stream>();
    stream->rank = rank;
    stream->kind = kind;
    stream->only_file = hidden || mode_ == OutputMode::kFiles;
    const bool as_it_comes = mode_ == OutputMode::kPlain ? num_processes_ == 1
                                                         : main_process;
    stream->raw = stream->only_file ||
                  (as_it_comes && mode_ != OutputMode::kPrefix);
    stream->to_terminal = mode_ != OutputMode::kFiles && ::isatty(kind) == 1;
    if (!directory_.empty()) {
      stream->path = file_name(rank, kind);
      stream->file = open_or_throw(
          stream->path, O_WRONLY | O_CREAT | (again ? O_APPEND : O_TRUNC));
    }
    Channel channel;
    if (stream->only_file) {
      channel = open_pipe();
    } else {
      if (mode_ != OutputMode::kPlain) {
        stream->prefix = "[" + std::to_string(first_rank_ + rank) + "] ";
      }
      channel = open_channel_to(kind);
    }
    stream->reader = std::move(channel.reader);
    end = std::move(channel.writer);
    streams_.push_back(std::move(stream));
  }
  return ends;
}

void Output::append_poll(std::vector<pollfd>& fds) const {
  fds.push_back({writer_.wakeup_fd(), POLLIN, 0});
  if (writer_.congested()) {
    return;
  }
  for (const auto& stream : streams_) {
    if (stream->reader) {
      fds.push_back({stream->reader.get(), POLLIN, 0});
    }
  }
}

std::chrono::steady_clock::time_point Output::deadline() const {
  return std::min(places_[0].deadline(), places_[1].deadline());
}

void Output::handle_poll(const std::vector<pollfd>& fds) {
  for (Interleaver& place : places_) {
    place.settle(Interleaver::Clock::now());
  }
  for (const pollfd& fd : fds) {
    if (fd.revents == 0) {
      continue;
    }
    if (fd.fd == writer_.wakeup_fd()) {
      writer_.acknowledge();
      for (auto& stream : streams_) {
        // As in a pipeline without a launcher: who writes to a reader that
        // is gone gets SIGPIPE.
        if (!stream->only_file && writer_.error(stream->kind) == EPIPE) {
          close(*stream);
        }
      }
      continue;
    }
    for (auto& stream : streams_) {
      if (stream->reader && stream->reader.get() == fd.fd) {
        read_once(*stream);
        break;
      }
    }
  }
}

void Output::read_once(Stream& stream) {
  char buffer[size_t{64} << 10];
  const ssize_t count = ::read(stream.reader.get(), buffer, sizeof(buffer));
  if (count > 0) {
    pass_on(stream, std::string_view(buffer, static_cast<size_t>(count)));
  } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
    close(stream);
  }
}

void Output::close(Stream& stream) {
  if (!stream.reader) {
    return;
  }
  stream.reader.reset();
  stream.lines.finish([&](std::string_view text, bool progress) {
    add_line(stream, text, progress);
  });
  if (stream.only_file) {
    return;
  }
  Interleaver& place = place_of(stream.kind);
  const bool more_bytes = std::any_of(
      streams_.begin(), streams_.end(), [&](const auto& other) {
        return other->raw && !other->only_file && other->reader &&
               &place_of(other->kind) == &place;
      });
  if (stream.raw && !more_bytes) {
    place.end_of_bytes();
  } else {
    place.settle(Interleaver::Clock::now());
  }
}

void Output::pass_on(Stream& stream, std::string_view bytes) {
  if (stream.file) {
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const ssize_t written =
          ::write(stream.file.get(), rest.data(), rest.size());
      if (written < 0 && errno != EINTR) {
        if (lost_file_.empty()) {
          lost_file_ =
              "cannot write to " + stream.path + ": " + std::strerror(errno);
        }
        break;
      }
      rest.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
    }
  }
  Interleaver& place = place_of(stream.kind);
  if (!stream.only_file && stream.raw) {
    place.bytes(stream.kind, bytes);
  }
  if (!stream.raw || stream.kind == STDERR_FILENO) {
    stream.lines.feed(bytes, [&](std::string_view text, bool progress) {
      add_line(stream, text, progress);
    });
    place.settle(Interleaver::Clock::now());
  }
}

void Output::add_line(Stream& stream, std::string_view text, bool progress) {
  if (stream.kind == STDERR_FILENO && !progress) {
    auto& remembered = last_errors_[static_cast<size_t>(stream.rank)];
    remembered.emplace_back(text.substr(0, kRememberedBytes));
    if (remembered.size() > kRemembered) {
      remembered.pop_front();
    }
  }
  if (stream.raw) {
    return;
  }
  Interleaver& place = place_of(stream.kind);
  const std::string line = stream.prefix + std::string(text);
  if (stream.to_terminal && progress) {
    place.progress(stream.kind, line);
    return;
  }
  // Where the C library holds text back in blocks, which end in the middle of a
  // line, it does so with everybody's.
  const bool urgent = stream.to_terminal || stream.kind == STDERR_FILENO;
  place.line(
      stream.kind,
      line,
      urgent ? Interleaver::Clock::now() + kLinePatience
             : Interleaver::Clock::time_point::max());
}

bool Output::open_streams() const {
  for (const auto& stream : streams_) {
    if (stream->reader) {
      return true;
    }
  }
  return false;
}

bool Output::finish() {
  for (auto& stream : streams_) {
    while (stream->reader) {
      if (writer_.congested()) {
        return false;
      }
      pollfd fd{stream->reader.get(), POLLIN, 0};
      if (::poll(&fd, 1, 0) <= 0) {
        // No process of ours can write to it any more; whoever else holds it
        // is not waited for.
        close(*stream);
      } else {
        read_once(*stream);
      }
    }
  }
  return true;
}

void Output::message(std::string_view text) {
  if (text.empty()) {
    return;
  }
  Interleaver& place = place_of(STDERR_FILENO);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    place.line(
        STDERR_FILENO,
        "accel: " + std::string(text.substr(0, end)),
        Interleaver::Clock::time_point::max());
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  place.release();
}

std::vector<std::string> Output::last_errors(int rank) const {
  const auto& remembered = last_errors_[static_cast<size_t>(rank)];
  return {remembered.begin(), remembered.end()};
}

bool Output::reader_gone() const {
  return writer_.error(STDOUT_FILENO) == EPIPE ||
         writer_.error(STDERR_FILENO) == EPIPE;
}

std::string Output::lost() const {
  for (int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    const int error = writer_.error(fd);
    if (error != 0 && error != EPIPE) {
      return std::string("cannot write to standard ") +
             (fd == STDOUT_FILENO ? "output: " : "error: ") +
             std::strerror(error);
    }
  }
  return lost_file_;
}

} // namespace accel::launcher
