//===- ExactTypes.cpp - Who asks for an optimizer's very class ------------===//

#include "ExactTypes.h"
#include "HeldOptimizers.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

#include "clang/AST/DeclTemplate.h"

#include <set>

using namespace accel::migrate;
using namespace clang;

/// A class that an optimizer has which takes part; null for the base class.
static const CXXRecordDecl *exactClass(QualType T) {
  const CXXRecordDecl *D = recordOf(T);
  return D && D->getIdentifier() && D->getName() != "Optimizer" &&
                 optimizerOf(T) && canTakePart(D)
             ? D
             : nullptr;
}

static const CXXRecordDecl *firstOf(llvm::ArrayRef<TemplateArgument> Args) {
  for (const TemplateArgument &Arg : Args)
    if (Arg.getKind() == TemplateArgument::Type)
      if (const CXXRecordDecl *D = exactClass(Arg.getAsType()))
        return D;
  return nullptr;
}

/// std::is_same of one optimizer's class, twice.
static const CXXRecordDecl *sameClass(llvm::StringRef Name,
                                      llvm::ArrayRef<TemplateArgument> Args) {
  const CXXRecordDecl *D =
      (Name == "is_same" || Name == "is_same_v") && Args.size() == 2
          ? firstOf(Args.take_front())
          : nullptr;
  return D && D == firstOf(Args.drop_front()) ? D : nullptr;
}

namespace {
class ExactWalk : public AstVisitor {
public:
  explicit ExactWalk(SourceText &Text) : Text(Text) {}
  bool shouldVisitTemplateInstantiations() const override { return true; }

  // typeid(optimizer), typeid(torch::optim::Adam)
  bool VisitExpr(Expr *E) override {
    if (const auto *Id = dyn_cast<CXXTypeidExpr>(E)) {
      const QualType T = Id->isTypeOperand()
                             ? Id->getTypeOperand(Text.Context)
                             : Id->getExprOperand()->getType();
      if (optimizerOf(T))
        add(E->getBeginLoc(), recordOf(T), "typeid tells");
    }
    return true;
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    // std::is_same_v<O, torch::optim::Adam>
    if (const auto *V = dyn_cast<VarTemplateSpecializationDecl>(E->getDecl()))
      same(E->getBeginLoc(), V, V->getTemplateArgs().asArray());
    // Counter<torch::optim::Adam>::steps
    const Type *Of = E->getQualifier() ? E->getQualifier()->getAsType() : nullptr;
    const auto *D = Of ? dyn_cast_or_null<ClassTemplateSpecializationDecl>(
                             Of->getAsCXXRecordDecl())
                       : nullptr;
    if (!D)
      return true;
    same(E->getBeginLoc(), D, D->getTemplateArgs().asArray());
    const CXXRecordDecl *Class = firstOf(D->getTemplateArgs().asArray());
    if (Class && Text.mayEdit(D->getLocation()) &&
        llvm::StringRef(Text.text(E->getQualifierLoc().getSourceRange()))
            .contains(Class->getName()))
      add(E->getBeginLoc(), Class, "a member is that of the template for");
    return true;
  }
  bool VisitTemplateSpecializationTypeLoc(
      TemplateSpecializationTypeLoc Loc) override {
    if (const auto *D = dyn_cast_or_null<ClassTemplateSpecializationDecl>(
            Loc.getType()->getAsCXXRecordDecl()))
      same(Loc.getBeginLoc(), D, D->getTemplateArgs().asArray());
    return true;
  }
  // template <> struct Warmup<torch::optim::Adam>
  bool VisitNamedDecl(NamedDecl *D) override {
    const CXXRecordDecl *Class = nullptr;
    if (const auto *S = dyn_cast<ClassTemplateSpecializationDecl>(D))
      Class = S->isExplicitSpecialization()
                  ? firstOf(S->getTemplateArgs().asArray())
                  : nullptr;
    else if (const auto *S = dyn_cast<VarTemplateSpecializationDecl>(D))
      Class = S->isExplicitSpecialization()
                  ? firstOf(S->getTemplateArgs().asArray())
                  : nullptr;
    if (Class)
      add(D->getLocation(), Class, "a specialisation is for");
    return true;
  }
  // void warm_up(torch::optim::Adam &), beside a template
  bool VisitFunctionDecl(FunctionDecl *F) override {
    if (F->getTemplateSpecializationKind() == TSK_ExplicitSpecialization) {
      if (const TemplateArgumentList *Args = F->getTemplateSpecializationArgs())
        if (const CXXRecordDecl *Class = firstOf(Args->asArray()))
          add(F->getLocation(), Class, "a specialisation is for");
      return true;
    }
    if (F->getPrimaryTemplate() || !F->getIdentifier() || F->isInvalidDecl())
      return true;
    for (const ParmVarDecl *P : F->parameters())
      if (const CXXRecordDecl *Class =
              exactClass(P->getType().getNonReferenceType()))
        for (const NamedDecl *Other :
             F->getDeclContext()->lookup(F->getDeclName()))
          if (isa<FunctionTemplateDecl>(Other))
            return add(F->getLocation(), Class,
                       "beside a template, an overload is for");
    return true;
  }

  std::vector<ExactType> Found;

private:
  void same(SourceLocation Loc, const NamedDecl *Template,
            llvm::ArrayRef<TemplateArgument> Args) {
    if (const CXXRecordDecl *Class =
            Template->getIdentifier() && isInStd(Template)
                ? sameClass(Template->getName(), Args)
                : nullptr)
      add(Loc, Class, "std::is_same asks for");
  }
  bool add(SourceLocation Loc, const CXXRecordDecl *Class, const char *How) {
    Loc = Text.SM.getFileLoc(Loc);
    if (Text.mayEdit(Loc) && Places.insert(Loc).second)
      Found.push_back({Loc, Class->getQualifiedNameAsString(), How});
    return true;
  }

  SourceText &Text;
  std::set<SourceLocation> Places;
};
} // namespace

std::vector<ExactType> accel::migrate::findExactTypes(SourceText &Text) {
  ExactWalk W(Text);
  W.TraverseUnit(Text.Context);
  return std::move(W.Found);
}
