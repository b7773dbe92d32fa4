//===- FileOrder.cpp - Files that are written and read ----------------------===//

#include "Leaves.h"

#include "Code/AstVisitor.h"
#include "Code/Closures.h"
#include "Code/TorchTypes.h"


using namespace accel::migrate;
using namespace clang;

namespace {

/// What is known of a path's text.
struct PathText {
  std::string Begin, End; ///< Literal beginning and end; may be empty.
  bool Whole = false;     ///< All of it is known, and is `Begin`.
};

/// A place where a function is called.
struct CallSite {
  const FunctionDecl *Caller;
  const Expr *Call;
  std::vector<const Expr *> Args;
};

/// The places where each function is called.
class CallSites : public AstVisitor {
public:
  explicit CallSites(const ProgramIndex &Index) {
    for (const FunctionDecl *F : Index.Functions) {
      Caller = F;
      TraverseStmt(F->getBody());
    }
  }
  llvm::ArrayRef<CallSite> of(const FunctionDecl *F) {
    return Found[F->getCanonicalDecl()];
  }

  bool VisitCallExpr(CallExpr *E) override {
    if (const FunctionDecl *F = E->getDirectCallee())
      add(F, E, {E->arg_begin(), E->arg_end()});
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    add(E->getConstructor(), E, {E->arg_begin(), E->arg_end()});
    return true;
  }

private:
  void add(const FunctionDecl *F, const Expr *E, std::vector<const Expr *> Args) {
    Found[F->getCanonicalDecl()].push_back({Caller, E, std::move(Args)});
  }

  const FunctionDecl *Caller = nullptr;
  std::map<const FunctionDecl *, std::vector<CallSite>> Found;
};

class Finder {
public:
  explicit Finder(const ProgramIndex &Index) : Index(Index) {}

  std::vector<PathText> textsOf(const Expr *E, const FunctionDecl *In,
                                unsigned Depth);
  /// The statements of main, by number, that come to `E`; false: not known.
  bool positions(const Expr *E, const FunctionDecl *In, std::set<size_t> &At,
                 unsigned Depth);
  /// The same, of a use; for what a data set reads, those that load batches.
  bool positions(const FileUse &Use, std::set<size_t> &At);

  /// Whether the processes meet behind the last of `First` and before the first
  /// of `Then`: an optimizer is prepared there, or a loop trains; or a backward
  /// stands before `Use`, in the same statement of main.
  bool meetBetween(const std::set<size_t> &First, const std::set<size_t> &Then,
                   const Expr *Use) const;

  /// What is written there may be read by a data set without a meeting in between;
  /// `Behind`: the statement of main that it is written in, if all can wait behind
  /// it.
  bool loadsBehind(const std::set<size_t> &Written, const Stmt *&Behind) const;

private:
  llvm::ArrayRef<CallSite> callsOf(const FunctionDecl *F) {
    if (!Calls)
      Calls.emplace(Index);
    return Calls->of(F);
  }

  const ProgramIndex &Index;
  std::optional<CallSites> Calls; ///< Made when they are first asked for.
};

/// Whether `E` stands in `S`.
bool holds(const Stmt *S, const Expr *E) {
  return existsIn(S, [&](const Stmt *Part) {
    const auto *L = dyn_cast<LambdaExpr>(Part);
    return Part == E || (L && holds(bodyOf(L), E));
  });
}

bool isInLambda(const Stmt *S, const Expr *E) {
  return existsIn(S, [&](const Stmt *Part) {
    const auto *L = dyn_cast<LambdaExpr>(Part);
    return L && holds(bodyOf(L), E);
  });
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
      for (const CallSite &At : callsOf(In))
        llvm::append_range(All, I < At.Args.size()
                                    ? textsOf(At.Args[I], At.Caller, Depth + 1)
                                    : Unknown);
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
    for (const Stmt *S : In->getBody()->children()) {
      if (holds(S, E)) {
        At.insert(Number);
        return !isInLambda(S, E); // That is called somewhere else.
      }
      ++Number;
    }
    return false;
  }
  const llvm::ArrayRef<CallSite> Sites = callsOf(In);
  return !Sites.empty() && llvm::all_of(Sites, [&](const CallSite &Site) {
    return positions(Site.Call, Site.Caller, At, Depth + 1);
  });
}

bool Finder::positions(const FileUse &Use, std::set<size_t> &At) {
  if (!Use.InSamples)
    return positions(Use.Use, Use.In, At, 0);
  if (!Index.Main)
    return false;
  size_t Number = 0;
  for (const Stmt *S : Index.Main->getBody()->children()) {
    if (Index.holdsBatches(S))
      At.insert(Number);
    ++Number;
  }
  return !At.empty();
}

