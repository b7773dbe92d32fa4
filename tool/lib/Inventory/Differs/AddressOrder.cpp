//===- AddressOrder.cpp - Containers in the order of addresses ------------===//
//
// A set or a map of pointers is gone through in the order of their addresses, or
// of hashes of these: another one in each process.
//
//===----------------------------------------------------------------------===//

#include "Differs.h"
#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

#include "clang/AST/DeclTemplate.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"

using namespace accel::migrate;
using namespace clang;

static bool isNamed(const TemplateArgument &Argument, llvm::StringRef Name) {
  const CXXRecordDecl *D = Argument.getKind() == TemplateArgument::Type
                               ? Argument.getAsType()->getAsCXXRecordDecl()
                               : nullptr;
  return nameOf(D) == Name;
}

/// Whether the keys of a container are pointers, in no order of the program's.
static bool isByAddress(QualType T) {
  const auto *D = dyn_cast_or_null<ClassTemplateSpecializationDecl>(
      T.getNonReferenceType()->getAsCXXRecordDecl());
  if (!D || !D->getIdentifier())
    return false;
  // Where the comparison or the hash stands among the arguments.
  const unsigned At = llvm::StringSwitch<unsigned>(D->getName())
                          .Cases("set", "multiset", 1)
                          .Cases("unordered_set", "unordered_multiset", 1)
                          .Cases("map", "multimap", 2)
                          .Cases("unordered_map", "unordered_multimap", 2)
                          .Case("flat_hash_map", 2) // Optimizer::state()
                          .Default(0);
  const TemplateArgumentList &Arguments = D->getTemplateArgs();
  if (At == 0 || Arguments.size() <= At ||
      Arguments[0].getKind() != TemplateArgument::Type ||
      !(isNamed(Arguments[At], "less") || isNamed(Arguments[At], "hash")))
    return false;
  return Arguments[0].getAsType()->isPointerType() ||
         isNamed(Arguments[0], "shared_ptr") || isNamed(Arguments[0], "unique_ptr");
}

namespace {
/// Whether the processes meet in code: it reads a tensor, runs a model, or trains.
class Meetings : public AstVisitor {
public:
  explicit Meetings(const ProgramIndex &Index) : Index(Index) {}
  bool in(const Stmt *S) {
    TraverseStmt(const_cast<Stmt *>(S));
    return Found;
  }
  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = calleeOf(E);
    if (!F)
      return true;
    const auto *M = dyn_cast<CXXMemberCallExpr>(E);
    const auto *O = dyn_cast<CXXOperatorCallExpr>(E);
    const QualType Object = M   ? M->getImplicitObjectArgument()->getType()
                            : O ? O->getArg(0)->getType()
                                : QualType();
    if (F->getIdentifier())
      Found |= givesMemory(F) ||
               ((isTorch(F) || (M && isTensor(Object))) && reads(F->getName()));
    if (M || (O && O->getOperator() == OO_Call))
      Found |= moduleOf(Object) && (O || runs(F));
    if (M && optimizerOf(Object))
      Found |= nameOf(F) == "step";
    if (O && O->getOperator() == OO_LessLess)
      Found |= O->getNumArgs() > 1 && isTensor(O->getArg(1)->getType());
    for (const FunctionDecl *Body : Index.ownBodiesOf(F))
      if (!Found && Seen.insert(Body).second)
        TraverseStmt(Body->getBody());
    return !Found;
  }

private:
  static bool runs(const FunctionDecl *F) {
    return nameOf(F).starts_with("forward");
  }
  static bool reads(llvm::StringRef Name) {
    static const llvm::StringSet<> Names = {
        "item", "norm", "sum",   "mean",     "max",        "min",      "var",
        "std",  "dot",  "all",   "any",      "amax",       "amin",     "cat",
        "save", "equal", "stack", "allclose", "is_nonzero", "backward"};
    return Names.count(Name) != 0;
  }

  const ProgramIndex &Index;
  std::set<const FunctionDecl *> Seen;
  bool Found = false;
};
} // namespace

void Decisions::addressOrder(QualType Container, SourceLocation At,
                             const Stmt *Body) {
  if (!Text.mayEdit(At) || !isByAddress(Container) || !Meetings(Index).in(Body))
    return;
  say("ACL0127", At,
      "the loop goes in the order of addresses, which is another one in each "
      "process, and what it does wants all of them",
      "Keep the keys in a std::vector in the order in which they come, and go over "
      "that; over what an optimizer keeps by the parameters of its "
      "param_groups().");
}
