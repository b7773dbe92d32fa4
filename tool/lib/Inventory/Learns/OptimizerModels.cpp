//===- OptimizerModels.cpp - Whose parameters an optimizer updates --------===//

#include "Learns.h"
#include "OptionalModels.h"

#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// What holds the model of `model->parameters()`, the function for that of the
/// object; null where it is something else.
const ValueDecl *OptimizerFacts::modelOf(const Expr *Parameters) {
  const auto *Call = dyn_cast_or_null<CXXMemberCallExpr>(bare(Parameters));
  const CXXMethodDecl *M = Call ? Call->getMethodDecl() : nullptr;
  if (nameOf(M) != "parameters")
    return nullptr;
  const Expr *Object = Call->getImplicitObjectArgument();
  if (!moduleOf(Object->getType()))
    return nullptr;
  if (isa<CXXThisExpr>(plain(Object)))
    return Function;
  const ValueDecl *Model = placeOf(Object);
  if (!Model || !moduleOf(Model->getType()))
    return nullptr;
  // Trainer(Net net) : net_(std::move(net)): the member has it now.
  const auto *Ctor = dyn_cast<CXXConstructorDecl>(Function);
  if (const auto *Given = dyn_cast<ParmVarDecl>(Model);
      Given && Ctor && Initialiser && !Given->getType()->isReferenceType())
    for (const CXXCtorInitializer *Init : Ctor->inits())
      if (Init->isMemberInitializer() && Init->isWritten() &&
          variableOf(Init->getInit()) == Given)
        Model = Init->getMember();
  return Model;
}

/// What is converted to the type of a pointer or an owner: make_unique's result in a
/// unique_ptr of the base class. Null where it is made of several values.
static const Expr *converted(const Expr *E) {
  E = plain(E);
  while (const auto *Made = dyn_cast<CXXConstructExpr>(E)) {
    if (Made->getNumArgs() != 1)
      return nullptr;
    E = plain(Made->getArg(0));
  }
  return E;
}

/// Whether `Init` calls a function of the program that returns a pointer to an
/// optimizer; what that makes is found there.
bool OptimizerFacts::callsFactory(const Expr *Init) const {
  const FunctionDecl *F = calleeOf(converted(Init));
  return F && Index.isOwn(F) && F->hasBody() &&
         !isOrDerives(recordOf(F->getReturnType()), "torch::optim::Optimizer");
}

/// The models whose parameters a factory is given:
/// `make_optimizer("adam", net->parameters(), 0.1)`.
std::vector<const ValueDecl *> OptimizerFacts::modelsGiven(const Expr *Init) {
  std::vector<const ValueDecl *> Models;
  if (const auto *Call = dyn_cast_or_null<CallExpr>(converted(Init)))
    for (const Expr *Arg : Call->arguments())
      if (const ValueDecl *Model = modelOf(Arg);
          Model && !llvm::is_contained(Models, Model))
        Models.push_back(Model);
  return Models;
}

/// Those of a list of parameters that have a name where the optimizer is
/// prepared.
std::vector<const ValueDecl *>
OptimizerFacts::listedModels(const Expr *Parameters) {
  std::vector<const Stmt *> Before;
  std::set<const Decl *> Named(Function->param_begin(), Function->param_end());
  for (size_t I = 0; I + 1 < Path.size() && !Initialiser; ++I)
    if (const auto *Block = dyn_cast<CompoundStmt>(Path[I]))
      for (const Stmt *S : Block->body()) {
        if (S == Path[I + 1])
          break;
        Before.push_back(S);
        if (const auto *D = dyn_cast<DeclStmt>(S))
          Named.insert(D->decl_begin(), D->decl_end());
      }
  std::vector<const ValueDecl *> Models = modelsInList(Parameters, Before);
  llvm::erase_if(Models, [&](const ValueDecl *Model) {
    const auto *Variable = dyn_cast<VarDecl>(Model);
    const bool IsGone = Initialiser && isa<ParmVarDecl>(Model) &&
                        !Model->getType()->isReferenceType();
    // Nobody may change it by that name.
    const QualType T = Model->getType().getNonReferenceType();
    const bool IsConst = T.isConstQualified() &&
                         isOrDerives(recordOf(T), "torch::nn::Module");
    return IsGone || IsConst || isOptional(Model, Index) || (Variable && !Variable->hasGlobalStorage() &&
                      !Named.count(Variable));
  });
  return Models;
}

/// The models of what an optimizer is given first, which may be nothing.
std::vector<const ValueDecl *>
OptimizerFacts::modelsOf(const Expr *Parameters) {
  if (!Parameters)
    return {};
  if (const ValueDecl *Model = modelOf(Parameters))
    return {Model};
  return listedModels(Parameters);
}

/// The same; one that is no variable, `member.net->parameters()`, is named in `Fact`.
std::vector<const ValueDecl *> OptimizerFacts::modelsOf(const Expr *Parameters,
                                                        OptimizerFact &Fact) {
  std::vector<const ValueDecl *> Models = modelsOf(Parameters);
  if (Parameters && Models.empty())
    if (const std::optional<std::string> Name = modelIn(Parameters))
      Fact.Models = {*Name};
  return Models;
}
