//===- Buffers.cpp - What is filled with parts of a batch -----------------===//

#include "Buffers.h"
#include "Fields.h"
#include "Sizes.h"
#include "Uses.h"

#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

namespace {

bool isSlice(const Expr *E) {
  const CXXRecordDecl *R = E ? recordOf(E->getType()) : nullptr;
  return nameOf(R) == "Slice";
}

/// What an index of `index({Slice(), t})` is made of.
const Expr *indexIn(const InitListExpr *List, unsigned I) {
  const Expr *At = bare(List->getInit(I));
  while (const auto *Made = dyn_cast_or_null<CXXConstructExpr>(At)) {
    if (Made->getNumArgs() == 0 || isa<CXXDefaultArgExpr>(Made->getArg(0)) ||
        isSlice(At))
      break;
    At = bare(Made->getArg(0));
  }
  return At;
}

/// `Slice()`: all of a dimension.
bool takesAll(const Expr *Slice) {
  const auto *Made = dyn_cast<CXXConstructExpr>(Slice);
  return Made && llvm::all_of(Made->arguments(), [](const Expr *Arg) {
           return isa<CXXDefaultArgExpr>(Arg);
         });
}

/// What a function does with one of its variables, dimension by dimension.
class BufferUses : public AstAncestorVisitor {
public:
  BufferUses(const VarDecl *V, unsigned Dims, const Cut &Cuts,
             const ASTContext &Context)
      : V(V), Cuts(Cuts), Context(Context), Picked(Dims) {}

  bool IsFilled = false; ///< With something that is cut, a part at a time.
  bool IsUnknown = false;
  bool isPicked(unsigned Dim) const { return Picked[Dim]; }

  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    // A closure may run at any time.
    if (E->getDecl() == V)
      IsUnknown |= llvm::any_of(
          Path, [](const Stmt *S) { return isa<LambdaExpr>(S); });
    return true;
  }

  bool VisitCallExpr(CallExpr *E) override {
    const auto *Operator = dyn_cast<CXXOperatorCallExpr>(E);
    if (Operator && Operator->isAssignmentOp()) {
      fill(E->getArg(0), E->getArg(1));
      return true;
    }
    const llvm::StringRef Name = torchNameOf(E);
    const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
    if (Member && rootOf(Member->getImplicitObjectArgument()) == V) {
      // Its memory, or its elements one by one.
      if (Name.contains("data_ptr") || Name.contains("accessor") ||
          Name.contains("requires_grad") || Name == "item" ||
          Name == "storage" || Name == "data" || Name == "resize_" ||
          Name == "set_")
        IsUnknown = true;
      else if (Name == "index_put_" && E->getNumArgs() > 1)
        fill(E, E->getArg(1));
      else if (Name.ends_with("_") && E->getNumArgs() > 0)
        fill(Member->getImplicitObjectArgument(), E->getArg(0));
    }
    dimsOf(E);
    // A function of the program may read its memory.
    if (!E->getDirectCallee() || isTorch(E->getDirectCallee()) || Operator ||
        modelCallOf(E))
      return true;
    for (const Expr *Arg : E->arguments())
      IsUnknown |= rootOf(Arg) == V;
    return true;
  }

private:
  void fill(const Expr *Part, const Expr *With) {
    if (rootOf(Part) == V && !isa<DeclRefExpr>(plain(Part)))
      IsFilled |= Cuts.in(With);
  }

  /// The dimensions of the buffer that `E`, a part of it, still has; nothing
  /// where `E` is no part, or another arrangement of one. Those by which it is
  /// picked are noted.
  std::optional<llvm::SmallVector<unsigned, 4>> dimsOf(const Expr *E) {
    E = plain(E);
    if (const auto *Ref = dyn_cast_or_null<DeclRefExpr>(E)) {
      if (Ref->getDecl() != V)
        return {};
      llvm::SmallVector<unsigned, 4> All;
      for (unsigned Dim = 0; Dim < Picked.size(); ++Dim)
        All.push_back(Dim);
      return All;
    }
    const auto *Call = dyn_cast_or_null<CallExpr>(E);
    const auto *Member = dyn_cast_or_null<CXXMemberCallExpr>(E);
    const bool Subscript = operatorCall(E, OO_Subscript);
    if (!Subscript && !Member)
      return {};
    auto Dims = dimsOf(Subscript ? Call->getArg(0)
                                 : Member->getImplicitObjectArgument());
    if (!Dims)
      return {};
    if (Subscript)
      return pick(*Dims, 0, Call->getArg(1)->getType()->isIntegerType());
    const llvm::StringRef Name = torchNameOf(Call);
    if (Name == "select" || Name == "slice" || Name == "narrow") {
      const Expr *Arg = Call->getNumArgs() ? Call->getArg(0) : nullptr;
      std::optional<int64_t> Dim =
          Arg && !isa<CXXDefaultArgExpr>(Arg) ? constantOf(Arg, Context) : 0;
      if (Dim && *Dim < 0)
        *Dim += Dims->size();
      if (Dim && *Dim >= 0 && *Dim < static_cast<int64_t>(Dims->size()))
        return pick(*Dims, *Dim, Name == "select");
      IsUnknown = true;
    } else if (Name == "index" || Name == "index_put_") {
      pickByList(*Dims, Call);
    }
    return {};
  }

