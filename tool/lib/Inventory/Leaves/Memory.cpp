//===- Memory.cpp - What leaves: the memory of tensors --------------------===//
//
// A distributed tensor has no memory that could be read as a whole. What reads
// it is given a whole tensor, under the same name where that can be, so that
// two pointers into one tensor stay that.
//
// Where parameters are in parts (--fsdp, --tp) they and all that models give are
// distributed, also of what is no batch. What only reads the memory of these is
// given a whole copy; what writes into it must not be, and stops with an error there,
// but for gradients, which become whole themselves.
//
//===----------------------------------------------------------------------===//

#include "Leaves.h"

#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

#include <utility>

using namespace accel::migrate;
using namespace clang;

namespace {

/// Where memory is read, and the statements around it.
class MemoryFinder : public AstAncestorVisitor {
public:
  struct Found {
    const Expr *Tensor; ///< Or what points to it, where there is an `Arrow`.
    SourceLocation Arrow;
    const Stmt *Statement; ///< Of the innermost block; may be null.
    const CompoundStmt *Block; ///< That block.
    /// To the call that gives the memory; empty where the tensor itself is passed on.
    std::vector<const Stmt *> Path;
    /// The loops around the statement in the same function, the innermost first, that
    /// stand in a block.
    std::vector<const Stmt *> Loops;
    bool IsConst = false; ///< What the arrow leads to.
    /// The constructor's initialiser that it stands in, or null.
    const Expr *Initialiser = nullptr;
  };
  std::vector<Found> All;
  /// Of those loops.
  std::map<const Stmt *, const CompoundStmt *> BlockOf;
  /// What is pickled: it may have any tensors in it.
  std::vector<const Expr *> Pickled;

  void find(const FunctionDecl *F) {
    if (const auto *C = dyn_cast<CXXConstructorDecl>(F))
      for (const CXXCtorInitializer *I : C->inits())
        if (I->isWritten()) {
          const size_t Before = All.size();
          TraverseStmt(I->getInit());
          for (Found &New : llvm::drop_begin(All, Before))
            New.Initialiser = I->getInit();
        }
    TraverseStmt(F->getBody());
  }

  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    if (!F || !F->getIdentifier())
      return true;
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E)) {
      const Expr *Object = Member->getImplicitObjectArgument();
      if (isTensor(Object->getType()) && givesMemory(F))
        add(Object, Path);
      // last->data_ptr<float>() of a pointer, a smart one, an optional
      if (Object->getType()->isPointerType() && givesMemory(F) &&
          isTensor(Object->getType()->getPointeeType()))
        if (const auto *Callee = dyn_cast<MemberExpr>(Member->getCallee());
            Callee && Callee->isArrow() && !isa<CXXThisExpr>(bare(Object))) {
          add(pointed(Object), Path);
          All.back().Arrow = Callee->getOperatorLoc();
          All.back().IsConst =
              bare(Object)->getType()->getPointeeType().isConstQualified();
        }
      // Whether two have the same memory.
      if (isTensor(Object->getType()) && isTorch(F) && F->getName() == "is_alias_of") {
        add(Object);
        add(E->getArg(0));
      }
      return true;
    }
    // torch::pickle_save(value)
    if (isTorch(F) && F->getName() == "pickle_save" && E->getNumArgs() == 1)
      if (const Expr *Value = E->getArg(0)->IgnoreUnlessSpelledInSource();
          holdsTensors(Value->getType()) || holdsScriptValues(Value->getType()))
        Pickled.push_back(Value);
    // A function of somebody else's that takes a tensor.
    if (isLibrary(F) || F->hasBody() || isa<CXXMethodDecl>(F))
      return true;
    for (const Expr *Arg : E->arguments())
      if (isTensor(Arg->getType()))
        add(Arg);
    return true;
  }

