//===- FileOrder.cpp - Where processes wait because of files --------------===//
//
// One process writes a file, all read: a file that the program wrote itself
// must be there, and whole, when another process opens it, and one that the
// program takes away must be there until all have read it.
//
//===----------------------------------------------------------------------===//

#include "Leaves.h"

#include "Code/AstVisitor.h"
#include "Code/Closures.h"
#include "Code/TorchTypes.h"

#include "llvm/Support/Path.h"

using namespace accel::migrate;
using namespace clang;

CallSites::CallSites(const ProgramIndex &Index) {
  for (const FunctionDecl *F : Index.Functions) {
    const auto Called = [&](const FunctionDecl *To, const auto *E) {
      Sites[To->getCanonicalDecl()].push_back(
          {F, E, {E->getArgs(), E->getNumArgs()}});
    };
    const auto Named = [&](const ValueDecl *D) {
      if (const auto *To = dyn_cast<FunctionDecl>(D))
        ++Names[To->getCanonicalDecl()];
    };
    eachIn<Expr>(F->getBody(), [&](const Expr *E) {
      if (const auto *Made = dyn_cast<CXXConstructExpr>(E))
        Called(Made->getConstructor(), Made);
      else if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
        Named(Ref->getDecl());
      else if (const auto *Member = dyn_cast<MemberExpr>(E))
        Named(Member->getMemberDecl());
      else if (const FunctionDecl *To = calleeOf(E))
        Called(To, cast<CallExpr>(E));
    });
  }
}

llvm::ArrayRef<CallSites::Site> CallSites::of(const FunctionDecl *F) const {
  const auto It = Sites.find(F->getCanonicalDecl());
  return It == Sites.end() ? llvm::ArrayRef<Site>()
                           : llvm::ArrayRef(It->second);
}

bool CallSites::isOnlyCalled(const FunctionDecl *F) const {
  const auto It = Names.find(F->getCanonicalDecl());
  return of(F).size() == (It == Names.end() ? 0 : It->second);
}

namespace {

/// What is known of a path's text.
struct PathText {
  std::string Begin, End; ///< Literal beginning and end; may be empty.
  bool Whole = false;     ///< All of it is known, and is `Begin`.
};

/// A use, and where it stands.
struct Placed {
  FileUse *Use;
  std::vector<PathText> Texts;
  std::set<size_t> At; ///< The statements of main, by number.
  bool Known;

