//===- BatchOrigins.h - Where the step makes what a model reads ---*- C++
//-*-===//
//
// From what a model reads in a step back to the expression that makes it there,
// through variables, functions and structs: it is shared out in that place, or
// where it is read, if the variable is used otherwise in between.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_BATCHORIGINS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_BATCHORIGINS_H

#include "Batches.h"
#include "Returned.h"
#include "Uses.h"

#include <optional>
#include <tuple>

namespace accel::migrate {

class BatchOrigins {
public:
  BatchOrigins(const ProgramIndex &Index, const Cut &Loaded, SourceText &Text);

  /// A model reads `Input` in a step, or the program multiplies it with a
  /// tensor that it trains (`OwnTensors`). `Variable`: it has to stay a
  /// variable; `IsStepsFirst`: its samples are in dimension 1.
  void read(const clang::Expr *Input, const clang::CallExpr *By,
            const clang::FunctionDecl *F, bool Variable = false,
            bool IsStepsFirst = false);
  bool OwnTensors = false;

  /// `auto x = data.index_select(0, rows), y = targets.index_select(0, rows);`:
  /// the same rows belong together.
  void shareAlike();

  /// A variable whose gradient the program wants: it is trained. Also a
  /// parameter of a function that is given one: `linreg(x, weight, bias)`.
  bool isParameter(const clang::Expr *E, const clang::FunctionDecl *F,
                   unsigned Depth = 0);
  /// Whether a trained tensor is part of what is calculated: no batch, but what
  /// is made of one.
  bool readsParameter(const clang::Stmt *S, const clang::FunctionDecl *F,
                      unsigned Depth = 0);

  /// Whether steps call `F`, a method of a model, outside of models.
  bool isCalledBySteps(const clang::FunctionDecl *F) const {
    return CalledModels.count(F);
  }

  bool empty() const { return Found.empty(); }
  /// All that was found, each expression once.
  std::vector<Batch> take();

private:
  std::optional<TextRange> inStepOfMacro(const clang::Expr *E) const;
  bool isGivenByModel(const clang::Expr *E) const;
  bool isOneRow(const clang::Expr *E, const clang::FunctionDecl *F,
                unsigned Depth = 0);
  bool becomesShared(const clang::Expr *E, const clang::FunctionDecl *F);
  void resolve(const clang::Expr *E, const clang::FunctionDecl *F,
               unsigned Depth);
  void resolveVariable(const clang::DeclRefExpr *E,
                       const clang::FunctionDecl *F, unsigned Depth);
  void resolveParameter(const clang::DeclRefExpr *E,
                        const clang::ParmVarDecl *P,
                        const clang::FunctionDecl *F, unsigned Depth);
  bool resolveReturned(const ReturnedValue &Value, const clang::FunctionDecl *F,
                       unsigned Depth);
  bool resolveJoined(const clang::Expr *E, const clang::FunctionDecl *F,
                     unsigned Depth);
  /// Whether a model makes it of tensors in a step: it is made in parts there.
  bool isGiven(const ReturnedValue &Value, const clang::FunctionDecl *F) const;
  /// The same of what is made of that: `actions.detach()`.
  bool isMadeOfGiven(const clang::Expr *E, const clang::FunctionDecl *F) const;
  bool isOnlyRead(const clang::ValueDecl *V, const clang::FunctionDecl *F) const;
  bool shareTogether(const clang::CallExpr *Call, const clang::FunctionDecl *F);
  bool resolveRows(const clang::Expr *E, const clang::FunctionDecl *F,
                   unsigned Depth);
  // Of structs: BatchStructs.cpp.
  bool shareStruct(const clang::Expr *E, const clang::FunctionDecl *F);
  static const clang::VarDecl *structNamedBy(const clang::Expr *E);
  bool shareMembers(const clang::VarDecl *V, const clang::FunctionDecl *F);
  /// An expression, and the function that it stands in.
  struct Made {
    const clang::Expr *E;
    const clang::FunctionDecl *In;
  };
  bool structOf(const clang::VarDecl *V, const clang::FunctionDecl *F,
                std::vector<Made> &Found, unsigned Depth);
  bool structGivenTo(const clang::ParmVarDecl *P, const clang::FunctionDecl *F,
                     std::vector<Made> &Found, unsigned Depth);
  bool share(const clang::Expr *E, const clang::FunctionDecl *F,
             bool Points = false);
  void shareAtUse(const clang::DeclRefExpr *E, const clang::FunctionDecl *F);
  const Uses &usesOf(const clang::ValueDecl *V, const clang::FunctionDecl *F);
  bool isReadByRows(const clang::ValueDecl *V, const clang::FunctionDecl *F,
                    unsigned Depth = 0);
  bool knowsLayout(const clang::Expr *E) const;

  /// A place where the program calls one of its functions.
  struct Caller {
    const clang::FunctionDecl *In;
    llvm::ArrayRef<const clang::Expr *> Args;
  };
  void noteCalls(const clang::FunctionDecl *In);
  std::vector<Made> givenTo(const clang::ParmVarDecl *P) const;
  /// Whether what stands at `Loc`, in `F`, is run by a training step.
  bool isInStep(clang::SourceLocation Loc, const clang::FunctionDecl *F) const {
    return Index.isInStep(Loc, F) || isCalledBySteps(F);
  }
  /// Whether steps take rows of it.
  bool isDataSet(const clang::VarDecl *V);
  bool isMadeInStep(const Made &Given, unsigned Depth = 0);
  bool isMadeOf(const clang::Expr *E, const clang::ValueDecl *V) const;
  bool isMadeOfItself(const Uses &U, const clang::ValueDecl *V) const;

  const ProgramIndex &Index;
  const Cut &Loaded;
  SourceText &Text;
  std::map<const clang::FunctionDecl *,
           std::map<const clang::ValueDecl *, Uses>>
      Known;
  std::multimap<const clang::FunctionDecl *, Caller> Callers;
  /// Functions that are also called where it is not seen with what.
  std::set<const clang::FunctionDecl *> Given;
  /// Methods of models that steps call outside of models.
  std::set<const clang::FunctionDecl *> CalledModels;
  /// What steps take rows of; made when it is first asked for.
  std::optional<std::set<const clang::ValueDecl *>> DataSets;
  std::vector<Batch> Found;
  std::set<std::tuple<std::string, unsigned, unsigned>> Places;
  const clang::CallExpr *ReadBy = nullptr;
  const clang::FunctionDecl *ReadIn = nullptr;
  const clang::Expr *Variable =
      nullptr;         ///< What is read has to stay a variable.
  bool Stayed = false; ///< And it did: it is not shared out there.
  std::set<const clang::ValueDecl *> Seen;
  bool ThroughClosure = false; ///< What is read now came to a closure.
  bool StepsFirst = false; ///< What is read now has its samples in dimension 1.
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_BATCHORIGINS_H
