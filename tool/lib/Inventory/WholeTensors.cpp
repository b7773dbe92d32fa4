//===- WholeTensors.cpp - Operations on what every process has in full ----===//

#include "Operations.h"

#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// What one device would have; what is to be known of it is whether its first
/// dimension may count samples.
Value Interpreter::allReplicated(std::optional<Op> Kind, const OpCall &Call) {
  Value Result;
  for (const Operand &O : Call.Operands) {
    addOrigins(Result, O.V);
    if (O.Tensors)
      Result.MayHoldBatch |= O.V.MayHoldBatch;
  }
  if (!Kind) {
    Result.MayHoldBatch = holdsTensors(Call.Call->getType());
    return Result;
  }
  auto Dim = [&](llvm::StringRef Name) {
    const Operand *O = Call.find(Name);
    return O ? O->V.Constant : std::nullopt;
  };
  switch (*Kind) {
  case Op::Factory:
  case Op::View:
  case Op::Expand: {
    const Operand *Shape = shapeOperand(Call);
    if (!Shape) {
      Result.MayHoldBatch = true;
      break;
    }
    const Value &Lead = leading(Shape->V);
    const Expr *Bare = bare(Shape->E);
    const auto *List = dyn_cast<InitListExpr>(Bare);
    const bool Scalar = (List && List->getNumInits() == 0) ||
                        (isa<CXXConstructExpr>(Bare) &&
                         cast<CXXConstructExpr>(Bare)->getNumArgs() == 0);
    Result.MayHoldBatch = !Scalar && Lead.Constant != 1;
    break;
  }
  case Op::Constant:
    Result.MayHoldBatch = false;
    break;
  case Op::Mean:
  case Op::Sum:
  case Op::Reduce: {
    const Dims D = dimsOf(Call);
    if (D.State == Dims::Absent ||
        (D.State == Dims::Known && llvm::is_contained(D.List, 0)))
      Result.MayHoldBatch = Call.Operands.size() > 1 &&
                            Call.Operands[1].Tensors && Result.MayHoldBatch;
    break;
  }
  case Op::Unsqueeze:
    if (Dim("dim") == 0)
      Result.MayHoldBatch = false;
    break;
  case Op::Item:
  case Op::Size:
  case Op::Sizes:
  case Op::Numel:
  case Op::Host:
    Result.MayHoldBatch = false;
    Result.FromModel = false;
    break;
  default:
    break;
  }
  return Result;
}
