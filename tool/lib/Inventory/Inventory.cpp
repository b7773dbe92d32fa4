//===- Inventory.cpp - From the AST to facts ------------------------------===//

#include "accel/migrate/Inventory.h"

#include "Taker.h"

#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace accel::migrate;
using namespace clang;

void Taker::takeFunction(const FunctionDecl *F, TrainingProgram &Into) {
  FactFinder Finder(Text, Index, Differs, Functions, Into);
  Finder.run(F);
  llvm::append_range(DatasetDraws, Finder.DatasetDraws);
  llvm::append_range(OtherDraws, Finder.OtherDraws);
  llvm::append_range(Files, Finder.Files);
  if (Index.runsBatches(F) || Index.stepsAlone(F)) {
    Interpreter I(Text, Index, Differs);
    const Effects E = I.interpret(F);
    WantUnsplit.insert(E.WantUnsplit.begin(), E.WantUnsplit.end());
    addEffects(F, E, Into);
    for (const auto &[Loop, Facts] : Index.Loops)
      if (Facts.In == F && !Facts.InLambda && !E.Visited.count(Loop))
        refuse(Into, "ACL0100", Loop->getBeginLoc(),
               "the analysis does not come to this loop over batches",
               "Take out what ends the function before it.");
      else if (Facts.In == F)
        addLeftLoop(F, Facts, Into);
  }
  if (!Index.BeforeMain.count(F))
    return;
  if (!Into.Prints.empty())
    Into.Findings.push_back(Text.finding(
        "ACL0152", F->getLocation(),
        "'" + F->getNameAsString() +
            "' prints, and also runs before main begins, when no accelerator "
            "exists: its lines stay as they are and every process prints them"));
  Into.Prints.clear();
  if (!Into.Devices.empty() || !Into.Optimizers.empty() ||
      !Into.Loaders.empty() || !Into.Saves.empty() ||
      !Into.Broadcasts.empty() || !Into.Guards.empty() ||
      !Into.Paths.empty() || !Into.Commands.empty())
    refuse(Into, "ACL0139", F->getLocation(),
           "'" + F->getNameAsString() +
               "' runs before main begins, when no accelerator exists",
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

/// A function that several loops call is seen with each of them: what stands at
/// `PlaceOf` it is taken once.
template <typename T, typename Place>
static void appendNew(std::vector<T> &To, std::vector<T> &From, Place PlaceOf) {
  for (T &New : From) {
    const TextRange At = PlaceOf(New);
    if (llvm::none_of(To, [&](const T &Known) {
          const TextRange K = PlaceOf(Known);
          return K.File == At.File && K.Offset == At.Offset;
        }))
      To.push_back(std::move(New));
  }
}

void Taker::merge(TrainingProgram &&Part) {
  append(Program.Optimizers, Part.Optimizers);
  appendNew(Program.OptimizerTypes, Part.OptimizerTypes,
            [](const OptimizerTypeFact &F) { return F.Range; });
  append(Program.Schedulers, Part.Schedulers);
  append(Program.Loaders, Part.Loaders);
  append(Program.Devices, Part.Devices);
  append(Program.TrainingLoops, Part.TrainingLoops);
  append(Program.LeftLoops, Part.LeftLoops);
  append(Program.Backwards, Part.Backwards);
  append(Program.WholeLoops, Part.WholeLoops);
  append(Program.MetricReads, Part.MetricReads);
  append(Program.Gathers, Part.Gathers);
  append(Program.Shards, Part.Shards);
  append(Program.Parts, Part.Parts);
  append(Program.InlineShards, Part.InlineShards);
  append(Program.States, Part.States);
  append(Program.BatchSizes, Part.BatchSizes);
  appendNew(Program.Squeezes, Part.Squeezes,
            [](const BatchSizeFact &F) { return F.Tail; });
  appendNew(Program.LocalSizes, Part.LocalSizes,
            [](const Spelled &S) { return S.Range; });
  appendNew(Program.Replicated, Part.Replicated,
            [](const Spelled &S) { return S.Range; });
  appendNew(Program.Parallel, Part.Parallel,
            [](const ParallelCallFact &P) { return P.Head; });
  appendNew(Program.Scripted, Part.Scripted,
            [](const Spelled &S) { return S.Range; });
  append(Program.NormClips, Part.NormClips);
  append(Program.ValueClips, Part.ValueClips);
  append(Program.Prints, Part.Prints);
  append(Program.Saves, Part.Saves);
  append(Program.Broadcasts, Part.Broadcasts);
  append(Program.Paths, Part.Paths);
  append(Program.Commands, Part.Commands);
  append(Program.Guards, Part.Guards);
  append(Program.Findings, Part.Findings);
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

TrainingProgram Taker::take() {
  takeMissing();
  Program.AlreadyMigrated = migratedAlready();
  if (Program.AlreadyMigrated) {
    Program.HasTraining = true;
    return std::move(Program);
  }
  // Facts of each spelled function: those of its first instantiation, with
  // which the others must agree.
  std::map<unsigned, std::string> Printed;
  for (const FunctionDecl *F : Index.Functions) {
    if (!Text.mayEdit(F->getLocation()) && !Index.runsBatches(F))
      continue;
    TrainingProgram Part;
    takeFunction(F, Part);
    std::string Facts;
    {
      llvm::raw_string_ostream OS(Facts);
      printFacts(Part, OS);
    }
    auto [It, New] =
        Printed.try_emplace(F->getBody()->getBeginLoc().getRawEncoding(), Facts);
    if (New)
      merge(std::move(Part));
    else if (It->second != Facts)
      refuse(Program, "ACL0101", F->getLocation(),
             "the instantiations of '" + F->getNameAsString() +
                 "' would have to be migrated in different ways, and they "
                 "share one text",
             "Write it as two functions.");
  }
  Program.HasTraining = !Index.Backwards.empty() ||
                        !Program.Optimizers.empty() ||
                        !Index.NeverInstantiated.empty();
  checkLoops();
  Program.HasTraining =
      !Index.Backwards.empty() || !Program.Optimizers.empty() ||
      std::any_of(Program.Findings.begin(), Program.Findings.end(),
                  [](const Finding &F) {
                    return F.Id == "ACL0103" || F.Id == "ACL0116";
                  });
  if (!Program.HasTraining)
    return std::move(Program);
  checkProgram();
  std::vector<Finding> Once;
  for (Finding &F : Program.Findings)
    if (std::none_of(Once.begin(), Once.end(), [&](const Finding &G) {
          return F.Id == G.Id && F.Line == G.Line && F.Column == G.Column &&
                 F.Range.File == G.Range.File && F.Message == G.Message;
        }))
      Once.push_back(std::move(F));
  llvm::stable_sort(Once, [](const Finding &A, const Finding &B) {
    return std::tie(A.Range.File, A.Range.Offset) <
           std::tie(B.Range.File, B.Range.Offset);
  });
  Program.Findings = std::move(Once);
  return std::move(Program);
}

TrainingProgram accel::migrate::takeInventory(ASTContext &Context,
                                              Preprocessor &PP,
                                              const PlanOptions &Options) {
  Taker First(Context, Options, {});
  TrainingProgram Program = First.take();
  // Losses that a part of a batch does not give, and the like: every process
  // makes whole batches then, where that does.
  if (First.WantUnsplit.empty())
    return Program;
  TrainingProgram Whole = Taker(Context, Options, First.WantUnsplit).take();
  return refuses(Whole) ? std::move(Program) : std::move(Whole);
}