  /// Whether another process reads, or asks, here.
  bool isRead() const {
    return !Use->Writes && !Use->IsSave && !Use->Moved && !Use->IsQuiet &&
           !Use->MakesFolder;
  }
};

/// Whether a use may come before another one, and behind it, without a meeting
/// in between.
struct Order {
  bool First = true, Then = true;
};

/// A use that may read the file that another use wrote.
struct ReadBack {
  const FileUse *Write;
  const FileUse *Read;
  /// For what is read in samples: the statement of main behind which all can
  /// wait for what is written; null where there is none.
  const Stmt *Behind = nullptr;
};

/// Where the processes have to wait for each other at a statement that moves
/// files: before it, since another one may read the file still, or ask whether
/// it is there, and behind it, since what is read then must be the new one, or
/// gone.
struct MoveWaits {
  const FileUse *Move;
  bool Before = false, Behind = false;
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

/// Whether `Path` may be in the folder `Folder`, or below it.
bool mayBeBelow(const PathText &Folder, const PathText &Path) {
  const llvm::StringRef A(Folder.Begin), B(Path.Begin);
  return B.starts_with(A) ||
         (A.starts_with(B) && !(Folder.Whole && Path.Whole));
}

/// Whether something holds for a text of one and a text of the other.
template <typename Holds>
bool anyOf(const Placed &A, const Placed &B, Holds H) {
  return llvm::any_of(A.Texts, [&](const PathText &X) {
    return llvm::any_of(B.Texts, [&](const PathText &Y) { return H(X, Y); });
  });
}

bool mayBeOfOneFile(const Placed &A, const Placed &B) {
  return anyOf(A, B, [&](const PathText &X, const PathText &Y) {
    return mayBeOne(X, Y) || (A.Use->Below && mayBeBelow(X, Y)) ||
           (B.Use->Below && mayBeBelow(Y, X));
  });
}

/// Whether both are known to be the same file.
bool isOneFile(const Placed &A, const Placed &B) {
  return anyOf(A, B, [](const PathText &X, const PathText &Y) {
    return X.Whole && Y.Whole && X.Begin == Y.Begin;
  });
}

/// Whether a statement declares an optimizer.
bool declaresOptimizer(const Stmt *S) {
  const auto *D = dyn_cast<DeclStmt>(S);
  return D && llvm::any_of(D->decls(), [](const Decl *Each) {
           const auto *V = dyn_cast<VarDecl>(Each);
           return V && optimizerOf(V->getType());
         });
}

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
  bool VisitCallExpr(CallExpr *E) override {
    return enter(E->getDirectCallee());
  }
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

/// `if (!exists(folder)) create_directories(folder);`: who finds it made has
/// nothing to do.
bool onlyMakesFolder(const IfStmt *If) {
  if (!If || If->getElse())
    return false;
  const Stmt *Then = If->getThen();
  if (const auto *Block = dyn_cast<CompoundStmt>(Then))
    Then = Block->size() == 1 ? Block->body_front() : nullptr;
  const auto *E = dyn_cast_or_null<Expr>(Then);
  const FunctionDecl *F = E ? calleeOf(plain(E)) : nullptr;
  return F && makesFolder(F);
}

/// `if (!exists(data)) return 1;` in main, or an exception: nobody goes on with
/// that answer.
bool endsProgram(const IfStmt *If, const FunctionDecl *In) {
  if (!If || If->getElse())
    return false;
  const Stmt *Last = If->getThen();
  if (const auto *Block = dyn_cast<CompoundStmt>(Last))
    Last = Block->body_empty() ? nullptr : Block->body_back();
  return (In->isMain() && isa_and_nonnull<ReturnStmt>(Last)) ||
         neverReturns(Last);
}

/// In which order the program comes to its uses of files. A question whether a
/// file is there stays quiet only where nobody waits who depends on its answer.
class FileOrder {
public:
  FileOrder(const ProgramIndex &Index, llvm::MutableArrayRef<FileUse> Uses)
      : Index(Index), SM(Index.Context.getSourceManager()) {
    // Where files are only read nobody waits.
    if (llvm::none_of(Uses, [](const FileUse &Use) {
          return Use.Writes || Use.IsSave || Use.Moved || Use.MakesFolder;
        }))
      return;
    Calls.emplace(Index);
    if (Index.Main)
      llvm::append_range(Main, Index.Main->getBody()->children());
    for (FileUse &Use : Uses) {
      Placed P{&Use, {PathText()}, {}, false};
      if (Use.Path)
        P.Texts = textsOf(Use.Path, Use.In, 0);
      P.Known = positions(Use, P.At);
      All.push_back(std::move(P));
    }
  }

  /// All uses that may read what another use wrote, or ask for what another use
  /// writes next, where it is not certain that the processes meet in between;
  /// each once, with one of the uses that write.
  std::vector<ReadBack> readBacks() {
    std::vector<ReadBack> Result;
    std::vector<const FileUse *> Waiting;
    do {
      Result.clear();
      Waiting.clear();
      for (const Placed &Read : All) {
        if (!Read.isRead() || (Read.Use->Below && !Read.Use->Argument))
          continue;
        for (const Placed &W : All) {
          if (!(W.Use->Writes || W.Use->IsSave) || !Index.isReached(W.Use->In))
            continue;
          ReadBack Pair{W.Use, Read.Use};
          if (Read.Use->InSamples ? mayLoad(Read, W, Pair.Behind)
                                  : mayMeet(Read, W)) {
            Result.push_back(Pair);
            Waiting.push_back(W.Use);
            if (!Read.Use->InSamples)
              break;
          }
        }
      }
    } while (agree(Waiting));
    return Result;
  }

