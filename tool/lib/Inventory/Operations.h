//===- Operations.h - Kinds of tensor operations ----------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_OPERATIONS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_OPERATIONS_H

#include "Interpreter.h"

namespace accel::migrate {

/// The rows of Operations.def.
enum class Op {
  Same,
  Pointwise,
  Additive,
  Multiply,
  Divide,
  Like,
  Along,
  Mean,
  Sum,
  Reduce,
  PerSample,
  Linear,
  Conv1d,
  Conv2d,
  Conv3d,
  Embedding,
  OneHot,
  MatMul,
  Mm,
  Addmm,
  Einsum,
  View,
  ViewAs,
  Flatten,
  Transpose,
  TransposeMatrix,
  Permute,
  Squeeze,
  Unsqueeze,
  Expand,
  Cat,
  Stack,
  Index,
  IndexPut,
  Subscript,
  Factory,
  Constant,
  Size,
  Sizes,
  Numel,
  Item,
  Host,
  Whole,
};

/// The leading size of a shape: its first element, or the shape of another
/// tensor as a whole.
inline const Value &leading(const Value &Shape) {
  return Shape.Elements.empty() ? Shape : Shape.Elements.front();
}

/// The kind of the operation with this name.
std::optional<Op> opNamed(llvm::StringRef Name);

/// The operand that is a shape.
const Operand *shapeOperand(const OpCall &Call);

/// What an argument is written as, before it is converted by constructors of one
/// argument: the literal in `TensorIndex("...")`.
const clang::Expr *unconverted(const clang::Expr *E);

inline constexpr char MixRemedy[] =
    "Compute it from the gathered batch, or without it.";

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_OPERATIONS_H