  std::optional<llvm::SmallVector<unsigned, 4>>
  pick(llvm::SmallVector<unsigned, 4> Dims, unsigned At, bool Drops) {
    if (At >= Dims.size()) {
      IsUnknown = true;
      return {};
    }
    Picked[Dims[At]] = true;
    if (Drops)
      Dims.erase(Dims.begin() + At);
    return Dims;
  }

  /// `index({Slice(), t})`
  void pickByList(const llvm::SmallVector<unsigned, 4> &Dims,
                  const CallExpr *Call) {
    const InitListExpr *List = listIn(Call->getArg(0));
    if (!List || List->getNumInits() > Dims.size()) {
      IsUnknown = true;
      return;
    }
    for (unsigned I = 0; I < List->getNumInits(); ++I) {
      const Expr *At = indexIn(List, I);
      const bool All = isSlice(At) && takesAll(At);
      // None and "..." shift the dimensions behind them.
      if (!isSlice(At) && !At->getType()->isIntegerType() &&
          !isTensor(At->getType()))
        IsUnknown = true;
      if (!All)
        Picked[Dims[I]] = true;
    }
  }

  const VarDecl *V;
  const Cut &Cuts;
  const ASTContext &Context;
  llvm::SmallVector<bool, 4> Picked;
};

/// The batch of whose rows the elements of a vector are made: `all.push_back(x[i])`.
class RowFinder {
public:
  RowFinder(const Cut &Cuts, const std::map<const ValueDecl *, Uses> &Known,
            const ASTContext &Context)
      : Cuts(Cuts), Known(Known), Context(Context) {}

  const ValueDecl *batchOf(const ValueDecl *Vector, const Stmt *Body) {
    eachIn<CXXMemberCallExpr>(Body, [&](const CXXMemberCallExpr *E) {
      const llvm::StringRef Name = nameOf(calleeOf(E));
      if (declNamedBy(E->getImplicitObjectArgument()) == Vector &&
          (Name == "push_back" || Name == "emplace_back") &&
          E->getNumArgs() == 1)
        follow(E->getArg(0), 0);
    });
    return Of;
  }

private:
  void follow(const Expr *E, unsigned Depth) {
    for (; E && Depth < 32; ++Depth) {
      E = plain(E);
      if (const ValueDecl *V = declNamedBy(E)) {
        const auto It = Known.find(V);
        if (It != Known.end() && Followed.insert(V).second)
          for (const Expr *Made : It->second.Made)
            follow(Made, Depth + 1);
        return;
      }
      const Expr *Whole = rowTakenFrom(E);
      if (const ValueDecl *Batch = declNamedBy(Whole);
          Batch && isTensor(Batch->getType()) && Cuts.in(Whole)) {
        Of = Batch;
        return;
      }
      E = Whole ? Whole : leadingOperand(E);
    }
  }

  /// x of x[i], x.select(0, i), x.index({i, Slice(2, 5)}); or null.
  const Expr *rowTakenFrom(const Expr *E) const {
    if (const Expr *Tensor = rowOf(E, Context).Tensor)
      return Tensor;
    const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
    const InitListExpr *List =
        torchNameOf(Member) == "index" ? listIn(Member->getArg(0)) : nullptr;
    const Expr *First = List && List->getNumInits() ? indexIn(List, 0) : nullptr;
    return First && First->getType()->isIntegerType()
               ? Member->getImplicitObjectArgument()
               : nullptr;
  }