  /// The statements at which somebody has to wait.
  std::vector<MoveWaits> moveWaits() {
    std::vector<MoveWaits> Result;
    std::vector<const FileUse *> Waiting;
    do {
      Result.clear();
      Waiting.clear();
      for (const Placed &Move : All) {
        if (!Move.Use->Moved || !Index.isReached(Move.Use->In))
          continue;
        if (const MoveWaits W = waitsAt(Move); W.Before || W.Behind) {
          Result.push_back(W);
          Waiting.push_back(Move.Use);
        }
      }
    } while (agree(Waiting));
    return Result;
  }

  /// Folders before which all have to wait: another process may ask whether
  /// they are there, and goes on as the answer says.
  std::vector<const FileUse *> folderWaits() const {
    std::vector<const FileUse *> Result;
    for (const Placed &Made : All)
      if (Made.Use->MakesFolder && !Made.Use->InSamples &&
          Index.isReached(Made.Use->In) && isAskedFor(Made))
        Result.push_back(Made.Use);
    return Result;
  }

private:
  std::vector<PathText> textsOf(const Expr *E, const FunctionDecl *In,
                                unsigned Depth) const {
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
        for (const CallSites::Site &At : Calls->of(In))
          llvm::append_range(All,
                             I < At.Args.size()
                                 ? textsOf(At.Args[I], At.Caller, Depth + 1)
                                 : Unknown);
        return All.empty() ? Unknown : All;
      }
      const auto *V = dyn_cast<VarDecl>(Ref->getDecl());
      if (V && V->getInit() &&
          (V->getType().isConstQualified() || V->getType()->isPointerType()))
        return textsOf(V->getInit(), In, Depth + 1);
      return Unknown;
    }
    if (const auto *M = dyn_cast<CXXMemberCallExpr>(E)) {
      const llvm::StringRef Name = nameOf(M->getMethodDecl());
      if (Name == "c_str" || Name == "data" || Name == "string")
        return textsOf(M->getImplicitObjectArgument(), In, Depth + 1);
    }
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

  /// The statements of main that come to `E`; false: not known.
  bool positions(const Expr *E, const FunctionDecl *In, std::set<size_t> &At,
                 unsigned Depth) const {
    if (!In || Depth > 8)
      return false;
    if (In->isMain()) {
      const auto It =
          llvm::find_if(Main, [&](const Stmt *S) { return holds(S, E); });
      if (It == Main.end())
        return false;
      At.insert(It - Main.begin());
      return !isInLambda(*It, E); // That is called somewhere else.
    }
    const llvm::ArrayRef<CallSites::Site> Sites = Calls->of(In);
    return !Sites.empty() && llvm::all_of(Sites, [&](const auto &Site) {
      return positions(Site.Call, Site.Caller, At, Depth + 1);
    });
  }

  /// The same, of a use; for what a data set reads, those that load batches.
  bool positions(const FileUse &Use, std::set<size_t> &At) const {
    if (!Use.InSamples)
      return positions(Use.Use, Use.In, At, 0);
    for (size_t I = 0; I < Main.size(); ++I)
      if (Index.holdsBatches(Main[I]))
        At.insert(I);
    return !At.empty();
  }

