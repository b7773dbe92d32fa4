#include "process_template.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace accel::distributed {
// The library's own (distributed/part.h), declared here: this is compiled
// without its headers, and linked with whichever library the tests have.
void install();
} // namespace accel::distributed

namespace accel::test {
namespace {

/// The largest environment that is sent; larger ones are an error.
constexpr size_t kMostBytes = 128 * 1024;

/// This process's end of the connection; -1 where there is no template.
int connection = -1;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("process template: " + what + ": " + std::strerror(errno));
}

/// A message with descriptors, which belong to it.
struct Message {
  iovec bytes{};
  msghdr header{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};

  Message(void* data, size_t size) {
    bytes.iov_base = data;
    bytes.iov_len = size;
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
};

void exchange_environment(const std::string& text) {
  ::clearenv();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\0', begin);
    const size_t equals = text.find('=', begin);
    ::setenv(
        text.substr(begin, equals - begin).c_str(),
        text.substr(equals + 1, end - equals - 1).c_str(),
        1);
    begin = end + 1;
  }
}

/// The new process, whose parent is about to exit.
[[noreturn]] void become_rank(pid_t tests, const std::string& text, const int* outputs) {
  // Not before the tests' process is the parent: the signal comes from the
  // parent's end.
  while (::getppid() != tests) {
    ::usleep(100);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(outputs[0], STDOUT_FILENO);
  ::dup2(outputs[1], STDERR_FILENO);
  ::close(outputs[0]);
  ::close(outputs[1]);
  exchange_environment(text);
  std::exit(run_rank_function());
}

/// The template: forks for every message, until the tests' process has ended.
[[noreturn]] void serve(int socket, pid_t tests) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string buffer(kMostBytes, '\0');
  while (true) {
    Message message(buffer.data(), buffer.size());
    const ssize_t size = ::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EINTR) {
      continue;
    }
    if (size <= 0) {
      ::_exit(0);
    }
    int outputs[2];
    std::memcpy(outputs, CMSG_DATA(CMSG_FIRSTHDR(&message.header)), sizeof outputs);
    const std::string text = buffer.substr(0, static_cast<size_t>(size));
    // A process whose parent exits becomes the tests' own child
    // (PR_SET_CHILD_SUBREAPER).
    const pid_t between = ::fork();
    if (between == 0) {
      const pid_t rank = ::fork();
      if (rank == 0) {
        ::close(socket);
        become_rank(tests, text, outputs);
      }
      (void)!::write(socket, &rank, sizeof rank);
      ::_exit(0);
    }
    ::waitpid(between, nullptr, 0);
    ::close(outputs[0]);
    ::close(outputs[1]);
  }
}

} // namespace

void ProcessTemplate::make() {
  namespace fs = std::filesystem;
  if (std::distance(fs::directory_iterator("/proc/self/task"), {}) != 1) {
    return;
  }
  int sockets[2];
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 ||
      ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    fail("no connection");
  }
  const pid_t tests = ::getpid();
  const pid_t made = ::fork();
  if (made < 0) {
    fail("fork");
  }
  if (made == 0) {
    ::close(sockets[0]);
    distributed::install();
    serve(sockets[1], tests);
  }
  ::close(sockets[1]);
  connection = sockets[0];
}

bool ProcessTemplate::serves(const std::vector<std::string>& changed) {
  const auto is_read_late = [](const std::string& name) {
    // install() asks whether operators are looked at.
    if (name == "ACCEL_CHECK_PLACEMENTS" || name == "ACCEL_PLACEMENT_REPORT") {
      return false;
    }
    // What the dynamic linker, OpenMP, MKL, LibTorch and the simulated device's
    // allocator read as they are loaded.
    for (const char* prefix : {"LD_", "MALLOC_", "GLIBC_", "OMP_", "GOMP_", "KMP_", "MKL_", "ATEN_", "C10_", "TORCH_", "PYTORCH_", "ACCEL_SIM_MEMORY"}) {
      if (name.rfind(prefix, 0) == 0) {
        return false;
      }
    }
    return true;
  };
  return connection >= 0 && std::all_of(changed.begin(), changed.end(), is_read_late);
}

pid_t ProcessTemplate::start(
    const std::vector<std::string>& environment,
    int standard_output,
    int standard_error) {
  std::string text;
  for (const auto& variable : environment) {
    text += variable;
    text += '\0';
  }
  if (text.size() > kMostBytes) {
    errno = E2BIG;
    fail("the environment");
  }
  Message message(text.data(), text.size());
  const int outputs[2] = {standard_output, standard_error};
  cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof outputs);
  std::memcpy(CMSG_DATA(control), outputs, sizeof outputs);
  if (::sendmsg(connection, &message.header, MSG_NOSIGNAL) < 0) {
    fail("sendmsg");
  }
  pid_t pid = -1;
  if (::read(connection, &pid, sizeof pid) != sizeof pid || pid <= 0) {
    fail("no process");
  }
  return pid;
}

} // namespace accel::test
