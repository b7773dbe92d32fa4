//===- SampleState.cpp - Data sets that change with each sample -----------===//

#include "SampleState.h"

#include "Code/AstVisitor.h"
#include "Code/Closures.h"
#include "Code/ProgramIndex.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringSet.h"

#include <map>
#include <vector>

using namespace accel::migrate;
using namespace clang;

namespace {

/// The calls of the program's functions by what loads samples: what a reference that they
/// are given stands for.
using CallsOf =
    std::map<const FunctionDecl *, llvm::SmallVector<const CallExpr *, 2>>;

class ChangeFinder : public AstVisitor {
public:
  /// `OnlyShared`: only what others than the data set see, through a pointer, a
  /// reference, a global variable or a tensor. `Depth`: of methods that are called on
  /// such; any of their object's fields counts.
  ChangeFinder(const CallsOf &Calls, bool OnlyShared, unsigned Depth = 0)
      : Calls(Calls), OnlyShared(OnlyShared), Depth(Depth) {}
  const Expr *Found = nullptr;

  /// The first change in `Body`; null where there is none.
  static const Expr *firstIn(const Stmt *Body, const CallsOf &Calls,
                             bool OnlyShared, unsigned Depth = 0) {
    ChangeFinder Finder(Calls, OnlyShared, Depth);
    Finder.TraverseStmt(const_cast<Stmt *>(Body));
    return Finder.Found;
  }

  // x.mul_(0.9), visits.index_put_({i}, 1), seen->push_back(i), meter.note(i)
  bool VisitCXXMemberCallExpr(CXXMemberCallExpr *E) override {
    const CXXMethodDecl *M = E->getMethodDecl();
    if (!M || !M->getIdentifier())
      return true;
    const Expr *Object = E->getImplicitObjectArgument();
    if (isTorch(M))
      add(E, isTensor(E->getObjectType()) && namesInPlace(M->getName()) &&
                 isKept(Object));
    else if (isInStd(M))
      add(E, (changesShared(M->getName()) && isSeen(Object)) ||
                 (!OnlyShared && changesOrder(M) && isKept(Object)));
    else
      add(E, !M->isConst() && !M->isStatic() && isSeen(Object) && mayChange(M));
    return !Found;
  }
  // rows[i] = x, rows += 1; another tensor in a field is none of these. state->rows =
  // rows, ++calls of an atomic.
  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    const bool Counts = E->getOperator() == OO_PlusPlus ||
                        E->getOperator() == OO_MinusMinus;
    if (!E->isAssignmentOp() && !Counts)
      return true;
    const Expr *To = E->getArg(0);
    if (isTensor(To->getType())) {
      const auto *Of = dyn_cast<CXXOperatorCallExpr>(To->IgnoreImplicit());
      add(E, isKept(To) && (E->getOperator() != OO_Equal ||
                            (Of && isTensor(Of->getArg(0)->getType()))));
    }
    add(E, isSeen(To) || (Counts && !OnlyShared && isKept(To)));
    return !Found;
  }
  // ++calls, sum += x, sum = sum + x, and numbers[i] = x by a pointer or a reference.
  bool VisitBinaryOperator(BinaryOperator *E) override {
    if (!E->isAssignmentOp())
      return true;
    const Expr *To = E->getLHS();
    if (E->getType()->isArithmeticType() && !OnlyShared)
      add(E, E->isCompoundAssignmentOp() || isNamedIn(ownerOf(To), E->getRHS())
                 ? isKept(To)
                 : isByAnotherName(To));
    add(E, isSeen(To));
    return !Found;
  }
  bool VisitUnaryOperator(UnaryOperator *E) override {
    if (E->isIncrementDecrementOp())
      add(E, isSeen(E->getSubExpr()) ||
                 (!OnlyShared && E->getType()->isArithmeticType() &&
                  isKept(E->getSubExpr())));
    return !Found;
  }
  // std::swap(a, b)
  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    if (F && isInStd(F) && E->getNumArgs() == 2 &&
        (nameOf(F) == "swap" || nameOf(F) == "exchange"))
      add(E, isSeen(E->getArg(0)) || (!OnlyShared && isKept(E->getArg(0))));
    return !Found;
  }

