//===- FileOrder.cpp - Files that are written and read ----------------------===//

#include "Leaves.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"


using namespace accel::migrate;
using namespace clang;

namespace {

/// What is known of a path's text.
struct PathText {
  std::string Begin, End; ///< Literal beginning and end; may be empty.
  bool Whole = false;     ///< All of it is known, and is `Begin`.
};

/// The places where a function is called.
class CallSites : public AstVisitor {
public:
  explicit CallSites(const FunctionDecl *F) : F(F->getCanonicalDecl()) {}
  bool VisitCallExpr(CallExpr *E) override {
    if (E->getDirectCallee() && E->getDirectCallee()->getCanonicalDecl() == F)
      Found.push_back({E, {E->arg_begin(), E->arg_end()}});
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    if (E->getConstructor()->getCanonicalDecl() == F)
      Found.push_back({E, {E->arg_begin(), E->arg_end()}});
    return true;
  }
  std::vector<std::pair<const Expr *, std::vector<const Expr *>>> Found;

private:
  const FunctionDecl *F;
};

class Finder {
public:
  explicit Finder(const ProgramIndex &Index) : Index(Index) {}

  std::vector<PathText> textsOf(const Expr *E, const FunctionDecl *In,
                                unsigned Depth);
  /// The statements of main, by number, that come to `E`; false: not known.
  bool positions(const Expr *E, const FunctionDecl *In, std::set<size_t> &At,
                 unsigned Depth);

  /// Whether the processes meet behind the last of `First` and before the first
  /// of `Then`: an optimizer is prepared there, or a loop trains.
  bool meetBetween(const std::set<size_t> &First,
                   const std::set<size_t> &Then) const;

private:
  const ProgramIndex &Index;
};

/// Whether `E` stands in `S`.
bool holds(const Stmt *S, const Expr *E) {
  if (S == E)
    return true;
  if (!S)
    return false;
  if (const auto *L = dyn_cast<LambdaExpr>(S))
    return holds(L->getBody(), E);
  for (const Stmt *Child : S->children())
    if (holds(Child, E))
      return true;
  return false;
}

bool mayBeOne(const PathText &A, const PathText &B) {
  auto Ends = [](llvm::StringRef X, llvm::StringRef Y) {
    return X.ends_with(Y) || Y.ends_with(X);
  };
  auto Begins = [](llvm::StringRef X, llvm::StringRef Y) {
    return X.starts_with(Y) || Y.starts_with(X);
  };
  if (A.Whole && B.Whole)
    return A.Begin == B.Begin;
  return Ends(A.Whole ? A.Begin : A.End, B.Whole ? B.Begin : B.End) &&
         Begins(A.Begin, B.Begin);
}

} // namespace

std::vector<PathText> Finder::textsOf(const Expr *E, const FunctionDecl *In,
                                      unsigned Depth) {
  E = bare(E);
  const std::vector<PathText> Unknown = {PathText()};
  if (!E || Depth > 6)
    return Unknown;
  if (const auto *L = dyn_cast<StringLiteral>(E)) {
    if (L->getCharByteWidth() != 1)
      return Unknown;
    llvm::StringRef Text = L->getString();
    while (Text.consume_front("./"))
      ;
    return {{Text.str(), Text.str(), true}};
  }
  if (const auto *Ref = dyn_cast<DeclRefExpr>(E)) {
    if (const auto *P = dyn_cast<ParmVarDecl>(Ref->getDecl())) {
      if (P->getType()->isReferenceType() &&
          !P->getType()->getPointeeType().isConstQualified())
        return Unknown;
      std::vector<PathText> All;
      const unsigned I = P->getFunctionScopeIndex();
      for (const FunctionDecl *Caller : Index.Functions) {
        CallSites Sites(In);
        Sites.TraverseStmt(Caller->getBody());
        for (const auto &[Call, Args] : Sites.Found)
          llvm::append_range(All, I < Args.size()
                                      ? textsOf(Args[I], Caller, Depth + 1)
                                      : Unknown);
      }
      return All.empty() ? Unknown : All;
    }
    const auto *V = dyn_cast<VarDecl>(Ref->getDecl());
    if (V && V->getInit() &&
        (V->getType().isConstQualified() ||
         V->getType()->isPointerType()))
      return textsOf(V->getInit(), In, Depth + 1);
    return Unknown;
  }
  if (const auto *M = dyn_cast<CXXMemberCallExpr>(E))
    if (const CXXMethodDecl *D = M->getMethodDecl();
        D && D->getIdentifier() &&
        (D->getName() == "c_str" || D->getName() == "data" ||
         D->getName() == "string"))
      return textsOf(M->getImplicitObjectArgument(), In, Depth + 1);
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E);
      O && O->getNumArgs() == 2 &&
      (O->getOperator() == OO_Plus || O->getOperator() == OO_Slash)) {
    std::vector<PathText> All;
    const char *Between = O->getOperator() == OO_Slash ? "/" : "";
    for (const PathText &A : textsOf(O->getArg(0), In, Depth + 1))
      for (const PathText &B : textsOf(O->getArg(1), In, Depth + 1)) {
        PathText T;
        T.Whole = A.Whole && B.Whole;
        T.Begin = A.Whole ? A.Begin + Between + B.Begin : A.Begin;
        T.End = B.Whole ? (A.Whole ? T.Begin : Between + B.Begin) : B.End;
        All.push_back(std::move(T));
        if (All.size() > 64)
          return Unknown;
      }
    return All;
  }
  // std::string("x"), std::filesystem::path("x")
  if (const auto *Made = dyn_cast<CXXConstructExpr>(E);
      Made && Made->getNumArgs() >= 1 && isInStd(Made->getConstructor()))
    return textsOf(Made->getArg(0), In, Depth + 1);
  return Unknown;
}