bool Finder::meetBetween(const std::set<size_t> &First,
                         const std::set<size_t> &Then, const Expr *Use) const {
  if (!Index.Main || First.empty() || Then.empty())
    return false;
  size_t Number = 0;
  for (const Stmt *S : Index.Main->getBody()->children()) {
    if (Number > *First.rbegin() && Number < *Then.begin()) {
      if (Index.holdsBatches(S))
        return true;
      if (const auto *D = dyn_cast<DeclStmt>(S))
        for (const Decl *Each : D->decls())
          if (const auto *V = dyn_cast<VarDecl>(Each);
              V && optimizerOf(V->getType()))
            return true;
    }
    if (Number == *Then.begin() && Then.size() == 1 &&
        Number > *First.rbegin() && Use && holds(S, Use) &&
        llvm::any_of(Index.Backwards, [&](const BackwardCall &B) {
          return holds(S, B.Call) &&
                 Index.Context.getSourceManager().isBeforeInTranslationUnit(
                     B.Call->getExprLoc(), Use->getExprLoc());
        }))
      return true;
    ++Number;
  }
  return false;
}

namespace {
/// Whether a statement comes to `Use`, through the functions that it calls.
class Comes : public AstVisitor {
public:
  Comes(const ProgramIndex &Index, const FileUse &Use)
      : Index(Index), Use(Use) {}
  bool to(const Stmt *S) {
    if (holds(S, Use.Use))
      return true;
    TraverseStmt(const_cast<Stmt *>(S));
    return Found;
  }
  bool VisitCallExpr(CallExpr *E) override { return enter(E->getDirectCallee()); }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    return enter(E->getConstructor());
  }

private:
  bool enter(const FunctionDecl *F) {
    if (!F)
      return true;
    for (const FunctionDecl *Body : Index.bodiesOf(F)) {
      if (!Seen.insert(Body).second)
        continue;
      Found |= Body->getCanonicalDecl() == Use.In->getCanonicalDecl();
      // A function of a header's has no files of the program's.
      if (!Found && !Index.Context.getSourceManager().isInSystemHeader(
                        Body->getLocation()))
        TraverseStmt(Body->getBody());
    }
    return !Found;
  }

  const ProgramIndex &Index;
  const FileUse &Use;
  std::set<const FunctionDecl *> Seen;
  bool Found = false;
};

/// A use, and where it stands.
struct Placed {
  FileUse *Use;
  std::vector<PathText> Texts;
  std::set<size_t> At;
  bool Known;

  /// Whether another process reads, or asks, here.
  bool isRead() const {
    return !Use->Writes && !Use->IsSave && !Use->Moved && !Use->IsQuiet &&
           !Use->MakesFolder;
  }
};

std::vector<Placed> place(Finder &F, llvm::MutableArrayRef<FileUse> Uses) {
  std::vector<Placed> Result;
  for (FileUse &Use : Uses) {
    Placed P{&Use, {PathText()}, {}, false};
    if (Use.Path)
      P.Texts = F.textsOf(Use.Path, Use.In, 0);
    P.Known = F.positions(Use, P.At);
    Result.push_back(std::move(P));
  }
  return Result;
}
} // namespace

/// Whether `Path` may be in the folder `Folder`, or below it.
static bool mayBeBelow(const PathText &Folder, const PathText &Path) {
  const llvm::StringRef A(Folder.Begin), B(Path.Begin);
  return B.starts_with(A) ||
         (A.starts_with(B) && !(Folder.Whole && Path.Whole));
}

static bool mayBeOfOneFile(const Placed &A, const Placed &B) {
  return llvm::any_of(A.Texts, [&](const PathText &X) {
    return llvm::any_of(B.Texts, [&](const PathText &Y) {
      return mayBeOne(X, Y) || (A.Use->Below && mayBeBelow(X, Y)) ||
             (B.Use->Below && mayBeBelow(Y, X));
    });
  });
}

/// Whether the processes must agree on what they find at `Read`, where main
/// writes at `W`.
static bool mayMeet(const Finder &F, const Placed &Read, const Placed &W) {
  if (!mayBeOfOneFile(Read, W))
    return false;
  if (!W.Known || !Read.Known)
    return !W.Use->IsSave || !Read.Use->IsLoad;
  // Everything is read before anything is written, and between the two the
  // processes meet.
  if (F.meetBetween(Read.At, W.At, W.Use->Use))
    return false;
  // All wait behind what is saved.
  return !W.Use->IsSave ||
         (!Read.Use->IsLoad && *Read.At.begin() <= *W.At.rbegin());
}

