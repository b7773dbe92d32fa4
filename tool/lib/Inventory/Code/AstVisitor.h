//===- AstVisitor.h - Walks over a function's code -----------*- C++ -*-===//
//
// clang::RecursiveASTVisitor is a template that costs two to ten seconds to
// compile for each class that derives from it. These two classes are compiled
// once (AstVisitor.cpp): what derives from them overrides virtual functions.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CODE_ASTVISITOR_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CODE_ASTVISITOR_H

#include "clang/AST/DeclCXX.h"
#include "clang/AST/ExprCXX.h"
#include "clang/AST/StmtCXX.h"
#include "clang/AST/TypeLoc.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <vector>

namespace accel::migrate {

/// The nodes that a visitor may look at; a kind of node that is looked at for
/// the first time is added here.
#define ACCEL_VISITED_NODES(NODE)                                              \
  NODE(Stmt)                                                                   \
  NODE(Expr)                                                                   \
  NODE(BinaryOperator)                                                         \
  NODE(CallExpr)                                                               \
  NODE(ConditionalOperator)                                                    \
  NODE(CXXConstructExpr)                                                       \
  NODE(CXXForRangeStmt)                                                        \
  NODE(CXXMemberCallExpr)                                                      \
  NODE(CXXNewExpr)                                                             \
  NODE(CXXOperatorCallExpr)                                                    \
  NODE(DeclRefExpr)                                                            \
  NODE(DoStmt)                                                                 \
  NODE(ForStmt)                                                                \
  NODE(IfStmt)                                                                 \
  NODE(MemberExpr)                                                             \
  NODE(OverloadExpr)                                                           \
  NODE(ReturnStmt)                                                             \
  NODE(SwitchStmt)                                                             \
  NODE(UnaryOperator)                                                          \
  NODE(WhileStmt)                                                              \
  NODE(FieldDecl)                                                              \
  NODE(FunctionDecl)                                                           \
  NODE(NamedDecl)                                                              \
  NODE(VarDecl)

/// What both visitors have in common. A function that returns false ends the
/// whole walk, as in clang::RecursiveASTVisitor; the bodies of lambdas are part
/// of it.
class AstNodes {
public:
  virtual ~AstNodes();

  virtual bool shouldVisitTemplateInstantiations() const { return false; }
  virtual bool shouldVisitImplicitCode() const { return false; }
  /// Classes that are declared in a function: their methods are functions of their own.
  virtual bool shouldVisitLocalClasses() const { return false; }

#define NODE(Class)                                                            \
  virtual bool Visit##Class(clang::Class *) { return true; }
  ACCEL_VISITED_NODES(NODE)
#undef NODE
  virtual bool
  VisitTemplateSpecializationTypeLoc(clang::TemplateSpecializationTypeLoc) {
    return true;
  }
};

/// Looks at nodes, in the order in which they are written.
class AstVisitor : public AstNodes {
public:
  bool TraverseStmt(clang::Stmt *S);
  bool TraverseDecl(clang::Decl *D);
  /// All that the unit has outside of the system's headers.
  void TraverseUnit(clang::ASTContext &Context);
};

/// Whether something holds for a statement or an expression in `S`; what stands
/// behind the first of these is not looked at. An AstVisitor with one question.
bool anyStmtIn(const clang::Stmt *S,
               llvm::function_ref<bool(const clang::Stmt *)> Holds);

/// The same of nodes of one kind.
template <typename Node>
bool anyIn(const clang::Stmt *S, llvm::function_ref<bool(const Node *)> Holds) {
  return anyStmtIn(S, [&](const clang::Stmt *Part) {
    const auto *N = llvm::dyn_cast<Node>(Part);
    return N && Holds(N);
  });
}

/// Gives all nodes of one kind in `S` to `Take`, in the order in which they are
/// written.
template <typename Node>
void eachIn(const clang::Stmt *S, llvm::function_ref<void(const Node *)> Take) {
  anyIn<Node>(S, [&](const Node *N) {
    Take(N);
    return false;
  });
}

/// Looks at nodes, and knows what it is in: what overrides a Traverse function
/// does something before and behind the call of the function that it
/// overrides, or does not call it, which leaves the node out.
class AstPathVisitor : public AstNodes {
public:
  virtual bool TraverseStmt(clang::Stmt *S);
  virtual bool TraverseDecl(clang::Decl *D);
  virtual bool TraverseLambdaExpr(clang::LambdaExpr *E);
};

/// Looks at nodes, with the statements that they are in.
class AstAncestorVisitor : public AstPathVisitor {
public:
  bool TraverseStmt(clang::Stmt *S) override;

protected:
  /// From the outermost to the one that is looked at.
  std::vector<const clang::Stmt *> Path;
};

} // namespace accel::migrate

#endif
