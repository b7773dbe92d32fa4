// Writing and undoing, killed (SIGKILL) in front of every system call that
// changes something on the disk, and in the middle of every write: each file is
// the old or the new one, and undo brings all of them back.
//
// The calls are counted by functions of the C library's names in this program,
// which the tool's code and LLVM's library call instead of the C library's.

#include "accel/migrate/Write.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <gtest/gtest.h>

#include <cstdarg>
#include <map>
#include <set>

#include <csignal>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace accel::migrate;

namespace {

/// How many calls go through before the process is killed; negative: all.
int CallsLeft = -1;
/// Number and names of the calls since `CallsLeft` was set.
unsigned CallCount = 0;
std::set<std::string> CallNames;

/// Whether this call is the one.
bool isLast(const char *Name) {
  ++CallCount;
  if (CallsLeft < 0)
    CallNames.insert(Name);
  return CallsLeft >= 0 && CallsLeft-- == 0;
}

void point(const char *Name) {
  if (isLast(Name))
    raise(SIGKILL);
}

template <typename Function> Function *real(const char *Name) {
  return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, Name));
}

} // namespace

extern "C" {

int rename(const char *From, const char *To) noexcept {
  point("rename");
  return real<int(const char *, const char *)>("rename")(From, To);
}

int remove(const char *Path) noexcept {
  point("remove");
  return real<int(const char *)>("remove")(Path);
}

int unlink(const char *Path) noexcept {
  point("unlink");
  return real<int(const char *)>("unlink")(Path);
}

int mkdir(const char *Path, mode_t Mode) noexcept {
  point("mkdir");
  return real<int(const char *, mode_t)>("mkdir")(Path, Mode);
}

int fchmod(int File, mode_t Mode) noexcept {
  point("fchmod");
  return real<int(int, mode_t)>("fchmod")(File, Mode);
}

int fsync(int File) {
  point("fsync");
  return real<int(int)>("fsync")(File);
}

int ftruncate(int File, off_t Length) noexcept {
  point("ftruncate");
  return real<int(int, off_t)>("ftruncate")(File, Length);
}

int open(const char *Path, int Flags, ...) {
  va_list Arguments;
  va_start(Arguments, Flags);
  int Mode = va_arg(Arguments, int);
  va_end(Arguments);
  if (Flags & O_CREAT)
    point("open");
  return real<int(const char *, int, ...)>("open")(Path, Flags, Mode);
}

int open64(const char *Path, int Flags, ...) {
  va_list Arguments;
  va_start(Arguments, Flags);
  int Mode = va_arg(Arguments, int);
  va_end(Arguments);
  if (Flags & O_CREAT)
    point("open");
  return real<int(const char *, int, ...)>("open64")(Path, Flags, Mode);
}

ssize_t write(int File, const void *Data, size_t Size) {
  auto *Real = real<ssize_t(int, const void *, size_t)>("write");
  point("write");
  if (isLast("half a write")) {
    Real(File, Data, Size / 2);
    raise(SIGKILL);
  }
  return Real(File, Data, Size);
}

} // extern "C"

namespace {

/// A file's text, or "" if there is none; it cannot be told from an empty one,
/// which no test has.
std::string contentOf(const std::string &Path) {
  auto Buffer = llvm::MemoryBuffer::getFile(Path);
  return Buffer ? (*Buffer)->getBuffer().str() : "";
}

class Interrupted : public testing::Test {
protected:
  void SetUp() override {
    llvm::SmallString<256> Folder, Real;
    ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("accel-interrupt", Folder));
    ASSERT_FALSE(llvm::sys::fs::real_path(Folder, Real));
    Root = std::string(Real);
    Edits = {edit("a.cpp", 'a'), edit("include/b.h", 'b'), edit("src/c.cpp", 'c')};
  }
  void TearDown() override { llvm::sys::fs::remove_directories(Root); }

  FileEdit edit(const std::string &Name, char Letter) {
    FileEdit Edit;
    Edit.File = Root + "/" + Name;
    Edit.Before = std::string(20000, Letter) + "\n";
    Edit.After = "migrated " + Edit.Before;
    return Edit;
  }

  /// Everything below the root, but nothing in the undo folder.
  std::map<std::string, std::string> tree() const {
    std::map<std::string, std::string> Files;
    std::error_code Code;
    for (llvm::sys::fs::recursive_directory_iterator It(Root, Code), End;
         It != End && !Code; It.increment(Code))
      if (It->type() == llvm::sys::fs::file_type::regular_file &&
          !llvm::StringRef(It->path()).contains("/.accel/"))
        Files[It->path()] = contentOf(It->path());
    return Files;
  }

  void makeOriginals() {
    llvm::sys::fs::remove_directories(Root);
    for (const FileEdit &Edit : Edits) {
      llvm::sys::fs::create_directories(llvm::sys::path::parent_path(Edit.File));
      std::error_code Code;
      llvm::raw_fd_ostream(Edit.File, Code) << Edit.Before;
      ASSERT_FALSE(Code);
    }
    Originals = tree();
  }

