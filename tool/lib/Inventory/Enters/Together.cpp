//===- Together.cpp - Tensors that belong together ------------------------===//

#include "Together.h"
#include "Returned.h"
#include "Sizes.h"

#include "Code/AstVisitor.h"
#include "Code/Closures.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// A function of LibTorch's that calculates with all of what it is given, or one of the
/// standard library's that reads nothing of it.
static bool calculates(const CallExpr *Call) {
  static const llvm::StringSet<> Handles = {"tie", "get", "get_if",
                                            "holds_alternative"};
  const FunctionDecl *F = Call->getDirectCallee();
  return (F && isTorch(F) && !givesMemory(F) && nameOf(F) != "item" &&
          F->getOverloadedOperator() != OO_Subscript) ||
         Handles.count(stdNameOf(F)) || modelCallOf(Call);
}

bool accel::migrate::isNamed(const Expr *E, const ValueDecl *V) {
  E = plain(E);
  if (const auto *M = dyn_cast<MemberExpr>(E);
      M && isa<FieldDecl>(M->getMemberDecl()) && isTensor(M->getType()))
    E = plain(M->getBase());
  return V && declNamedBy(E) == V;
}

namespace {
class Calculated {
public:
  Calculated(const ValueDecl *V, const ProgramIndex &Index, unsigned Depth)
      : V(V), Index(Index), Depth(Depth) {}

  bool only(const Stmt *S) const {
    if (!S)
      return true;
    if (const auto *Call = dyn_cast<CallExpr>(S)) {
      const auto *Member = dyn_cast<CXXMemberCallExpr>(Call);
      if (calculates(Call))
        return llvm::all_of(Call->arguments(),
                            [&](const Expr *Arg) { return isGivenWhole(Arg); }) &&
               (!Member || isGivenWhole(Member->getImplicitObjectArgument()));
      if (isGivenOn(Call))
        return llvm::all_of(Call->children(), [&](const Stmt *Child) {
          const auto *Arg = dyn_cast_or_null<Expr>(Child);
          return (Arg && isNamed(Arg, V)) || only(Child);
        });
    }
    // What else there is in a struct: how long it is, names.
    if (const auto *M = dyn_cast<MemberExpr>(S);
        M && isa<FieldDecl>(M->getMemberDecl()) && !holdsTensors(M->getType()) &&
        isNamed(M->getBase(), V))
      return true;
    // if (auto *a = std::get_if<A>(&batch))
    if (const auto *Cast = dyn_cast<CastExpr>(S);
        Cast && Cast->getCastKind() == CK_PointerToBoolean)
      return true;
    if (const auto *Ref = dyn_cast<DeclRefExpr>(S))
      return Ref->getDecl() != V;
    // What it captures says nothing of what it does with that.
    if (const auto *L = dyn_cast<LambdaExpr>(S))
      return only(bodyOf(L));
    return llvm::all_of(S->children(),
                        [&](const Stmt *Child) { return only(Child); });
  }

private:
  /// What such a function is given: the variable, also in a list, or something
  /// else.
  bool isGivenWhole(const Stmt *S) const {
    if (!S)
      return true;
    const auto *E = dyn_cast<Expr>(S);
    if (E && isNamed(E, V))
      return true;
    if (!E || isa<CallExpr, LambdaExpr>(S))
      return only(S);
    return llvm::all_of(S->children(), [&](const Stmt *Child) {
      return isGivenWhole(Child);
    });
  }

  /// Whether the program's functions that a call runs are given the variable, and
  /// only calculate with it.
  bool isGivenOn(const CallExpr *Call) const {
    constexpr unsigned Most = 4;
    const FunctionDecl *F = Call->getDirectCallee();
    llvm::SmallVector<const FunctionDecl *, 2> Bodies(Index.callablesOf(Call));
    if (Bodies.empty() && F && !isLibrary(F))
      Bodies = Index.ownBodiesOf(F);
    if (Bodies.empty() || Depth == Most)
      return false;
    const llvm::ArrayRef<const Expr *> Args = passedBy(Call);
    for (unsigned I = 0; I < Args.size(); ++I)
      if (isNamed(Args[I], V))
        for (const FunctionDecl *Body : Bodies) {
          if (I >= Body->getNumParams())
            return false;
          const ParmVarDecl *P = Body->getParamDecl(I);
          if (P->getType()->isPointerType() ||
              isWritableReference(P->getType()) ||
              !isOnlyCalculatedWith(P, Body->getBody(), Index, Depth + 1))
            return false;
        }
    return true;
  }

  const ValueDecl *V;
  const ProgramIndex &Index;
  const unsigned Depth;
};
} // namespace

