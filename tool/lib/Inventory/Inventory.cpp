//===- Inventory.cpp - From the AST to facts ------------------------------===//

#include "accel/migrate/Inventory.h"

#include "FactFinder.h"

#include "Code/TorchTypes.h"

#include "accel/migrate/Findings.h"

using namespace accel::migrate;
using namespace clang;

namespace {
/// Takes the inventory of one unit. Most facts are found function by function;
/// what needs all functions comes before and behind.
class Taker {
public:
  Taker(ASTContext &Context, const PlanOptions &Options)
      : MainElsewhere(Options.MainElsewhere), Joins(Options.Joins),
        Text(Context, Options),
        Index(Context), Differs(Index, Differing::Clock, /*Decides=*/true),
        Cuts(Index), Functions(Text, Program.Functions) {
    Index.OfMainProcess = outputFunctions(Index);
  }

  TrainingProgram take();
  const std::vector<UsedMacro> &macroUses() { return Text.macroUses(); }

private:
  bool migratedAlready() const;
  void takeMissing();
  void takeFunction(const FunctionDecl *F, TrainingProgram &Into);
  void takeInitialisers();
  void merge(TrainingProgram &&Part);
  void checkProgram();

  const bool MainElsewhere, Joins;
  TrainingProgram Program;
  SourceText Text;
  ProgramIndex Index;
  Differing Differs;
  Cut Cuts;
  FunctionTable Functions;
  const Unit Here{Text, Index, Functions, Program};
  const HeldOptimizers Held{Text};
  UnitFacts Found{Differs, Cuts, Held, {}, {}};
};
} // namespace

void Taker::takeFunction(const FunctionDecl *F, TrainingProgram &Into) {
  const Unit Part{Text, Index, Functions, Into};
  FactFinder(Part, Found).run(F);
  if (!Index.BeforeMain.count(F))
    return;
  const std::string Name = "'" + F->getNameAsString() + "'";
  if (Into.hasEdits("print"))
    Part.say("ACL0152", F->getLocation(),
             Name + " prints, and also runs before main begins, when no "
                    "accelerator exists: its lines stay as they are and every "
                    "process prints them");
  if (Into.hasEdits("device"))
    Part.say("ACL0139", F->getLocation(),
             Name + " chooses a device, and also runs before main begins, when "
                    "no accelerator exists: it stays as it is",
             "A torch::kCUDA without a number is each process's own device; "
             "another choice has to be made in main.");
  llvm::erase_if(Into.Edits, [](const EditFact &E) {
    return E.isOf("print") || E.isOf("device");
  });
  if (!Into.Edits.empty() ||
      llvm::any_of(Into.Optimizers,
                   [](const auto &Fact) { return Fact.isPrepared(); }) ||
      !Into.Saves.empty() || !Into.Archives.empty() || !Into.Guards.empty())
    Part.say("ACL0184", F->getLocation(),
             Name + " runs before main begins, when no accelerator exists",
             "Call it from main.");
}

/// Whether the unit knows accel's own Accelerator class.
bool Taker::migratedAlready() const {
  const ASTContext &Context = Index.Context;
  for (const NamedDecl *D : Context.getTranslationUnitDecl()->lookup(
           &Context.Idents.get("accel")))
    if (const auto *N = dyn_cast<NamespaceDecl>(D))
      for (const NamespaceDecl *R : N->redecls())
        for (const NamedDecl *A : R->lookup(&Context.Idents.get("Accelerator")))
          if (isa<CXXRecordDecl>(A))
            return true;
  return false;
}

// The place that a fact is about; the instantiations of a template have the same
// facts at the same places.
static const TextRange &placeOf(const EditFact &F) { return F.Range; }
static const TextRange &placeOf(const BufferFact &F) { return F.Range; }
static const TextRange &placeOf(const OptimizerFact &F) {
  return F.SetUp.At.File.empty() ? F.TypeNames.front() : F.SetUp.At;
}
static const TextRange &placeOf(const OptimizerTypeFact &F) { return F.Range; }
static const TextRange &placeOf(const SaveFact &F) { return F.Callee; }
static const TextRange &placeOf(const ArchiveFact &F) { return F.Object; }
static const TextRange &placeOf(const GuardFact &F) { return F.Range; }
static const TextRange &placeOf(const BackwardFact &F) { return F.Object; }
static const TextRange &placeOf(const TrainingLoopFact &F) { return F.Body.Top.At; }
static const TextRange &placeOf(const VariablesFact &F) { return F.At.At; }
static const TextRange &placeOf(const MemoryFact &F) { return F.Object; }

/// `if (adam) o = …; else o = …;`: two that are prepared in one place.
static bool isSame(const OptimizerFact &A, const OptimizerFact &B) {
  const auto First = [](const OptimizerFact &F) {
    return F.TypeNames.empty() ? 0u : F.TypeNames.front().Offset;
  };
  return A.Object == B.Object && A.Models == B.Models && First(A) == First(B);
}
/// Of several that one rule finds in one place, the first one counts.
static bool isSame(const EditFact &A, const EditFact &B) {
  return A.isOf(ruleOf(B.Kind)) && (!A.Range.File.empty() || A.Value == B.Value);
}
template <typename T> static bool isSame(const T &, const T &) { return true; }

template <typename T>
static void addNew(std::vector<T> &To, std::vector<T> &From) {
  for (T &New : From) {
    const TextRange &At = placeOf(New);
    if (llvm::none_of(To, [&](const T &Known) {
          const TextRange &K = placeOf(Known);
          return K.Offset == At.Offset && K.Length == At.Length &&
                 K.Use == At.Use && K.File == At.File && isSame(Known, New);
        }))
      To.push_back(std::move(New));
  }
}

