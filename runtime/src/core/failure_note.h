#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace accel::detail {

/// Tells `accel launch`, where it started this process, that the process is
/// about to fail because another one is gone; so that the launcher blames the
/// other one, whichever ends first. Does nothing under other launchers.
inline void note_lost_peer(const std::string& what) {
  const char* path = std::getenv("ACCEL_FAILURE_NOTE");
  const int sheet = path ? ::open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
  if (sheet >= 0) {
    (void)!::write(sheet, what.data(), what.size());
    ::close(sheet);
  }
}

/// What `accel launch` knows of a process that is gone: "rank 1 on node1: ended
/// by SIGKILL (Killed)". It hears of it at about the time at which connections
/// break, so that it is given a second. Empty under other launchers, and where
/// nothing comes.
inline std::string failure_news() {
  const char* path = std::getenv("ACCEL_FAILURE_NEWS");
  const int sheet = path ? ::open(path, O_RDONLY | O_CLOEXEC) : -1;
  std::string news;
  for (int i = 0; sheet >= 0 && news.empty() && i < 100; ++i) {
    char text[4096];
    const ssize_t count = ::pread(sheet, text, sizeof text, 0);
    news.assign(text, static_cast<size_t>(count > 0 ? count : 0));
    if (news.empty()) {
      ::usleep(10000);
    }
  }
  if (sheet >= 0) {
    ::close(sheet);
  }
  return news;
}

} // namespace accel::detail