private:
  const CallsOf &Calls;
  const bool OnlyShared;
  const unsigned Depth;

  /// Whether what is written to `E` is seen by others: in a method that is called on
  /// what they see, any field.
  bool isSeen(const Expr *E) const {
    return isShared(E) ||
           (Depth > 0 &&
            (isKept(E) || isa<CXXThisExpr>(E->IgnoreUnlessSpelledInSource())));
  }
  /// Whether a method changes its object, as far as it can be seen.
  bool mayChange(const CXXMethodDecl *M) const {
    const FunctionDecl *Body = nullptr;
    constexpr unsigned Most = 4;
    return M->isVirtual() || !M->hasBody(Body) || Depth >= Most ||
           firstIn(Body->getBody(), Calls, OnlyShared, Depth + 1);
  }
  void add(const Expr *E, bool IsChange) {
    if (IsChange && !Found)
      Found = E;
  }

  /// A method of a container or of an atomic that changes it.
  static bool changesShared(llvm::StringRef Name) {
    static const llvm::StringSet<> Names = {
        "assign",     "push_back",   "emplace_back", "push_front",  "emplace_front",
        "insert",     "emplace",     "clear",        "resize",      "erase",
        "pop_back",   "pop_front",   "push",         "pop",         "fill",
        "swap",       "try_emplace", "append",       "fetch_add",   "fetch_sub",
        "store",      "exchange",    "insert_or_assign"};
    return Names.count(Name);
  }
  /// The same of one that the data set has for itself, where it matters which samples
  /// came before: not a cache's entry for a key.
  static bool changesOrder(const CXXMethodDecl *M) {
    static const llvm::StringSet<> OfMaps = {"insert", "emplace", "try_emplace",
                                             "insert_or_assign", "resize", "assign"};
    const llvm::StringRef Of = M->getParent()->getName();
    const bool IsSet = Of.ends_with("set");
    return changesShared(M->getName()) && (IsSet || !OfMaps.count(M->getName()));
  }
  /// Whether others see what is written to `E`: behind a pointer or a reference that the
  /// data set keeps, or global.
  bool isShared(const Expr *E, unsigned Through = 0) const {
    bool Behind = false;
    constexpr unsigned Most = 32;
    for (unsigned I = 0; E && I < Most; ++I) {
      E = E->IgnoreUnlessSpelledInSource();
      if (const auto *Ref = dyn_cast<DeclRefExpr>(E)) {
        const auto *V = dyn_cast<VarDecl>(Ref->getDecl());
        if (!V)
          return false;
        // What a lambda has of the function around it.
        if ((V->hasGlobalStorage() && !V->isStaticLocal()) ||
            Ref->refersToEnclosingVariableOrCapture())
          return true;
        if (!V->getType()->isReferenceType() && !Behind)
          return false;
        if (const auto *P = dyn_cast<ParmVarDecl>(V))
          return isGivenShared(P, Through);
        // auto &state = *state_; auto *state = state_.get();
        E = V->getInit();
      } else if (const auto *M = dyn_cast<MemberExpr>(E)) {
        const Expr *Base = M->getBase()->IgnoreUnlessSpelledInSource();
        const auto *Static = dyn_cast<VarDecl>(M->getMemberDecl());
        Behind |= Static || M->getMemberDecl()->getType()->isReferenceType();
        if (Static || isa<CXXThisExpr>(Base))
          return Behind;
        Behind |= M->isArrow();
        E = Base;
      } else if (const auto *A = dyn_cast<ArraySubscriptExpr>(E)) {
        Behind |= !A->getBase()->IgnoreParenImpCasts()->getType()->isArrayType();
        E = A->getBase();
      } else if (const auto *U = dyn_cast<UnaryOperator>(E)) {
        Behind |= U->getOpcode() == UO_Deref;
        E = U->getSubExpr();
      } else if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E)) {
        if (!givesPlace(O))
          return false;
        Behind |= O->getOperator() != OO_Subscript;
        E = O->getArg(0);
      } else if (const auto *Call = dyn_cast<CallExpr>(E)) {
        // losses_.at(i), state_.get(), rows_of(i), Log::get()
        const FunctionDecl *F = Call->getDirectCallee();
        if (!F || !(F->getReturnType()->isReferenceType() ||
                    F->getReturnType()->isPointerType()))
          return false;
        const auto *Member = dyn_cast<CXXMemberCallExpr>(Call);
        if (!isInStd(F))
          return !isTorch(F);
        E = Member ? Member->getImplicitObjectArgument()
                   : Call->getNumArgs() > 0 ? Call->getArg(0) : nullptr;
      } else {
        return false;
      }
    }
    return false;
  }
  /// Whether a call gives the parameter what others see.
  bool isGivenShared(const ParmVarDecl *P, unsigned Through) const {
    const auto *F = dyn_cast<FunctionDecl>(P->getDeclContext());
    const auto Known = F ? Calls.find(F) : Calls.end();
    constexpr unsigned Most = 4;
    if (Known == Calls.end() || Through >= Most)
      return false;
    return llvm::any_of(Known->second, [&](const CallExpr *Call) {
      const unsigned At = P->getFunctionScopeIndex() +
                          (isa<CXXOperatorCallExpr>(Call) ? 1 : 0);
      if (At >= Call->getNumArgs())
        return false;
      const Expr *Arg = Call->getArg(At)->IgnoreUnlessSpelledInSource();
      if (const auto *Address = dyn_cast<UnaryOperator>(Arg);
          Address && Address->getOpcode() == UO_AddrOf)
        Arg = Address->getSubExpr();
      // A pointer that the data set keeps, or its own field.
      const auto *Kept = dyn_cast<MemberExpr>(Arg);
      return isShared(Arg, Through + 1) ||
             (Kept && (OnlyShared ? isPointer(Kept->getType()) : isKept(Kept)));
    });
  }
  static bool isPointer(QualType T) {
    const CXXRecordDecl *D = T->getAsCXXRecordDecl();
    return T->isPointerType() ||
           (D && D->isInStdNamespace() && D->getName().ends_with("_ptr"));
  }
  /// The variable or field that `E` is a part of, through views and pointers.
  static const ValueDecl *ownerOf(const Expr *E) {
    constexpr unsigned Most = 32;
    for (unsigned I = 0; E && I < Most; ++I) {
      E = E->IgnoreUnlessSpelledInSource();
      if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
        return Ref->getDecl();
      if (const auto *M = dyn_cast<MemberExpr>(E)) {
        const Expr *Base = M->getBase()->IgnoreUnlessSpelledInSource();
        if (isa<CXXThisExpr>(Base))
          return M->getMemberDecl();
        E = Base;
      } else if (const auto *A = dyn_cast<ArraySubscriptExpr>(E)) {
        E = A->getBase();
      } else if (const auto *U = dyn_cast<UnaryOperator>(E)) {
        E = U->getSubExpr();
      } else if (const auto *O = dyn_cast<BinaryOperator>(E)) {
        E = O->getLHS(); // p + i
      } else if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E)) {
        if (isCopy(Member->getMethodDecl()))
          return nullptr;
        E = Member->getImplicitObjectArgument();
      } else if (const auto *Call = dyn_cast<CallExpr>(E)) {
        const FunctionDecl *F = Call->getDirectCallee();
        const bool IsBlob = nameOf(F) == "from_blob" && isTorch(F);
        if (Call->getNumArgs() == 0 ||
            !(isa<CXXOperatorCallExpr>(Call) ? givesPlace(Call) : IsBlob))
          return nullptr;
        E = Call->getArg(0);
      } else {
        return nullptr;
      }
    }
    return nullptr;
  }
  static bool givesPlace(const CallExpr *Call) {
    const auto *O = cast<CXXOperatorCallExpr>(Call);
    return O->getOperator() == OO_Subscript || O->getOperator() == OO_Arrow ||
           (O->getOperator() == OO_Star && O->getNumArgs() == 1);
  }
  /// A method of a tensor whose result has memory of its own.
  static bool isCopy(const CXXMethodDecl *M) {
    static const llvm::StringSet<> Views = {
        "detach", "view",      "reshape", "flatten", "squeeze",  "unsqueeze",
        "select", "slice",     "narrow",  "t",       "transpose", "permute",
        "data",   "contiguous", "expand"};
    if (!M || !isTensor(M->getASTContext().getRecordType(M->getParent())))
      return false;
    return !M->getIdentifier() ||
           !(Views.count(M->getName()) || namesInPlace(M->getName()) ||
             givesMemory(M));
  }
  static bool isField(const ValueDecl *D) {
    const auto *V = dyn_cast_or_null<VarDecl>(D);
    return isa_and_nonnull<FieldDecl>(D) || (V && V->hasGlobalStorage());
  }
  /// Another name of what a field has: a tensor, a pointer, a reference.
  static const ValueDecl *namedBy(const VarDecl *V) {
    const QualType T = V->getType();
    const bool Shares = isTensor(T) || T->isPointerType() || T->isReferenceType();
    return Shares && V->isLocalVarDecl() && V->getInit() ? ownerOf(V->getInit())
                                                         : nullptr;
  }
  static bool isKept(const Expr *E) {
    const ValueDecl *D = ownerOf(E);
    constexpr unsigned Most = 4;
    for (unsigned I = 0; D && I < Most; ++I) {
      if (isField(D))
        return true;
      const auto *V = dyn_cast<VarDecl>(D);
      D = V ? namedBy(V) : nullptr;
    }
    return false;
  }
  static bool isByAnotherName(const Expr *E) {
    return !isField(ownerOf(E)) && isKept(E);
  }
};

} // namespace