void Taker::merge(TrainingProgram &&Part) {
  addNew(Program.Optimizers, Part.Optimizers);
  addNew(Program.OptimizerTypes, Part.OptimizerTypes);
  addNew(Program.Edits, Part.Edits);
  addNew(Program.Saves, Part.Saves);
  addNew(Program.Archives, Part.Archives);
  addNew(Program.Guards, Part.Guards);
  llvm::append_range(Program.Findings, Part.Findings);
}

/// Facts of the unit's steps are found for each instantiation, too.
template <typename T> static void dropRepeated(std::vector<T> &Facts) {
  std::vector<T> All;
  std::swap(All, Facts);
  addNew(Facts, All);
}

void Taker::takeMissing() {
  for (const FunctionDecl *F : Index.Missing) {
    MissingFunction M;
    M.Name = F->getNameAsString();
    if (const auto *Method = dyn_cast<CXXMethodDecl>(F))
      M.Class = Method->getParent()->getNameAsString();
    // Of a class template's specialisation, without its arguments.
    if (isa<CXXConstructorDecl>(F))
      M.Name = M.Class;
    else if (isa<CXXDestructorDecl>(F))
      M.Name = "~" + M.Class;
    M.DeclaredIn = Text.fileOf(F->getLocation());
    Program.Missing.push_back(std::move(M));
  }
}

/// What globals and fields are made from, perhaps before main.
void Taker::takeInitialisers() {
  FactFinder Finder(Here, Found);
  std::set<const CXXRecordDecl *> Early;
  for (const VarDecl *V : Index.Globals) {
    if (Text.mayEdit(V->getLocation()))
      Finder.global(V);
    // What the compiler calculates runs nothing before main.
    if (const CXXRecordDecl *D = recordOf(V->getType());
        D && !V->isConstexpr() && !V->hasConstantInitialization())
      Early.insert(D);
  }
  for (const FunctionDecl *F : Index.BeforeMain)
    if (const auto *M = dyn_cast<CXXMethodDecl>(F))
      Early.insert(M->getParent());
  for (const FieldDecl *F : Index.Fields) {
    const auto *Owner = dyn_cast<CXXRecordDecl>(F->getParent());
    Finder.field(F, Owner, Early.count(Owner) != 0);
  }
}

/// What can only be said of the unit as a whole.
void Taker::checkProgram() {
  if (!Program.HasMain)
    Here.say("ACL0162", SourceLocation(),
        "no main() is seen: the code that is migrated here makes the "
        "Accelerator where it first needs one",
        "Where a main creates one, that is used. To create it there: "
        "`accel::Accelerator accelerator(accel::AcceleratorOptions()"
        ".match_single_device(true));`.");
  if (!Program.Optimizers.empty())
    for (const ExactType &Exact : findExactTypes(Text))
      Here.say("ACL0187", Exact.Loc,
          Exact.How + " " + Exact.Class + " itself, and what the program trains "
          "with becomes accel::AcceleratedOptimizer<" + Exact.Class +
          ">, which derives from it",
          "Ask for what derives from it, too: std::is_base_of_v, dynamic_cast, "
          "a function of the base class, a tag.");
  addGlobalDevices(Here);
  for (const TextRange &Type : Held.types())
    Program.Optimizers.emplace_back().TypeNames = {Type};
  takeInitialisers();
  Found.Draws.check(Here);
  addFileWaits(Here, Found.Files);
  if (!Program.hasEdits("device") && !Program.Optimizers.empty())
    Here.say("ACL0151", Index.Main ? Index.Main->getLocation() : SourceLocation(),
        "the program chooses no device: it trains where its tensors are, on "
        "the CPU",
        "To train on GPUs, move the model and each batch with "
        ".to(accelerator.device()).");
}

TrainingProgram Taker::take() {
  takeMissing();
  Program.HasMain = Index.Main || MainElsewhere;
  Program.AlreadyMigrated = migratedAlready();
  if (Program.AlreadyMigrated) {
    Program.HasTraining = true;
    return std::move(Program);
  }
  // It makes the accelerator, also where nothing else in it has to change.
  if (Index.Main && Text.mayEdit(Index.Main->getLocation()))
    Functions.of(Index.Main);
  Entering(Here, Cuts).addBatches();
  Memory Memories(Here, Cuts);
  for (const FunctionDecl *F : Index.Functions) {
    if (!Text.mayEdit(F->getLocation()))
      continue;
    TrainingProgram Part;
    takeFunction(F, Part);
    merge(std::move(Part));
    Memories.add(F);
  }
  Steps(Here).add();
  Evaluation(Here, Cuts).add();
  Program.HasTraining =
      !Index.Backwards.empty() || !Program.Optimizers.empty() || Joins;
  if (!Program.HasTraining) {
    llvm::erase_if(Program.Findings,
                   [](const Finding &F) { return F.Id != "ACL0103"; });
    return std::move(Program);
  }
  dropRepeated(Program.Distributed);
  dropRepeated(Program.Buffers);
  dropRepeated(Program.Backwards);
  dropRepeated(Program.TrainingLoops);
  dropRepeated(Program.Gathers);
  dropRepeated(Program.Memory);
  checkProgram();
  dropRepeated(Program.Edits);
  std::vector<Finding> Once;
  for (Finding &F : Program.Findings)
    addOnce(Once, std::move(F));
  sortByPlace(Once);
  Program.Findings = std::move(Once);
  return std::move(Program);
}

TrainingProgram accel::migrate::takeInventory(ASTContext &Context,
                                              const PlanOptions &Options) {
  Taker Taken(Context, Options);
  TrainingProgram Program = Taken.take();
  Program.MacroUses = Taken.macroUses();
  return Program;
}