/// Whether both are known to be the same file.
static bool isOneFile(const Placed &A, const Placed &B) {
  return llvm::any_of(A.Texts, [&](const PathText &X) {
    return llvm::any_of(B.Texts, [&](const PathText &Y) {
      return X.Whole && Y.Whole && X.Begin == Y.Begin;
    });
  });
}

/// The same where a data set reads, which cannot wait. What `torch::save` writes
/// is no text or image: who does not name that file reads another one. All wait
/// behind one that is loaded later, and samples that were loaded before belong to
/// steps in which the processes have met since.
static bool mayLoad(const Finder &F, const Placed &Read, const Placed &W,
                    const Stmt *&Behind) {
  if (W.Use->IsSave && !W.Use->InSamples &&
      (Read.Use->IsLoad || !isOneFile(Read, W)))
    return false;
  if (!mayBeOfOneFile(Read, W) ||
      !F.loadsBehind(W.Known ? W.At : std::set<size_t>(), Behind))
    return false;
  // A log or a model with a name of its own, which is written while samples are loaded:
  // data whose names come from a list are others. Were they written in an earlier step,
  // the processes have met since.
  const auto HasName = [](const PathText &Text) { return !Text.Begin.empty(); };
  return Behind || !W.Known || isOneFile(Read, W) ||
         !llvm::all_of(W.Texts, HasName) || llvm::any_of(Read.Texts, HasName);
}

bool Finder::loadsBehind(const std::set<size_t> &Written,
                         const Stmt *&Behind) const {
  Behind = nullptr;
  if (!Index.Main || Written.empty())
    return true;
  size_t Number = 0;
  for (const Stmt *S : Index.Main->getBody()->children()) {
    if (Number == *Written.rbegin())
      Behind = S;
    if (Number >= *Written.begin() && Index.holdsBatches(S)) {
      if (Number > *Written.rbegin())
        return !meetBetween(Written, {Number}, nullptr);
      Behind = nullptr; // It is written while samples are loaded.
      return true;
    }
    ++Number;
  }
  return false;
}

/// Questions that code depends on which waits, at one of `Waiting`, are quiet no
/// more: all must have come to it. False where there was none.
static bool agree(const ProgramIndex &Index,
                  llvm::MutableArrayRef<FileUse> Uses,
                  llvm::ArrayRef<const FileUse *> Waiting) {
  bool Changed = false;
  for (FileUse &Asked : Uses)
    if (Asked.IsQuiet && llvm::any_of(Waiting, [&](const FileUse *Use) {
          return Comes(Index, *Use).to(Asked.AskedIn);
        })) {
      Asked.IsQuiet = false;
      Changed = true;
    }
  return Changed;
}

std::vector<ReadBack>
accel::migrate::findReadBacks(const ProgramIndex &Index,
                              llvm::MutableArrayRef<FileUse> Uses) {
  auto MayWrite = [&](const FileUse &Use) {
    return (Use.Writes || Use.IsSave) && Index.isReached(Use.In);
  };
  std::vector<ReadBack> Result;
  if (llvm::none_of(Uses, MayWrite))
    return Result;
  Finder F(Index);
  const std::vector<Placed> All = place(F, Uses);
  std::vector<const FileUse *> Waiting;
  do {
    Result.clear();
    Waiting.clear();
    for (const Placed &Read : All) {
      if (!Read.isRead() || (Read.Use->Below && !Read.Use->Argument))
        continue;
      for (const Placed &W : All) {
        if (!MayWrite(*W.Use))
          continue;
        ReadBack Pair{W.Use, Read.Use};
        if (Read.Use->InSamples ? mayLoad(F, Read, W, Pair.Behind)
                                : mayMeet(F, Read, W)) {
          Result.push_back(Pair);
          Waiting.push_back(W.Use);
          if (!Read.Use->InSamples)
            break;
        }
      }
    }
  } while (agree(Index, Uses, Waiting));
  return Result;
}

namespace {
/// Whether a use may come before another one, and behind it, without a meeting in
/// between.
struct Order {
  bool First = true, Then = true;
};
} // namespace

static Order orderOf(const Finder &F, const Placed &Read, const Placed &Move,
                     const SourceManager &SM) {
  Order Result;
  if (!Move.Known || !Read.Known)
    return Result;
  Result.First = *Read.At.begin() <= *Move.At.rbegin();
  Result.Then = *Read.At.rbegin() >= *Move.At.begin();
  // In the text of main, which runs once, one stands before the other.
  if (Result.First && Result.Then && Move.Use->In->isMain() &&
      Read.Use->In == Move.Use->In && !Move.Use->InLoop && !Read.Use->InLoop) {
    Result.First = SM.isBeforeInTranslationUnit(Read.Use->Use->getExprLoc(),
                                                Move.Use->Use->getExprLoc());
    Result.Then = !Result.First;
  }
  Result.First &= !F.meetBetween(Read.At, Move.At, Move.Use->Use);
  Result.Then &= !F.meetBetween(Move.At, Read.At, Read.Use->Use);
  return Result;
}

