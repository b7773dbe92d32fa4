//===- AstVisitor.cpp - Walks over a function's code ----------------------===//

#include "AstVisitor.h"

#include "clang/AST/RecursiveASTVisitor.h"

using namespace accel::migrate;
using namespace clang;

AstNodes::~AstNodes() = default;

namespace {

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
  bool VisitTemplateSpecializationTypeLoc(TemplateSpecializationTypeLoc L) {   \
    return Visitor.VisitTemplateSpecializationTypeLoc(L);                      \
  }

/// Long chains of operators are walked with a queue, not with the stack.
class Nodes : public RecursiveASTVisitor<Nodes> {
public:
  explicit Nodes(AstVisitor &Visitor) : Visitor(Visitor) {}
  VISITS

private:
  AstVisitor &Visitor;
};

#define TRAVERSED(TRAVERSE)                                                    \
  TRAVERSE(Stmt)                                                               \
  TRAVERSE(Decl)                                                               \
  TRAVERSE(LambdaExpr)                                                         \
  TRAVERSE(IfStmt)                                                             \
  TRAVERSE(SwitchStmt)                                                         \
  TRAVERSE(WhileStmt)                                                          \
  TRAVERSE(DoStmt)                                                             \
  TRAVERSE(ForStmt)                                                            \
  TRAVERSE(CXXForRangeStmt)

class Paths : public RecursiveASTVisitor<Paths> {
public:
  explicit Paths(AstPathVisitor &Visitor) : Visitor(Visitor) {}
  VISITS
#define TRAVERSE(Class)                                                        \
  bool Traverse##Class(clang::Class *N) { return Visitor.Traverse##Class(N); }
  TRAVERSED(TRAVERSE)
#undef TRAVERSE

private:
  AstPathVisitor &Visitor;
};

#undef VISITS
#undef NODE

} // namespace

bool AstVisitor::TraverseStmt(Stmt *S) { return Nodes(*this).TraverseStmt(S); }
bool AstVisitor::TraverseDecl(Decl *D) { return Nodes(*this).TraverseDecl(D); }

#define TRAVERSE(Class)                                                        \
  bool AstPathVisitor::Traverse##Class(clang::Class *N) {                      \
    return Paths(*this).RecursiveASTVisitor<Paths>::Traverse##Class(N);        \
  }
TRAVERSED(TRAVERSE)
#undef TRAVERSE
#undef TRAVERSED

bool AstAncestorVisitor::TraverseStmt(Stmt *S) {
  if (!S)
    return true;
  Path.push_back(S);
  const bool Result = AstPathVisitor::TraverseStmt(S);
  Path.pop_back();
  return Result;
}
