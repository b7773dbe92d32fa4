//===- MemoryReads.cpp - What is done with the memory of tensors ----------===//

#include "Leaves.h"

#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

static bool isInPlace(llvm::StringRef Name) {
  return namesInPlace(Name) || Name == "set_data";
}

bool accel::migrate::readsGradient(const Expr *E) {
  for (unsigned Depth = 0; E && Depth < 64; ++Depth) {
    const auto *Member = dyn_cast<CXXMemberCallExpr>(plain(E));
    const CXXMethodDecl *M = Member ? Member->getMethodDecl() : nullptr;
    if (!M || !M->getIdentifier() || !isTensor(Member->getObjectType()))
      return false;
    if (M->getName() == "grad" || M->getName() == "mutable_grad")
      return true;
    E = Member->getImplicitObjectArgument();
  }
  return false;
}

/// Whether `S` may train, or write into a tensor: what a copy of one does not see.
static bool maySetTensors(const Stmt *S, const ProgramIndex &Index,
                          std::set<const FunctionDecl *> &Seen) {
  return existsIn(S, [&](const Stmt *Part) {
    const FunctionDecl *F = calleeOf(dyn_cast<CallExpr>(Part));
    if (!F)
      return false;
    if (isTorch(F) && (isInPlace(nameOf(F)) || nameOf(F) == "step" ||
                       nameOf(F) == "zero_grad" || nameOf(F) == "backward" ||
                       nameOf(F) == "load"))
      return true;
    return llvm::any_of(Index.ownBodiesOf(F), [&](const FunctionDecl *Body) {
      return Seen.insert(Body).second &&
             maySetTensors(Body->getBody(), Index, Seen);
    });
  });
}

static bool mayPoint(QualType T);

/// Whether it is a container, an allocator &c. of what may point.
static bool holdsPointing(const CXXRecordDecl *D) {
  return llvm::any_of(typeArgumentsOf(D), mayPoint);
}

/// Whether something of this type may point to memory that it was made of.
static bool mayPoint(QualType T) {
  static const llvm::StringSet<> Views = {"span", "pair", "tuple",
                                          "basic_string_view", "unique_ptr",
                                          "shared_ptr"};
  const CXXRecordDecl *D = recordOf(T);
  if (!D)
    return !T->isArithmeticType();
  return !isInStd(D) || Views.count(D->getName()) || holdsPointing(D);
}

/// rows.insert(rows.end(), p, p + n), rows.emplace_back(p, p + n): of numbers, or of
/// containers that copy them.
static bool copiesInto(const CallExpr *Call) {
  // std::make_unique<std::vector<float>>(p, p + n)
  const FunctionDecl *F = calleeOf(Call);
  if (isInStd(F) && (nameOf(F) == "make_unique" || nameOf(F) == "make_shared"))
    return llvm::none_of(typeArgumentsOf(F), mayPoint);
  static const llvm::StringSet<> Names = {"insert", "append", "assign"};
  const auto *Member = dyn_cast<CXXMemberCallExpr>(Call);
  const CXXMethodDecl *M = Member ? Member->getMethodDecl() : nullptr;
  return M && isInStd(M) &&
         (Names.count(nameOf(M)) || nameOf(M).contains("emplace")) &&
         !holdsPointing(M->getParent());
}

/// A function of the standard library that reads the range which `Argument` is an end
/// of.
static bool readsRange(const CallExpr *Call, const Stmt *Argument) {
  static const llvm::StringSet<> Names = {
      "accumulate",  "reduce",      "inner_product",  "count",   "count_if",
      "max_element", "min_element", "minmax_element", "find",    "find_if",
      "all_of",      "any_of",      "none_of",        "equal",   "distance",
      "assign"}; // of std::vector
  // What these write comes behind.
  static const llvm::StringSet<> Copies = {"copy", "copy_n", "transform",
                                           "partial_sum"};
  const FunctionDecl *F = calleeOf(Call);
  if (!F || !isInStd(F))
    return false;
  return Names.count(nameOf(F)) ||
         (Copies.count(nameOf(F)) && Call->getNumArgs() > 1 &&
          (Call->getArg(0) == Argument || Call->getArg(1) == Argument));
}

/// Whether what a call is given the memory for may have it afterwards: a container of
/// pointers, torch::from_blob, an image's constructor.
static bool mayKeep(const CallExpr *Call) {
  static const llvm::StringSet<> Keeps = {
      "push_back", "emplace_back", "insert",     "emplace",   "push",
      "make_pair", "make_tuple",   "tie",        "from_blob", "make_shared",
      "span",      "make_unique",  "emplace_front", "push_front"};
  const FunctionDecl *F = calleeOf(Call);
  return Keeps.count(nameOf(F)) && isLibrary(F) && !copiesInto(Call);
}

