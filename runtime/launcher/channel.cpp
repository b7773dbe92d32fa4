#include "channel.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <cstdlib>

#include "error.h"

namespace accel::launcher {

Channel open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw_errno("cannot make a pipe");
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Channel open_terminal(int like) {
  Channel channel;
  channel.reader =
      FileDescriptor(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  char name[128];
  if (!channel.reader || ::grantpt(channel.reader.get()) != 0 ||
      ::unlockpt(channel.reader.get()) != 0 ||
      ::ptsname_r(channel.reader.get(), name, sizeof(name)) != 0) {
    throw_errno("cannot make a pseudo-terminal");
  }
  channel.writer = FileDescriptor(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios settings;
  if (!channel.writer || ::tcgetattr(channel.writer.get(), &settings) != 0) {
    throw_errno("cannot open the pseudo-terminal");
  }
  ::cfmakeraw(&settings);
  winsize size;
  if (::tcsetattr(channel.writer.get(), TCSANOW, &settings) != 0) {
    throw_errno("cannot set up the pseudo-terminal");
  }
  if (::ioctl(like, TIOCGWINSZ, &size) == 0) {
    ::ioctl(channel.writer.get(), TIOCSWINSZ, &size);
  }
  return channel;
}

Channel open_channel_to(int destination) {
  if (::isatty(destination) == 1) {
    try {
      return open_terminal(destination);
    } catch (const Error&) {
      // A sandbox without /dev/pts: a pipe serves, with less prompt lines.
    }
  }
  return open_pipe();
}

} // namespace accel::launcher