bool Finder::positions(const Expr *E, const FunctionDecl *In,
                       std::set<size_t> &At, unsigned Depth) {
  if (!In || Depth > 8)
    return false;
  if (In->isMain()) {
    size_t Number = 0;
    for (const Stmt *S : cast<CompoundStmt>(In->getBody())->body()) {
      if (holds(S, E)) {
        At.insert(Number);
        return true;
      }
      ++Number;
    }
    return false;
  }
  bool Called = false;
  for (const FunctionDecl *Caller : Index.Functions) {
    CallSites Sites(In);
    Sites.TraverseStmt(Caller->getBody());
    for (const auto &[Call, Args] : Sites.Found) {
      Called = true;
      if (!positions(Call, Caller, At, Depth + 1))
        return false;
    }
  }
  return Called;
}

bool Finder::meetBetween(const std::set<size_t> &First,
                         const std::set<size_t> &Then) const {
  if (!Index.Main || First.empty() || Then.empty())
    return false;
  size_t Number = 0;
  for (const Stmt *S : cast<CompoundStmt>(Index.Main->getBody())->body()) {
    if (Number > *First.rbegin() && Number < *Then.begin()) {
      if (Index.holdsBatches(S))
        return true;
      if (const auto *D = dyn_cast<DeclStmt>(S))
        for (const Decl *Each : D->decls())
          if (const auto *V = dyn_cast<VarDecl>(Each);
              V && optimizerOf(V->getType()))
            return true;
    }
    ++Number;
  }
  return false;
}

std::vector<ReadBack>
accel::migrate::findReadBacks(const ProgramIndex &Index,
                              llvm::ArrayRef<FileUse> Uses) {
  struct Written {
    const FileUse *Use;
    std::vector<PathText> Texts;
    std::set<size_t> At;
    bool Known;
  };
  Finder F(Index);
  std::vector<Written> Writes;
  for (const FileUse &Use : Uses)
    if (Use.Writes && Index.isReached(Use.In)) {
      Written W{&Use, F.textsOf(Use.Path, Use.In, 0), {}, false};
      W.Known = F.positions(Use.Use, Use.In, W.At, 0);
      Writes.push_back(std::move(W));
    }
  std::vector<ReadBack> Result;
  for (const FileUse &Read : Uses) {
    if (Read.Writes || Writes.empty())
      continue;
    const std::vector<PathText> Texts = F.textsOf(Read.Path, Read.In, 0);
    std::set<size_t> ReadAt;
    const bool ReadKnown = F.positions(Read.Use, Read.In, ReadAt, 0);
    for (const Written &W : Writes) {
      const bool One = llvm::any_of(Texts, [&](const PathText &R) {
        return llvm::any_of(
            W.Texts, [&](const PathText &Text) { return mayBeOne(R, Text); });
      });
      // Everything is read before anything is written, and between the two the
      // processes meet.
      if (!One || (W.Known && ReadKnown && F.meetBetween(ReadAt, W.At)))
        continue;
      Result.push_back({W.Use, &Read});
      break;
    }
  }
  return Result;
}

void accel::migrate::addReadBacks(const Unit &U, llvm::ArrayRef<FileUse> Files) {
  for (const ReadBack &Found : findReadBacks(U.Index, Files)) {
    if (!U.Text.mayEdit(Found.Write->Use->getExprLoc()))
      continue;
    if (const std::optional<Spelled> &Path = Found.Read->Argument) {
      // A template's instantiations share one text.
      if (llvm::none_of(U.Program.ReadPaths, [&](const Spelled &Known) {
            return Known.Range.File == Path->Range.File &&
                   Known.Range.Offset == Path->Range.Offset;
          }))
        U.Program.ReadPaths.push_back(*Path);
      continue;
    }
    U.say("ACL0226", Found.Read->Use->getExprLoc(),
           "this may read a file that the main process writes in line " +
               std::to_string(U.Text.SM.getExpansionLineNumber(
                   Found.Write->Use->getExprLoc())) +
               ", before it is written",
           "Close the file, call accelerator.wait_for_everyone() on all "
           "processes, and read it then.");
    break;
  }
}
