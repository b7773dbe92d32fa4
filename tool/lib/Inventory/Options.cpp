//===- Options.cpp - Options as they are spelled --------------------------===//

#include "Options.h"

#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

static bool isOptions(const CXXRecordDecl *D) {
  return D && D->getIdentifier() && isTorch(D) &&
         (D->getName().ends_with("Options") ||
          D->getName().ends_with("OptionsBase"));
}

/// The names of an options class's constructor parameters are those of the
/// options.
static bool addConstruction(OptionSet &Set, const CXXConstructExpr *E) {
  const CXXConstructorDecl *C = E->getConstructor();
  for (unsigned I = 0; I < E->getNumArgs(); ++I) {
    const Expr *Arg = E->getArg(I);
    if (isa<CXXDefaultArgExpr>(Arg))
      continue;
    std::string Name;
    if (I < C->getNumParams())
      Name = C->getParamDecl(I)->getNameAsString();
    // LibTorch spells constructor parameters as the option, or `option_`.
    if (!Name.empty() && Name.back() == '_')
      Name.pop_back();
    Set.Given.push_back({Name, Arg});
  }
  return true;
}

static bool collect(OptionSet &Set, const Expr *E, const ASTContext &Context) {
  E = plain(E);
  if (const auto *Cast = dyn_cast<CXXFunctionalCastExpr>(E))
    E = plain(Cast->getSubExpr());
  if (const auto *Call = dyn_cast<CXXMemberCallExpr>(E)) {
    const CXXMethodDecl *M = Call->getMethodDecl();
    if (!M || !isOptions(recordOf(Call->getObjectType())))
      return false;
    if (!collect(Set, Call->getImplicitObjectArgument(), Context))
      return false;
    if (Call->getNumArgs() == 1)
      Set.Given.push_back({M->getNameAsString(), Call->getArg(0)});
    return true;
  }
  if (const auto *Ref = dyn_cast<DeclRefExpr>(E)) {
    // A variable that cannot change after it is made.
    const auto *V = dyn_cast<VarDecl>(Ref->getDecl());
    return V && V->getType().isConstQualified() && V->getInit() &&
           collect(Set, V->getInit(), Context);
  }
  if (const auto *Made = dyn_cast<CXXConstructExpr>(E)) {
    const CXXRecordDecl *D = Made->getConstructor()->getParent();
    if (isOptions(D)) {
      // From another options class: SoftmaxFuncOptions(SoftmaxOptions(1)).
      if (Made->getNumArgs() == 1 &&
          isOptions(recordOf(plain(Made->getArg(0))->getType())))
        return collect(Set, Made->getArg(0), Context);
      return addConstruction(Set, Made);
    }
    // A module or its holder.
    if (!moduleOf(Made->getType()))
      return false;
    unsigned Given = 0;
    for (const Expr *Arg : Made->arguments())
      Given += !isa<CXXDefaultArgExpr>(Arg);
    if (Given == 0) {
      for (const Expr *Arg : Made->arguments())
        (void)Arg;
      return true;
    }
    if (Given == 1) {
      const Expr *Arg = plain(Made->getArg(0));
      if (moduleOf(Arg->getType()))
        return false; // A module from elsewhere.
      if (isOptions(recordOf(Arg->getType())))
        return collect(Set, Arg, Context);
      if (isa<CXXNullPtrLiteralExpr>(Arg->IgnoreParenImpCasts()))
        return true; // Model{nullptr}: made elsewhere.
    }
    // Softmax(1), Linear(2, 3): the arguments of the options' constructor,
    // whose parameters the holder's forwarding constructor does not name.
    const CXXRecordDecl *Impl = moduleOf(Made->getType());
    for (const CXXConstructorDecl *C : Impl->ctors())
      if (C->getNumParams() >= Given && Given > 0 &&
          !isOptions(recordOf(C->getParamDecl(0)->getType())) &&
          !C->isCopyOrMoveConstructor()) {
        for (unsigned I = 0; I < Given; ++I)
          Set.Given.push_back(
              {C->getParamDecl(I)->getNameAsString(), Made->getArg(I)});
        return true;
      }
    if (Given == 1) {
      // SoftmaxImpl(int64_t dim) : SoftmaxImpl(SoftmaxOptions(dim))
      Set.Given.push_back({"dim", Made->getArg(0)});
      return true;
    }
    return false;
  }
  return false;
}

std::optional<OptionSet> accel::migrate::optionsOf(const Expr *E,
                                                   const ASTContext &Context) {
  OptionSet Set;
  if (!E || !collect(Set, E, Context))
    return std::nullopt;
  return Set;
}

std::string accel::migrate::enumeratorOf(const Expr *E) {
  while (E) {
    E = bare(E);
    if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
      return Ref->getDecl()->getNameAsString();
    const auto *Made = dyn_cast<CXXConstructExpr>(E);
    if (!Made || Made->getNumArgs() == 0)
      return "";
    E = Made->getArg(0);
  }
  return "";
}