private:
  /// What `Object`, a pointer, is of: `last` of `last.operator->()`.
  static const Expr *pointed(const Expr *Object) {
    const auto *O = dyn_cast<CXXOperatorCallExpr>(bare(Object));
    return O && O->getOperator() == OO_Arrow ? O->getArg(0) : Object;
  }

  void add(const Expr *Tensor, std::vector<const Stmt *> ToMemory = {}) {
    const Stmt *Statement = nullptr;
    const CompoundStmt *Block = nullptr;
    for (size_t I = Path.size(); I-- > 0;)
      if ((Block = dyn_cast<CompoundStmt>(Path[I]))) {
        Statement = I + 1 < Path.size() ? Path[I + 1] : nullptr;
        break;
      } else if (isa<LambdaExpr>(Path[I])) {
        break;
      }
    std::vector<const Stmt *> Loops;
    for (size_t I = Path.size(); I-- > 1 && !isa<LambdaExpr>(Path[I]);)
      if (isLoop(Path[I]))
        if (const auto *Around = dyn_cast<CompoundStmt>(Path[I - 1])) {
          Loops.push_back(Path[I]);
          BlockOf[Path[I]] = Around;
        }
    All.push_back(
        {Tensor, {}, Statement, Block, std::move(ToMemory), std::move(Loops)});
  }
};

/// A literal, or a std::string made of one.
bool isLiteral(const Expr *E) {
  while (const auto *Made = dyn_cast<CXXConstructExpr>(bare(E))) {
    if (Made->getNumArgs() == 0)
      return false;
    E = Made->getArg(0);
  }
  return isa<StringLiteral>(bare(E));
}

/// Whether `E` names the same tensor each time, without doing anything: `list[i]`,
/// `all.at(name)`, `*it`, `std::get<0>(pair)`.
bool isPlace(const Expr *E, const ASTContext &Context) {
  static const llvm::StringSet<> Elements = {"at", "front", "back", "value",
                                             "get"};
  E = plain(E);
  if (isa<DeclRefExpr, CXXThisExpr>(E))
    return true;
  if (const auto *M = dyn_cast<MemberExpr>(E))
    return isPlace(M->getBase(), Context);
  if (const auto *U = dyn_cast<UnaryOperator>(E))
    return U->getOpcode() == UO_Deref && isPlace(U->getSubExpr(), Context);
  if (const auto *A = dyn_cast<ArraySubscriptExpr>(E))
    return isPlace(A->getBase(), Context) &&
           !A->getIdx()->HasSideEffects(Context);
  const auto *Call = dyn_cast<CallExpr>(E);
  const FunctionDecl *F = Call ? Call->getDirectCallee() : nullptr;
  if (!F || !isInStd(F))
    return !Call && !E->HasSideEffects(Context);
  const bool Element = isa<CXXOperatorCallExpr>(Call)
                           ? F->getOverloadedOperator() == OO_Subscript ||
                                 (F->getOverloadedOperator() == OO_Star &&
                                  Call->getNumArgs() == 1) ||
                                 F->getOverloadedOperator() == OO_Arrow
                           : Elements.count(nameOf(F));
  const auto *Member = dyn_cast<CXXMemberCallExpr>(Call);
  return Element &&
         (!Member ||
          isPlace(Member->getImplicitObjectArgument(), Context)) &&
         llvm::all_of(Call->arguments(), [&](const Expr *Arg) {
           return isPlace(Arg, Context) || isLiteral(Arg) ||
                  !Arg->HasSideEffects(Context);
         });
}

/// The variable or member that a chain of methods begins with, as it is spelled;
/// where memory is `Kept`, also an element of a container, or of a tensor.
const Expr *baseOf(const Expr *E, bool Kept, const ASTContext &Context) {
  for (unsigned Depth = 0; E && Depth < 64; ++Depth) {
    E = plain(E);
    if (isa<DeclRefExpr, MemberExpr>(E))
      return E;
    if (Kept && E->isLValue() && isPlace(E, Context))
      return E;
    const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
    const auto *Operator = dyn_cast<CXXOperatorCallExpr>(E);
    if (Kept && Operator && Operator->getOperator() == OO_Subscript)
      E = Operator->getArg(0);
    else if (Member)
      E = Member->getImplicitObjectArgument();
    else
      return nullptr;
    if (!isTensor(E->getType()))
      return nullptr;
  }
  return nullptr;
}

