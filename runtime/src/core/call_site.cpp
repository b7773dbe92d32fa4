#include "core/call_site.h"

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <vector>

namespace accel::detail {
namespace {

/// Calls of the program's own that are looked at, in case the innermost ones
/// are inlined from headers.
constexpr size_t kCandidates = 8;

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

bool is_library_of_ours(const std::string& name) {
  for (const char* prefix :
       {"libaccel", "libtorch", "libc10", "libc.", "libstdc++", "libgcc",
        "libgomp", "libpthread", "ld-linux"}) {
    if (name.rfind(prefix, 0) == 0) {
      return true;
    }
  }
  return false;
}

bool is_header_of_ours(const std::string& path) {
  for (const char* part :
       {"/include/accel/", "/torch/", "/ATen/", "/c10/", "/include/c++/"}) {
    if (path.find(part) != std::string::npos) {
      return true;
    }
  }
  return false;
}

struct Frame {
  std::string module;
  uintptr_t offset;
};

/// As the file has it, before it was loaded somewhere.
Frame make_frame(const Dl_info& info, void* address) {
  const auto* header = static_cast<const Elf64_Ehdr*>(info.dli_fbase);
  // One back: what was pushed is where the call returns to.
  uintptr_t offset = reinterpret_cast<uintptr_t>(address) - 1;
  if (header->e_type == ET_DYN) {
    offset -= reinterpret_cast<uintptr_t>(info.dli_fbase);
  }
  return {info.dli_fname, offset};
}

std::string hexadecimal(uintptr_t number) {
  std::ostringstream text;
  text << "0x" << std::hex << number;
  return text.str();
}

/// What a command prints; empty where it cannot be run. A second at most.
std::string output_of(std::vector<std::string> command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return "";
  }
  std::vector<char*> arguments;
  for (auto& argument : command) {
    arguments.push_back(argument.data());
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(
      &actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = ::posix_spawnp(
      &pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  if (error == 0) {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(1);
    char buffer[4096];
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd ready{ends[0], POLLIN, 0};
      if (left.count() <= 0 ||
          ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) {
        ::kill(pid, SIGKILL);
        break;
      }
      const ssize_t count = ::read(ends[0], buffer, sizeof buffer);
      if (count <= 0) {
        break;
      }
      text.append(buffer, static_cast<size_t>(count));
    }
    ::waitpid(pid, nullptr, 0);
  }
  ::close(ends[0]);
  return text;
}

/// Without the arguments' types, which are long.
std::string short_name(std::string function) {
  const std::string anonymous = "(anonymous namespace)::";
  for (size_t at; (at = function.find(anonymous)) != std::string::npos;) {
    function.erase(at, anonymous.size());
  }
  return function.substr(0, function.find('('));
}

/// The first place that is the program's own in what addr2line has printed:
/// an address, then pairs of lines "function" and "file:line". Without one,
/// the innermost function in `function`.
std::string first_place(const std::string& text, std::string& function) {
  std::istringstream lines(text);
  std::string name;
  while (std::getline(lines, name)) {
    if (name.rfind("0x", 0) == 0) {
      continue;
    }
    std::string place;
    std::getline(lines, place);
    place = place.substr(0, place.find(" (discriminator"));
    if (function.empty() && name != "??") {
      function = name;
    }
    const bool known = place.rfind("??", 0) != 0 &&
        place.find(":?") == std::string::npos &&
        place.find(":0") != place.size() - 2;
    if (known && !is_header_of_ours(place)) {
      return base_name(place) + " (" + short_name(name) + ")";
    }
  }
  return "";
}

} // namespace

CallSite CallSite::here() {
  CallSite site;
  site.count_ = ::backtrace(site.addresses_.data(), kDepth);
  return site;
}

size_t CallSite::hash() const {
  size_t hash = 0;
  for (const void* address : addresses_) {
    hash = hash * 1099511628211u + reinterpret_cast<uintptr_t>(address);
  }
  return hash;
}

std::string CallSite::describe() const {
  std::vector<Frame> frames;
  for (int i = 0; i < count_ && frames.size() < kCandidates; ++i) {
    void* address = addresses_[static_cast<size_t>(i)];
    Dl_info info{};
    if (::dladdr(address, &info) != 0 && info.dli_fname != nullptr &&
        !is_library_of_ours(base_name(info.dli_fname))) {
      auto frame = make_frame(info, address);
      if (frames.empty() || frames[0].module == frame.module) {
        frames.push_back(std::move(frame));
      }
    }
  }
  if (frames.empty()) {
    return "";
  }
  // The program itself, under whatever name it was started.
  const std::string& name = frames[0].module;
  const bool program = name.find(".so") == std::string::npos;
  std::vector<std::string> command{
      "addr2line", "-a", "-f", "-i", "-C", "-e",
      program ? "/proc/" + std::to_string(::getpid()) + "/exe" : name};
  for (const auto& frame : frames) {
    command.push_back(hexadecimal(frame.offset));
  }
  std::string function;
  const std::string place = first_place(output_of(command), function);
  if (!place.empty()) {
    return place;
  }
  return (function.empty() ? "" : short_name(function) + " in ") + name + " (" +
      hexadecimal(frames[0].offset) + ")";
}

} // namespace accel::detail
