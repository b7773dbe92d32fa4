//===- SideBySide.cpp - Batches that are declared side by side ------------===//

#include "SideBySide.h"
#include "Together.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

namespace {
class Finder {
public:
  explicit Finder(llvm::ArrayRef<Batch> Batches) {
    for (const Batch &B : Batches)
      if (!B.Points && !B.StepsFirst) {
        Makes[plain(B.E)] = B.E;
        Functions.insert(B.In);
      }
  }

  std::vector<SideBySide> find() {
    for (const FunctionDecl *F : Functions)
      eachIn<CompoundStmt>(F->getBody(), [&](const CompoundStmt *Block) {
        Run = {F, {}, {}, nullptr};
        for (const Stmt *S : Block->body())
          if (!extend(dyn_cast<DeclStmt>(S)))
            end();
        end();
      });
    return std::move(Found);
  }

private:
  /// Adds a declaration to the run, or begins one with it.
  bool extend(const DeclStmt *S) {
    if (!S || S->getBeginLoc().isMacroID())
      return false;
    SideBySide One{Run.In, {}, {}, S};
    for (const Decl *D : S->decls()) {
      const auto *V = dyn_cast<VarDecl>(D);
      const auto Made =
          V && V->getInit() ? Makes.find(plain(V->getInit())) : Makes.end();
      if (Made == Makes.end() || !isTensor(V->getType()) ||
          V->getType()->isReferenceType() || V->getType().isConstQualified())
        return false;
      One.Variables.push_back(V);
      One.Batches.push_back(Made->second);
    }
    const auto Reads = [&](const Expr *E, const SideBySide &Of) {
      return llvm::any_of(variablesNamedIn(E), [&](const VarDecl *V) {
        return llvm::is_contained(Of.Variables, V);
      });
    };
    if (llvm::any_of(One.Batches, [&](const Expr *E) { return Reads(E, One); }))
      return false;
    if (llvm::any_of(One.Batches, [&](const Expr *E) { return Reads(E, Run); }))
      end();
    llvm::append_range(Run.Variables, One.Variables);
    llvm::append_range(Run.Batches, One.Batches);
    Run.Last = S;
    return true;
  }

  void end() {
    if (Run.Variables.size() > 1)
      Found.push_back(Run);
    Run = {Run.In, {}, {}, nullptr};
  }

  /// Batches, by the expression without what is implicit around it.
  std::map<const Expr *, const Expr *> Makes;
  llvm::SetVector<const FunctionDecl *> Functions;
  SideBySide Run{};
  std::vector<SideBySide> Found;
};
} // namespace

std::vector<SideBySide>
accel::migrate::findSideBySide(llvm::ArrayRef<Batch> Batches) {
  return Finder(Batches).find();
}
