//===- Samples.cpp - What loads samples -----------------------------------===//

#include "ProgramIndex.h"

#include "AstVisitor.h"
#include "Callees.h"
#include "Closures.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// A method that a data loader calls for a sample or a batch.
static bool isSampleMethod(const FunctionDecl *F) {
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  const llvm::StringRef Name = nameOf(M);
  if (Name == "get" || Name == "get_batch")
    return isOrDerives(M->getParent(), "torch::data::datasets::BatchDataset");
  // Chunks are read by one process for all.
  if (Name == "read_chunk")
    return isOrDerives(M->getParent(), "torch::data::datasets::ChunkDataReader");
  return (Name == "apply" || Name == "apply_batch") &&
         isOrDerives(M->getParent(),
                     "torch::data::transforms::BatchTransform");
}

namespace {
/// Functions and lambdas that are made into transforms of a data set.
class TransformFinder : public AstVisitor {
public:
  TransformFinder(const ProgramIndex &Index,
                  std::set<const FunctionDecl *> &Functions,
                  std::set<const LambdaExpr *> &Lambdas)
      : Index(Index), Functions(Functions), Lambdas(Lambdas) {}
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    const CXXRecordDecl *D = E->getConstructor()->getParent();
    if (isTorch(D) && llvm::StringRef(qualifiedName(D))
                          .starts_with("torch::data::transforms::"))
      for (Expr *Arg : E->arguments())
        take(Arg);
    return true;
  }

private:
  void take(Stmt *S) {
    if (auto *L = dyn_cast<LambdaExpr>(S)) {
      Lambdas.insert(L);
      Callees(Index, Functions).TraverseStmt(bodyOf(L));
      return;
    }
    if (const auto *Ref = dyn_cast<DeclRefExpr>(S)) {
      const FunctionDecl *Body = nullptr;
      if (const auto *F = dyn_cast<FunctionDecl>(Ref->getDecl());
          F && F->hasBody(Body)) {
        if (Functions.insert(Body).second)
          Callees(Index, Functions).TraverseStmt(Body->getBody());
      } else if (const auto *V = dyn_cast<VarDecl>(Ref->getDecl());
                 V && V->getInit() && Seen.insert(V).second) {
        take(const_cast<Expr *>(V->getInit()));
      }
    }
    for (Stmt *Child : S->children())
      if (Child)
        take(Child);
  }
  const ProgramIndex &Index;
  std::set<const FunctionDecl *> &Functions;
  std::set<const LambdaExpr *> &Lambdas;
  std::set<const VarDecl *> Seen;
};
} // namespace

void ProgramIndex::findSamples() {
  TransformFinder Transforms(*this, InSamples, SampleLambdas);
  for (const FunctionDecl *F : Functions)
    Transforms.TraverseStmt(F->getBody());
  for (const FunctionDecl *F : Functions)
    if (isSampleMethod(F)) {
      InSamples.insert(F);
      Callees(*this, InSamples).TraverseStmt(F->getBody());
    }
}

bool ProgramIndex::loadsSamples(const FunctionDecl *F) const {
  return InSamples.count(F) != 0;
}

bool ProgramIndex::loadsSamples(const LambdaExpr *L) const {
  return SampleLambdas.count(L) != 0;
}
