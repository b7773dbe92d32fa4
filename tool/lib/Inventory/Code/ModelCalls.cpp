//===- ModelCalls.cpp - Calls of models -----------------------------------===//

#include "ModelCalls.h"

#include "ProgramIndex.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

static bool isModel(QualType T) {
  if (moduleOf(T) || isAnyModule(T))
    return true;
  // TorchScript's.
  const CXXRecordDecl *D = recordOf(T);
  return torchNameOf(D) == "Module" &&
         llvm::StringRef(qualifiedName(D)).contains("jit");
}

/// Whether something in `S` asks for gradients: `weight.requires_grad_()`,
/// `torch::rand({4}, torch::requires_grad())`.
static bool asksForGradients(const Stmt *S) {
  return existsIn(S, [](const Stmt *Part) {
    const auto *E = dyn_cast<Expr>(Part);
    return E && nameOf(calleeOf(E)).contains("requires_grad");
  });
}

/// Whether objects of the class make tensors that are trained, and keep them.
static bool trainsItsTensors(const CXXRecordDecl *D) {
  return llvm::any_of(
             D->fields(),
             [](const FieldDecl *F) { return holdsTensors(F->getType()); }) &&
         llvm::any_of(D->methods(), [](const CXXMethodDecl *M) {
           return (M->hasBody() && asksForGradients(M->getBody())) ||
                  llvm::any_of(initsOf(M), [](const auto *Init) {
                    return asksForGradients(Init->getInit());
                  });
         });
}

/// A class of the program that is no torch::nn::Module, and has a `forward` for
/// tensors: a model from scratch, or a loss. Or a model that is called itself, with
/// tensors of its own.
static bool isOwnModel(QualType T) {
  const CXXRecordDecl *D = recordOf(T);
  if (!D || !D->hasDefinition() || isLibrary(D) || D->isLambda())
    return false;
  return llvm::any_of(D->methods(), [D](const CXXMethodDecl *M) {
    const bool Runs = M->getOverloadedOperator() == OO_Call
                          ? trainsItsTensors(D)
                          : nameOf(M) == "forward" && !M->isStatic();
    return Runs && M->getNumParams() > 0 &&
           isTensor(M->getParamDecl(0)->getType().getNonReferenceType()) &&
           holdsTensors(M->getReturnType());
  });
}

/// Numbers and text, in what the program and the standard library put them: what an
/// evaluation says of a model, which is no output of it.
static bool holdsOnlyNumbers(QualType T, unsigned Depth = 0) {
  if (T->isArithmeticType() || T->isEnumeralType())
    return true;
  const CXXRecordDecl *D = T->getAsCXXRecordDecl();
  if (!D || !D->hasDefinition() || Depth > 4)
    return false;
  if (isInStd(D)) {
    const auto Types = typeArgumentsOf(D);
    return !Types.empty() && llvm::all_of(Types, [&](QualType Type) {
             return holdsOnlyNumbers(Type, Depth + 1);
           });
  }
  return !isLibrary(D) && !D->field_empty() && D->getNumBases() == 0 &&
         llvm::all_of(D->fields(), [&](const FieldDecl *F) {
           return holdsOnlyNumbers(F->getType(), Depth + 1);
         });
}

std::optional<ModelCall> accel::migrate::modelCallOf(const Expr *E) {
  const auto *Call = dyn_cast_or_null<CallExpr>(E);
  const FunctionDecl *F = calleeOf(Call);
  ModelCall Result;
  Result.Call = Call;
  unsigned First = 0;
  if (operatorCall(Call, OO_Call)) {
    Result.Model = Call->getArg(0);
    First = 1;
  } else if (const auto *Member = dyn_cast_or_null<CXXMemberCallExpr>(Call);
             Member && !nameOf(F).empty()) {
    Result.Model = Member->getImplicitObjectArgument();
  } else {
    return std::nullopt;
  }
  const QualType Model = Result.Model->getType();
  const bool RunsForward = First || nameOf(F) == "forward";
  if (!(isModel(Model) && (RunsForward || !isLibrary(F))) &&
      !(RunsForward && isOwnModel(Model)))
    return std::nullopt;
  // void forward(const Tensor& x, Tensor& out)
  const bool GivesByReference =
      Call->getType()->isVoidType() && nameOf(F) == "forward" &&
      llvm::any_of(F->parameters(), [](const ParmVarDecl *P) {
        return isWritableReference(P->getType()) &&
               isTensor(P->getType().getNonReferenceType());
      });
  if (!holdsTensors(Call->getType()) && !GivesByReference &&
      (!recordOf(Call->getType()) || holdsOnlyNumbers(Call->getType())))
    return std::nullopt;
  for (unsigned I = First; I < Call->getNumArgs(); ++I)
    if (!isa<CXXDefaultArgExpr>(Call->getArg(I)) &&
        !(GivesByReference && isWritableReference(F->getParamDecl(I - First)->getType())))
      Result.Inputs.push_back(Call->getArg(I));
  return Result;
}