/// Whether a part of `S` is returned, or put into what is there already.
static bool givesAway(const Stmt *S) {
  if (const auto *Assigned = dyn_cast<BinaryOperator>(S))
    return Assigned->isAssignmentOp();
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(S); O && O->isAssignmentOp())
    return true;
  const auto *Call = dyn_cast<CallExpr>(S);
  return isa<ReturnStmt>(S) || (Call && mayKeep(Call));
}

/// Whether what a call returns may point to the memory that it is given: a pointer, a view
/// of the standard library's, a struct that holds such.
static bool givesOn(QualType Returned) {
  const CXXRecordDecl *D = recordOf(Returned);
  if (!D || isInStd(D))
    return !Returned->isVoidType() && mayPoint(Returned);
  return D->hasDefinition() && llvm::any_of(D->fields(), [](const FieldDecl *Field) {
           return givesOn(Field->getType());
         });
}

namespace {

/// The uses of a variable, each with the statements around it.
class VariableUses : public AstAncestorVisitor {
public:
  explicit VariableUses(const VarDecl *V) : V(V) {}
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    if (E->getDecl() == V)
      All.push_back(Path);
    return true;
  }
  std::vector<std::vector<const Stmt *>> All;

private:
  const VarDecl *V;
};

/// Whether a lambda that uses it is returned, or put into what is there already.
bool isInGivenClosure(llvm::ArrayRef<const Stmt *> Use) {
  bool InLambda = false;
  for (const Stmt *S : llvm::reverse(Use)) {
    if (isa<LambdaExpr>(S)) {
      InLambda = true;
    } else if (InLambda) {
      if (givesAway(S))
        return true;
      if (isa<CompoundStmt>(S))
        return false;
    }
  }
  return false;
}

/// Behind the last statement of `Block`, from `Begin` on, that uses the variable; its end
/// where a lambda may use it later.
CompoundStmt::const_body_iterator
behindUses(const VariableUses &Uses, CompoundStmt::const_body_iterator Begin,
           const CompoundStmt *Block) {
  CompoundStmt::const_body_iterator End = Begin;
  for (const std::vector<const Stmt *> &Use : Uses.All) {
    if (llvm::any_of(Use, [](const Stmt *S) { return isa<LambdaExpr>(S); }))
      return Block->body_end();
    const auto Last = std::find_if(Begin, Block->body_end(), [&](const Stmt *S) {
      return llvm::is_contained(Use, S);
    });
    if (Last == Block->body_end())
      return Last;
    End = std::max(End, std::next(Last));
  }
  return End;
}

class Reads {
public:
  Reads(const Stmt *Body, const ProgramIndex &Index)
      : Body(Body), Index(Index) {}

  bool only(llvm::ArrayRef<const Stmt *> Path);

private:
  bool keeps(const VarDecl *V, bool IsConst, llvm::ArrayRef<const Stmt *> Path);

  const Stmt *Body;
  const ProgramIndex &Index;
  std::set<const VarDecl *> Kept;
};

} // namespace

