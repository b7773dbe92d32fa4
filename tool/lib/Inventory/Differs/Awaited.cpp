//===- Awaited.cpp - Tasks that are waited for at once ------------------===//

#include "Awaited.h"

#include "Code/AstVisitor.h"
#include "Code/Quiet.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// What holds the future: `f`, `futures.back()`, `this->result`.
static const ValueDecl *holderOf(const Expr *E) {
  static const llvm::StringSet<> Elements = {"back", "front"};
  if (const auto *Call = dyn_cast<CXXMemberCallExpr>(plain(E)))
    if (const CXXMethodDecl *M = Call->getMethodDecl();
        Elements.count(nameOf(M)) && isInStd(M))
      E = Call->getImplicitObjectArgument();
  return placeOf(E);
}

/// The future that a call waits for: `f.get()`, `f.wait()`; or null.
static const Expr *awaitedIn(const Stmt *S) {
  const auto *Call = dyn_cast<CXXMemberCallExpr>(S);
  const CXXMethodDecl *M = Call ? Call->getMethodDecl() : nullptr;
  if ((nameOf(M) != "get" && nameOf(M) != "wait") || !isInStd(M))
    return nullptr;
  // Not std::unique_ptr<T>::get. The standard library derives from classes of its
  // own here (__basic_future).
  const CXXRecordDecl *Of = M->getParent();
  return nameOf(Of).contains("future") ? Call->getImplicitObjectArgument()
                                       : nullptr;
}

namespace {
enum class Then { GoesOn, Waits, Meets };
} // namespace

/// Whether the parts of a statement may not run, or not there.
static bool mayNotRun(const Stmt *S) {
  return decidesAboutParts(S) || isa<CXXTryStmt, LambdaExpr>(S);
}

static bool waitsFor(const Stmt *S, const ValueDecl *Holder) {
  const Expr *Awaited = awaitedIn(S);
  return Awaited && holderOf(Awaited) == Holder;
}

static bool holdsWait(const Stmt *S, const ValueDecl *Holder) {
  return existsIn(
      S, [&](const Stmt *Part) { return waitsFor(Part, Holder); });
}

/// What a statement does first: wait for `Holder`, or something that processes may
/// meet in, or that asks whether the task has ended (`f.wait_for(…)`).
static Then firstIn(const Stmt *S, const ValueDecl *Holder, const Quiet &Quiet) {
  if (waitsFor(S, Holder))
    return Then::Waits;
  if (!holdsWait(S, Holder)) {
    const bool IsName = isa<DeclRefExpr>(S); // which is no operation
    return !isNamedIn(Holder, S) && (IsName || Quiet.is(S)) ? Then::GoesOn
                                                         : Then::Meets;
  }
  if (mayNotRun(S))
    return Then::Meets;
  Then Does = Then::GoesOn;
  for (const Stmt *Part : S->children())
    if (Part && Does != Then::Meets)
      if (const Then Next = firstIn(Part, Holder, Quiet); Next != Then::GoesOn)
        Does = Next;
  return Does;
}

namespace {
/// The calls of a function, with what stands around them.
class StartCalls : public AstAncestorVisitor {
public:
  StartCalls(const FunctionDecl *F, const ProgramIndex &Index, unsigned Depth)
      : F(F), Index(Index), Depth(Depth) {}

  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *To = E->getDirectCallee();
    if (To && !isLibrary(To) && llvm::is_contained(Index.ownBodiesOf(To), F)) {
      Any = true;
      AllWait = AllWait && isAwaitedAtOnce(Path, In, Index, Depth);
    }
    return true;
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    // Taken as a value, and called nobody knows where.
    const auto *Parent =
        Path.size() > 2 ? dyn_cast<CallExpr>(Path[Path.size() - 3]) : nullptr;
    const bool Called = Parent && plain(Parent->getCallee()) == E;
    if (E->getDecl()->getCanonicalDecl() == F->getCanonicalDecl() && !Called)
      AllWait = false;
    return true;
  }

  const FunctionDecl *In = nullptr;
  bool Any = false, AllWait = true;

private:
  const FunctionDecl *F;
  const ProgramIndex &Index;
  const unsigned Depth;
};
} // namespace

bool accel::migrate::isAwaitedAtOnce(llvm::ArrayRef<const Stmt *> Path,
                                     const FunctionDecl *In,
                                     const ProgramIndex &Index,
                                     unsigned Depth) {
  constexpr unsigned Most = 4; // They may call each other.
  if (Path.empty() || Depth > Most)
    return false;
  const ValueDecl *Holder = nullptr;
  for (size_t I = Path.size() - 1; I-- > 0;) {
    const Stmt *S = Path[I];
    if (awaitedIn(S))
      return true; // std::async(…).get()
    if (isa<ReturnStmt>(S)) {
      // Of a closure, whose callers are not looked for?
      if (!In || llvm::any_of(Path.take_front(I), [](const Stmt *Around) {
            return isa<LambdaExpr>(Around);
          }))
        return false;
      StartCalls Calls(In, Index, Depth + 1);
      for (const FunctionDecl *F : Index.Functions) {
        Calls.In = F;
        if (F != In)
          Calls.TraverseStmt(F->getBody());
      }
      return Calls.Any && Calls.AllWait;
    }
    if (const auto *D = dyn_cast<DeclStmt>(S)) {
      if (!D->isSingleDecl())
        return false;
      Holder = dyn_cast<VarDecl>(D->getSingleDecl());
    } else if (const auto *Call = dyn_cast<CXXMemberCallExpr>(S)) {
      // futures.push_back(std::async(…))
      Holder = placeOf(Call->getImplicitObjectArgument());
    } else if (const auto *O = dyn_cast<CXXOperatorCallExpr>(S);
               O && O->getOperator() == OO_Equal) {
      Holder = placeOf(O->getArg(0));
    } else if (const auto *Block = dyn_cast<CompoundStmt>(S)) {
      const llvm::ArrayRef Statements(Block->body_begin(), Block->size());
      const auto *At = llvm::find(Statements, Path[I + 1]);
      if (!Holder) // What is deferred and not asked for does not run at all.
        return false;
      const Quiet Quiet(Index);
      for (const Stmt *Next : llvm::make_range(At + 1, Statements.end()))
        if (const Then Does = firstIn(Next, Holder, Quiet); Does != Then::GoesOn)
          return Does == Then::Waits;
      return false;
    } else if (mayNotRun(S)) {
      return false;
    }
  }
  return false;
}
