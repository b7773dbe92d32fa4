//===- ExactTypes.cpp - Who asks for an optimizer's very class ------------===//
//
// An optimizer that takes part becomes one of a class that derives from its
// own. Code that only uses it does not notice; a specialisation, an overload or
// `typeid` for the class itself does.
//
//===----------------------------------------------------------------------===//

#include "Learns.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

#include "clang/AST/DeclTemplate.h"
#include "clang/AST/ExprConcepts.h"

#include <set>

using namespace accel::migrate;
using namespace clang;

/// A class that an optimizer has which takes part; null for the base class.
static const CXXRecordDecl *exactClass(QualType T) {
  const CXXRecordDecl *D = recordOf(T);
  return nameOf(D) != "Optimizer" && optimizerOf(T) && canTakePart(D) ? D
                                                                      : nullptr;
}

static const CXXRecordDecl *firstOf(llvm::ArrayRef<TemplateArgument> Args) {
  for (const TemplateArgument &Arg : Args)
    if (Arg.getKind() == TemplateArgument::Pack) {
      if (const CXXRecordDecl *D = firstOf(Arg.getPackAsArray()))
        return D;
    } else if (Arg.getKind() == TemplateArgument::Type)
      if (const CXXRecordDecl *D = exactClass(Arg.getAsType()))
        return D;
  return nullptr;
}

/// The class itself, or what a template is given: tag<torch::optim::SGD>.
static const CXXRecordDecl *exactOrArgument(QualType T) {
  if (const CXXRecordDecl *Class = exactClass(T))
    return Class;
  const auto *D = dyn_cast_or_null<ClassTemplateSpecializationDecl>(recordOf(T));
  return D ? firstOf(D->getTemplateArgs().asArray()) : nullptr;
}

/// Of a class made of lambdas, `overloaded{[](torch::optim::SGD &) …, [](auto &) …}`, the
/// one for an optimizer's class, where another one takes any.
static const CXXMethodDecl *overloadForClass(const CXXRecordDecl *D) {
  if (!D || !D->hasDefinition() || D->getNumBases() < 2)
    return nullptr;
  const CXXMethodDecl *ForClass = nullptr;
  bool TakesAny = false;
  for (const CXXBaseSpecifier &Base : D->bases()) {
    const CXXRecordDecl *Lambda = Base.getType()->getAsCXXRecordDecl();
    if (!Lambda || !Lambda->isLambda())
      continue;
    TakesAny |= Lambda->isGenericLambda();
    const CXXMethodDecl *Operator = Lambda->getLambdaCallOperator();
    if (Operator && llvm::any_of(Operator->parameters(), [](const ParmVarDecl *P) {
          return exactClass(P->getType());
        }))
      ForClass = Operator;
  }
  return TakesAny ? ForClass : nullptr;
}

/// What a concept asks of its argument: std::same_as<O, torch::optim::Adam>.
static const CXXRecordDecl *classAskedBy(const Expr *Constraint) {
  const CXXRecordDecl *Class = nullptr;
  const auto Look = [&](llvm::StringRef Name, llvm::ArrayRef<TemplateArgument> Args) {
    if (!Class && (Name == "same_as" || Name == "is_same_v"))
      Class = firstOf(Args);
  };
  eachIn<Expr>(Constraint, [&](const Expr *E) {
    if (const auto *Asked = dyn_cast<ConceptSpecializationExpr>(E)) {
      Look(nameOf(Asked->getNamedConcept()), Asked->getTemplateArguments());
    } else if (const auto *Named = dyn_cast<OverloadExpr>(E);
               Named && Named->hasExplicitTemplateArgs()) {
      llvm::SmallVector<TemplateArgument, 2> Args;
      for (const TemplateArgumentLoc &Arg : Named->template_arguments())
        Args.push_back(Arg.getArgument());
      Look(Named->getName().isIdentifier()
               ? Named->getName().getAsIdentifierInfo()->getName()
               : "",
           Args);
    }
  });
  return Class;
}

/// std::is_same of one optimizer's class, twice.
static const CXXRecordDecl *sameClass(llvm::StringRef Name,
                                      llvm::ArrayRef<TemplateArgument> Args) {
  const CXXRecordDecl *D =
      (Name == "is_same" || Name == "is_same_v" || Name == "same_as") && Args.size() == 2
          ? firstOf(Args.take_front())
          : nullptr;
  return D && D == firstOf(Args.drop_front()) ? D : nullptr;
}

namespace {
class ExactWalk : public AstVisitor {
public:
  explicit ExactWalk(SourceText &Text) : Text(Text) {}

