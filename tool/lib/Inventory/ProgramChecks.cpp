//===- ProgramChecks.cpp - What can only be said of a whole unit ----------===//

#include "AstVisitor.h"
#include "Taker.h"

#include "TorchTypes.h"

#include "accel/migrate/ProjectSources.h"


#include <algorithm>

using namespace accel::migrate;
using namespace clang;

namespace {
/// Whether code has to do with models or optimizers.
class TrainableFinder : public AstVisitor {
public:
  bool VisitExpr(Expr *E) override {
    Found |= moduleOf(E->getType()) || optimizerOf(E->getType());
    return !Found;
  }
  bool Found = false;
};
} // namespace

/// A backward that no loop over batches runs: no batch is being split then, and
/// every process calculates what one device would.
void Taker::checkOutside(const BackwardCall &B) {
  const SourceLocation Loc = B.Call->getExprLoc();
  if (!sharesWork()) {
    if (refused())
      return;
    refuse(Program, "ACL0108", Loc,
           "backward() is not called in a loop over batches, and nothing else "
           "in the program can be shared between processes",
           "Move the call into a loop over batches.");
    return;
  }
  // Only what an optimizer may step on has to go through the accelerator.
  TrainableFinder Trainable;
  Trainable.TraverseStmt(B.Writer->getBody());
  if (Trainable.Found) {
    for (unsigned I = 0; I < B.Call->getNumArgs(); ++I)
      if (!isa<CXXDefaultArgExpr>(B.Call->getArg(I)))
        return refuse(Program, "ACL0109", Loc,
                      "backward() is called with arguments",
                      "Call it without, or migrate this step by hand.");
    Value Loss;
    addBackward({B.Call, Loss, B.Writer}, Program, Program.Backwards);
  }
  const FunctionId In = Functions.of(B.Writer);
  if (Index.stepsAlone(B.Writer) &&
      llvm::any_of(Program.Parallel, [&](const ParallelCallFact &Call) {
        return Call.In == In;
      }))
    return;
  Program.Findings.push_back(Text.finding(
      "ACL0175", Loc,
      "every process calculates this backward() in full: it is not in a loop "
      "over batches",
      WholeRemedy));
}

void Taker::checkLoops() {
  settleWholeLoops();
  for (const Expr *Call : Squeezed)
    if (SqueezedWhole.count(Call))
      refuse(Program, "ACL0142", Call->getExprLoc(),
             "this squeeze() is applied to a part of the batch in one call and "
             "to a tensor that every process has in full in another",
             "Name the dimension from the front, for example squeeze(1).");
  const bool Refused = refused();
  for (const BackwardCall &B : Index.Backwards) {
    const SourceLocation Loc = B.Call->getExprLoc();
    const bool Stepped = B.Step || Index.InStep.count(B.Writer);
    if (B.InLambda && !Index.InStep.count(B.Writer))
      refuse(Program, "ACL0106", Loc, "backward() is called in a lambda",
             "Move the training step into the loop's body.");
    else if (!Stepped)
      checkOutside(B);
    else if (!Refused && !Followed.count(B.Call))
      refuse(Program, "ACL0100", Loc,
             "the analysis does not come to this call of backward()",
             "Call it in the loop over batches.");
  }
  for (const auto &[Loop, Facts] : Index.Loops)
    if (Facts.InLambda && !Facts.Training)
      refuse(Program, "ACL0106", Loop->getBeginLoc(),
             "the loop over batches stands in a lambda",
             "Make the lambda a function.");
  for (const FunctionDecl *F : Index.NeverInstantiated) {
    // Its types are not known, and so not what it does.
    if (callsFunction(Text.text(F->getSourceRange()), "backward") &&
        Text.mayEdit(F->getLocation()))
      refuse(Program, "ACL0103", F->getLocation(),
             "the template '" + F->getNameAsString() +
                 "' is used nowhere in this file, so that the types in it are "
                 "not known",
             "Name a file on the command line that uses it.");
  }
}

/// A loop over batches shares them out because its loader was made by
/// accel::data::make_data_loader; one that comes from elsewhere gives every
/// process whole batches.
void Taker::checkLoaders() {
  for (const auto &[Loop, Facts] : Index.Loops) {
    if (!Facts.sharesBatches())
      continue;
    const CXXRecordDecl *Used = loaderOf(loaderOfLoop(Loop)->getType());
    if (!Index.LoadersMade.count(Used->getCanonicalDecl()))
      refuse(Program, "ACL0164", Loop->getBeginLoc(),
             "the loader of this loop is not made by torch::data::"
             "make_data_loader in what is seen of the program",
             "Name the file that makes it on the command line, too.");
  }
}

/// A pointer or a holder that points to nothing yet.
static bool isEmpty(const Expr *Init) {
  Init = plain(Init);
  if (isa<CXXNullPtrLiteralExpr, GNUNullExpr, ImplicitValueInitExpr>(Init))
    return true;
  if (const auto *List = dyn_cast<InitListExpr>(Init))
    return List->getNumInits() == 0 ||
           (List->getNumInits() == 1 && isEmpty(List->getInit(0)));
  const auto *Made = dyn_cast<CXXConstructExpr>(Init);
  if (!Made)
    return false;
  if (Made->getNumArgs() == 0)
    return isInStd(Made->getConstructor());
  return isEmpty(Made->getArg(0));
}

