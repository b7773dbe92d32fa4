//===- Rules.cpp - Runs the rules -----------------------------------------===//

#include "AllRules.h"
#include "MacroChanges.h"

#include "accel/migrate/Findings.h"
#include "accel/migrate/Inventory.h"
#include "accel/migrate/Lint.h"
#include "accel/migrate/Templates.h"

#include <algorithm>
#include <set>

using namespace accel::migrate;
using llvm::StringRef;

namespace {
/// A rule. `Apply` looks at the facts and adds its changes.
struct Rule {
  llvm::StringLiteral Name;
  void (*Apply)(RuleContext &);
};
} // namespace

/// In the order in which they run: the accelerator rule comes last, as it
/// declares what the others asked for.
static constexpr Rule AllRules[] = {
#define ACCEL_RULE(Name, Function) {Name, Function},
#include "accel/migrate/Rules.def"
};

std::string RuleContext::inlineAccelerator() const {
  return Program.HasMain ? renderTemplate("accelerator-inline", {})
                         : renderTemplate("accelerator-inline-first",
                                          {{"options", acceleratorOptions()}});
}

std::string RuleContext::accelerator(FunctionId In) {
  if (Program.Functions[In].Around)
    return accelerator(*Program.Functions[In].Around);
  // A body on one line has no room for a declaration.
  const FunctionFact &Function = Program.Functions[In];
  const bool HasTop = !Function.Top.At.File.empty();
  if (!Function.IsMain && (!HasTop || Function.Top.isInsideLine()))
    return inlineAccelerator();
  auto Known = Names.find(In);
  if (Known != Names.end())
    return Known->second;
  return Names[In] =
             freeName(In, {"accelerator", "accel_accelerator", "distributed"});
}

std::string RuleContext::accelerator(FunctionId In, const TextRange &At) {
  return At.Use ? inlineAccelerator() : accelerator(In);
}

std::string RuleContext::acceleratorOptions() const {
  std::string Result = renderTemplate(
      Options.MatchSingleDevice ? "options" : "options-per-process", {});
  if (Program.LoadsWholeBatches)
    Result += renderTemplate("option-load-whole-batches", {});
  return Result;
}

std::string
RuleContext::freeName(FunctionId In,
                      llvm::ArrayRef<std::string> Wanted) const {
  const std::vector<std::string> &Taken = Program.Functions[In].Names;
  auto Free = [&](const std::string &Name) {
    return std::find(Taken.begin(), Taken.end(), Name) == Taken.end();
  };
  for (const std::string &Name : Wanted)
    if (Free(Name))
      return Name;
  for (unsigned Number = 2;; ++Number)
    if (std::string Name = Wanted.front() + std::to_string(Number);
        Free(Name))
      return Name;
}

void RuleContext::add(const TextRange &Range, std::string Replacement,
                      std::string Why, int Priority) {
  Change C;
  C.Range = Range;
  C.Replacement = std::move(Replacement);
  C.Rule = Running;
  C.Why = std::move(Why);
  C.Priority = Priority;
  Changes.push_back(std::move(C));
}

void RuleContext::replace(const TextRange &Range, StringRef Text, Values With,
                          std::string Why, int Priority) {
  add(Range, renderTemplate(Text, With), std::move(Why), Priority);
}

void RuleContext::insertLine(const LinePoint &Point, StringRef Text,
                             Values With, std::string Why, int Priority) {
  add(Point.At, Point.wrap(renderTemplate(Text, With)), std::move(Why),
      Priority);
}

void RuleContext::wrap(const TextRange &Object, const TextRange *Tail,
                       StringRef Text, Values With, std::string Why) {
  // A character that no template has stands for the object.
  llvm::SmallVector<std::pair<StringRef, StringRef>, 4> All(With.begin(),
                                                            With.end());
  All.push_back({"object", StringRef("\0", 1)});
  const std::string Rendered = renderTemplate(Text, All);
  auto [Before, Behind] = StringRef(Rendered).split('\0');
  add(Object.part(0, 0), Before.str(), Why, 0);
  if (Tail)
    add(*Tail, Behind.str(), Why, 0);
  else
    add(Object.part(Object.Length, 0), Behind.str(), Why, 0);
}