bool Reads::only(llvm::ArrayRef<const Stmt *> Path) {
  const Stmt *Of = Path.back(), *Around = nullptr;
  const auto *Gives = dyn_cast<Expr>(Of); // const_data_ptr<float>()
  const QualType Given = Gives ? Gives->getType()->getPointeeType() : QualType();
  bool IsConst = !Given.isNull() && Given.isConstQualified(); // const float*
  for (Path = Path.drop_back(); !Path.empty();
       Of = Around, Path = Path.drop_back()) {
    Around = Path.back();
    if (const auto *E = dyn_cast<CastExpr>(Around)) {
      if (E->getCastKind() == CK_LValueToRValue && !E->getType()->isPointerType())
        return true;
      const QualType To = E->getType()->getPointeeType();
      IsConst |= !To.isNull() && To.isConstQualified();
      continue;
    }
    if (const auto *O = dyn_cast<BinaryOperator>(Around)) {
      if (O->isComparisonOp())
        return true;
      if (O->isAssignmentOp() || O->isCompoundAssignmentOp())
        return false;
      continue;
    }
    if (const auto *U = dyn_cast<UnaryOperator>(Around)) {
      // Moved on, what it points to is read elsewhere in the expression.
      if (U->isIncrementDecrementOp() && !U->getType()->isPointerType())
        return false;
      continue;
    }
    if (const auto *Made = dyn_cast<CXXConstructExpr>(Around)) {
      const CXXRecordDecl *D = Made->getConstructor()->getParent();
      if (Made->getConstructor()->isCopyOrMoveConstructor())
        continue;
      if (isInStd(D) && !mayPoint(Made->getType()))
        return true; // std::vector<float>(p, p + n)
      // std::span<const float>(p, n)
      IsConst |= llvm::any_of(typeArgumentsOf(D), [](QualType T) {
        return T.isConstQualified();
      });
      if (IsConst)
        continue; // at::ArrayRef<float>(p, n)
      return false;
    }
    if (const auto *Call = dyn_cast<CallExpr>(Around)) {
      const FunctionDecl *F = calleeOf(Call);
      // A row of an accessor; its sizes.
      if (F && isTorch(F) && isa<CXXMethodDecl>(F)) {
        if (!Call->getType()->isDependentType() &&
            isa<CXXOperatorCallExpr>(Call))
          continue;
        return cast<CXXMethodDecl>(F)->isConst() &&
               !Call->getType()->isPointerType();
      }
      if (readsRange(Call, Of) || copiesInto(Call))
        return true;
      // Who has the pointer, or what points to the memory, afterwards: view(p, n);
      // member = span; pointers.push_back(p)
      const auto *O = dyn_cast<CXXOperatorCallExpr>(Call);
      if (!IsConst || (mayKeep(Call) && mayPoint(cast<Expr>(Of)->getType())) ||
          (O && O->isAssignmentOp()))
        return false;
      if (!givesOn(Call->getType()))
        return true;
      continue;
    }
    if (const auto *D = dyn_cast<DeclStmt>(Around)) {
      for (const Decl *Each : D->decls())
        if (const auto *V = dyn_cast<VarDecl>(Each); V && V->getInit() == Of)
          return (V->isImplicit() && IsConst) || keeps(V, IsConst, Path);
      return false;
    }
    if (isa<ParenExpr, ExprWithCleanups, MaterializeTemporaryExpr,
            CXXBindTemporaryExpr, ArraySubscriptExpr, MemberExpr,
            ConditionalOperator, InitListExpr>(Around))
      continue;
    return isa<CompoundStmt, ForStmt, WhileStmt, IfStmt, DoStmt>(Around);
  }
  return false;
}

/// The variable of the declaration that `Path` ends with.
bool Reads::keeps(const VarDecl *V, bool IsConst,
                  llvm::ArrayRef<const Stmt *> Path) {
  if (!V->hasLocalStorage() || !Kept.insert(V).second)
    return Kept.count(V) != 0;
  const Stmt *Declared = Path.back();
  Path = Path.drop_back();
  const auto *Block = Path.empty() ? nullptr : dyn_cast<CompoundStmt>(Path.back());
  if (!Block)
    return false;
  VariableUses Uses(V);
  Uses.TraverseStmt(const_cast<Stmt *>(Body));
  if (llvm::any_of(Uses.All, [](const auto &Use) { return isInGivenClosure(Use); }))
    return false;
  const bool IsOnlyRead =
      llvm::all_of(Uses.All, [&](const auto &Use) { return only(Use); });
  if (!IsOnlyRead &&
      (!IsConst || llvm::any_of(Uses.All, [](const auto &Use) {
         return isMemoryGivenAway(Use);
       })))
    return false;
  // What is written behind the last use is no matter.
  const auto Begin = std::next(llvm::find(Block->body(), Declared));
  const auto End = IsOnlyRead ? behindUses(Uses, Begin, Block) : Block->body_end();
  std::set<const FunctionDecl *> Seen;
  return llvm::none_of(llvm::make_range(Begin, End), [&](const Stmt *S) {
    return maySetTensors(S, Index, Seen);
  });
}

bool accel::migrate::isMemoryOnlyRead(llvm::ArrayRef<const Stmt *> Path,
                                      const Stmt *Body,
                                      const ProgramIndex &Index) {
  return Reads(Body, Index).only(Path);
}