  /// Whether the processes meet behind the last of `First` and before the first
  /// of `Then`: an optimizer is prepared there, or a loop trains; or a backward
  /// stands before `Use`, in the same statement of main.
  bool meetBetween(const std::set<size_t> &First, const std::set<size_t> &Then,
                   const Expr *Use) const {
    if (First.empty() || Then.empty() || *First.rbegin() >= *Then.begin())
      return false;
    const Stmt *Last = Main[*Then.begin()];
    const auto Between = llvm::ArrayRef(Main).slice(
        *First.rbegin() + 1, *Then.begin() - *First.rbegin() - 1);
    return llvm::any_of(Between,
                        [&](const Stmt *S) {
                          return Index.holdsBatches(S) || declaresOptimizer(S);
                        }) ||
           (Then.size() == 1 && Use && holds(Last, Use) &&
            llvm::any_of(Index.Backwards, [&](const BackwardCall &B) {
              return holds(Last, B.Call) &&
                     SM.isBeforeInTranslationUnit(B.Call->getExprLoc(),
                                                  Use->getExprLoc());
            }));
  }

  /// What is written there may be read by a data set without a meeting in
  /// between; `Behind`: the statement of main that it is written in, if all can
  /// wait behind it.
  bool loadsBehind(const std::set<size_t> &Written, const Stmt *&Behind) const {
    Behind = nullptr;
    if (!Index.Main || Written.empty())
      return true;
    const size_t Last = *Written.rbegin();
    for (size_t I = *Written.begin(); I < Main.size(); ++I) {
      if (!Index.holdsBatches(Main[I]))
        continue;
      if (I <= Last)
        return true; // It is written while samples are loaded.
      Behind = Main[Last];
      return !meetBetween(Written, {I}, nullptr);
    }
    return false;
  }

  /// Whether the processes must agree on what they find at `Read`, where main
  /// writes at `W`.
  bool mayMeet(const Placed &Read, const Placed &W) const {
    if (!mayBeOfOneFile(Read, W))
      return false;
    if (!W.Known || !Read.Known)
      return !W.Use->IsSave || !Read.Use->IsLoad;
    // Everything is read before anything is written, and between the two the
    // processes meet.
    if (meetBetween(Read.At, W.At, W.Use->Use))
      return false;
    // All wait behind what is saved.
    return !W.Use->IsSave ||
           (!Read.Use->IsLoad && *Read.At.begin() <= *W.At.rbegin());
  }

  /// The same where a data set reads, which cannot wait. What `torch::save`
  /// writes is no text or image: who does not name that file reads another one.
  /// All wait behind one that is loaded later, and samples that were loaded
  /// before belong to steps in which the processes have met since.
  bool mayLoad(const Placed &Read, const Placed &W, const Stmt *&Behind) const {
    if (W.Use->IsSave && !W.Use->InSamples &&
        (Read.Use->IsLoad || !isOneFile(Read, W)))
      return false;
    if (!mayBeOfOneFile(Read, W) ||
        !loadsBehind(W.Known ? W.At : std::set<size_t>(), Behind))
      return false;
    // A log or a model with a name of its own, which is written while samples
    // are loaded: data whose names come from a list are others. Were they
    // written in an earlier step, the processes have met since.
    const auto HasName = [](const PathText &Text) {
      return !Text.Begin.empty();
    };
    return Behind || !W.Known || isOneFile(Read, W) ||
           !llvm::all_of(W.Texts, HasName) || llvm::any_of(Read.Texts, HasName);
  }

  Order orderOf(const Placed &Read, const Placed &Move) const {
    Order Result;
    if (!Move.Known || !Read.Known)
      return Result;
    Result.First = *Read.At.begin() <= *Move.At.rbegin();
    Result.Then = *Read.At.rbegin() >= *Move.At.begin();
    // In the text of main, which runs once, one stands before the other.
    if (Result.First && Result.Then && Move.Use->In->isMain() &&
        Read.Use->In == Move.Use->In && !Move.Use->InLoop &&
        !Read.Use->InLoop) {
      Result.First = SM.isBeforeInTranslationUnit(Read.Use->Use->getExprLoc(),
                                                  Move.Use->Use->getExprLoc());
      Result.Then = !Result.First;
    }
    Result.First &= !meetBetween(Read.At, Move.At, Move.Use->Use);
    Result.Then &= !meetBetween(Move.At, Read.At, Read.Use->Use);
    return Result;
  }