void RuleContext::openBraces(const BodyPoint &Body, std::string Why) {
  add(Body.Top.At, Body.Top.Before, std::move(Why), /*Priority=*/0);
}

void RuleContext::closeBraces(const LinePoint &Close, std::string Why) {
  add(Close.At, Close.After, std::move(Why), /*Priority=*/100);
}

void RuleContext::remove(const TextRange &Range, std::string Why) {
  add(Range, "", std::move(Why), 0);
}

/// Whether something of the program's that is called accel stands in a namespace or a
/// class, where it hides the runtime's namespace.
static bool hidesAccel(const clang::DeclContext *In, const clang::SourceManager &SM,
                       bool IsInner) {
  return llvm::any_of(In->decls(), [&](const clang::Decl *D) {
    if (SM.isInSystemHeader(D->getLocation()))
      return false;
    const auto *Named = llvm::dyn_cast<clang::NamedDecl>(D);
    if (IsInner && Named && Named->getIdentifier() && Named->getName() == "accel")
      return true;
    const bool IsScope = llvm::isa<clang::NamespaceDecl, clang::CXXRecordDecl>(D);
    const bool IsRuntime = Named && !IsInner && Named->getIdentifier() &&
                           Named->getName() == "accel";
    return IsScope && !IsRuntime &&
           hidesAccel(llvm::cast<clang::DeclContext>(D), SM, /*IsInner=*/true);
  });
}

/// `::accel::` for `accel::`.
static std::string fullyQualified(StringRef Text) {
  std::string Result;
  for (size_t At; (At = Text.find("accel::")) != StringRef::npos;
       Text = Text.drop_front(At + 7)) {
    const char Before = At > 0 ? Text[At - 1] : ' ';
    Result += Text.take_front(At);
    if (!clang::isAsciiIdentifierContinue(Before) && Before != ':')
      Result += "::";
    Result += "accel::";
  }
  return Result + Text.str();
}

Plan accel::migrate::planMigration(clang::ASTContext &Context,
                                   const PlanOptions &Options) {
  Plan Result;
  if (Options.Lint == PlanOptions::Only) {
    Result.HasTraining = true; // Nothing is said about it.
    Result.Findings = lintCollectives(Context, Options, LintScope::All);
    return Result;
  }
  TrainingProgram Program = takeInventory(Context, Options);
  Result.HasTraining = Program.HasTraining;
  Result.AlreadyMigrated = Program.AlreadyMigrated;
  Result.Missing = std::move(Program.Missing);
  Result.KeptMacros = keptMacros({}, Program.MacroUses);
  if (Program.AlreadyMigrated && Options.Lint == PlanOptions::Output)
    Result.Findings = lintCollectives(Context, Options, LintScope::OwnOutput);
  if (Program.AlreadyMigrated)
    return Result;
  Result.Findings = Program.Findings;
  if (!Program.HasTraining)
    return Result;
  if (Result.refused())
    return Result;

  RuleContext Rules(Program, Options);
  for (const Rule &R : AllRules) {
    Rules.begin(R.Name);
    R.Apply(Rules);
  }
  for (const auto &[Id, Name] : Rules.acceleratorNames())
    if (Program.Functions[Id].Top.At.File.empty())
      Result.Findings.push_back(makeFinding(
          "ACL0102", {},
          "the accelerator cannot be made known in the function '" +
              Program.Functions[Id].Name +
              "', whose body is no block of its own",
          "Write its body as a block, without macros."));
  if (Result.refused())
    return Result;
  Result.Changes = std::move(Rules.Changes);
  Result.KeptMacros = keptMacros(Result.Changes, Program.MacroUses);
  mergeMacroChanges(Result, Program.MacroUses);
  if (Result.refused()) {
    Result.Changes.clear();
    return Result;
  }
  if (hidesAccel(Context.getTranslationUnitDecl(), Context.getSourceManager(),
                 /*IsInner=*/false))
    for (Change &C : Result.Changes)
      C.Replacement = fullyQualified(C.Replacement);
  std::set<std::string> Files;
  for (const Change &C : Result.Changes)
    Files.insert(C.Range.File);
  Result.NeedInclude.assign(Files.begin(), Files.end());
  return Result;
}
