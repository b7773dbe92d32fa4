#include "flags.h"

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "command_line.h"
#include "error.h"
#include "installation.h"
#include "layout.h"

namespace accel::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFlagsFooter =
    R"(Without an option: the compile and the link flags in one line.
The environment variable ACCEL_LIBTORCH names LibTorch's folder where it has
moved since accel was built.

Examples:
  c++ -O2 $(accel flags --compile) train.cpp $(accel flags --link) -o train

  CXXFLAGS += $(shell accel flags --compile)      in a Makefile
  LDLIBS   += $(shell accel flags --link))";

/// "2.11.0" of the LibTorch at `root`; empty where there is none.
std::string torch_version(const fs::path& root) {
  std::ifstream header(root / "include/torch/headeronly/version.h");
  if (!header) {
    header.open(root / "include/torch/csrc/api/include/torch/version.h");
  }
  std::string version;
  std::string line;
  while (std::getline(header, line)) {
    for (const char* part : {"MAJOR ", "MINOR ", "PATCH "}) {
      const std::string start = std::string("#define TORCH_VERSION_") + part;
      if (line.rfind(start, 0) == 0) {
        version += (version.empty() ? "" : ".") + line.substr(start.size());
      }
    }
  }
  return version;
}

/// "2.11" of "2.11.0".
std::string major_minor(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

/// The folder with include/ and lib/, by the rules of AccelLibTorch.cmake.
fs::path find_torch(const std::string& named) {
  const fs::path start = named.empty() ? fs::path(kTorchRoot) : fs::path(named);
  if (start.empty()) { // a package: it holds no folder of its builder's
    throw Error(
        kLauncherFailed,
        std::string("which LibTorch is to be used? Set ACCEL_LIBTORCH to the "
                    "folder with its include/ and lib/ (LibTorch ") +
            major_minor(kTorchVersion) + ")");
  }
  for (const char* below : {"", "torch", "../.."}) {
    std::error_code none;
    const fs::path root = fs::canonical(start / below, none);
    if (!none && fs::exists(root / "lib/libtorch_cpu.so") &&
        fs::exists(root / "include/torch/csrc/api/include/torch/torch.h")) {
      return root;
    }
  }
  throw Error(
      kLauncherFailed,
      (named.empty() ? "the LibTorch that accel was built against is no longer"
                       " at "
                     : "ACCEL_LIBTORCH holds no LibTorch: ") +
          start.string() +
          ". Set ACCEL_LIBTORCH to the folder with its include/ and lib/");
}

/// As pkg-config does: a shell, and so a Makefile's recipe, reads it back.
std::string quote(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) &&
        std::string("_-+=./,:@%").find(c) == std::string::npos) {
      result += '\\';
    }
    result += c;
  }
  return result;
}

void print(const std::vector<std::string>& flags) {
  const char* separator = "";
  for (const std::string& flag : flags) {
    std::cout << separator << quote(flag);
    separator = " ";
  }
  std::cout << "\n";
}

} // namespace

std::string find_torch_folder(const std::string& libtorch) {
  return find_torch(libtorch).string();
}

BuildFlags find_build_flags(
    const std::string& executable, const std::string& libtorch) {
  const fs::path bin = fs::path(executable).parent_path();
  const fs::path include =
      in_build_tree(executable)
          ? fs::path(kBuildIncludeDir)
          : (bin / kInstalledIncludeDir).lexically_normal();
  const fs::path lib = library_folder(executable);
  for (const fs::path& needed :
       {include / "accel/accel.h", lib / "libaccel.so"}) {
    if (!fs::exists(needed)) {
      throw Error(
          kLauncherFailed, missing(executable, needed, "accel_runtime"));
    }
  }
  const fs::path torch = find_torch(libtorch);
  const std::string version = torch_version(torch);
  if (major_minor(version) != major_minor(kTorchVersion)) {
    throw Error(
        kLauncherFailed,
        "libaccel was built against LibTorch " + std::string(kTorchVersion) +
            ", but " + torch.string() + " is " +
            (version.empty() ? "of an unknown version" : version) +
            ". Build accel again with -DACCEL_LIBTORCH=" + torch.string());
  }

  BuildFlags result;
  result.torch_dir = torch.string();
  // LibTorch 2.15's headers refuse C++17.
  const int minor = std::atoi(version.c_str() + version.find('.') + 1);
  const int major = std::atoi(version.c_str());
  const bool needs_20 = major > 2 || (major == 2 && minor >= 15);
  result.cxx_standard = needs_20 ? "20" : "17";
  const std::string torch_include = result.torch_dir + "/include";
  result.compile = {
      "-std=c++" + result.cxx_standard,
      "-I" + include.string(),
      "-isystem",
      torch_include,
      "-isystem",
      torch_include + "/torch/csrc/api/include"};
  // LibTorch's own libraries (CUDA runtime, CUPTI) are found through its run
  // path when the program runs; the linker need not see them.
  result.link = {
      "-L" + lib.string(),
      "-laccel",
      "-Wl,-rpath," + lib.string(),
      "-L" + result.torch_dir + "/lib",
      "-ltorch_cpu",
      "-lc10",
      "-Wl,-rpath," + result.torch_dir + "/lib",
      "-Wl,--allow-shlib-undefined"};
  if (kTorchHasCuda && fs::exists(torch / "lib/libtorch_cuda.so")) {
    // No program calls these by name: LibTorch's CUDA half makes itself known
    // when it is loaded.
    result.link.push_back(
        "-Wl,--push-state,--no-as-needed,-ltorch_cuda,-lc10_cuda,--pop-state");
  }
  return result;
}

int flags(const std::vector<std::string>& arguments) {
  CLI::App command(
      "Prints what a compiler needs to build a program that uses accel.",
      "flags");
  set_help(command, "[OPTIONS]", kFlagsFooter);
  bool compile = false;
  bool link = false;
  bool torch_dir = false;
  bool cxx_standard = false;
  command.add_flag("--compile,--cflags", compile, "Flags for compiling");
  command.add_flag("--link,--libs", link, "Flags for linking");
  command.add_flag("--torch-dir", torch_dir, "The folder of LibTorch");
  command.add_flag(
      "--cxx-standard", cxx_standard, "The C++ standard that is needed");

  SplitArguments split = split_arguments(command, arguments);
  if (!split.program.empty()) {
    throw Error(
        kUsage, "flags takes no argument, but got " + split.program.front());
  }
  if (!parse_options(command, std::move(split.options))) {
    return 0;
  }
  const char* libtorch = std::getenv("ACCEL_LIBTORCH");
  const BuildFlags found = find_build_flags(
      own_executable().string(), libtorch ? libtorch : "");
  const bool all = !compile && !link && !torch_dir && !cxx_standard;
  std::vector<std::string> wanted;
  if (compile || all) {
    wanted.insert(wanted.end(), found.compile.begin(), found.compile.end());
  }
  if (link || all) {
    wanted.insert(wanted.end(), found.link.begin(), found.link.end());
  }
  if (!wanted.empty()) {
    print(wanted);
  }
  if (torch_dir) {
    std::cout << found.torch_dir << "\n";
  }
  if (cxx_standard) {
    std::cout << found.cxx_standard << "\n";
  }
  return 0;
}

} // namespace accel::launcher