bool accel::migrate::isOnlyCalculatedWith(const ValueDecl *V, const Stmt *S,
                                          const ProgramIndex &Index,
                                          unsigned Depth) {
  return Calculated(V, Index, Depth).only(S);
}

bool accel::migrate::selectsRows(const Expr *E) {
  static const llvm::StringSet<> Names = {
      "slice", "narrow", "index",  "index_select",
      "take",  "select", "gather", "masked_select"};
  return Names.count(torchNameOf(calleeOf(E)));
}

/// Whether an index takes all of its dimension: `Slice()`, `"..."`.
static bool takesAll(const Expr *E) {
  E = E->IgnoreUnlessSpelledInSource();
  if (isa<StringLiteral>(E))
    return true;
  const auto *Made = dyn_cast<CXXConstructExpr>(E);
  return Made && qualifiedName(Made->getConstructor()->getParent()) ==
                     "at::indexing::Slice" &&
         llvm::all_of(Made->arguments(), [](const Expr *Arg) {
           return isa<CXXDefaultArgExpr>(Arg);
         });
}

bool accel::migrate::selectsOfEachRow(const Expr *E, const ASTContext &Context) {
  const auto *Call = dyn_cast<CallExpr>(plain(E));
  if (!Call || !selectsRows(Call))
    return false;
  const unsigned First = isa<CXXMemberCallExpr>(Call) ? 0 : 1;
  if (First >= Call->getNumArgs())
    return false;
  const Expr *At = Call->getArg(First);
  if (torchNameOf(Call) == "index") {
    const InitListExpr *List = listIn(At);
    return List && List->getNumInits() > 1 && takesAll(List->getInit(0));
  }
  const std::optional<int64_t> Dim = constantOf(At, Context);
  return Dim && *Dim != 0;
}

std::string accel::migrate::selectionOf(const Expr *E, SourceText &Text) {
  std::string Result;
  bool Selects = false;
  for (unsigned Depth = 0; E && Depth < 8; ++Depth) {
    E = plain(E);
    const auto *Call = dyn_cast<CXXMemberCallExpr>(E);
    const llvm::StringRef Name = torchNameOf(Call);
    if (Name.empty())
      break;
    Selects |= selectsRows(E);
    Result += "." + Name.str() + "(";
    for (const Expr *Arg : Call->arguments())
      if (!isa<CXXDefaultArgExpr>(Arg))
        Result += Text.text(Arg->getSourceRange()) + ",";
    Result += ")";
    E = Call->getImplicitObjectArgument();
  }
  return Selects && rootOf(E) ? Result : "";
}

std::set<const VarDecl *> accel::migrate::variablesNamedIn(const Stmt *S) {
  std::set<const VarDecl *> Found;
  eachIn<DeclRefExpr>(S, [&](const DeclRefExpr *E) {
    if (const auto *V = dyn_cast<VarDecl>(E->getDecl()))
      Found.insert(V);
  });
  return Found;
}

std::vector<const VarDecl *>
accel::migrate::tensorsBeside(const Expr *Init, const FunctionDecl *F) {
  // Those of the block in which the value is given to one.
  std::vector<const VarDecl *> Variables;
  eachIn<CompoundStmt>(F->getBody(), [&](const CompoundStmt *Block) {
    std::vector<const VarDecl *> Here;
    bool IsThis = false;
    for (const Stmt *Each : Block->body())
      if (const auto *D = dyn_cast<DeclStmt>(Each))
        for (const Decl *Declared : D->decls())
          if (const auto *V = dyn_cast<VarDecl>(Declared);
              V && V->getInit() && isTensor(V->getType())) {
            IsThis |= plain(V->getInit()) == Init;
            Here.push_back(V);
          }
    if (IsThis)
      Variables = std::move(Here);
  });
  return Variables;
}

llvm::SmallVector<const ValueDecl *, 4>
accel::migrate::variablesOf(const CallExpr *Call, const FunctionDecl *F) {
  llvm::SmallVector<const ValueDecl *, 4> Found;
  eachIn<Stmt>(F->getBody(), [&](const Stmt *S) {
    if (const auto *O = dyn_cast<CXXOperatorCallExpr>(S))
      if (const std::optional<Tied> All = tiedOf(O); All && All->Call == Call)
        llvm::append_range(Found, All->Variables);
    // auto &[x, y] = kept(): another value is none that it can refer to.
    const auto *Parts = dyn_cast_or_null<DecompositionDecl>(declaredBy(S));
    if (Parts && plain(Parts->getInit()) == Call &&
        !isWritableReference(Parts->getType()))
      llvm::append_range(Found, Parts->bindings());
  });
  return Found;
}