  /// Runs it in a process that is killed after so many calls. False if it came
  /// to its end first.
  template <typename Function> bool killed(int After, Function Run) {
    pid_t Child = fork();
    if (Child == 0) {
      CallsLeft = After;
      Run();
      _exit(0);
    }
    int Status = 0;
    EXPECT_EQ(waitpid(Child, &Status, 0), Child);
    EXPECT_TRUE(WIFSIGNALED(Status) ? WTERMSIG(Status) == SIGKILL
                                    : WEXITSTATUS(Status) == 0);
    return WIFSIGNALED(Status);
  }

  void write() { ASSERT_FALSE(llvm::errorToBool(writeInPlace(Edits, ""))); }

  void expectOldOrNew(int After) {
    for (const FileEdit &Edit : Edits) {
      std::string Now = contentOf(Edit.File);
      EXPECT_TRUE(Now == Edit.Before || Now == Edit.After)
          << Edit.File << " is torn after " << After << " calls";
    }
  }

  /// Undoes until there is nothing left to undo.
  void undoAll() {
    while (true) {
      llvm::Expected<UndoResult> Result = undo({Edits[0].File}, "");
      llvm::Expected<UndoResult> Others =
          undo({Edits[1].File, Edits[2].File}, "");
      bool IsOver = !Result && !Others;
      for (auto *R : {&Result, &Others}) {
        if (*R)
          EXPECT_TRUE((*R)->Refusals.empty());
        else
          EXPECT_EQ(llvm::errorToErrorCode(R->takeError()),
                    std::errc::no_such_file_or_directory);
      }
      if (IsOver)
        return;
    }
  }

  std::string Root;
  std::vector<FileEdit> Edits;
  std::map<std::string, std::string> Originals;
};

/// A first test, of the counting: without it the others would see nothing.
TEST_F(Interrupted, AllCallsAreSeen) {
  makeOriginals();
  CallNames.clear();
  CallCount = 0;
  write();
  for (const char *Name :
       {"open", "write", "half a write", "fchmod", "fsync", "rename", "mkdir"})
    EXPECT_TRUE(CallNames.count(Name)) << Name;
  // Each new text, the manifest and the .gitignore.
  EXPECT_GE(CallCount, 30u);
  CallNames.clear();
  undoAll();
  EXPECT_TRUE(CallNames.count("rename"));
  EXPECT_TRUE(CallNames.count("remove") || CallNames.count("unlink"));
}

TEST_F(Interrupted, Write) {
  int After = 0;
  for (bool Killed = true; Killed && !HasFailure(); ++After) {
    makeOriginals();
    Killed = killed(After, [&] { write(); });
    expectOldOrNew(After);
    undoAll();
    for (const FileEdit &Edit : Edits)
      EXPECT_EQ(contentOf(Edit.File), Edit.Before) << After;
    // The next run clears away what was left.
    write();
    undoAll();
    EXPECT_EQ(tree(), Originals) << After;
    EXPECT_FALSE(llvm::sys::fs::exists(Root + "/.accel")) << After;
  }
  EXPECT_GE(After, 30);
}

TEST_F(Interrupted, Undo) {
  int After = 0;
  for (bool Killed = true; Killed && !HasFailure(); ++After) {
    makeOriginals();
    write();
    Killed = killed(After, [&] { undoAll(); });
    expectOldOrNew(After);
    undoAll();
    for (const FileEdit &Edit : Edits)
      EXPECT_EQ(contentOf(Edit.File), Edit.Before) << After;
  }
  EXPECT_GE(After, 20);
}

TEST_F(Interrupted, Tree) {
  int After = 0;
  for (bool Killed = true; Killed && !HasFailure(); ++After) {
    makeOriginals();
    Killed = killed(After, [&] {
      ASSERT_FALSE(llvm::errorToBool(writeTree(Edits, Root, Root + "/out")));
    });
    EXPECT_EQ(contentOf(Edits[1].File), Edits[1].Before);
    for (const FileEdit &Edit : Edits) {
      std::string Out = contentOf(Root + "/out" + Edit.File.substr(Root.size()));
      EXPECT_TRUE(Out.empty() || Out == Edit.After) << After;
    }
  }
  EXPECT_GE(After, 15);
}

TEST_F(Interrupted, TwoRunsAtOnceKeepTwoManifests) {
  for (int Round = 0; Round != 10 && !HasFailure(); ++Round) {
    makeOriginals();
    std::vector<pid_t> Children;
    for (const FileEdit &Edit : Edits) {
      Children.push_back(fork());
      if (Children.back() == 0)
        _exit(llvm::errorToBool(writeInPlace({Edit}, Root + "/state")));
    }
    for (pid_t Child : Children) {
      int Status = 1;
      waitpid(Child, &Status, 0);
      EXPECT_EQ(Status, 0);
    }
    for (const FileEdit &Edit : Edits)
      EXPECT_EQ(contentOf(Edit.File), Edit.After);
    for (size_t I = 0; I != Edits.size(); ++I) {
      llvm::Expected<UndoResult> Result = undo({}, Root + "/state");
      ASSERT_TRUE(bool(Result)) << llvm::toString(Result.takeError());
      EXPECT_EQ(Result->Restored.size(), 1u);
    }
    for (const FileEdit &Edit : Edits)
      EXPECT_EQ(contentOf(Edit.File), Edit.Before);
  }
}

} // namespace