bool accel::migrate::isMemoryKept(llvm::ArrayRef<const Stmt *> Path) {
  if (Path.empty())
    return false;
  const auto IsMemory = [](QualType T) {
    return T->isPointerType() || (recordOf(T) && !isTensor(T));
  };
  const Stmt *Of = Path.back();
  for (Path = Path.drop_back(); !Path.empty(); Path = Path.drop_back()) {
    const Stmt *Around = Path.back();
    if (const auto *O = dyn_cast<BinaryOperator>(Around);
        O && O->isAssignmentOp())
      return O->getRHS() == Of && O->getType()->isPointerType();
    if (const auto *Made = dyn_cast<CXXConstructExpr>(Around);
        Made && !Made->getConstructor()->isCopyOrMoveConstructor()) {
      // A vector of numbers copies them; a view does not.
      return mayPoint(Made->getType());
    }
    if (const auto *Call = dyn_cast<CallExpr>(Around)) {
      if (const auto *O = dyn_cast<CXXOperatorCallExpr>(Call);
          O && O->isAssignmentOp())
        return O->getArg(0) != Of && IsMemory(O->getArg(0)->getType());
      const FunctionDecl *F = calleeOf(Call);
      // A row of an accessor, or a move of a pointer.
      const bool IsRow = F && isa<CXXOperatorCallExpr>(Call) && isTorch(F) &&
                         IsMemory(Call->getType());
      if (!IsRow && !(F && isInStd(F) && nameOf(F) == "move"))
        return mayKeep(Call);
    } else if (const auto *D = dyn_cast<DeclStmt>(Around)) {
      return llvm::any_of(D->decls(), [&](const Decl *Each) {
        const auto *V = dyn_cast<VarDecl>(Each);
        return V && V->getInit() == Of && IsMemory(V->getType());
      });
    } else if (const auto *R = dyn_cast<ReturnStmt>(Around)) {
      return R->getRetValue() && IsMemory(R->getRetValue()->getType());
    } else if (isa<LambdaExpr>(Around)) {
      return true;
    } else if (const auto *E = dyn_cast<Expr>(Around)) {
      if (!IsMemory(E->getType()) && !E->getType()->isArrayType())
        return false; // A number of it.
    } else {
      return false;
    }
    Of = Around;
  }
  return false;
}

bool accel::migrate::isMemoryGivenAway(llvm::ArrayRef<const Stmt *> Path) {
  if (!isMemoryKept(Path))
    return false;
  for (const Stmt *S : llvm::reverse(Path)) {
    if (givesAway(S))
      return true;
    if (isa<LambdaExpr, DeclStmt>(S))
      return false;
  }
  return false;
}

/// x.mul_(2), torch::relu_(x), torch::add_out(x, y, z); x += 1, x[0] = y
static bool writesTensor(const CallExpr *E) {
  static const llvm::StringSet<> Others = {
      "requires_grad_", "detach_", "clip_grad_norm_", "clip_grad_value_"};
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E)) {
    if (!O->isAssignmentOp() || !isTensor(O->getArg(0)->getType()))
      return false;
    const Expr *To = plain(O->getArg(0));
    return !readsGradient(To) && (O->getOperator() != OO_Equal ||
                                  !isa<DeclRefExpr, MemberExpr>(To));
  }
  const FunctionDecl *F = E->getDirectCallee();
  const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
  if (!F || !isTorch(F) || (!Member && E->getNumArgs() == 0))
    return false;
  const Expr *To = Member ? Member->getImplicitObjectArgument() : E->getArg(0);
  const llvm::StringRef Name = nameOf(F);
  return isTensor(To->getType()) && !Others.count(Name) &&
         !readsGradient(To) && (isInPlace(Name) || Name.ends_with("_out"));
}

bool accel::migrate::writesTensors(const Stmt *Body) {
  return anyIn<CallExpr>(Body, writesTensor);
}

bool accel::migrate::isWrittenInPlace(const VarDecl *V, const Stmt *Body) {
  VariableUses Uses(V);
  Uses.TraverseStmt(const_cast<Stmt *>(Body));
  return llvm::any_of(Uses.All, [&](llvm::ArrayRef<const Stmt *> Path) {
    // x.mul_(2), x[0].zero_(), x[0] = y
    for (const Stmt *S : llvm::reverse(Path.drop_back())) {
      const auto *Call = dyn_cast<CallExpr>(S);
      const FunctionDecl *F = Call ? calleeOf(Call) : nullptr;
      if (const auto *O = dyn_cast_or_null<CXXOperatorCallExpr>(Call);
          O && O->isAssignmentOp())
        return rootOf(O->getArg(0)) == V;
      if (F && isTorch(F) && isInPlace(nameOf(F)))
        return true;
      if (!isa<Expr>(S))
        return false;
    }
    return false;
  });
}
