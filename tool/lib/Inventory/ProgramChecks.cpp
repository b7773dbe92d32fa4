//===- ProgramChecks.cpp - What can only be said of a whole unit ----------===//

#include "Taker.h"

#include "TorchTypes.h"

#include <algorithm>

using namespace accel::migrate;
using namespace clang;

void Taker::checkProgram() {
  if (!Program.HasMain)
    say("ACL0162", SourceLocation(),
        "no main() is seen: the code that is migrated here makes the "
        "Accelerator where it first needs one",
        "Where a main creates one, that is used. To create it there: "
        "`accel::Accelerator accelerator(accel::AcceleratorOptions()"
        ".match_single_device(true));`.");
  checkGlobals();
  checkSideEffects();
  if (Program.Devices.empty() && !Program.Optimizers.empty())
    say("ACL0151", Index.Main ? Index.Main->getLocation() : SourceLocation(),
        "the program chooses no device: it trains where its tensors are, on "
        "the CPU",
        "To train on GPUs, move the model and each batch with "
        ".to(accelerator.device()).");
}

/// A device that is chosen before main, when there is no accelerator, is chosen
/// again in main.
void Taker::checkGlobals() {
  for (const VarDecl *V : Index.Globals) {
    const CXXRecordDecl *D = recordOf(V->getType());
    if (!D || !D->getIdentifier() || !isTorch(D) || D->getName() != "Device" ||
        !Text.mayEdit(V->getLocation()) ||
        (V->getInit() && deviceLiteral(V->getInit()) == DeviceLiteral::Cpu))
      continue;
    const bool Seen =
        Index.Main && !V->getType().isConstQualified() &&
        !V->getDeclContext()->isRecord() &&
        Text.SM.isBeforeInTranslationUnit(V->getLocation(),
                                          Index.Main->getLocation());
    if (!Seen) {
      say("ACL0139", V->getLocation(),
          "the device '" + V->getNameAsString() +
              "' is chosen before main begins and stays as it is",
          "A torch::kCUDA without a number is each process's own device; "
          "another choice has to be made in main.");
      continue;
    }
    const std::optional<TextRange> R =
        Text.range({V->getLocation(), V->getLocation()});
    if (!R)
      continue;
    DeviceFact Fact{Functions.of(Index.Main), DeviceFact::Global, *R, ""};
    Fact.Name = V->isInAnonymousNamespace() ? V->getNameAsString()
                                            : qualifiedName(V);
    Program.Devices.push_back(std::move(Fact));
  }
}

/// What is set up before main, and what two functions do to each other.
void Taker::checkSideEffects() {
  FactFinder Finder(Text, Index, Differs, Cuts, Functions, Program);
  for (const VarDecl *V : Index.Globals) {
    if (!Text.mayEdit(V->getLocation()))
      continue;
    if (drawsPerProcess(V->getInit()) && !isRandomDevice(recordOf(V->getType())))
      if (const CXXRecordDecl *D = recordOf(V->getType()); D && isEngine(D))
        say("ACL0136", V->getLocation(),
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
        say("ACL0136", Other.Call->getExprLoc(),
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
    say("ACL0222", Found.Read->Use->getExprLoc(),
           "this may read a file that the main process writes in line " +
               std::to_string(Text.SM.getExpansionLineNumber(
                   Found.Write->Use->getExprLoc())) +
               ", before it is written",
           "Close the file, call accelerator.wait_for_everyone() on all "
           "processes, and read it then.");
    break;
  }
}
