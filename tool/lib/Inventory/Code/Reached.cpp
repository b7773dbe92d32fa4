//===- Reached.cpp - Functions that the program can come to ---------------===//
//
// Libraries that a program carries as sources have functions that it never
// calls: what these do to files is of no concern. Only said where the whole
// program is seen, and in doubt everything is reached.
//
//===----------------------------------------------------------------------===//

#include "AstVisitor.h"
#include "ProgramIndex.h"

#include "TorchTypes.h"

#include "clang/AST/Attr.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

namespace {
/// The functions that a piece of code names.
class Mentions : public AstVisitor {
public:
  explicit Mentions(std::set<const FunctionDecl *> &Found) : Found(Found) {}
  bool shouldVisitImplicitCode() const override { return true; }
  bool shouldVisitTemplateInstantiations() const override { return true; }
  bool VisitDeclRefExpr(DeclRefExpr *E) override { return add(E->getDecl()); }
  bool VisitMemberExpr(MemberExpr *E) override {
    return add(E->getMemberDecl());
  }
  bool VisitCallExpr(CallExpr *E) override { return add(E->getCalleeDecl()); }
  bool VisitOverloadExpr(OverloadExpr *E) override {
    for (const NamedDecl *D : E->decls())
      add(D->getUnderlyingDecl());
    return true;
  }

private:
  bool add(const Decl *D) {
    if (const auto *T = dyn_cast_or_null<FunctionTemplateDecl>(D))
      D = T->getTemplatedDecl();
    const auto *F = dyn_cast_or_null<FunctionDecl>(D);
    const FunctionDecl *Body = nullptr;
    if (F && F->hasBody(Body) && Found.insert(Body->getCanonicalDecl()).second)
      if (!isLibrary(F))
        TraverseStmt(Body->getBody());
    return true;
  }
  std::set<const FunctionDecl *> &Found;
};
} // namespace

/// Whether code that is not the program's, or that nobody writes down, may call
/// the function: what the language calls by itself, overrides, and what
/// templates of libraries call by its name.
static bool isCalledUnseen(const FunctionDecl *F) {
  if (F->isTemplated() || F->getTemplateInstantiationPattern() ||
      !F->getIdentifier() || F->hasAttr<UsedAttr>() ||
      F->hasAttr<ConstructorAttr>())
    return true;
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  if (!M)
    return false;
  static const llvm::StringSet<> Called = {
      "begin",    "end",       "cbegin",     "cend",       "rbegin",  "rend",
      "size",     "empty",     "data",       "front",      "back",    "get",
      "get_batch", "apply",    "apply_batch", "forward",   "reset",   "next",
      "save",     "load",      "push_back",  "insert",     "clear",   "clone",
      "swap",     "allocate",  "deallocate", "construct",  "destroy", "lock",
      "unlock",   "try_lock",  "min",        "max",        "what",    "compare",
      "length",   "eq",        "lt",         "assign",     "find",    "reserve",
      "resize",   "pop_back",  "pop",        "push",       "top",     "await_ready",
      "pretty_print"};
  return M->isVirtual() || isa<CXXConstructorDecl, CXXDestructorDecl>(M) ||
         Called.count(M->getName());
}

void ProgramIndex::findReached() {
  if (!Main || !Missing.empty() || !NeverInstantiated.empty())
    return;
  Mentions M(Reached);
  auto From = [&](const FunctionDecl *F) {
    if (!Reached.insert(F->getCanonicalDecl()).second)
      return; // Something has come to it already.
    M.TraverseStmt(F->getBody());
    for (const CXXCtorInitializer *Init : initsOf(F))
      M.TraverseStmt(Init->getInit());
  };
  From(Main);
  for (const VarDecl *V : Globals)
    M.TraverseStmt(const_cast<Expr *>(V->getInit()));
  for (const FieldDecl *F : Fields)
    if (F->hasInClassInitializer())
      M.TraverseStmt(F->getInClassInitializer());
  for (const FunctionDecl *F : Functions)
    if (isCalledUnseen(F))
      From(F);
}

bool ProgramIndex::isReached(const FunctionDecl *F) const {
  return Reached.empty() || !F || Reached.count(F->getCanonicalDecl()) != 0;
}