/// Whether all that an expression names is declared before `Statement`.
bool isDeclaredBefore(const Expr *E, const Stmt *Statement,
                      const SourceManager &SM) {
  const SourceLocation Begin = SM.getFileLoc(Statement->getBeginLoc());
  return !anyIn<DeclRefExpr>(E, [&](const DeclRefExpr *Ref) {
    return SM.isBeforeInTranslationUnit(
        Begin, SM.getFileLoc(Ref->getDecl()->getLocation()));
  });
}

/// The variable that an expression names, which may be null.
const VarDecl *named(const Expr *E) {
  const auto *Ref = dyn_cast_or_null<DeclRefExpr>(E);
  return Ref ? dyn_cast<VarDecl>(Ref->getDecl()) : nullptr;
}

/// The outermost of the loops around a statement, the innermost first, that only read
/// the local variable `Base`: one whole tensor is for all of their passes.
const Stmt *outermostReading(const Expr *Base,
                             llvm::ArrayRef<const Stmt *> Loops,
                             const ProgramIndex &Index) {
  const VarDecl *V = named(Base);
  const Stmt *Outermost = nullptr;
  if (!V || !V->hasLocalStorage())
    return nullptr;
  for (const Stmt *Loop : Loops) {
    if (!isDeclaredBefore(Base, Loop, Index.Context.getSourceManager()) ||
        Index.holdsBatches(Loop) || isWrittenInPlace(V, Loop))
      break;
    Outermost = Loop;
  }
  return Outermost;
}

/// The variable that `Base` names, where it is declared with its value right
/// before `Statement`, or with nothing but declarations between.
const VarDecl *declaredBefore(const Expr *Base, const Stmt *Statement,
                              const CompoundStmt *Block) {
  const VarDecl *V = named(Base);
  if (!V || !Block || !V->hasInit() || V->getInitStyle() != VarDecl::CInit ||
      V->getType()->isReferenceType())
    return nullptr;
  bool Declared = false;
  for (const Stmt *S : Block->body()) {
    if (S == Statement)
      return Declared ? V : nullptr;
    const auto *D = dyn_cast<DeclStmt>(S);
    Declared = D && (Declared || (D->isSingleDecl() && D->getSingleDecl() == V));
  }
  return nullptr;
}

/// What the constructor `F` makes the member `Base` of in its list of initialisers.
const Expr *initialiserOf(const Expr *Base, const FunctionDecl *F) {
  const auto *C = dyn_cast<CXXConstructorDecl>(F);
  const auto *M = dyn_cast_or_null<MemberExpr>(Base);
  if (!C || !M || !isa<CXXThisExpr>(bare(M->getBase())))
    return nullptr;
  for (const CXXCtorInitializer *I : C->inits())
    if (I->isWritten() && I->getMember() == M->getMemberDecl()) {
      const Expr *Init = I->getInit()->IgnoreUnlessSpelledInSource();
      const auto *Made = dyn_cast<CXXConstructExpr>(Init);
      return !Made ? Init : Made->getNumArgs() == 1 ? Made->getArg(0) : nullptr;
    }
  return nullptr;
}

/// Whether `Path` ends with a call that makes an accessor, which points to the sizes of
/// its tensor: that must live as long.
bool isAccessor(llvm::ArrayRef<const Stmt *> Path) {
  return !Path.empty() &&
         nameOf(calleeOf(dyn_cast<CallExpr>(Path.back()))) == "accessor";
}

/// weight.grad(), or a variable that is declared as one.
bool isGradient(const Expr *Tensor) {
  const VarDecl *V = named(plain(Tensor));
  return readsGradient(Tensor) ||
         (V && V->getInit() && readsGradient(V->getInit()));
}

/// Whether the base can be given another tensor.
bool isAssignable(const Expr *Base) {
  return !Base->getType().isConstQualified() && Base->isLValue();
}

} // namespace

const Cut &Memory::Divided() {
  if (!WithParameters)
    WithParameters.emplace(Index, Cut::OfParameters);
  return *WithParameters;
}

bool Memory::TensorsAreWritten() {
  if (!AnyWritten)
    AnyWritten = llvm::any_of(Index.Functions, [](const FunctionDecl *F) {
      return writesTensors(F->getBody());
    });
  return *AnyWritten;
}

