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

/// The text of a literal, through what it is converted to.
static std::optional<std::string> textOf(const Expr *E) {
  E = bare(E);
  while (const auto *Made = dyn_cast_or_null<CXXConstructExpr>(E)) {
    if (Made->getNumArgs() == 0)
      return std::nullopt;
    E = bare(Made->getArg(0));
  }
  if (const auto *Text = dyn_cast_or_null<StringLiteral>(E))
    return Text->getString().str();
  return std::nullopt;
}

Value Interpreter::einsum(const OpCall &Call) {
  const Value Unclear =
      unknown("ACL0122", Call.Call,
              "'" + spelled(Call.Call) +
                  "' is not known to keep the samples of a batch apart",
              "Write the equation as a literal with '->', and the samples' "
              "letter in the result, too.");
  if (Call.Operands.size() < 2)
    return Unclear;
  std::optional<std::string> Equation = textOf(Call.Operands[0].E);
  if (!Equation)
    return Unclear;
  llvm::erase(*Equation, ' ');
  const auto [Inputs, Result] = llvm::StringRef(*Equation).split("->");
  const std::vector<Value> &Tensors = Call.Operands[1].V.Elements;
  llvm::SmallVector<llvm::StringRef, 4> Letters;
  Inputs.split(Letters, ',');
  if (llvm::StringRef(*Equation).contains('.') ||
      !llvm::StringRef(*Equation).contains("->") ||
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