void Taker::checkProgram() {
  if (!Index.Main)
    refuse(Program, "ACL0162", SourceLocation(),
           "no main() is seen: the program that uses this code must create the "
           "Accelerator, or the calls here will stop with an error that says so",
           "Write `accel::Accelerator accelerator(accel::AcceleratorOptions()"
           ".match_single_device(true));` at the top of its main.");
  checkLoaders();
  if (Index.Backwards.empty() || Program.Optimizers.empty()) {
    if (Index.Backwards.empty())
      refuse(Program, "ACL0117",
             Index.Main ? Index.Main->getLocation() : SourceLocation(),
             "there is an optimizer but no backward() in this file");
    else if (!refused())
      refuse(Program, "ACL0117", Index.Backwards[0].Call->getExprLoc(),
             "no optimizer is made in this file",
             "Name the file that makes it on the command line.");
  }
  for (const VarDecl *V : Index.Globals) {
    const CXXRecordDecl *D = recordOf(V->getType());
    if (!D || !D->getIdentifier() || !isTorch(D) || !V->getInit())
      continue;
    if (D->getName() == "Device" && deviceLiteral(V->getInit()) != DeviceLiteral::Cpu)
      refuse(Program, "ACL0139", V->getLocation(),
             "the device '" + V->getNameAsString() +
                 "' is chosen before main begins, when no accelerator exists",
             "Make it a local variable of main.");
    // A model that is prepared gets the parameters of process 0.
    const std::string Name = V->getNameAsString();
    const bool Prepared =
        moduleOf(V->getType()) &&
        llvm::any_of(Program.Optimizers, [&](const OptimizerFact &F) {
          return F.Model == Name || F.Model == "*" + Name;
        });
    if (Prepared || isEmpty(V->getInit()))
      continue;
    if (optimizerOf(V->getType()) || moduleOf(V->getType()))
      refuse(Program, "ACL0116", V->getLocation(),
             "'" + V->getNameAsString() +
                 "' is a global variable that is made before main begins",
             "Make it a local variable of main.");
  }
  checkSideEffects();
  if (Program.Devices.empty() && !Program.Optimizers.empty())
    refuse(Program, "ACL0151",
           Index.Main ? Index.Main->getLocation() : SourceLocation(),
           "the program chooses no device: it trains where its tensors are, on "
           "the CPU",
           "To train on GPUs, move the model and each batch with "
           ".to(accelerator.device()).");
}

/// What is set up before main, and what two functions do to each other.
void Taker::checkSideEffects() {
  FactFinder Finder(Text, Index, Differs, Functions, Program);
  for (const VarDecl *V : Index.Globals) {
    if (!Text.mayEdit(V->getLocation()))
      continue;
    if (drawsPerProcess(V->getInit()) && !isRandomDevice(recordOf(V->getType())))
      if (const CXXRecordDecl *D = recordOf(V->getType()); D && isEngine(D))
        refuse(Program, "ACL0136", V->getLocation(),
               "'" + V->getNameAsString() +
                   "' is seeded with something that differs between processes",
               "Seed it with a constant.");
    Finder.global(V);
  }
  std::set<const CXXRecordDecl *> Early;
  for (const FunctionDecl *F : Index.BeforeMain)
    if (const auto *M = dyn_cast<CXXMethodDecl>(F))
      Early.insert(M->getParent());
  for (const VarDecl *V : Index.Globals)
    if (const CXXRecordDecl *D = recordOf(V->getType()))
      Early.insert(D);
  for (const FieldDecl *F : Index.Fields) {
    const auto *Owner = dyn_cast<CXXRecordDecl>(F->getParent());
    Finder.field(F, Owner, Early.count(Owner) != 0);
  }
  for (const HostDraw &Loads : DatasetDraws)
    for (const HostDraw &Other : OtherDraws)
      if (!Loads.Generator || !Other.Generator ||
          Loads.Generator == Other.Generator)
        refuse(Program, "ACL0136", Other.Call->getExprLoc(),
               "the data set and other code both draw random numbers of the "
               "host: each process loads other samples, so that the numbers "
               "drawn here would come to differ",
               "Give the data set a generator of its own, or draw with "
               "torch::rand.");
  for (const ReadBack &Found : findReadBacks(Index, Files)) {
    if (!Text.mayEdit(Found.Write->Use->getExprLoc()))
      continue;
    if (const std::optional<Spelled> &Path = Found.Read->Argument) {
      // A template's instantiations share one text.
      if (llvm::none_of(Program.ReadPaths, [&](const Spelled &Known) {
            return Known.Range.File == Path->Range.File &&
                   Known.Range.Offset == Path->Range.Offset;
          }))
        Program.ReadPaths.push_back(*Path);
      continue;
    }
    refuse(Program, "ACL0222", Found.Read->Use->getExprLoc(),
           "this may read a file that the main process writes in line " +
               std::to_string(Text.SM.getExpansionLineNumber(
                   Found.Write->Use->getExprLoc())) +
               ", before it is written",
           "Close the file, call accelerator.wait_for_everyone() on all "
           "processes, and read it then.");
    break;
  }
}