/// Said once: where there is one there are many.
void Memory::noteWritten(const Expr *Tensor) {
  if (std::exchange(WrittenIsSaid, true))
    return;
  say("ACL0188", Tensor->getExprLoc(),
      "the memory of weights, or of what a model gives, is written or kept here: where "
      "parameters are divided (--fsdp, --tp and the like) this stops",
      "Write through operators (p.copy_(torch::from_blob(…))), or read "
      "accelerator.full(p).");
}

void Memory::add(const FunctionDecl *F) {
  if (!Text.mayEdit(F->getLocation()) || Index.loadsSamples(F) ||
      Index.BeforeMain.count(F))
    return;
  MemoryFinder Finder;
  Finder.find(F);
  std::set<std::pair<const Stmt *, std::string>> Made;
  std::set<const VarDecl *> MadeWhole;
  std::set<const ValueDecl *> MembersWhole;
  std::map<std::pair<const Stmt *, std::string>, LinePoint> Declared;
  auto IsGuarded = [&](const Expr *E) {
    const unsigned At =
        Text.SM.getFileOffset(Text.SM.getFileLoc(E->getExprLoc()));
    const std::string Path = Text.fileOf(E->getExprLoc());
    return llvm::any_of(Program.Guards, [&](const GuardFact &G) {
      return G.Range.File == Path && G.Range.Offset <= At &&
             At < G.Range.Offset + G.Range.Length;
    });
  };
  const auto AddWhole = [&](FunctionId In, const TextRange &Object,
                            bool IsWritten) {
    MemoryFact &Whole = Program.Memory.emplace_back();
    Whole.In = In;
    Whole.IsWritten = IsWritten;
    Whole.Object = Object;
  };
  for (const Expr *Value : Finder.Pickled)
    if (const std::optional<TextRange> R = editable(Value->getSourceRange());
        R && !IsGuarded(Value))
      AddWhole(Functions.at(Value->getExprLoc(), F), *R, /*IsWritten=*/false);
  // Whoever writes into a tensor's memory anywhere in the function: what is made whole
  // for one use is there for the others.
  std::set<const ValueDecl *> Written;
  for (const MemoryFinder::Found &Found : Finder.All)
    if (Cuts.in(Found.Tensor) &&
        (Found.Path.empty() ||
         !isMemoryOnlyRead(Found.Path, F->getBody(), Index)))
      Written.insert(rootOf(Found.Tensor));
  for (const auto &[Tensor, Arrow, Innermost, Block, Path, Loops, ToConst,
                    Initialiser] : Finder.All) {
    const Stmt *Statement = Innermost;
    // The main process's statements are given whole tensors.
    if (IsGuarded(Tensor))
      continue;
    // A gradient in parts may be written: whoever reads it next sees that.
    const bool ToGradient =
        !Path.empty() && isGradient(Tensor) && !Cuts.in(Tensor) &&
        Divided().in(Tensor) && !isMemoryOnlyRead(Path, F->getBody(), Index);
    const bool IsCopy = !Cuts.in(Tensor) && !ToGradient;
    if (IsCopy && (Path.empty() || !Divided().in(Tensor)))
      continue;
    if (IsCopy && !isMemoryOnlyRead(Path, F->getBody(), Index)) {
      noteWritten(Tensor);
      continue;
    }
    const FunctionId In = Initialiser
                              ? Functions.ofInitialiser(Initialiser)
                              : Functions.at(Tensor->getExprLoc(), F);
    // Matrix(Tensor t) : t_(t), data_(t_.data_ptr<float>()) {}
    const bool Kept = isMemoryKept(Path) ||
                      (Initialiser && Initialiser->getType()->isPointerType());
    // The gradient is whole where it stands, and what it belongs to stays.
    const Expr *Base =
        readsGradient(Tensor) ? nullptr : baseOf(Tensor, Kept, Index.Context);
    const bool IsWritten =
        ToGradient || (!IsCopy && Written.count(rootOf(Tensor)));
    // What stays whole under a name: whoever else has it sees what is written later.
    const bool IsShared = IsWritten || (!IsCopy && TensorsAreWritten());
    // auto c = accelerator.full(x.contiguous()); c.data_ptr<float>()
    if (const VarDecl *V = named(Base);
        V && MadeWhole.count(V) && !isReassigned(V))
      continue;
    if (const VarDecl *V = declaredBefore(Base, Statement, Block);
        V && Arrow.isInvalid() && !(IsCopy && isWrittenInPlace(V, F->getBody())))
      if (const std::optional<TextRange> R =
              editable(V->getInit()->getSourceRange())) {
        if (MadeWhole.insert(V).second)
          AddWhole(In, *R, IsShared);
        continue;
      }
    // Matrix(Tensor t) : t_(full_(t)), data_(t_.data_ptr<float>()) {}
    if (const Expr *Value = Initialiser ? initialiserOf(Base, F) : nullptr)
      if (const std::optional<TextRange> R = editable(Value->getSourceRange())) {
        const auto *Member = cast<MemberExpr>(Base)->getMemberDecl();
        if (MembersWhole.insert(Member).second)
          AddWhole(In, *R, IsShared);
        continue;
      }
    const Stmt *DeclaredIn = Block;
    if (const Stmt *Loop = outermostReading(Base, Loops, Index)) {
      Statement = Loop;
      DeclaredIn = Finder.BlockOf[Loop];
    }
    // What is named in `(f(pack), ...)` has no name before it.
    const std::optional<LinePoint> At =
        Statement && !Text.isFold(Statement) ? Text.before(Statement) : std::nullopt;
    // What is made anew has no name of its own, and what keeps its memory needs one.
    const bool IsMade = !Base && Kept;
    if (IsMade)
      Base = Tensor;
    // Declared in the statement itself: a condition's, a loop's.
    const bool Before =
        At && Base && isDeclaredBefore(Base, Statement, Text.SM);
    // for (auto &row : rows) pointers.push_back(row.data_ptr<float>());
    const bool IsAssignable =
        Base && (Arrow.isValid() ? !ToConst : isAssignable(Base));
    const bool AtOnce = !Before && Kept && !IsMade && IsAssignable;
    if (!IsAssignable && isAccessor(Path) && (Initialiser || isMemoryGivenAway(Path))) {
      say("ACL0187", Tensor->getExprLoc(),
          "an accessor is kept of what becomes a tensor of this place only: of "
          "a distributed tensor the memory is not there",
          "Give the function the tensor by value or as torch::Tensor&, or "
          "return the tensor and make the accessor where it is used.");
      continue;
    }
    MemoryFact Fact;
    if (Arrow.isValid()) {
      Fact.Arrow = editable(SourceRange(Arrow, Arrow));
      if (!Fact.Arrow)
        continue;
    }
    Fact.In = In;
    Fact.IsWritten = Before || AtOnce ? IsShared : IsWritten;
    const std::optional<TextRange> R =
        editable((Before || AtOnce ? Base : Tensor)->getSourceRange());
    if (!R)
      continue;
    Fact.Object = *R;
    // What a macro's text names may be declared there.
    const std::optional<LinePoint> InMacro =
        Before && R->Use ? Text.before(Statement, *R) : std::nullopt;
    if (Before || AtOnce)
      Fact.Variable = (Arrow.isValid() ? "*" : "") + Text.text(*R).str();
    if (Before) {
      Fact.IsConst = IsCopy || !IsAssignable;
      Fact.At = InMacro ? *InMacro : *At;
      if (!Fact.IsConst && !Made.insert({Statement, Fact.Variable}).second)
        continue;
      // One for the whole block. A copy of parameters is made anew, where it stands.
      if (Fact.IsConst) {
        const auto [First, IsNew] =
            Declared.try_emplace({DeclaredIn, Fact.Variable}, Fact.At);
        const bool IsFirst = IsNew || First->second.At.Offset == At->At.Offset;
        const std::optional<TextRange> Whole = editable(Tensor->getSourceRange());
        if (!IsFirst && IsCopy && !Kept && Whole) {
          Fact.Variable.clear();
          Fact.Object = *Whole;
        } else if (!IsCopy) {
          Fact.At = First->second;
        }
      }
    }
    Fact.WantsName = Fact.Variable.empty() && isAccessor(Path);
    Program.Memory.push_back(std::move(Fact));
  }
}
