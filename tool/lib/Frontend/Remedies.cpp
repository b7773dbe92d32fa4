//===- Remedies.cpp - What to do about a file that does not compile -------===//

#include "Remedies.h"

#include "accel/migrate/Findings.h"
#include "accel/migrate/Frontend.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace accel::migrate {

namespace {

struct Package {
  llvm::StringLiteral Start, Name, Folder;
};
struct Advice {
  llvm::StringLiteral Text, Remedy;
};

constexpr Package Packages[] = {
#define ACCEL_PACKAGE(Start, Package, Folder) {Start, Package, Folder},
#include "Remedies.def"
};
constexpr Advice Elsewhere[] = {
#define ACCEL_ELSEWHERE(Start, Where) {Start, Where},
#include "Remedies.def"
};
constexpr Advice Vendored[] = {
#define ACCEL_VENDORED(Start, Where) {Start, Where},
#include "Remedies.def"
};
constexpr Advice StdNames[] = {
#define ACCEL_STD_NAME(Name, Header) {Name, Header},
#include "Remedies.def"
};
constexpr Advice OldApis[] = {
#define ACCEL_OLD_API(Text, Remedy) {Text, Remedy},
#include "Remedies.def"
};

} // namespace

static const Package *packageOf(StringRef Header) {
  const auto *Row = find_if(
      Packages, [&](const Package &P) { return Header.starts_with(P.Start); });
  return Row == std::end(Packages) ? nullptr : Row;
}

/// Qt's headers are named after its classes.
static bool isQt(StringRef Header) {
  return Header.starts_with("Qt") ||
         (Header.size() > 2 && Header[0] == 'Q' && isUpper(Header[1]) &&
          isLower(Header[2]) && !Header.contains('.'));
}

static std::string remedyForHeader(StringRef Header) {
  if (const Package *P = packageOf(Header)) {
    std::string Text = ("Debian's package " + P->Name + " has it").str();
    if (!P->Folder.empty())
      Text += (", in " + P->Folder).str();
    return Text + ".";
  }
  if (isQt(Header))
    return "Debian's package qtbase5-dev has Qt; name the build folder with "
           "-p, or its include folders behind --.";
  for (const Advice &A : Elsewhere)
    if (Header.starts_with(A.Text))
      return A.Remedy.str();
  for (const Advice &A : Vendored)
    if (sys::path::filename(Header).starts_with(A.Text))
      return A.Remedy.str();
  return "Name the build folder with -p, or the header's folder behind --, "
         "as in: accel-migrate FILE -- -I DIR.";
}

/// The standard header for a name that namespace std does not have, or whose
/// type is only declared.
static StringRef standardHeaderFor(StringRef Message) {
  bool IsStd = Message.contains("in namespace 'std'");
  for (const Advice &A : StdNames) {
    std::string Quoted = ("'" + A.Text + "'").str();
    if ((IsStd && Message.contains(Quoted)) ||
        Message.contains(("'std::" + A.Text + "'").str()) ||
        Message.contains(("'std::basic_" + A.Text + "<char>'").str()))
      return A.Remedy;
  }
  return "";
}

/// Whether a message is about what C++20 has and C++17 has not.
static bool needsCpp20(StringRef Message) {
  if (Message.contains("'auto' not allowed in function prototype") ||
      Message.contains("C++20") || Message.contains("unknown type name 'concept'") ||
      Message.contains("unknown type name 'requires'"))
    return true;
  if (!Message.contains("in namespace 'std'"))
    return false;
  return any_of(
      std::initializer_list<StringRef>{
          "'format'", "'ranges'", "'views'", "'span'", "'numbers'",
          "'source_location'", "'bit_cast'", "'midpoint'", "'lerp'", "'jthread'",
          "'remove_cvref_t'", "'ssize'", "'floating_point'", "'integral'"},
      [&](StringRef Name) { return Message.contains(Name); });
}

/// What often helps against such an error, as sentences; or nothing.
static std::string remedyFor(const FirstError &Error) {
  StringRef Text = Error.Message;
  if (!Error.MissingHeader.empty())
    return remedyForHeader(Error.MissingHeader);
  for (const Advice &A : OldApis)
    if (Text.contains(A.Text))
      return A.Remedy.str();
  if (StringRef Header = standardHeaderFor(Text); !Header.empty())
    return ("Add #include <" + Header +
            ">; this LibTorch's headers do not bring it any more.")
        .str();
  if (needsCpp20(Text))
    return "The file needs C++20: accel-migrate FILE -- -std=c++20.";
  if (Text.contains("in namespace 'std'"))
    return "Include the standard header that declares it; this LibTorch's "
           "headers do not do so any more.";
  if (Text.contains("in namespace 'torch") || Text.contains("in 'torch::"))
    return "The program was written for another LibTorch; bring it up to date "
           "first, or name the one that it is for with ACCEL_LIBTORCH.";
  return "";
}