/// Of a stateful data set one process reads all batches, and deals them out: what only
/// the data set has may change.
static bool isDealt(const FunctionDecl *F) {
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  return M && isOrDerives(M->getParent(), "torch::data::datasets::StatefulDataset");
}

const Expr *accel::migrate::changeBySamples(const ProgramIndex &Index) {
  std::vector<const FunctionDecl *> Loading;
  std::vector<const Stmt *> Lambdas; // Their bodies.
  CallsOf Calls;
  for (const FunctionDecl *F : Index.Functions) {
    eachIn<LambdaExpr>(F->getBody(), [&](const LambdaExpr *L) {
      if (Index.loadsSamples(L))
        Lambdas.push_back(bodyOf(L));
    });
    if (!Index.loadsSamples(F) || isa<CXXConstructorDecl>(F))
      continue;
    Loading.push_back(F);
    eachIn<CallExpr>(F->getBody(), [&](const CallExpr *E) {
      const FunctionDecl *Called = E->getDirectCallee(), *Body = nullptr;
      if (Called && Called->hasBody(Body))
        Calls[Body].push_back(E);
    });
  }
  // Helpers are the stateful data set's where there is no other.
  const bool AllDealt =
      llvm::any_of(Loading, isDealt) && Lambdas.empty() &&
      llvm::none_of(Loading, [](const FunctionDecl *F) {
        const auto *M = dyn_cast<CXXMethodDecl>(F);
        return M && !isDealt(F) &&
               isOrDerives(M->getParent(), "torch::data::datasets::BatchDataset");
      });
  for (const FunctionDecl *F : Loading)
    if (const Expr *Change = ChangeFinder::firstIn(F->getBody(), Calls,
                                                   AllDealt || isDealt(F)))
      return Change;
  for (const Stmt *Body : Lambdas)
    if (const Expr *Change =
            ChangeFinder::firstIn(Body, Calls, /*OnlyShared=*/true))
      return Change;
  return nullptr;
}
