//===- Effects.cpp - What happened in a loop ------------------------------===//

#include "Interpreter.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

void Effects::refuse(Finding F) {
  for (const Finding &Known : Refusals)
    if (Known.Id == F.Id && Known.Range.File == F.Range.File &&
        Known.Range.Offset == F.Range.Offset && Known.Message == F.Message)
      return;
  Refusals.push_back(std::move(F));
}

void Effects::append(const Effects &Inner) {
  Reads.insert(Reads.end(), Inner.Reads.begin(), Inner.Reads.end());
  WholeReads.insert(WholeReads.end(), Inner.WholeReads.begin(),
                    Inner.WholeReads.end());
  for (const auto &[Size, Use] : Inner.Sizes) {
    Sizes[Size].Shape |= Use.Shape;
    Sizes[Size].Number |= Use.Number;
  }
  for (const auto &[Size, In] : Inner.LocalSizes)
    LocalSizes[Size] = In;
  for (const auto &[Call, In] : Inner.Squeezes)
    Squeezes[Call] = In;
  for (const auto &[Call, In] : Inner.Replicated)
    Replicated[Call] = In;
  for (const auto &[Call, In] : Inner.Parallel)
    Parallel[Call] = In;
  for (const auto &[Model, In] : Inner.Scripted)
    Scripted[Model] = In;
  WholeSqueezes.insert(Inner.WholeSqueezes.begin(), Inner.WholeSqueezes.end());
  Loops.insert(Loops.end(), Inner.Loops.begin(), Inner.Loops.end());
  Visited.insert(Inner.Visited.begin(), Inner.Visited.end());
  WantUnsplit.insert(Inner.WantUnsplit.begin(), Inner.WantUnsplit.end());
  for (const Finding &F : Inner.Refusals)
    refuse(F);
}

const Operand *OpCall::find(llvm::StringRef Name) const {
  for (const Operand &O : Operands)
    if (O.Name == Name)
      return &O;
  return nullptr;
}

const Reason *Interpreter::reason(llvm::StringRef Id, SourceLocation Loc,
                                  std::string Message, std::string Remedy) {
  for (const Reason &R : Reasons)
    if (R.Id == Id && R.Loc == Loc && R.Message == Message)
      return &R;
  Reasons.push_back({Id.str(), Loc, std::move(Message), std::move(Remedy)});
  return &Reasons.back();
}

Value Interpreter::unknown(llvm::StringRef Id, const Expr *E,
                           std::string Message, std::string Remedy) {
  return Value::unknownFor(
      reason(Id, E->getExprLoc(), std::move(Message), std::move(Remedy)));
}

void Interpreter::refuse(llvm::StringRef Id, SourceLocation Loc,
                         std::string Message, std::string Remedy) {
  Out->refuse(Text.finding(Id, Loc, std::move(Message), std::move(Remedy)));
}

void Interpreter::refuse(const Reason *Why) {
  if (Why)
    refuse(Why->Id, Why->Loc, Why->Message, Why->Remedy);
}

const Value *Interpreter::firstUnknown(llvm::ArrayRef<Value> Values) {
  for (const Value &V : Values) {
    if (V.unknown())
      return &V;
    if (const Value *Inner = firstUnknown(V.Elements))
      return Inner;
  }
  return nullptr;
}

/// The text of an expression for a message: one line, not too long.
std::string Interpreter::spelled(const Expr *E) {
  std::string S = Text.text(E->getSourceRange());
  std::string Result;
  bool Blank = false;
  for (char C : S) {
    if (isspace(static_cast<unsigned char>(C))) {
      Blank = true;
      continue;
    }
    if (Blank && !Result.empty())
      Result += ' ';
    Blank = false;
    Result += C;
  }
  if (Result.size() > 60)
    Result = Result.substr(0, 57) + "...";
  return Result;
}

Value Interpreter::number(const Value &V) {
  if (V.Dim != 0 && !V.Sizes.empty())
    refuse("ACL0129", V.Sizes.front()->getExprLoc(),
           "the size of this process's part of the batch becomes a number, and "
           "is not taken from the first dimension",
           "Take it from a tensor whose first dimension counts the samples.");
  for (const Expr *Size : V.Sizes)
    Out->Sizes[Size].Number = true;
  if (inCallee() && !V.Sizes.empty())
    refuse("ACL0129", V.Sizes.front()->getExprLoc(),
           "the size of this process's part of the batch becomes a number in a "
           "function that is called with a part of a batch",
           "Pass the number of samples to the function instead.");
  return Value();
}

void Interpreter::shape(const Value &V) {
  for (const Expr *Size : V.Sizes)
    Out->Sizes[Size].Shape = true;
  for (const Value &Element : V.Elements)
    shape(Element);
}

/// Where a value must be one that the analysis understands.
Value Interpreter::understood(const Value &V, const Expr *E) {
  if (const Value *Bad = firstUnknown(V)) {
    refuse(Bad->Why);
    return Value();
  }
  return V;
}
