//===- TorchTypes.h - What LibTorch's types mean ----------------*- C++ -*-===//
//
// Types are recognised by the class they are or derive from, through typedefs,
// references, pointers, smart pointers and module holders.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CODE_TORCHTYPES_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CODE_TORCHTYPES_H

#include "clang/AST/DeclCXX.h"
#include "clang/AST/ExprCXX.h"
#include "clang/AST/Type.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <string>

namespace accel::migrate {

/// "torch::nn::Module", without inline namespaces and template arguments.
std::string qualifiedName(const clang::NamedDecl *D);

/// The name without its scope; empty for null, and for what has none: operators,
/// constructors, lambdas.
llvm::StringRef nameOf(const clang::NamedDecl *D);

/// The same of what LibTorch declares, and of what the standard library does;
/// empty for others.
llvm::StringRef torchNameOf(const clang::NamedDecl *D);
llvm::StringRef stdNameOf(const clang::NamedDecl *D);
/// The same of what an expression calls, which may be null.
llvm::StringRef torchNameOf(const clang::Expr *E);

/// The class of `T` or of what it refers to; null for what is no class.
const clang::CXXRecordDecl *recordOf(clang::QualType T);

/// The types among the arguments that a class or a function is made of, as of
/// std::pair<A, B>; none where it is no template's. Those of a pack are not
/// among them.
llvm::SmallVector<clang::QualType, 4> typeArgumentsOf(const clang::Decl *D);
/// One of them; null where there are less.
clang::QualType typeArgumentOf(const clang::Decl *D, unsigned I);

/// Whether `D` is or derives from the class with this qualified name.
bool isOrDerives(const clang::CXXRecordDecl *D, llvm::StringRef Base);

/// `D`, or the first of the classes that it derives from, each from that one
/// alone, for which something holds; or null.
const clang::CXXRecordDecl *
findInLine(const clang::CXXRecordDecl *D,
           llvm::function_ref<bool(const clang::CXXRecordDecl *)> Holds);

/// at::Tensor (or a reference to it).
bool isTensor(clang::QualType T);

/// T&, through which what is given may be written, and to which no temporary can be
/// given.
bool isWritableReference(clang::QualType T);
/// std::vector<torch::Tensor>
bool isVectorOfTensors(clang::QualType T);
/// The same, or a map or torch::OrderedDict of tensors.
bool isContainerOfTensors(clang::QualType T);
/// std::vector<torch::jit::IValue>: what TorchScript's models are given.
bool isScriptInputs(clang::QualType T);
/// torch::jit::IValue, or a list or dictionary of them.
bool holdsScriptValues(clang::QualType T);
/// A type that has tensors in it: Tensor, optional, tuple, vector, Example …
bool holdsTensors(clang::QualType T);
/// A struct of the program's whose tensors the runtime finds by itself
/// (accel/detail/members.h, `is_struct_of_tensors`).
bool isStructOfTensors(clang::QualType T);
/// A number, a string, an enumeration, or at::Scalar.
bool isHostNumber(clang::QualType T);

/// torch::nn::AnyModule.
bool isAnyModule(clang::QualType T);

/// The nn::Module that `T` is, points to, or holds; null for others. Looks
/// through pointers, shared_ptr, unique_ptr, optional, reference_wrapper and
/// ModuleHolder.
const clang::CXXRecordDecl *moduleOf(clang::QualType T);
/// The same for torch::optim::Optimizer and LRScheduler.
const clang::CXXRecordDecl *optimizerOf(clang::QualType T);
const clang::CXXRecordDecl *schedulerOf(clang::QualType T);
/// The loader that `T` is, or points to.
const clang::CXXRecordDecl *loaderOf(clang::QualType T);

/// Whether `D` is LibTorch's: declared in at::, c10:: or torch::, and in a
/// header of LibTorch.
bool isTorch(const clang::Decl *D);
bool isInStd(const clang::Decl *D);
/// Either of them: no code of the program's.
bool isLibrary(const clang::Decl *D);
/// `std::filesystem::create_directory`, `create_directories`, and `mkdir`.
bool makesFolder(const clang::FunctionDecl *F);
/// One of these that tells all by what it returns (and errno), not by an argument.
bool tellsFolderMade(const clang::CallExpr *E);

/// Looks through everything that does not change a value: parentheses, casts,
/// temporaries, and constructions of ArrayRef, optional, Scalar from it.
const clang::Expr *bare(const clang::Expr *E);
/// Looks through what is not spelled, but keeps constructions.
const clang::Expr *plain(const clang::Expr *E);
/// What `E` is the name of, and nothing else; null for other expressions, and
/// for null.
const clang::ValueDecl *declNamedBy(const clang::Expr *E);
/// The same, for variables alone.
const clang::VarDecl *varNamedBy(const clang::Expr *E);
/// The variable, or the member of `this`, that `E` names, through `*x`, `x->`,
/// `x.get()`, `x.value()`.
const clang::ValueDecl *placeOf(const clang::Expr *E);
/// The same, for variables alone.
const clang::VarDecl *variableOf(const clang::Expr *E);

/// `E` as a call of such an operator, `x[i]`; or null.
const clang::CXXOperatorCallExpr *
operatorCall(const clang::Stmt *E, clang::OverloadedOperatorKind Of);

/// What a call passes to parameters: not the object of an operator that is a member.
llvm::ArrayRef<const clang::Expr *> passedBy(const clang::CallExpr *Call);

/// The lambda that a variable is initialised with, also one of a std::function type;
/// null for others.
const clang::LambdaExpr *lambdaIn(const clang::ValueDecl *D);

/// What a name or a member, `x` or `a.x`, refers to; null for all else, and for
/// what is around such.
const clang::ValueDecl *referredTo(const clang::Stmt *S);

/// The value of an integer constant.
std::optional<int64_t> constantOf(const clang::Expr *E,
                                  const clang::ASTContext &Context);

/// The callee's declaration, for calls of all kinds.
const clang::FunctionDecl *calleeOf(const clang::Expr *E);

/// Whether a statement or an expression, or the last of a block, throws or ends the
/// program.
bool neverReturns(const clang::Stmt *S);

enum class LambdaBodies { Enter, Skip };

/// Whether something holds for `S` or for a part of it, spelled or not; `S` may be
/// null. What asks about spelled code alone walks with AstVisitor.h.
bool existsIn(const clang::Stmt *S,
              llvm::function_ref<bool(const clang::Stmt *)> Holds,
              LambdaBodies Bodies = LambdaBodies::Enter);

/// Whether `S` names a variable or a field; either may be null.
bool isNamedIn(const clang::ValueDecl *V, const clang::Stmt *S);

/// LibTorch's way to name what writes into its object: `relu_`, and no `__and__`.
bool namesInPlace(llvm::StringRef Name);

/// A method of tensors that says something of one without its values: size, options. A
/// distributed tensor says it as the whole one does.
bool describesTensor(const clang::FunctionDecl *F);

/// A method of tensors that hands out their memory: data_ptr, accessor.
bool givesMemory(const clang::FunctionDecl *F);

/// The object that a method is called on, as it is spelled: `loss` of
/// `loss.backward()` and of `loss->backward()`, which calls it on a pointer, or on
/// what has an operator ->.
struct SpelledObject {
  const clang::Expr *E;
  bool IsPointer;
};
SpelledObject objectOf(const clang::CXXMemberCallExpr *Call);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_CODE_TORCHTYPES_H
