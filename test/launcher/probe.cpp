// The program that the launcher's tests start. Its arguments are actions,
// done from left to right:
//
//   if RANK            what follows is for this rank only, until `all`
//   all
//   env NAME           prints NAME=value or "NAME is unset"
//   args               prints the remaining arguments, one per line, and ends
//   out TEXT, err TEXT prints it; \n and \r are written as such
//   lines COUNT        numbered lines to both streams, in torn pieces
//   bytes COUNT        pseudo-random bytes to standard output
//   stdin              copies standard input to standard output
//   tty                says whether standard output is a terminal
//   pid NAME           writes the process id to NAME.RANK.pid
//   child NAME         forks a process that does `pid NAME` and sleeps forever
//   daemon NAME        the same in a session of its own, orphaned
//   trap               writes the names of signals to signals.RANK, goes on
//   trap-exit CODE     as trap, but ends at SIGTERM or SIGINT
//   ignore             ignores SIGINT and SIGTERM
//   listen             listens on MASTER_PORT as c10d's store does
//   wait FILE          until FILE exists
//   sleep SECONDS, forever
//   note TEXT          says that it only follows another process's failure
//   exit CODE, throw TEXT, raise SIGNAL

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace {

std::string rank() {
  const char* value = std::getenv("RANK");
  return value ? value : "none";
}

void write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(fd, text.data() + done, text.size() - done);
    if (count < 0) {
      _exit(99);
    }
    done += static_cast<size_t>(count);
  }
}

/// Complete when it can be read.
void write_file(const std::string& name, const std::string& text) {
  const int fd = open((name + "~").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  write_all(fd, text);
  close(fd);
  rename((name + "~").c_str(), name.c_str());
}

void write_pid(const std::string& name) {
  write_file(name + "." + rank() + ".pid", std::to_string(getpid()));
}

std::string unescape(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      result += text[i] == 'n' ? '\n' : text[i] == 'r' ? '\r' : text[i];
    } else {
      result += text[i];
    }
  }
  return result;
}

void print_lines(int count) {
  uint32_t state = 12345u + static_cast<uint32_t>(std::atoi(rank().c_str()));
  std::string pending[2];
  for (int i = 0; i < count; ++i) {
    for (int stream = 0; stream < 2; ++stream) {
      state = state * 1664525u + 1013904223u;
      pending[stream] += "line " + rank() + " " + std::to_string(i) + " " +
                         std::string(state >> 26, 'x') + "|\n";
      // Cut anywhere, so that most writes end inside a line.
      const size_t piece = state % (pending[stream].size() + 1);
      write_all(stream + 1, pending[stream].substr(0, piece));
      pending[stream].erase(0, piece);
    }
  }
  write_all(1, pending[0]);
  write_all(2, pending[1]);
}

void print_bytes(size_t count) {
  uint64_t state = 88172645463325252ull;
  std::string block;
  while (count > 0) {
    block.clear();
    for (size_t i = 0; i < 5000 && count > 0; ++i, --count) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      block += static_cast<char>(state);
    }
    write_all(1, block);
  }
}

const char* signal_file = "";
int exit_code_after_trap = -1;

void on_signal(int signal) {
  const int fd = open(signal_file, O_WRONLY | O_CREAT | O_APPEND, 0666);
  const char* name = sigabbrev_np(signal);
  (void)!write(fd, name, std::strlen(name));
  (void)!write(fd, "\n", 1);
  close(fd);
  if (exit_code_after_trap >= 0 && (signal == SIGTERM || signal == SIGINT)) {
    _exit(exit_code_after_trap);
  }
}

void trap() {
  signal_file = strdup(("signals." + rank()).c_str());
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    sigaction(signal, &action, nullptr);
  }
}

[[noreturn]] void forever() {
  while (true) {
    pause();
  }
}

void listen_as_store() {
  const int fd = socket(AF_INET6, SOCK_STREAM, 0);
  const int on = 1;
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port =
      htons(static_cast<uint16_t>(std::atoi(std::getenv("MASTER_PORT"))));
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd, 1) != 0) {
    throw std::runtime_error(std::string("listen: ") + std::strerror(errno));
  }
}

} // namespace

int main(int argc, char** argv) {
  bool mine = true;
  for (int i = 1; i < argc; ++i) {
    const std::string action = argv[i];
    if (action == "all") {
      mine = true;
      continue;
    }
    const bool alone = action == "args" || action == "stdin" ||
                       action == "tty" || action == "trap" ||
                       action == "ignore" || action == "listen" ||
                       action == "forever";
    const std::string value = alone ? "" : argv[++i];
    if (action == "if") {
      mine = value == rank();
    }
    if (!mine) {
      continue;
    }
    if (action == "env") {
      const char* found = std::getenv(value.c_str());
      write_all(
          1, value + (found ? std::string("=") + found : " is unset") + "\n");
    } else if (action == "args") {
      for (++i; i < argc; ++i) {
        write_all(1, std::string(argv[i]) + "\n");
      }
    } else if (action == "out") {
      write_all(1, unescape(value));
    } else if (action == "err") {
      write_all(2, unescape(value));
    } else if (action == "lines") {
      print_lines(std::stoi(value));
    } else if (action == "bytes") {
      print_bytes(std::stoul(value));
    } else if (action == "stdin") {
      char buffer[4096];
      for (ssize_t count; (count = read(0, buffer, sizeof(buffer))) > 0;) {
        write_all(1, std::string(buffer, static_cast<size_t>(count)));
      }
    } else if (action == "tty") {
      write_all(1, isatty(1) == 1 ? "a terminal\n" : "no terminal\n");
    } else if (action == "pid") {
      write_pid(value);
    } else if (action == "child") {
      if (fork() == 0) {
        write_pid(value);
        forever();
      }
    } else if (action == "daemon") {
      if (fork() == 0) {
        setsid();
        if (fork() == 0) {
          write_pid(value);
          forever();
        }
        _exit(0);
      }
    } else if (action == "trap") {
      trap();
    } else if (action == "trap-exit") {
      exit_code_after_trap = std::stoi(value);
      trap();
    } else if (action == "ignore") {
      signal(SIGINT, SIG_IGN);
      signal(SIGTERM, SIG_IGN);
    } else if (action == "listen") {
      listen_as_store();
    } else if (action == "wait") {
      while (access(value.c_str(), F_OK) != 0) {
        usleep(2000);
      }
    } else if (action == "sleep") {
      usleep(static_cast<useconds_t>(1e6 * std::stod(value)));
    } else if (action == "forever") {
      forever();
    } else if (action == "note") {
      const int fd = open(std::getenv("ACCEL_FAILURE_NOTE"), O_WRONLY);
      write_all(fd, value);
      close(fd);
    } else if (action == "exit") {
      std::exit(std::stoi(value));
    } else if (action == "throw") {
      throw std::runtime_error(value);
    } else if (action == "raise") {
      raise(std::stoi(value));
    } else if (action != "if") {
      write_all(2, "probe: what is " + action + "?\n");
      return 98;
    }
  }
  return 0;
}
