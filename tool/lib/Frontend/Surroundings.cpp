//===- Surroundings.cpp - Where things are on this machine ----------------===//

#include "Surroundings.h"

#include "accel/migrate/Config.h"

#include "clang/Basic/Version.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

using namespace llvm;

namespace accel::migrate {

static std::string inFolder(StringRef A, const Twine &B) {
  SmallString<256> Path(A);
  sys::path::append(Path, B);
  sys::path::remove_dots(Path, /*remove_dot_dot=*/true);
  return std::string(Path);
}

std::string realPath(StringRef Path) {
  SmallString<256> Real;
  if (!sys::fs::real_path(Path, Real))
    return std::string(Real);
  Real = Path;
  sys::fs::make_absolute(Real);
  sys::path::remove_dots(Real, /*remove_dot_dot=*/true);
  return std::string(Real);
}

StringRef LibTorch::languageStandard() const {
  return std::pair(Major, Minor) < std::pair(2u, 15u) ? "c++17" : "c++20";
}

std::vector<std::string> LibTorch::includeArguments() const {
  return {"-isystem", inFolder(Root, "include"), "-isystem",
          inFolder(Root, "include/torch/csrc/api/include")};
}

static unsigned versionPart(StringRef Text, StringRef Name) {
  unsigned Value = 0;
  StringRef Rest = Text.split(("#define " + Name + " ").str()).second;
  Rest.ltrim().consumeInteger(10, Value);
  return Value;
}

/// The LibTorch at `Dir`, which holds include/ or torch/include/.
static std::optional<LibTorch> libTorchAt(StringRef Dir) {
  for (StringRef Sub : {"", "torch"}) {
    std::string Root = inFolder(Dir, Sub);
    std::string Api = inFolder(Root, "include/torch/csrc/api/include/torch");
    if (!sys::fs::exists(inFolder(Api, "torch.h")))
      continue;
    LibTorch Torch;
    Torch.Root = realPath(Root);
    // The version has moved between these two headers.
    for (const std::string &Header :
         {inFolder(Root, "include/torch/headeronly/version.h"),
          inFolder(Api, "version.h")}) {
      auto Buffer = MemoryBuffer::getFile(Header);
      if (!Buffer || Torch.Major)
        continue;
      Torch.Major = versionPart((*Buffer)->getBuffer(), "TORCH_VERSION_MAJOR");
      Torch.Minor = versionPart((*Buffer)->getBuffer(), "TORCH_VERSION_MINOR");
    }
    return Torch;
  }
  return std::nullopt;
}

/// The torch package of the Python environment that the tool was installed into
/// with pip.
static std::optional<LibTorch> libTorchOfPython(StringRef ExecutableDir) {
  std::error_code Code;
  for (sys::fs::directory_iterator It(inFolder(ExecutableDir, "../lib"), Code),
       End;
       It != End && !Code; It.increment(Code))
    if (sys::path::filename(It->path()).starts_with("python3"))
      for (StringRef Packages : {"site-packages", "dist-packages"})
        if (auto Torch = libTorchAt(inFolder(It->path(), Packages)))
          return Torch;
  return std::nullopt;
}

static Expected<std::string> findResourceDir(const FrontendOptions &Options) {
  auto IsOne = [](StringRef Dir) {
    return !Dir.empty() && sys::fs::exists(inFolder(Dir, "include/stddef.h"));
  };
  std::string Named = Options.ResourceDir;
  if (Named.empty())
    Named = sys::Process::GetEnv("ACCEL_MIGRATE_RESOURCE_DIR").value_or("");
  if (!Named.empty()) {
    if (IsOne(Named))
      return realPath(Named);
    return createStringError(
        "'" + Named +
        "' is not a Clang resource folder (it has no include/stddef.h)");
  }
  StringRef ExecutableDir = sys::path::parent_path(Options.Executable);
  std::string Own =
      inFolder(ExecutableDir, ACCEL_INSTALLED_OWN_DIR
               "/clang/" CLANG_VERSION_MAJOR_STRING);
  std::string Beside =
      inFolder(ExecutableDir, "../lib/clang/" CLANG_VERSION_MAJOR_STRING);
  for (StringRef Dir : {StringRef(Own), StringRef(Beside),
                        StringRef(ACCEL_CONFIGURED_RESOURCE_DIR)})
    if (IsOne(Dir))
      return realPath(Dir);
  return createStringError(
      "Clang's builtin headers (include/stddef.h) were not found in '" +
      Beside + "' or '" ACCEL_CONFIGURED_RESOURCE_DIR
               "'; install clang-19, or name the folder with --resource-dir, "
               "for instance --resource-dir=$(clang-19 -print-resource-dir)");
}

Expected<Surroundings> Surroundings::find(const FrontendOptions &Options) {
  Surroundings Found;
  Expected<std::string> ResourceDir = findResourceDir(Options);
  if (!ResourceDir)
    return ResourceDir.takeError();
  Found.ResourceDir = *ResourceDir;

  StringRef ExecutableDir = sys::path::parent_path(Options.Executable);
  for (const std::string &Dir :
       {Options.AccelIncludeDir, inFolder(ExecutableDir, ACCEL_INSTALLED_INCLUDE_DIR),
        inFolder(ExecutableDir, ACCEL_INSTALLED_OWN_DIR "/include"),
        std::string(ACCEL_CONFIGURED_INCLUDE_DIR)})
    if (Found.AccelIncludeDir.empty() && !Dir.empty() &&
        sys::fs::exists(inFolder(Dir, "accel/accel.h")))
      Found.AccelIncludeDir = realPath(Dir);
  Found.PrecompiledDir =
      inFolder(ExecutableDir, ACCEL_INSTALLED_OWN_DIR "/precompiled");

  if (auto Named = sys::Process::GetEnv("ACCEL_LIBTORCH");
      Named && !Named->empty()) {
    Found.Torch = libTorchAt(*Named);
    if (!Found.Torch)
      Found.TorchProblem =
          "ACCEL_LIBTORCH is '" + *Named +
          "', which holds no LibTorch (no "
          "include/torch/csrc/api/include/torch/torch.h); point it at the "
          "unpacked LibTorch, or unset it";
    return Found;
  }
  for (const std::string &Dir :
       {inFolder(ExecutableDir, "../libtorch"), inFolder(ExecutableDir, "../lib/libtorch"),
        inFolder(ExecutableDir, "../share/libtorch"),
        std::string(ACCEL_CONFIGURED_TORCH_ROOT)})
    if (!Found.Torch && !Dir.empty())
      Found.Torch = libTorchAt(Dir);
  if (!Found.Torch)
    Found.Torch = libTorchOfPython(ExecutableDir);
  return Found;
}

} // namespace accel::migrate