  MoveWaits waitsAt(const Placed &Move) const {
    MoveWaits Result{Move.Use};
    for (const Placed &Read : All) {
      if (!(Read.isRead() || Read.Use->MakesFolder) ||
          !Index.isReached(Read.Use->In) || !mayBeOfOneFile(Move, Read))
        continue;
      const bool Decides =
          Read.Use->AskedIn && Comes(Index, *Move.Use).to(Read.Use->AskedIn);
      const auto [First, Then] = orderOf(Read, Move);
      Result.Before |= First && (Move.Use->TakesAway || Decides);
      Result.Behind |= Then && !Decides;
    }
    return Result;
  }

  /// Whether another process may ask for a folder before it is made, and goes
  /// on as the answer says. A folder is made with those around it.
  bool isAskedFor(const Placed &Made) const {
    return llvm::any_of(All, [&](const Placed &Asked) {
      const bool Concerns =
          mayBeOfOneFile(Made, Asked) || anyOf(Asked, Made, mayBeBelow);
      return (Asked.Use->Asks || (Asked.Use->Below && Asked.isRead())) &&
             Concerns && Index.isReached(Asked.Use->In) &&
             !onlyMakesFolder(Asked.Use->AskedIn) &&
             !endsProgram(Asked.Use->AskedIn, Asked.Use->In) &&
             orderOf(Asked, Made).First;
    });
  }

  /// Questions that code depends on which waits, at one of `Waiting`, are quiet
  /// no more: all must have come to it. False where there was none.
  bool agree(llvm::ArrayRef<const FileUse *> Waiting) {
    bool Changed = false;
    for (const Placed &Asked : All)
      if (Asked.Use->IsQuiet && llvm::any_of(Waiting, [&](const FileUse *Use) {
            return Comes(Index, *Use).to(Asked.Use->AskedIn);
          })) {
        Asked.Use->IsQuiet = false;
        Changed = true;
      }
    return Changed;
  }

  const ProgramIndex &Index;
  const SourceManager &SM;
  std::optional<CallSites> Calls;
  std::vector<const Stmt *> Main; ///< Its statements.
  std::vector<Placed> All;
};

} // namespace

/// Whether there is a wait already: the statement before may end with one.
static bool waitsThere(const TrainingProgram &Program, const LinePoint &Point) {
  auto IsThere = [&](const LinePoint &Other) {
    return Other.At.File == Point.At.File && Other.At.Offset == Point.At.Offset;
  };
  return llvm::any_of(Program.Saves,
                      [&](const SaveFact &Save) {
                        return Save.ReadLater && IsThere(Save.After);
                      }) ||
         llvm::any_of(Program.Guards,
                      [&](const GuardFact &Guard) {
                        return Guard.After && IsThere(*Guard.After);
                      }) ||
         llvm::any_of(Program.FileWaits, [&](const FileWaitFact &Wait) {
           return IsThere(Wait.At);
         });
}

static void addWait(const Unit &U, FunctionId In, BodyPoint At,
                    const char *Why) {
  if (!waitsThere(U.Program, At.Top))
    U.Program.FileWaits.push_back(
        {In, std::move(At.Top), Why, std::move(At.Close)});
}

/// All wait before a folder is made that somebody asks for.
static void addFolderWaits(const Unit &U, const FileOrder &Order) {
  for (const FileUse *Made : Order.folderWaits()) {
    if (!U.Text.mayEdit(Made->Use->getExprLoc()))
      continue;
    std::optional<BodyPoint> Point;
    if (Made->Makes && !Made->HasBlock)
      Point = U.Text.bodyTop(Made->Makes);
    else if (Made->Makes)
      if (std::optional<LinePoint> Before = U.Text.before(Made->Makes))
        Point = BodyPoint{std::move(*Before), std::nullopt};
    if (!Point)
      U.say(
          "ACL0226", Made->Use->getExprLoc(),
          "a folder is made for which another process may ask later, and goes "
          "on as if it had been there before",
          "Put the call into a block of its own, in braces.");
    else
      addWait(U, Made->Here, std::move(*Point),
              "all have asked whether the folder is there");
  }
}

