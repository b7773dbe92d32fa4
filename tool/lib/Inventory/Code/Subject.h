//===- Subject.h - Facts that are found function by function ----*- C++ -*-===//
//
// One walk over a function's body serves all subjects: optimizers, prints, files
// and so on. A subject overrides the functions for the nodes that it looks at.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CODE_SUBJECT_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CODE_SUBJECT_H

#include "Unit.h"

#include <set>

namespace accel::migrate {

/// Where the walk is.
struct Walk {
  const clang::FunctionDecl *Function = nullptr;
  /// The initialiser outside of a body that is visited: a constructor's, a
  /// field's, a default argument.
  const clang::Expr *Initialiser = nullptr;
  /// From the function's body to the statement that is being visited.
  std::vector<const clang::Stmt *> Path;
  std::vector<const clang::LambdaExpr *> Lambdas;
  /// Statements that a subject has taken as a whole: nobody looks into them.
  std::set<const clang::Stmt *> Consumed;
};

class Subject : protected Unit {
public:
  Subject(const Unit &U, Walk &W)
      : Unit(U), Context(Index.Context), Function(W.Function),
        Initialiser(W.Initialiser), Path(W.Path), Lambdas(W.Lambdas),
        Consumed(W.Consumed) {}
  virtual ~Subject();

  virtual void variable(const clang::VarDecl *) {}
  /// A call of a function that is known; `F` may be an operator.
  virtual void call(const clang::CallExpr *, const clang::FunctionDecl *F) {}
  /// The same, of a function with a name.
  virtual void namedCall(const clang::CallExpr *, const clang::FunctionDecl *F,
                         llvm::StringRef Name) {}
  virtual void construct(const clang::CXXConstructExpr *) {}
  virtual void name(const clang::DeclRefExpr *) {}
  /// A condition, and what it decides about.
  virtual void decision(const clang::Stmt *, const clang::Expr *Condition) {}
  virtual void range(const clang::CXXForRangeStmt *) {}
  virtual void newObject(const clang::CXXNewExpr *) {}
  /// `to = made`, `to.reset(made)`.
  virtual void assigned(const clang::Expr *To, const clang::Expr *Made) {}
  /// A loop or a block, which a pragma may stand before.
  virtual void region(const clang::Stmt *) {}
  virtual void returned(const clang::ReturnStmt *) {}
  virtual void templateNamed(const clang::TemplateSpecializationTypeLoc &) {}
  virtual void memberInitialiser(const clang::CXXCtorInitializer *) {}
  /// A function has been walked over.
  virtual void end() {}

protected:
  FunctionId here();
  /// What one of the simple rules changes, here.
  void edit(EditKind Kind, const TextRange &Range, std::string Value = "") {
    Program.Edits.push_back({Kind, here(), Range, std::move(Value)});
  }
  /// The same, where the text may be edited; else it is said why not.
  bool edit(EditKind Kind, clang::SourceRange Range, std::string Value = "") {
    const std::optional<TextRange> R = editable(Range);
    if (R)
      edit(Kind, *R, std::move(Value));
    return R.has_value();
  }
  /// Whether what is visited runs where a data set loads a sample.
  bool inSamples() const;
  bool inLoop() const;
  /// Whether what is visited is part of what a subject has taken.
  bool isConsumed() const;
  /// The innermost block around what is visited, and the statement in it; the one
  /// around a switch where what stands behind a `case` is of that case only.
  const clang::CompoundStmt *block(const clang::Stmt **Child = nullptr,
                                   bool AroundSwitch = false) const;
  /// The call, where it is a statement of a block, so that a condition can be
  /// put before it; or null.
  const clang::Stmt *statementOf(const clang::CallExpr *E) const;
  /// The `if` or loop whose branch or body, without braces, is what is visited and
  /// nothing else; or null.
  const clang::Stmt *ownerOfBody() const;
  bool isBodyOfItsOwn() const { return ownerOfBody() != nullptr; }
  /// The same, where a condition can be put before it: no `else` would belong to
  /// that.
  bool isBodyForCondition() const;
  /// The name of what is called, with its qualifier, without template arguments.
  std::optional<TextRange> calledName(const clang::Expr *Callee);
  /// A name that is a macro: stdout, stdin.
  std::optional<TextRange> expansion(const clang::Expr *E);

  clang::ASTContext &Context;
  const clang::FunctionDecl *&Function;
  const clang::Expr *&Initialiser;
  std::vector<const clang::Stmt *> &Path;
  std::vector<const clang::LambdaExpr *> &Lambdas;
  std::set<const clang::Stmt *> &Consumed;
};

/// `std::cin.get()`, `std::cin.ignore(…)`: as a statement it waits for a key.
bool waitsForKey(const clang::CallExpr *E);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_CODE_SUBJECT_H
