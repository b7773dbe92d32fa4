//===- Leaves.h - What leaves -----------------------------------*- C++ -*-===//
//
// Prints, files, windows and commands, which one process makes; metrics of an
// evaluation and memory that is read, which need whole tensors.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_LEAVES_LEAVES_H
#define ACCEL_MIGRATE_LIB_INVENTORY_LEAVES_LEAVES_H

#include "Code/Subject.h"
#include "Enters/Cut.h"

#include <functional>

namespace accel::migrate {

class PrintFacts : public Subject {
public:
  using Subject::Subject;
  void namedCall(const clang::CallExpr *E, const clang::FunctionDecl *F,
                 llvm::StringRef Name) override;
  void name(const clang::DeclRefExpr *E) override;

private:
  void standardOutput(const clang::DeclRefExpr *E);
  void givenAway(const clang::DeclRefExpr *E, const clang::FunctionDecl *F);
  void printToFile(const clang::CallExpr *E, const clang::FunctionDecl *F);
  void tensor(const clang::CallExpr *E);
  void printed(const clang::CallExpr *E, llvm::StringRef Name, EditKind Kind);
  void toDescriptor(const clang::CallExpr *E, llvm::StringRef Name);
  void toStandardFile(const clang::Expr *To);
  void onEveryProcess(const clang::CallExpr *E, const std::string &Name);
  bool isFarewell() const;
  /// Takes what the body of a macro prints; false for what no macro does.
  bool inMacro(clang::SourceRange Range, llvm::StringRef Word,
               EditKind Kind);
};

/// A file is opened, made or taken away.
struct FileUse {
  const clang::FunctionDecl *In = nullptr;
  const clang::Expr *Use = nullptr;
  const clang::Expr *Path = nullptr;
  bool Writes = false;
  /// Reads: the path as it is written, where the runtime can be asked to wait.
  std::optional<Spelled> Argument;
  bool InLoop = false;
  /// Where a data set loads a sample, which is another one on each process:
  /// nobody can wait there.
  bool InSamples = false;
  /// `torch::save`, behind which nobody goes on before it is done;
  /// `torch::load`.
  bool IsSave = false, IsLoad = false;
  /// Everything below the path, too.
  bool Below = false;
  /// Whether the file is there is asked, in this `if` where it is in one;
  /// quiet: nothing but output depends on it.
  bool Asks = false;
  const clang::IfStmt *AskedIn = nullptr;
  bool IsQuiet = false;
  /// The main process makes the file, takes it away, or puts another one in its
  /// place, in this statement; no path: it may be any file.
  const clang::Stmt *Moved = nullptr;
  bool TakesAway = false;
  /// A folder is made, by whichever process comes first, in this statement
  /// where it stands in a block: none may while the main one takes it away, or
  /// another one asks whether it is there.
  bool MakesFolder = false;
  const clang::Stmt *Makes = nullptr;
  FunctionId Here = 0;
  /// The statement stands in a block, and is not all of a branch without
  /// braces.
  bool HasBlock = true;
};

/// What uses files.
class FileSubject : public Subject {
public:
  FileSubject(const Unit &U, Walk &W, std::vector<FileUse> &Files)
      : Subject(U, W), Files(Files) {}

protected:
  /// A use of the file at `Path` (null: any file) by what is visited.
  FileUse &addUse(const clang::Expr *Use, const clang::Expr *Path) {
    FileUse &Added = Files.emplace_back();
    Added.In = Function;
    Added.Use = Use;
    Added.Path = Path;
    Added.InLoop = inLoop();
    Added.InSamples = inSamples();
    return Added;
  }
  /// Whether somebody looks at what a call, which is visited, returns.
  bool isResultUsed(const clang::CallExpr *E) const {
    return !statementOf(E) && !isBodyOfItsOwn();
  }

  std::vector<FileUse> &Files;
};

/// Files that are opened, and commands that are talked to.
class FileFacts : public FileSubject {
public:
  using FileSubject::FileSubject;
  void namedCall(const clang::CallExpr *E, const clang::FunctionDecl *F,
                 llvm::StringRef Name) override;
  void construct(const clang::CXXConstructExpr *E) override;

private:
  void save(const clang::CallExpr *E);
  void saveArchive(const clang::CXXMemberCallExpr *E);
  std::string openMode(const clang::Expr *Mode) const;
  const clang::IfStmt *branchWithout() const;
  void openStream(const clang::Expr *E, const clang::CXXRecordDecl *D,
                  llvm::ArrayRef<const clang::Expr *> Args);
  FileUse &file(const clang::Expr *Use, const clang::Expr *Path, bool Writes);
  void command(const clang::CallExpr *E);
  void mainPath(const clang::Expr *Use, const clang::Expr *Path);
  clang::SourceRange written(const clang::Expr *E);
};

/// Windows, images, plots.
class OutputFacts : public FileSubject {
public:
  /// Whether all processes come to the end of a path in a function.
  using ReachedByAll = std::function<bool(llvm::ArrayRef<const clang::Stmt *>,
                                          const clang::FunctionDecl *)>;

