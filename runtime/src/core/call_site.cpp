#include "core/call_site.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <vector>

namespace accel::detail {
namespace {

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

bool is_library_of_ours(const std::string& name) {
  for (const char* prefix :
       {"libaccel", "libtorch", "libc10", "libc.", "libstdc++", "libgcc",
        "libgomp", "libpthread", "libm.", "libdl.", "ld-linux", "linux-vdso"}) {
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

/// "torch::nn::SequentialImpl::forward" out of "at::Tensor
/// torch::nn::SequentialImpl::forward<at::Tensor>(at::Tensor&&)".
std::string qualified_name(const std::string& function) {
  const std::string name = short_name(function);
  const std::string without_types = name.substr(0, name.find('<'));
  return without_types.substr(without_types.rfind(' ') + 1);
}

bool is_function_of_ours(const std::string& function) {
  const auto name = qualified_name(function);
  for (const char* prefix : {"accel::", "torch::", "at::", "c10::", "std::"}) {
    if (name.rfind(prefix, 0) == 0) {
      return true;
    }
  }
  return false;
}

/// What addr2line has found.
struct Found {
  /// "train.cpp:88 (train_epoch)", the first line that is the program's own.
  std::string line;
  /// The first function that is, and which of the addresses lies in it.
  std::string function;
  size_t address = 0;
};

/// `text`: for each address itself, then pairs of lines "function" and
/// "file:line".
Found find_place(const std::string& text) {
  std::istringstream lines(text);
  Found found;
  size_t address = 0;
  bool own = false;
  std::string name;
  for (size_t addresses = 0; std::getline(lines, name);) {
    if (name.rfind("0x", 0) == 0) {
      address = addresses++;
      continue;
    }
    std::string place;
    std::getline(lines, place);
    place = place.substr(0, place.find(" (discriminator"));
    const bool named = name != "??";
    if (named && !own && (found.function.empty() || !is_function_of_ours(name))) {
      own = !is_function_of_ours(name);
      found.function = short_name(name);
      found.address = address;
    }
    const bool known = place.rfind("??", 0) != 0 &&
        place.find(":?") == std::string::npos &&
        place.find(":0") != place.size() - 2;
    if (known && !is_header_of_ours(place)) {
      found.line = base_name(place) + " (" + short_name(name) + ")";
      return found;
    }
  }
  return found;
}

/// The code of the program and its libraries in memory.
class Modules {
 public:
  /// Whether an address lies in a library of accel, LibTorch or the system.
  static bool is_ours(uintptr_t address) {
    static std::atomic<const Modules*> current{nullptr};
    const auto* modules = current.load(std::memory_order_acquire);
    const Segment* segment = modules ? modules->find(address) : nullptr;
    if (segment == nullptr) {
      // A library that was loaded since. The old list may be in use.
      modules = new Modules();
      segment = modules->find(address);
      if (segment == nullptr) {
        delete modules;
        return false;
      }
      current.store(modules, std::memory_order_release);
    }
    return segment->ours;
  }

 private:
  struct Segment {
    uintptr_t begin;
    uintptr_t end;
    bool ours;
  };

  Modules() {
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* list) {
          const bool ours = is_library_of_ours(base_name(info->dlpi_name));
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& header = info->dlpi_phdr[i];
            if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0) {
              const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
              static_cast<std::vector<Segment>*>(list)->push_back(
                  {begin, begin + header.p_memsz, ours});
            }
          }
          return 0;
        },
        &segments_);
    std::sort(
        segments_.begin(), segments_.end(), [](const auto& a, const auto& b) {
          return a.begin < b.begin;
        });
  }

  const Segment* find(uintptr_t address) const {
    const auto behind = std::upper_bound(
        segments_.begin(),
        segments_.end(),
        address,
        [](uintptr_t one, const Segment& segment) {
          return one < segment.begin;
        });
    if (behind == segments_.begin() || address >= (behind - 1)->end) {
      return nullptr;
    }
    return &*(behind - 1);
  }

  std::vector<Segment> segments_;
};

/// Calls that are looked at before one of the program's own is found.
constexpr int kFarthest = 400;

struct Walk {
  void** addresses;
  int most;
  int count = 0;
  int steps = 0;
};

_Unwind_Reason_Code step(_Unwind_Context* context, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  const uintptr_t address = ::_Unwind_GetIP(context);
  if (address == 0 || ++walk.steps > kFarthest) {
    return _URC_END_OF_STACK;
  }
  if (!Modules::is_ours(address)) {
    walk.addresses[walk.count++] = reinterpret_cast<void*>(address);
  }
  return walk.count == walk.most ? _URC_END_OF_STACK : _URC_NO_REASON;
}

} // namespace

CallSite CallSite::here() {
  CallSite site;
  Walk walk{site.addresses_.data(), static_cast<int>(kDepth)};
  ::_Unwind_Backtrace(&step, &walk);
  site.count_ = walk.count;
  return site;
}

bool CallSite::has_line(const std::string& description) {
  return description.find("(0x") == std::string::npos;
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
  for (int i = 0; i < count_; ++i) {
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
  const auto found = find_place(output_of(command));
  if (!found.line.empty()) {
    return found.line;
  }
  return (found.function.empty() ? "" : found.function + " in ") + name + " (" +
      hexadecimal(frames[found.address].offset) + ")";
}

} // namespace accel::detail