bool accel::migrate::isModelCall(const Stmt *S) {
  return modelCallOf(dyn_cast<Expr>(S)).has_value();
}

bool accel::migrate::isLoss(const ModelCall &Call) {
  return torchNameOf(moduleOf(Call.Model->getType())).ends_with("LossImpl");
}

bool accel::migrate::takesVariable(const ModelCall &Call, unsigned I) {
  const auto Takes = [I](const FunctionDecl *F) {
    return I < F->getNumParams() &&
           isWritableReference(F->getParamDecl(I)->getType());
  };
  const FunctionDecl *F = Call.Call->getDirectCallee();
  if (F && !isTorch(F))
    return Takes(F);
  // The holder's operator() and forward pass on what they are given.
  const CXXRecordDecl *Impl = moduleOf(Call.Model->getType());
  return Impl && llvm::any_of(Impl->methods(), [&](const CXXMethodDecl *M) {
           return nameOf(M) == "forward" && Takes(M);
         });
}

bool accel::migrate::callsModel(const Stmt *S) {
  return existsIn(S, isModelCall, LambdaBodies::Skip);
}

bool accel::migrate::isPartOfModel(const FunctionDecl *F) {
  const auto *M = dyn_cast_or_null<CXXMethodDecl>(F);
  return M &&
         (isOrDerives(M->getParent(), "torch::nn::Module") ||
          ((M->getOverloadedOperator() == OO_Call || nameOf(M) == "forward") &&
           isOwnModel(M->getASTContext().getRecordType(M->getParent()))));
}

const Expr *accel::migrate::leadingOperand(const Expr *E) {
  E = plain(E);
  if (const auto *Member = dyn_cast_or_null<CXXMemberCallExpr>(E)) {
    const Expr *Object = Member->getImplicitObjectArgument();
    return isTensor(Object->getType()) ? Object : nullptr;
  }
  if (isLibrary(calleeOf(E)))
    for (const Expr *Arg : cast<CallExpr>(E)->arguments())
      if (isTensor(Arg->getType()))
        return Arg;
  return nullptr;
}

bool accel::migrate::anyOperand(const Expr *E,
                                llvm::function_ref<bool(const Expr *)> Holds) {
  for (; E; E = leadingOperand(E))
    if (Holds(plain(E)))
      return true;
  return false;
}

bool accel::migrate::hasOneRow(const Stmt *S, const ASTContext &Context) {
  if (!S || isa<LambdaExpr>(S))
    return false;
  if (const auto *Sizes = dyn_cast<InitListExpr>(S);
      Sizes && Sizes->getNumInits() > 0 &&
      Sizes->getInit(0)->getType()->isIntegerType())
    return constantOf(Sizes->getInit(0), Context) == 1;
  return llvm::any_of(S->children(), [&](const Stmt *Child) {
    return hasOneRow(Child, Context);
  });
}

const ValueDecl *accel::migrate::rootOf(const Expr *E) {
  for (unsigned Depth = 0; E && Depth < 64; ++Depth) {
    E = plain(E);
    if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
      return Ref->getDecl();
    if (const auto *M = dyn_cast<MemberExpr>(E))
      return isa<FieldDecl>(M->getMemberDecl()) ? M->getMemberDecl() : nullptr;
    if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E);
        O && (O->getOperator() == OO_Subscript ||
              (O->getOperator() == OO_Star && O->getNumArgs() == 1))) {
      E = O->getArg(0);
      continue;
    }
    E = leadingOperand(E);
  }
  return nullptr;
}