  /// What is instantiated for the class that an optimizer happens to have, and what
  /// that instantiates: all of it is for the derived class afterwards.
  void followDeduced() {
    InDeduced = true;
    while (!Waiting.empty()) {
      const Decl *D = Waiting.back();
      Waiting.pop_back();
      if (const auto *F = dyn_cast<FunctionDecl>(D))
        TraverseStmt(F->getBody());
      else
        for (const CXXMethodDecl *M : cast<CXXRecordDecl>(D)->methods())
          if (const FunctionDecl *Body = nullptr; M->hasBody(Body))
            TraverseStmt(Body->getBody());
    }
  }

  // typeid(optimizer), typeid(torch::optim::Adam)
  bool VisitExpr(Expr *E) override {
    if (const auto *Id = dyn_cast<CXXTypeidExpr>(E)) {
      const QualType T = Id->isTypeOperand()
                             ? Id->getTypeOperand(Text.Context)
                             : Id->getExprOperand()->getType();
      if (optimizerOf(T))
        add(E->getBeginLoc(), recordOf(T), "typeid tells");
    }
    // overloaded{…}(optimizer); what std::visit finds in a variant has its own class.
    const auto *Call = dyn_cast<CXXOperatorCallExpr>(E);
    if (const CXXMethodDecl *Operator =
            Call && Call->getOperator() == OO_Call
                ? overloadForClass(recordOf(Call->getArg(0)->IgnoreImplicit()->getType()))
                : nullptr)
      for (const ParmVarDecl *P : Operator->parameters())
        if (const CXXRecordDecl *Class = exactClass(P->getType()))
          add(Operator->getLocation(), Class, "beside a generic lambda, an overload is for");
    // std::same_as<O, torch::optim::Adam>
    if (const auto *Asked = dyn_cast<ConceptSpecializationExpr>(E)) {
      same(E->getBeginLoc(), Asked->getNamedConcept(), Asked->getTemplateArguments());
      // one_of<O, torch::optim::SGD, torch::optim::Adam>, a concept of the program's
      const CXXRecordDecl *Class = firstOf(Asked->getTemplateArguments());
      if (Class && !isInStd(Asked->getNamedConcept()) &&
          llvm::StringRef(Text.text(E->getSourceRange())).contains(Class->getName()))
        add(E->getBeginLoc(), Class, "a concept asks for");
    }
    return true;
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    // std::is_same_v<O, torch::optim::Adam>, factor<O>
    if (const auto *V = dyn_cast<VarTemplateSpecializationDecl>(E->getDecl()))
      spelled(V, E->getSourceRange());
    // train(optimizer)
    if (const auto *F = dyn_cast<FunctionDecl>(E->getDecl());
        F && F->getTemplateSpecializationArgs() &&
        firstOf(F->getTemplateSpecializationArgs()->asArray()) &&
        (InDeduced || !E->hasExplicitTemplateArgs()))
      follow(F);
    // Counter<torch::optim::Adam>::steps, Counter<O>::steps
    const Type *Of = E->getQualifier() ? E->getQualifier()->getAsType() : nullptr;
    if (const auto *D = Of ? dyn_cast_or_null<ClassTemplateSpecializationDecl>(
                                 Of->getAsCXXRecordDecl())
                           : nullptr)
      spelled(D, E->getQualifierLoc().getSourceRange(),
              "a member is that of the template for");
    return true;
  }
  bool VisitTemplateSpecializationTypeLoc(
      TemplateSpecializationTypeLoc Loc) override {
    if (const auto *D = dyn_cast_or_null<ClassTemplateSpecializationDecl>(
            Loc.getType()->getAsCXXRecordDecl()))
      spelled(D, Loc.getSourceRange());
    return true;
  }
  // Trainer trainer(net, optimizer);
  bool VisitVarDecl(VarDecl *V) override {
    const auto *D =
        dyn_cast_or_null<ClassTemplateSpecializationDecl>(recordOf(V->getType()));
    if (const TypeSourceInfo *Info = D ? V->getTypeSourceInfo() : nullptr;
        Info && (InDeduced || isa_and_nonnull<DeducedTemplateSpecializationType>(
                                  Info->getType()->getContainedDeducedType())))
      names(D, Info->getTypeLoc().getSourceRange(), /*Why=*/nullptr,
            /*IsDeduced=*/true);
    return true;
  }
  // template <> struct Warmup<torch::optim::Adam>
  bool VisitNamedDecl(NamedDecl *D) override {
    // template <class O> concept Momentum = std::same_as<O, torch::optim::SGD>
    if (const auto *Concept = dyn_cast<ConceptDecl>(D))
      if (const CXXRecordDecl *Class = classAskedBy(Concept->getConstraintExpr()))
        add(D->getLocation(), Class, "a concept asks for");
    // template <class O> requires std::is_same_v<O, torch::optim::SGD>
    if (const auto *Template = dyn_cast<TemplateDecl>(D);
        Template && !isa<ConceptDecl>(D)) {
      llvm::SmallVector<const Expr *, 2> Constraints;
      Template->getAssociatedConstraints(Constraints);
      for (const Expr *Constraint : Constraints)
        if (const CXXRecordDecl *Class = classAskedBy(Constraint))
          add(D->getLocation(), Class, "a constraint asks for");
    }
    const auto Specialises = [&](const auto *S) {
      const CXXRecordDecl *Class = S && S->isExplicitSpecialization()
                                       ? firstOf(S->getTemplateArgs().asArray())
                                       : nullptr;
      if (Class)
        ForClass.push_back({S->getSpecializedTemplate(), D->getLocation(),
                            Class, "a specialisation is for"});
    };
    Specialises(dyn_cast<ClassTemplateSpecializationDecl>(D));
    Specialises(dyn_cast<VarTemplateSpecializationDecl>(D));
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
    // A template with a parameter of that class is no overload of itself.
    if (F->getPrimaryTemplate() || F->getDescribedFunctionTemplate() ||
        !F->getIdentifier() || F->isInvalidDecl())
      return true;
    for (const ParmVarDecl *P : F->parameters())
      if (const CXXRecordDecl *Class = exactOrArgument(P->getType()))
        for (const NamedDecl *Other :
             F->getDeclContext()->lookup(F->getDeclName()))
          if (isa<FunctionTemplateDecl>(Other))
            return add(F->getLocation(), Class,
                       "beside a template, an overload is for");
    return true;
  }

