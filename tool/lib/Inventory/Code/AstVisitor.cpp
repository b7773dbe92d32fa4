//===- AstVisitor.cpp - Walks over a function's code ----------------------===//

#include "AstVisitor.h"

#include "Closures.h"

#include "clang/AST/RecursiveASTVisitor.h"

using namespace accel::migrate;
using namespace clang;

AstNodes::~AstNodes() = default;

namespace {

/// What is spelled of a lambda with `auto` parameters: its captures, and parameters
/// and body with the types of a call, which its class has.
template <class Visitor> bool traverseGeneric(Visitor &V, LambdaExpr *L) {
  if (!V.WalkUpFromLambdaExpr(L))
    return false;
  for (unsigned I = 0; I < L->capture_size(); ++I) {
    const LambdaCapture *C = L->capture_begin() + I;
    if (C->isExplicit() &&
        !V.TraverseLambdaCapture(L, C, L->capture_init_begin()[I]))
      return false;
  }
  Stmt *Body = bodyOf(L);
  if (!Body)
    return true;
  for (ParmVarDecl *P : operatorOf(L)->parameters())
    if (!V.TraverseDecl(P))
      return false;
  return V.TraverseStmt(Body);
}

#define NODE(Class)                                                            \
  bool Visit##Class(clang::Class *N) { return Visitor.Visit##Class(N); }
#define VISITS                                                                 \
  bool shouldVisitTemplateInstantiations() const {                             \
    return Visitor.shouldVisitTemplateInstantiations();                        \
  }                                                                            \
  bool shouldVisitImplicitCode() const {                                       \
    return Visitor.shouldVisitImplicitCode();                                  \
  }                                                                            \
  ACCEL_VISITED_NODES(NODE)                                                    \
  bool TraverseCXXRecordDecl(CXXRecordDecl *D) {                               \
    return (D->isLocalClass() && !Visitor.shouldVisitLocalClasses()) ||        \
           RecursiveASTVisitor::TraverseCXXRecordDecl(D);                      \
  }                                                                            \
  bool VisitTemplateSpecializationTypeLoc(TemplateSpecializationTypeLoc L) {   \
    return Visitor.VisitTemplateSpecializationTypeLoc(L);                      \
  }

/// Long chains of operators are walked with a queue, not with the stack.
class Nodes : public RecursiveASTVisitor<Nodes> {
public:
  explicit Nodes(AstVisitor &Visitor) : Visitor(Visitor) {}
  VISITS
  bool TraverseLambdaExpr(LambdaExpr *L, DataRecursionQueue *Queue = nullptr) {
    return L->isGenericLambda()
               ? traverseGeneric(*this, L)
               : RecursiveASTVisitor::TraverseLambdaExpr(L, Queue);
  }

private:
  AstVisitor &Visitor;
};

class Paths : public RecursiveASTVisitor<Paths> {
public:
  explicit Paths(AstPathVisitor &Visitor) : Visitor(Visitor) {}
  VISITS
  bool TraverseStmt(Stmt *S) { return Visitor.TraverseStmt(S); }
  bool TraverseDecl(Decl *D) { return Visitor.TraverseDecl(D); }
  bool TraverseLambdaExpr(LambdaExpr *L) {
    return Visitor.TraverseLambdaExpr(L);
  }
  bool traverseAsSpelled(LambdaExpr *L) {
    return L->isGenericLambda() ? traverseGeneric(*this, L)
                                : RecursiveASTVisitor::TraverseLambdaExpr(L);
  }

private:
  AstPathVisitor &Visitor;
};

#undef VISITS
#undef NODE

} // namespace

bool AstVisitor::TraverseStmt(Stmt *S) { return Nodes(*this).TraverseStmt(S); }
bool AstVisitor::TraverseDecl(Decl *D) { return Nodes(*this).TraverseDecl(D); }

void AstVisitor::TraverseUnit(ASTContext &Context) {
  for (Decl *D : Context.getTraversalScope()) {
    auto *Unit = dyn_cast<TranslationUnitDecl>(D);
    if (!Unit) {
      TraverseDecl(D);
      continue;
    }
    for (Decl *Top : Unit->decls())
      if (!Context.getSourceManager().isInSystemHeader(Top->getLocation()))
        TraverseDecl(Top);
  }
}

bool accel::migrate::anyStmtIn(const Stmt *S,
                               llvm::function_ref<bool(const Stmt *)> Holds) {
  class Asker : public AstVisitor {
  public:
    explicit Asker(llvm::function_ref<bool(const Stmt *)> Holds)
        : Holds(Holds) {}
    bool VisitStmt(Stmt *Part) override { return !Holds(Part); }

  private:
    llvm::function_ref<bool(const Stmt *)> Holds;
  };
  return !Asker(Holds).TraverseStmt(const_cast<Stmt *>(S));
}

bool AstPathVisitor::TraverseStmt(Stmt *S) {
  return Paths(*this).RecursiveASTVisitor<Paths>::TraverseStmt(S);
}

bool AstPathVisitor::TraverseDecl(Decl *D) {
  return Paths(*this).RecursiveASTVisitor<Paths>::TraverseDecl(D);
}

bool AstPathVisitor::TraverseLambdaExpr(LambdaExpr *L) {
  return Paths(*this).traverseAsSpelled(L);
}

bool AstAncestorVisitor::TraverseStmt(Stmt *S) {
  if (!S)
    return true;
  Path.push_back(S);
  const bool Result = AstPathVisitor::TraverseStmt(S);
  Path.pop_back();
  return Result;
}