  const ValueDecl *Of = nullptr;
  const Cut &Cuts;
  const std::map<const ValueDecl *, Uses> &Known;
  const ASTContext &Context;
  std::set<const ValueDecl *> Followed;
};

class BufferFinder : public AstAncestorVisitor {
public:
  BufferFinder(const ProgramIndex &Index, const Cut &Cuts,
               const FunctionDecl *F, std::vector<Buffer> &Found)
      : Index(Index), Cuts(Cuts), F(F), Found(Found), Known(usesIn(F)) {}

  bool VisitVarDecl(VarDecl *V) override {
    if (!V->isLocalVarDecl() || V->isStaticLocal() || !V->getInit() ||
        V->getDeclContext() != F || !isTensor(V->getType()) ||
        V->getType()->isReferenceType())
      return true;
    const InitListExpr *Sizes = sizesOfBuffer(V->getInit());
    const Uses &U = Known[V];
    if (!Sizes || U.Made.size() != 1 || U.Leaf || !U.Tied.empty())
      return true;
    BufferUses In(V, Sizes->getNumInits(), Cuts, Index.Context);
    In.TraverseStmt(F->getBody());
    if (!In.IsFilled || In.IsUnknown)
      return true;
    place(V, Sizes, In);
    return true;
  }

  /// torch::stack(rows), where the rows were taken out of a batch one by one.
  bool VisitCallExpr(CallExpr *E) override {
    const llvm::StringRef Name = torchNameOf(E);
    if ((Name != "stack" && Name != "cat") || E->getNumArgs() != 2 ||
        constantOf(E->getArg(1), Index.Context).value_or(0) != 0)
      return true;
    const VarDecl *V = varNamedBy(bare(E->getArg(0)));
    if (!V || !V->isLocalVarDecl() || V->getDeclContext() != F)
      return true;
    const ValueDecl *Of =
        RowFinder(Cuts, Known, Index.Context).batchOf(V, F->getBody());
    if (Of && Of->getDeclContext() == F && isSeenHere(Of))
      Found.push_back({F, nullptr, E, Of->getNameAsString(), std::nullopt});
    return true;
  }

private:
  /// Whether a variable's scope is around what is visited.
  bool isSeenHere(const ValueDecl *V) const {
    if (const auto *Part = dyn_cast<BindingDecl>(V))
      V = Part->getDecomposedDecl();
    return isa<ParmVarDecl>(V) || llvm::any_of(Path, [V](const Stmt *Around) {
             return llvm::any_of(Around->children(), [V](const Stmt *S) {
               const auto *D = dyn_cast_or_null<DeclStmt>(S);
               return D && llvm::is_contained(D->decls(), V);
             });
           });
  }

  /// Finds the batch whose rows the buffer has in a dimension by which nothing is
  /// picked out of it.
  void place(const VarDecl *V, const InitListExpr *Sizes,
             const BufferUses &In) {
    std::optional<Buffer> Other;
    for (unsigned Dim = 0; Dim < Sizes->getNumInits(); ++Dim) {
      if (In.isPicked(Dim))
        continue;
      const std::optional<SizeOf> Size = sizeOf(Sizes->getInit(Dim), F);
      if (!Size || !Cuts.in(Size->Tensor))
        continue;
      Buffer B{F, V, plain(V->getInit()),
               Size->Tensor->getDecl()->getNameAsString(), std::nullopt};
      // Another one, by which parts are picked, may be what the batch is cut along.
      if (Dim != 0 || Size->Dim != 0)
        B.Dim = Dim;
      if (Size->Dim == Dim)
        return Found.push_back(std::move(B));
      if (!Other)
        Other = std::move(B);
    }
    if (Other)
      Found.push_back(std::move(*Other));
  }

  const ProgramIndex &Index;
  const Cut &Cuts;
  const FunctionDecl *F;
  std::vector<Buffer> &Found;
  std::map<const ValueDecl *, Uses> Known;
};

} // namespace

std::vector<Buffer> accel::migrate::findBuffers(const ProgramIndex &Index,
                                                const Cut &Cuts) {
  std::vector<Buffer> Found;
  for (const FunctionDecl *F : Index.Functions)
    if (!Index.loadsSamples(F) && Index.isOwn(F))
      BufferFinder(Index, Cuts, F, Found).TraverseStmt(F->getBody());
  return Found;
}