static bool isStandardFlag(StringRef Word) {
  return Word.starts_with("-std=") || Word.starts_with("--std=");
}

/// The flag for C++20 if a command asks for a standard before that, as Clang
/// does without a word on it; else nothing.
static StringRef laterStandard(const UnitCommand &Command) {
  StringRef Standard = "c++17";
  for (StringRef Word : Command.Arguments)
    if (isStandardFlag(Word))
      Standard = Word.split('=').second;
  bool IsOld = any_of(
      std::initializer_list<StringRef>{"++98", "++03", "++0x", "++11", "++1y",
                                       "++14", "++1z", "++17"},
      [&](StringRef Old) { return Standard.ends_with(Old); });
  if (!IsOld)
    return "";
  return Standard.starts_with("gnu") ? "-std=gnu++20" : "-std=c++20";
}

std::optional<Repair> repairWithFolder(const FirstError &Error,
                                       const UnitCommand &Command,
                                       StringRef Folder) {
  if (is_contained(Command.Arguments, Folder))
    return std::nullopt;
  // Behind all other folders, where it can hide nothing.
  Repair Result{Command, ""};
  Result.Command.Arguments.push_back("-idirafter");
  Result.Command.Arguments.push_back(Folder.str());
  Result.What =
      ("-I " + Folder + ", because '" + Error.MissingHeader + "' was not found")
          .str();
  return Result;
}

/// GCC brings an omp.h along. Clang's is in a package of its own, and Clang reads
/// GCC's but for arguments that an attribute has there.
static std::optional<Repair> repairWithOpenMP(const FirstError &Error,
                                              const UnitCommand &Command) {
  std::string Newest;
  std::error_code Code;
  for (sys::fs::recursive_directory_iterator It("/usr/lib/gcc", Code), End;
       !Code && It != End; It.increment(Code)) {
    if (It.level() == 2)
      It.no_push();
    const std::string Folder = It->path() + "/include";
    if (It.level() == 1 && sys::fs::exists(Folder + "/omp.h") &&
        StringRef(Newest).compare_numeric(Folder) < 0)
      Newest = Folder;
  }
  if (Newest.empty())
    return std::nullopt;
  std::optional<Repair> Result = repairWithFolder(Error, Command, Newest);
  if (Result)
    Result->Command.Arguments.push_back(OpenMPMacro.str());
  return Result;
}

std::optional<Repair> repairFor(const FirstError &Error,
                                const UnitCommand &Command) {
  if (Error.MissingHeader == "omp.h")
    return repairWithOpenMP(Error, Command);
  if (!Error.MissingHeader.empty()) {
    const Package *P = packageOf(Error.MissingHeader);
    if (!P || P->Folder.empty() ||
        !sys::fs::exists(P->Folder + "/" + Error.MissingHeader))
      return std::nullopt;
    return repairWithFolder(Error, Command, P->Folder);
  }
  StringRef Standard = laterStandard(Command);
  if (Standard.empty() || !needsCpp20(Error.Message))
    return std::nullopt;
  Repair Result{Command, ""};
  erase_if(Result.Command.Arguments, isStandardFlag);
  Result.Command.Arguments.push_back(Standard.str());
  Result.What = (Standard + ", because of the error: " + Error.Message).str();
  return Result;
}

Finding problemOf(const FirstError &Error, StringRef File,
                  const Surroundings &Found) {
  if (Error.IsCommandLine)
    return makeFinding("ACL0003", {realPath(File), 0, 0},
                       Error.Message.empty()
                           ? "Clang makes nothing of the compile command"
                           : "Clang rejects the compile command: " +
                                 Error.Message,
                       "Give the flags that matter (-I, -D, -std) behind --.");
  Finding Problem;
  if (Error.missesHeaderOf("torch/") || Error.missesHeaderOf("ATen/") ||
      Error.missesHeaderOf("c10/")) {
    Problem = makeFinding("ACL0002", Error.Place, Error.Message);
    if (!Found.TorchProblem.empty())
      Problem.Remedy = Found.TorchProblem;
    else if (!Found.Torch)
      Problem.Remedy =
          "set ACCEL_LIBTORCH to the folder of the unpacked LibTorch, name the "
          "build folder with -p, or give its include folders behind --";
    else
      Problem.Remedy = "the LibTorch at " + Found.Torch->Root +
                       " does not have this header; name the right one with "
                       "ACCEL_LIBTORCH, -p or behind --";
  } else {
    Problem =
        makeFinding("ACL0001", Error.Place, Error.Message, remedyFor(Error));
  }
  Problem.Line = Error.Line;
  Problem.Column = Error.Column;
  return Problem;
}

} // namespace accel::migrate