/// Waits around statements of the main process that make files or take them
/// away.
static void addMoveWaits(const Unit &U, FileOrder &Order) {
  for (const MoveWaits &W : Order.moveWaits()) {
    const std::optional<TextRange> At =
        U.Text.range(W.Move->Moved->getSourceRange());
    if (!At) { // A macro's text.
      U.say(
          "ACL0226", W.Move->Use->getExprLoc(),
          "a macro makes a file, or takes one away, which other processes may "
          "read meanwhile, and they cannot wait there",
          "Write it out, as a statement in a block.");
      continue;
    }
    // Where its answer is used, all are told behind it.
    const auto IsThere = [&](const GuardFact &Guard) {
      return Guard.Range.File == At->File && Guard.Range.Offset == At->Offset;
    };
    if (W.Before && llvm::none_of(U.Program.Guards, IsThere))
      if (std::optional<LinePoint> Before = U.Text.before(W.Move->Moved))
        addWait(U, W.Move->Here, {std::move(*Before), std::nullopt},
                "the file goes when all have read it");
    for (GuardFact &Guard : U.Program.Guards) {
      if (!IsThere(Guard))
        continue;
      if (W.Move->HasBlock) {
        if (W.Before)
          Guard.Before = U.Text.before(W.Move->Moved);
        if (Guard.Before && waitsThere(U.Program, *Guard.Before))
          Guard.Before.reset();
        if (W.Behind)
          Guard.After = U.Text.after(W.Move->Moved);
      } else if (std::optional<BodyPoint> Body =
                     U.Text.bodyTop(W.Move->Moved)) {
        Guard.Before = std::move(Body->Top);
        Guard.Close = Body->Close;
        Guard.WaitsBehind |= W.Behind;
      }
      break;
    }
  }
}

/// "line 12", with the file where `Beside` stands in another one.
static std::string lineOf(const Unit &U, const Expr *E, const Expr *Beside) {
  const SourceManager &SM = U.Text.SM;
  const SourceLocation At = SM.getExpansionLoc(E->getExprLoc());
  std::string Line = "line " + std::to_string(SM.getSpellingLineNumber(At));
  if (SM.getFileID(At) !=
      SM.getFileID(SM.getExpansionLoc(Beside->getExprLoc())))
    Line += " of '" + llvm::sys::path::filename(SM.getFilename(At)).str() + "'";
  return Line;
}

/// Files that are read where the program may not have written them yet.
static void addReadBacks(const Unit &U, FileOrder &Order) {
  for (const ReadBack &Found : Order.readBacks()) {
    if (!U.Text.mayEdit(Found.Write->Use->getExprLoc()))
      continue;
    if (Found.Behind) {
      if (std::optional<LinePoint> Point = U.Text.after(Found.Behind))
        addWait(U, U.Functions.of(U.Index.Main),
                {std::move(*Point), std::nullopt},
                "data sets read files that are written until here");
      continue;
    }
    if (const std::optional<Spelled> &Path = Found.Read->Argument) {
      U.Program.Edits.push_back({EditKind::ReadPath, Path->In, Path->Range});
      continue;
    }
    U.say("ACL0226", Found.Read->Use->getExprLoc(),
          "this may read a file that the main process writes in " +
              lineOf(U, Found.Write->Use, Found.Read->Use) +
              ", before it is written",
          "Close the file, call accelerator.wait_for_everyone() on all "
          "processes, and read it then.");
    break;
  }
}

void accel::migrate::addFileWaits(const Unit &U,
                                  llvm::MutableArrayRef<FileUse> Files) {
  FileOrder Order(U.Index, Files);
  // May find that a question whether a file is there has to be agreed on.
  addMoveWaits(U, Order);
  addFolderWaits(U, Order);
  addReadBacks(U, Order);
}