  /// Of templates that are named for a class, those that are also instantiated for
  /// whatever class an optimizer has.
  std::vector<ExactType> take() {
    for (const Named &N : ForClass)
      if (Deduced.count(N.Template->getCanonicalDecl()))
        add(N.Loc, N.Class, N.How);
    llvm::sort(Found, [&](const ExactType &A, const ExactType &B) {
      return Text.SM.isBeforeInTranslationUnit(A.Loc, B.Loc);
    });
    return std::move(Found);
  }

private:
  /// `Of`, which a template was made into, is spelled at `Range`.
  template <class Specialisation>
  void spelled(const Specialisation *Of, SourceRange Range,
               const char *Why = nullptr) {
    same(Range.getBegin(), Of, Of->getTemplateArgs().asArray());
    names(Of, Range, Why);
  }
  /// A template of the program is named: for a class that is spelled there,
  /// which `Why` says something about, or for one that is deduced.
  template <class Specialisation>
  void names(const Specialisation *Of, SourceRange Range, const char *Why,
             bool IsDeduced = false) {
    const NamedDecl *Template = Of->getSpecializedTemplate();
    const CXXRecordDecl *Class = firstOf(Of->getTemplateArgs().asArray());
    if (!Class || !Text.mayEdit(Template->getLocation()))
      return;
    if (llvm::StringRef(Text.text(Range)).contains(Class->getName())) {
      if (Why)
        ForClass.push_back({Template, Range.getBegin(), Class, Why});
      return;
    }
    if (!InDeduced && !IsDeduced)
      return;
    Deduced.insert(Template->getCanonicalDecl());
    if (isa<CXXRecordDecl>(Of))
      follow(Of);
  }
  void follow(const Decl *D) {
    const auto *F = dyn_cast<FunctionDecl>(D);
    const FunctionDecl *Body = nullptr;
    if (Text.mayEdit(D->getLocation()) && (!F || F->hasBody(Body)) &&
        Followed.insert(D).second)
      Waiting.push_back(F ? Body : D);
  }
  void same(SourceLocation Loc, const NamedDecl *Template,
            llvm::ArrayRef<TemplateArgument> Args) {
    if (const CXXRecordDecl *Class =
            isInStd(Template) ? sameClass(nameOf(Template), Args) : nullptr)
      add(Loc, Class, "std::is_same asks for");
  }
  bool add(SourceLocation Loc, const CXXRecordDecl *Class, const char *How) {
    Loc = Text.SM.getFileLoc(Loc);
    if (Text.mayEdit(Loc) && Places.insert(Loc).second)
      Found.push_back({Loc, Class->getQualifiedNameAsString(), How});
    return true;
  }

  struct Named {
    const NamedDecl *Template;
    SourceLocation Loc;
    const CXXRecordDecl *Class;
    const char *How;
  };
  SourceText &Text;
  std::vector<ExactType> Found;
  std::set<SourceLocation> Places;
  std::vector<Named> ForClass;
  std::set<const Decl *> Deduced;
  bool InDeduced = false;
  std::vector<const Decl *> Waiting;
  std::set<const Decl *> Followed;
};
} // namespace

std::vector<ExactType> accel::migrate::findExactTypes(SourceText &Text) {
  ExactWalk W(Text);
  W.TraverseUnit(Text.Context);
  W.followDeduced();
  return W.take();
}
