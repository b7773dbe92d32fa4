//===- Einsum.cpp - Sums of products that a text describes ----------------===//
//
// einsum("bct,bcs->bts", {q, k}): a letter for each dimension. The samples stay
// apart where their letter stands in each operand that is split, in no other
// operand, and in the result.
//
//===----------------------------------------------------------------------===//

#include "Operations.h"
#include "TorchTypes.h"

#include "llvm/ADT/StringExtras.h"

using namespace accel::migrate;
using namespace clang;

Value Interpreter::einsum(const OpCall &Call) {
  const Value Unclear =
      unknown("ACL0122", Call.Call,
              "'" + spelled(Call.Call) +
                  "' is not known to keep the samples of a batch apart",
              "Write the equation as a literal with '->', and the samples' "
              "letter in the result, too.");
  if (Call.Operands.size() < 2)
    return Unclear;
  const auto *Literal =
      dyn_cast_or_null<StringLiteral>(unconverted(Call.Operands[0].E));
  if (!Literal)
    return Unclear;
  std::string Text = Literal->getString().str();
  llvm::erase(Text, ' ');
  const llvm::StringRef Equation = Text;
  const auto [Inputs, Result] = Equation.split("->");
  const std::vector<Value> &Tensors = Call.Operands[1].V.Elements;
  llvm::SmallVector<llvm::StringRef, 4> Letters;
  Inputs.split(Letters, ',');
  if (Equation.contains('.') || !Equation.contains("->") ||
      Letters.size() != Tensors.size())
    return Unclear;

  Value Rows = Value::make(Placement::Rows);
  char Samples = 0;
  for (unsigned I = 0; I < Tensors.size(); ++I) {
    const Value &V = Tensors[I];
    if (V.unknown())
      return V;
    addOrigins(Rows, V);
    if (V.replicated())
      continue;
    if (!V.rows() || V.TakeTurns || V.Dim >= Letters[I].size() ||
        (Samples && Letters[I][V.Dim] != Samples) ||
        Letters[I].count(Letters[I][V.Dim]) != 1)
      return Unclear;
    Samples = Letters[I][V.Dim];
    Rows.MaybeFolded |= V.MaybeFolded;
  }
  if (!Samples || Result.count(Samples) != 1)
    return Unclear;
  for (unsigned I = 0; I < Tensors.size(); ++I)
    if (Tensors[I].replicated() && Letters[I].contains(Samples))
      return Unclear;
  Rows.Dim = Result.find(Samples);
  Rows.Rank = Rows.MinRank = Result.size();
  return Rows;
}