static MoveWaits waitsAt(const ProgramIndex &Index, const Finder &F,
                         const Placed &Move, llvm::ArrayRef<Placed> All) {
  const SourceManager &SM = Index.Context.getSourceManager();
  MoveWaits Result{Move.Use, false, false};
  for (const Placed &Read : All) {
    if (!(Read.isRead() || Read.Use->MakesFolder) ||
        !Index.isReached(Read.Use->In))
      continue;
    if (!mayBeOfOneFile(Move, Read))
      continue;
    const bool Decides =
        Read.Use->AskedIn && Comes(Index, *Move.Use).to(Read.Use->AskedIn);
    const auto [First, Then] = orderOf(F, Read, Move, SM);
    Result.Before |= First && (Move.Use->TakesAway || Decides);
    Result.Behind |= Then && !Decides;
  }
  return Result;
}

std::vector<MoveWaits>
accel::migrate::findMoveWaits(const ProgramIndex &Index,
                              llvm::MutableArrayRef<FileUse> Uses) {
  auto IsMove = [&](const FileUse &Use) {
    return Use.Moved && Index.isReached(Use.In);
  };
  std::vector<MoveWaits> Result;
  if (llvm::none_of(Uses, IsMove))
    return Result;
  Finder F(Index);
  const std::vector<Placed> All = place(F, Uses);
  std::vector<const FileUse *> Waiting;
  do {
    Result.clear();
    Waiting.clear();
    for (const Placed &Move : All)
      if (IsMove(*Move.Use))
        if (MoveWaits W = waitsAt(Index, F, Move, All); W.Before || W.Behind) {
          Result.push_back(W);
          Waiting.push_back(Move.Use);
        }
  } while (agree(Index, Uses, Waiting));
  return Result;
}

/// `if (!exists(folder)) create_directories(folder);`: who finds it made has nothing to
/// do.
static bool onlyMakesFolder(const IfStmt *If) {
  if (!If || If->getElse())
    return false;
  const Stmt *Then = If->getThen();
  if (const auto *Block = dyn_cast<CompoundStmt>(Then))
    Then = Block->size() == 1 ? Block->body_front() : nullptr;
  const auto *E = dyn_cast_or_null<Expr>(Then);
  const FunctionDecl *F = E ? calleeOf(plain(E)) : nullptr;
  return F && makesFolder(F);
}

/// `if (!exists(data)) return 1;` in main, or an exception: nobody goes on with that
/// answer.
static bool endsProgram(const IfStmt *If, const FunctionDecl *In) {
  if (!If || If->getElse())
    return false;
  const Stmt *Last = If->getThen();
  if (const auto *Block = dyn_cast<CompoundStmt>(Last))
    Last = Block->body_empty() ? nullptr : Block->body_back();
  return (In->isMain() && isa_and_nonnull<ReturnStmt>(Last)) || neverReturns(Last);
}

std::vector<const FileUse *>
accel::migrate::findFolderWaits(const ProgramIndex &Index,
                                llvm::MutableArrayRef<FileUse> Uses) {
  std::vector<const FileUse *> Result;
  auto Makes = [&](const FileUse &Use) {
    return Use.MakesFolder && !Use.InSamples && Index.isReached(Use.In);
  };
  if (llvm::none_of(Uses, Makes))
    return Result;
  Finder F(Index);
  const std::vector<Placed> All = place(F, Uses);
  for (const Placed &Made : All) {
    if (!Makes(*Made.Use))
      continue;
    // A folder is made with those around it.
    auto Concerns = [&](const Placed &Asked) {
      return mayBeOfOneFile(Made, Asked) ||
             llvm::any_of(Asked.Texts, [&](const PathText &X) {
               return llvm::any_of(Made.Texts, [&](const PathText &Y) {
                 return mayBeBelow(X, Y);
               });
             });
    };
    if (llvm::any_of(All, [&](const Placed &Asked) {
          return (Asked.Use->Asks || (Asked.Use->Below && Asked.isRead())) &&
                 Index.isReached(Asked.Use->In) &&
                 !onlyMakesFolder(Asked.Use->AskedIn) &&
                 !endsProgram(Asked.Use->AskedIn, Asked.Use->In) &&
                 Concerns(Asked) &&
                 orderOf(F, Asked, Made, Index.Context.getSourceManager()).First;
        }))
      Result.push_back(Made.Use);
  }
  return Result;
}
