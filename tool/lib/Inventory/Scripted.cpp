//===- Scripted.cpp - Models of TorchScript -------------------------------===//
//
// What such a model does is in a file that only the program reads. That it keeps
// the samples apart is looked at when it runs (Accelerator::row_wise), and until
// then believed.
//
//===----------------------------------------------------------------------===//

#include "Interpreter.h"
#include "TorchTypes.h"

using namespace clang;
using namespace accel::migrate;

static bool isMember(const CXXMethodDecl *M, llvm::StringRef Class,
                     llvm::StringRef Name) {
  return M && M->getIdentifier() && M->getName() == Name &&
         qualifiedName(M->getParent()) == Class;
}

/// The values in the list that `forward` is given.
static llvm::ArrayRef<Value> inputsOf(const Value &List) {
  return List.Elements.empty() ? llvm::ArrayRef<Value>(List)
                               : llvm::ArrayRef<Value>(List.Elements);
}

/// `model.forward(inputs)` and `result.toTensor()` where rows of the batch are
/// in it; nothing for other calls.
std::optional<Value>
Interpreter::evalScripted(const CXXMemberCallExpr *E,
                          llvm::ArrayRef<Value> Values) {
  const CXXMethodDecl *M = E->getMethodDecl();
  const Expr *Object = E->getImplicitObjectArgument();
  if (isMember(M, "c10::IValue", "toTensor")) {
    Value Self = eval(Object);
    if (Self.Elements.empty() && (Self.rows() || Self.unknown()))
      return Self;
    return std::nullopt;
  }
  // Keyword arguments, the second parameter, are not looked into; pointers
  // would need another text.
  const auto *Callee = dyn_cast<MemberExpr>(E->getCallee()->IgnoreParens());
  if (!isMember(M, "torch::jit::Module", "forward") || Values.empty() ||
      !Callee || Callee->isArrow() ||
      (E->getNumArgs() > 1 && !isa<CXXDefaultArgExpr>(E->getArg(1))))
    return std::nullopt;
  bool Rows = false;
  for (const Value &V : inputsOf(Values[0])) {
    if (V.unknown())
      return V;
    Rows |= V.rows();
  }
  if (!Rows) {
    if (Splits && BatchDepth > 0 &&
        llvm::any_of(inputsOf(Values[0]),
                     [](const Value &V) { return V.MayHoldBatch; }))
      return unknown("ACL0130", E,
                     "'" + spelled(E) +
                         "' works on tensors that are not of the batch that "
                         "this step works on, while dropout and batch norm "
                         "take them for it",
                     "Do it after the loop over batches.");
    return std::nullopt;
  }
  Value Result = Value::rowsOf(1);
  for (const Value &V : inputsOf(Values[0])) {
    if ((!V.replicated() && !V.plainRows()) || V.MaybeFolded || V.MayHoldBatch)
      return std::nullopt;
    addOrigins(Result, V);
    if (!Result.Gathered)
      Result.Gathered = V.Gathered;
  }
  Result.FromModel = true;
  Out->Scripted[Object] = Stack.back();
  return Result;
}
