//===- ModelCalls.h - Calls of models ---------------------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CODE_MODELCALLS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CODE_MODELCALLS_H

#include "clang/AST/ExprCXX.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace accel::migrate {

/// `net->forward(x, y)`, `net(x)`, `vae->encode(x)`: a call of a model, or of a
/// method of a model's class of the program's own that returns tensors; of
/// `net.forward(x, out)` what is not given back. A class of the program with a
/// `forward` for tensors is a model, too, and one with an operator() that trains tensors
/// of its own.
struct ModelCall {
  const clang::CallExpr *Call = nullptr;
  const clang::Expr *Model = nullptr;
  llvm::SmallVector<const clang::Expr *, 4> Inputs;
};
std::optional<ModelCall> modelCallOf(const clang::Expr *E);
bool isModelCall(const clang::Stmt *S);
/// Whether the model is one of LibTorch's losses.
bool isLoss(const ModelCall &Call);

/// Whether the model takes input `I` as `torch::Tensor &`, which no temporary
/// can be given for.
bool takesVariable(const ModelCall &Call, unsigned I);

/// Whether a model is called somewhere in `S`, but for the bodies of lambdas.
bool callsModel(const clang::Stmt *S);

/// A method of a model's class that calls the model's parts.
bool isPartOfModel(const clang::FunctionDecl *F);

/// The operand that a tensor expression is first of all made from: `x` of
/// `x.view({-1})`, of `torch::relu(x)`, of `x.index({i})`; null where there is
/// none, or where several are put together in a list.
const clang::Expr *leadingOperand(const clang::Expr *E);

/// Whether something holds for `E`, or for one of the operands that it is first
/// of all made from; each as it is spelled.
bool anyOperand(const clang::Expr *E,
                llvm::function_ref<bool(const clang::Expr *)> Holds);

/// Whether the sizes that are listed in `S` begin with one:
/// `torch::randn({1, 3, 64, 64})`.
bool hasOneRow(const clang::Stmt *S, const clang::ASTContext &Context);

/// The variable or member at the beginning of a chain of those.
const clang::ValueDecl *rootOf(const clang::Expr *E);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_CODE_MODELCALLS_H
