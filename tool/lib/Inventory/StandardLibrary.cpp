//===- StandardLibrary.cpp - Functions of the standard library ------------===//

#include "Calls.h"

#include "TorchTypes.h"

#include "clang/AST/DeclTemplate.h"

using namespace accel::migrate;
using namespace clang;

Value Interpreter::evalStd(const FunctionDecl *F, const CallExpr *E,
                           bool &Known) {
  Known = true;
  const std::vector<const Expr *> Args = argumentsOf(E);
  if (isInStd(F) && isNamed(F, {"move", "forward", "ref", "cref", "as_const"}) &&
      Args.size() == 1)
    return eval(Args[0]);
  if (isInStd(F) && isNamed(F, {"get"}) && Args.size() == 1) {
    const Value V = eval(Args[0]);
    if (const TemplateArgumentList *T = F->getTemplateSpecializationArgs();
        T && T->size() && T->get(0).getKind() == TemplateArgument::Integral)
      return V.element(T->get(0).getAsIntegral().getExtValue());
    return V.element(~0u);
  }
  if (isInStd(F) && isNamed(F, {"make_tuple", "make_pair", "tie"}))
    return evalList(Args);
  if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E)) {
    const Expr *Object = Member->getImplicitObjectArgument();
    if (isNamed(F, {"value", "get", "lock", "vec", "params", "value_or", "operator*"}))
      return eval(Object);
    if (isNamed(F, {"push_back", "emplace_back"}) && Args.size() == 1 &&
        isInStd(F)) {
      const Value Added = eval(Args[0]);
      const Value Old = eval(Object);
      if (Added.replicated() && Old.replicated()) {
        assign(Object, join(Old, Added, nullptr), E);
        return Value();
      }
      const auto *Variable = variableOf(Object);
      auto It = Variable ? Env.find(Variable) : Env.end();
      if (It == Env.end() || It->second.Depth < BatchDepth) {
        const Value Read = readOut(Added, Args[0]);
        if (Read.replicated()) {
          assign(Object, join(Old, Read, nullptr), E);
          return Value();
        }
        escape(Added, E, "'" + spelled(Object) + "'");
        return Value();
      }
      Value &List = It->second.V;
      if (List.replicated() && !List.MayHoldBatch)
        List = Added;
      else
        List = join(List, Added,
                    reason("ACL0100", E->getExprLoc(),
                           "'" + spelled(Object) +
                               "' collects tensors that are split in different "
                               "ways"));
      List.Elements.clear();
      return Value();
    }
    if (isNamed(F, {"pop_back"}) && isInStd(F)) {
      eval(Object);
      // What is left is like what was there.
      const auto *Variable = variableOf(Object);
      if (auto It = Variable ? Env.find(Variable) : Env.end(); It != Env.end())
        It->second.V.Elements.clear();
      return Value();
    }
    if (isNamed(F, {"at", "front", "back", "begin", "end", "cbegin", "cend"})) {
      for (const Expr *Arg : Args)
        understood(eval(Arg), E);
      return eval(Object).element(~0u);
    }
    if (isNamed(F, {"size", "empty"}) && isInStd(F)) {
      const Value V = eval(Object);
      if (V.is(Placement::Rows) || V.replicated() || V.reduced())
        return Value();
      return V;
    }
    const std::string Name = F->getNameAsString();
    if (llvm::StringRef(Name).starts_with("operator ") ||
        llvm::StringRef(Name).starts_with("to")) // Conversions of Scalar.
      if (Args.empty())
        return eval(Object);
    Known = false;
    return Value();
  }
  if (isInStd(F)) {
    // Functions of numbers.
    std::vector<Value> Values;
    bool Numbers = isHostNumber(E->getType()) && !Args.empty();
    for (const Expr *Arg : Args)
      Numbers &= isHostNumber(plain(Arg)->getType()) &&
                 !plain(Arg)->getType()->isPointerType();
    if (Numbers) {
      Value Result;
      for (const Expr *Arg : Args) {
        Value V = eval(Arg);
        if (V.is(Placement::LocalSize)) {
          Value N = V;
          N.Scaled = true;
          V = N;
        }
        Result = arithmetic(Result, V, E);
      }
      return Result;
    }
  }
  Known = false;
  return Value();
}
