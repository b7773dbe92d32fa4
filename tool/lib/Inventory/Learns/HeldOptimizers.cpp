//===- HeldOptimizers.cpp - Where optimizers are held by value ------------===//

#include "HeldOptimizers.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

#include "clang/AST/DeclTemplate.h"
#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// Whether a field is an optimizer, or holds some.
static bool hasOptimizer(QualType T) {
  if (optimizerOf(T))
    return true;
  const CXXRecordDecl *D = recordOf(T);
  return D && isInStd(D) && llvm::any_of(typeArgumentsOf(D), hasOptimizer);
}

bool accel::migrate::canTakePart(const CXXRecordDecl *Class) {
  static const llvm::StringSet<> Names = {"SGD",     "Adam",    "AdamW",
                                          "RMSprop", "Adagrad", "LBFGS",
                                          "Optimizer"};
  if (!Class || !Class->getIdentifier())
    return false;
  if (isTorch(Class))
    return Names.count(Class->getName());
  Class = Class->getDefinition();
  if (!Class || Class->isDependentContext() || Class->isAbstract() ||
      Class->isEffectivelyFinal() || Class->getNumBases() != 1)
    return false;
  const auto IsOtherStep = [](const CXXMethodDecl *M) {
    return nameOf(M) == "step" && M->size_overridden_methods() == 0;
  };
  return canTakePart(Class->bases_begin()->getType()->getAsCXXRecordDecl()) &&
         llvm::none_of(Class->methods(), IsOtherStep) &&
         llvm::none_of(Class->fields(), [](const FieldDecl *F) {
           return hasOptimizer(F->getType());
         });
}

bool accel::migrate::isOptimizerByValue(QualType T) {
  return isOrDerives(recordOf(T), "torch::optim::Optimizer") &&
         !T->isPointerType() && !T->isReferenceType();
}

std::optional<SourceRange>
accel::migrate::spellingOf(const TypeSourceInfo *Info) {
  if (!Info)
    return std::nullopt;
  const TypeLoc Loc = Info->getTypeLoc().getUnqualifiedLoc();
  if (Loc.getAs<AutoTypeLoc>())
    return std::nullopt;
  return Loc.getSourceRange();
}

namespace {
class HeldWalk : public AstVisitor {
public:
  explicit HeldWalk(SourceText &Text) : Text(Text) {}

  bool VisitVarDecl(VarDecl *V) override {
    declared(V, V->getTypeSourceInfo());
    return true;
  }
  bool VisitFieldDecl(FieldDecl *F) override {
    declared(F, F->getTypeSourceInfo());
    return true;
  }
  bool VisitFunctionDecl(FunctionDecl *F) override {
    if (const FunctionTypeLoc Loc = F->getFunctionTypeLoc())
      add(Loc.getReturnLoc());
    return true;
  }
  bool VisitTemplateSpecializationTypeLoc(
      TemplateSpecializationTypeLoc Loc) override {
    // Not those of which the type of an element is asked by name, std::variant
    // and std::tuple; owners hold what is made elsewhere.
    static const llvm::StringSet<> Containers = {
        "vector", "deque",         "list",     "array",
        "map",    "unordered_map", "optional", "pair"};
    const TemplateDecl *Template =
        Loc.getTypePtr()->getTemplateName().getAsTemplateDecl();
    if (!Template || !isInStd(Template) || !Containers.count(Template->getName()))
      return true;
    for (unsigned I = 0; I < Loc.getNumArgs(); ++I)
      if (const TypeSourceInfo *Arg = Loc.getArgLoc(I).getTypeSourceInfo();
          Arg && Loc.getArgLoc(I).getArgument().getKind() ==
                     TemplateArgument::Type)
        add(Arg->getTypeLoc());
    return true;
  }

  std::vector<TextRange> Types;
  std::set<const Decl *> Declared;
  bool All = true; ///< Each place that was found can be changed.

private:
  void declared(const ValueDecl *D, const TypeSourceInfo *Info) {
    if (Info && add(Info->getTypeLoc()))
      Declared.insert(D->getCanonicalDecl());
  }

  bool add(TypeLoc Loc) {
    Loc = Loc.getUnqualifiedLoc();
    // decltype of an optimizer is what that becomes.
    if (Loc.getAs<AutoTypeLoc>() || Loc.getAs<DecltypeTypeLoc>() ||
        !isOptimizerByValue(Loc.getType()))
      return false;
    const CXXRecordDecl *Class = recordOf(Loc.getType());
    if (!canTakePart(Class) || !Text.mayEdit(Loc.getBeginLoc()))
      return false;
    const std::optional<TextRange> Range = Text.range(Loc.getSourceRange());
    All &= Range.has_value();
    if (Range)
      Types.push_back(*Range);
    return Range.has_value();
  }

  SourceText &Text;
};
} // namespace

HeldOptimizers::HeldOptimizers(SourceText &Text) {
  HeldWalk W(Text);
  W.TraverseUnit(Text.Context);
  if (!W.All)
    return;
  Types = std::move(W.Types);
  Declared = std::move(W.Declared);
}