  OutputFacts(const Unit &U, Walk &W, ReachedByAll ByAll, const Cut &Cuts,
              std::vector<FileUse> &Files)
      : FileSubject(U, W, Files), ByAll(std::move(ByAll)), Cuts(Cuts) {}
  void namedCall(const clang::CallExpr *E, const clang::FunctionDecl *F,
                 llvm::StringRef Name) override;

private:
  bool answer(const clang::CallExpr *E);
  const clang::Expr *conditionAround(const clang::CallExpr *E) const;
  const clang::CXXForRangeStmt *folderLoop() const;
  bool doesNothingElse(const clang::CXXForRangeStmt *Loop) const;
  void guard(const clang::CallExpr *E, const std::string &What);
  void moves(const clang::CallExpr *E, const clang::Stmt *Statement,
             bool HasBlock);

  const ReachedByAll ByAll;
  const Cut &Cuts;
};

/// Metrics of evaluation loops.
class Evaluation : private Unit {
public:
  Evaluation(const Unit &U, const Cut &Cuts) : Unit(U), Cuts(Cuts) {}
  void add() {
    for (const auto &[Loop, Facts] : Index.Loops)
      addGathers(Facts);
  }

private:
  void addGathers(const BatchLoop &Loop);

  const Cut &Cuts;
};

/// Memory of tensors that is read.
class Memory : private Unit {
public:
  Memory(const Unit &U, const Cut &Cuts) : Unit(U), Cuts(Cuts) {}
  void add(const clang::FunctionDecl *F);

private:
  /// Where parameters are in parts; made when it is first asked for.
  const Cut &Divided();

  /// Whether the program writes into any tensor.
  bool TensorsAreWritten();

  void noteWritten(const clang::Expr *Tensor);

  const Cut &Cuts;
  std::optional<Cut> WithParameters;
  std::optional<bool> AnyWritten;
  bool WrittenIsSaid = false;
};

/// Whether the memory that `Path` ends with (a pointer, an accessor) is only
/// read in `Body`, the function's: also through variables that keep it, as long
/// as nothing behind them may change tensors. "No" where that is not certain.
bool isMemoryOnlyRead(llvm::ArrayRef<const clang::Stmt *> Path,
                      const clang::Stmt *Body, const ProgramIndex &Index);

/// Whether the memory that `Path` ends with is kept beyond the expression: in a
/// variable, by an object that is made of it, by whoever is returned it.
bool isMemoryKept(llvm::ArrayRef<const clang::Stmt *> Path);

/// Whether it is then returned, or put into what is there already.
bool isMemoryGivenAway(llvm::ArrayRef<const clang::Stmt *> Path);

/// x.grad(), x.grad().view({-1})
bool readsGradient(const clang::Expr *E);

/// Whether something in `Body` writes into a tensor, other than into its
/// gradient.
bool writesTensors(const clang::Stmt *Body);

/// Whether something in `Body` may write into the tensor that `V` names.
bool isWrittenInPlace(const clang::VarDecl *V, const clang::Stmt *Body);

/// Where processes wait for each other because of files: around what the main
/// process makes or takes away, before folders that are asked for, and for files that
/// the program may not have written yet.
void addFileWaits(const Unit &U, llvm::MutableArrayRef<FileUse> Files);

/// Whether an expression, or a function's body (`InFunction`), may be evaluated
/// on one process alone: it changes nothing that the program sees, but files,
/// and draws nothing.
bool leavesNoTrace(const clang::Stmt *S, const ProgramIndex &Index,
                   std::set<const clang::FunctionDecl *> &Seen,
                   bool InFunction);

/// Whether a stream's mode reads, or writes; both where it is not known.
void modeOf(const clang::Expr *Mode, const clang::ASTContext &Context,
            bool &Reads, bool &Writes);

/// Files that a function opens to read and to write them.
std::vector<FileUse> updatedFiles(const clang::FunctionDecl *F,
                                  const clang::ASTContext &Context);
/// The functions of the person's own that do so and nothing else that the
/// program sees: canonical declarations.
std::set<const clang::FunctionDecl *>
outputFunctions(const ProgramIndex &Index);

/// The places where the program's functions are called and named.
class CallSites {
public:
  struct Site {
    const clang::FunctionDecl *Caller;
    const clang::Expr *Call;
    llvm::ArrayRef<const clang::Expr *> Args;
  };
  explicit CallSites(const ProgramIndex &Index);

  llvm::ArrayRef<Site> of(const clang::FunctionDecl *F) const;
  /// Whether it is named for nothing but calls.
  bool isOnlyCalled(const clang::FunctionDecl *F) const;

private:
  std::map<const clang::FunctionDecl *, std::vector<Site>> Sites;
  std::map<const clang::FunctionDecl *, unsigned> Names;
};

/// std::ofstream, std::ifstream, std::fstream.
bool isFileStream(const clang::CXXRecordDecl *D);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_LEAVES_LEAVES_H
