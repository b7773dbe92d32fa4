//===- GatherPlan.cpp - What evaluation gathers, and where --------------===//

#include "AstVisitor.h"
#include "Interpreter.h"
#include "TorchTypes.h"


using namespace accel::migrate;
using namespace clang;

namespace {

/// The variables of a loop body and what they are made from.
class BodyVariables : public AstVisitor {
public:
  struct Definition {
    unsigned Last = 0; ///< The statement of the body that sets it last.
    std::vector<const Expr *> Made;
    bool Primary = false; ///< Comes from a model or straight from the batch.
  };

  explicit BodyVariables(const CompoundStmt *Body, const SourceManager &SM)
      : Body(Body), SM(SM) {
    for (const Stmt *Child : Body->body()) {
      TraverseStmt(const_cast<Stmt *>(Child));
      ++At;
    }
    for (auto &[Variable, D] : Defined)
      for (const Expr *E : D.Made)
        D.Primary |= isPrimary(E);
  }

  bool VisitVarDecl(VarDecl *V) override {
    if (isTensor(V->getType()) && V->getInit() && V->hasLocalStorage())
      add(V, V->getInit());
    return true;
  }
  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    if (E->getOperator() == OO_Equal)
      if (const VarDecl *V = variableOf(E->getArg(0)))
        add(V, E->getArg(1));
    return true;
  }

  std::map<const VarDecl *, Definition> Defined;

  /// The variables in `E`, in the order of the text.
  static std::vector<const VarDecl *> in(const Expr *E) {
    class Finder : public AstVisitor {
    public:
      bool VisitDeclRefExpr(DeclRefExpr *E) override {
        if (const auto *V = dyn_cast<VarDecl>(E->getDecl()))
          Found.push_back(V);
        return true;
      }
      std::vector<const VarDecl *> Found;
    } F;
    F.TraverseStmt(const_cast<Expr *>(E));
    return F.Found;
  }

private:
  void add(const VarDecl *V, const Expr *E) {
    Definition &D = Defined[V];
    D.Last = At;
    D.Made.push_back(E);
  }
  bool isPrimary(const Expr *E) const {
    bool Own = false;
    for (const VarDecl *V : in(E)) {
      if (moduleOf(V->getType()))
        return true;
      Own |= Defined.count(V) != 0;
    }
    return !Own;
  }

  const CompoundStmt *Body;
  const SourceManager &SM;
  unsigned At = 0;
};

} // namespace

/// What to gather so that the numbers that are read are calculated from the
/// whole batch: the model's outputs and the targets, where the last of them
/// is made.
std::optional<LoopPlan> Interpreter::planGather(const CompoundStmt *Body,
                                                const Effects &Local) {
  if (Local.Reads.empty())
    return std::nullopt;
  const BodyVariables Variables(Body, Context.getSourceManager());
  std::vector<const Stmt *> Children(Body->body_begin(), Body->body_end());
  auto IndexOf = [&](const Stmt *S) {
    return static_cast<unsigned>(llvm::find(Children, S) - Children.begin());
  };

  // The last of what everything that is read is made from.
  unsigned Last = 0;
  bool Any = false;
  std::set<const VarDecl *> Seen;
  std::function<void(const Expr *)> FindPrimaries = [&](const Expr *E) {
    for (const VarDecl *V : BodyVariables::in(E)) {
      auto It = Variables.Defined.find(V);
      if (It == Variables.Defined.end() || !Seen.insert(V).second)
        continue;
      if (It->second.Primary) {
        Last = std::max(Last, It->second.Last);
        Any = true;
      } else {
        for (const Expr *Made : It->second.Made)
          FindPrimaries(Made);
      }
    }
  };
  for (const Effects::Read &R : Local.Reads)
    FindPrimaries(R.Object);
  if (!Any || Last + 1 >= Children.size())
    return std::nullopt;
  for (const Effects::Read &R : Local.Reads)
    if (IndexOf(R.Top) <= Last)
      return std::nullopt;

  LoopPlan P;
  P.Kind = LoopPlan::Gather;
  P.At = Children[Last + 1];
  Seen.clear();
  std::function<void(const Expr *)> Collect = [&](const Expr *E) {
    for (const VarDecl *V : BodyVariables::in(E)) {
      auto It = Variables.Defined.find(V);
      if (It == Variables.Defined.end() || !Seen.insert(V).second)
        continue;
      if (It->second.Last <= Last)
        P.Variables.push_back(V);
      else
        for (const Expr *Made : It->second.Made)
          Collect(Made);
    }
  };
  for (const Effects::Read &R : Local.Reads)
    Collect(R.Object);
  for (const ValueDecl *V : P.Variables)
    if (V->getType().isConstQualified() || V->getType()->isReferenceType())
      return std::nullopt;
  if (P.Variables.empty())
    return std::nullopt;
  return P;
}
