//===- Programs.cpp - What is migrated together ---------------------------===//

#include "Programs.h"

#include "accel/migrate/Findings.h"
#include "accel/migrate/KeptText.h"
#include "accel/migrate/Report.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace accel::migrate {

/// What is found brings new things to look for; a program that is not complete
/// after this many rounds is read as far as it was found.
static constexpr int MaxRounds = 6;

ProjectSources &Programs::projectOf(const std::string &File) {
  auto [Folder, IsMarked] = Frontend::projectOf(File);
  return Projects.try_emplace(Folder, Folder, IsMarked).first->second;
}

/// Parses and plans. What was planned before stays when that fails.
bool Programs::read(UnitPlan &Unit, const std::vector<std::string> &Sources,
                    ParsedUnit &Parsed) {
  Plan NewPlan;
  auto OnUnit = [&](clang::ASTContext &Context, clang::Preprocessor &PP) {
    NewPlan = planMigration(Context, PP, Options);
  };
  Parsed = Sources.size() == 1
               ? TheFrontend.parse(Sources.front(), Overlay, OnUnit)
               : TheFrontend.parseProgram(Unit.MainFile, Sources, Overlay, OnUnit);
  OnParse(Parsed);
  if (Parsed.State != ParsedUnit::Status::Parsed)
    return false;
  Unit.ThePlan = std::move(NewPlan);
  append_range(Unit.ThePlan.Findings, Parsed.Notes);
  Unit.Files = std::move(Parsed.UserFiles);
  Unit.Unseen = std::move(Parsed.Unseen);
  Unit.Sources = Sources;
  return true;
}

bool Programs::mentionsTorch(const std::string &File) {
  return projectOf(File).mentions(File, "torch/");
}

/// Adds the sources that define what the unit uses.
void Programs::widen(UnitPlan &Unit) {
  ProjectSources &Project = projectOf(Unit.MainFile);
  std::vector<std::string> LeftOut;
  std::string Why;
  for (int Round = 0; Round < MaxRounds; ++Round) {
    if (Unit.ThePlan.AlreadyMigrated)
      break;
    std::vector<std::string> Known = Unit.Sources;
    append_range(Known, LeftOut);
    std::vector<std::string> More =
        Project.defining(Unit.ThePlan.Missing, Known);
    if (Round == 0 && !mentionsTorch(Unit.MainFile) &&
        none_of(More, [&](const std::string &S) { return mentionsTorch(S); }))
      break;

    // What a source declares or is using must not bear on another one, least
    // on main; where it does, the other order may help.
    bool MainLast = true;
    while (!More.empty()) {
      std::vector<std::string> Sources = MainLast ? More : Unit.Sources;
      append_range(Sources, MainLast ? Unit.Sources : More);
      ParsedUnit Parsed;
      if (read(Unit, Sources, Parsed))
        break;
      const Finding &Problem = Parsed.Problem;
      if (Why.empty())
        Why = Problem.Message;
      auto IsCulprit = [&](const std::string &Source) {
        return Project.reads(Source, Problem.Range.File) &&
               none_of(Unit.Sources, [&](const std::string &S) {
                 return Project.reads(S, Problem.Range.File);
               });
      };
      std::vector<std::string> Culprits;
      copy_if(More, std::back_inserter(Culprits), IsCulprit);
      if (Culprits.empty() && MainLast && Problem.Id != "ACL0161") {
        MainLast = false;
        continue;
      }
      if (Culprits.empty())
        Culprits = More;
      append_range(LeftOut, Culprits);
      erase_if(More, [&](const std::string &S) {
        return is_contained(Culprits, S);
      });
    }
    if (More.empty())
      break;
  }
  if (!Unit.ThePlan.HasTraining || Unit.ThePlan.AlreadyMigrated)
    return;
  auto Names = [&](ArrayRef<std::string> Files) {
    std::string Result;
    for (const std::string &File : Files)
      if (File != Unit.MainFile)
        Result += (Result.empty() ? "'" : ", '") + displayPath(File) + "'";
    return Result;
  };
  if (Unit.Sources.size() > 1)
    Unit.ThePlan.Findings.push_back(
        makeFinding("ACL0160", {Unit.MainFile, 0, 0},
                    "the program is this file together with " +
                        Names(Unit.Sources)));
  // Its training would stay as it is, in each process.
  std::vector<std::string> Trains;
  copy_if(LeftOut, std::back_inserter(Trains),
          [&](const std::string &S) { return Project.trains(S); });
  if (!Trains.empty())
    Unit.ThePlan.Findings.push_back(makeFinding(
        "ACL0165", {Unit.MainFile, 0, 0},
        "the program also uses " + Names(Trains) +
            ", where backward() is called, and which could not be read "
            "together with the rest: " + Why,
        "Make the sources compile, and give names that two of them share each "
        "its own."));
  erase_if(LeftOut,
           [&](const std::string &S) { return is_contained(Trains, S); });
  if (!LeftOut.empty())
    Unit.ThePlan.Findings.push_back(makeFinding(
        "ACL0161", {Unit.MainFile, 0, 0},
        "the program also uses " + Names(LeftOut) +
            ", which could not be read together with the rest: " + Why,
        "Give names that two sources share each its own, and make the sources "
        "compile by themselves."));
}

UnitPlan Programs::planProgram(const std::string &Main) {
  UnitPlan Unit;
  Unit.MainFile = Main;
  ParsedUnit Parsed;
  const bool Good = read(Unit, {Main}, Parsed);
  States[Main] = Parsed.State;
  if (Good) {
    widen(Unit);
    respectMarkers(Unit);
    reportUnseen(Unit);
  } else {
    Unit.Sources = {Main};
    Unit.ThePlan.Findings.push_back(std::move(Parsed.Problem));
    append_range(Unit.ThePlan.Findings, Parsed.Notes);
    Unit.Files = std::move(Parsed.UserFiles);
  }
  return Unit;
}

std::vector<UnitPlan> Programs::plan(const std::vector<std::string> &Named) {
  std::vector<UnitPlan> Units;
  for (const std::string &File : Named)
    if (projectOf(File).hasMain(File))
      Units.push_back(planProgram(File));
  for (const std::string &File : Named) {
    auto HasFile = [&](const UnitPlan &Unit) {
      return Unit.MainFile == File || Unit.Files.count(File);
    };
    if (any_of(Units, HasFile))
      continue;
    for (const std::string &Main : projectOf(File).programsWith(File)) {
      if (any_of(Units, [&](const UnitPlan &U) { return U.MainFile == Main; }))
        continue;
      UnitPlan Unit = planProgram(Main);
      if (HasFile(Unit))
        Units.push_back(std::move(Unit));
    }
    if (none_of(Units, HasFile))
      Units.push_back(planProgram(File));
  }
  return Units;
}

std::vector<std::string> Programs::readersOf(const UnitPlan &Unit,
                                             const TextOverlay &Changed) {
  std::vector<std::string> Result;
  for (const std::string &Source : Unit.Sources)
    if (any_of(Changed, [&](const auto &File) {
          return projectOf(Source).reads(Source, File.first);
        }))
      Result.push_back(Source);
  return Result;
}

} // namespace accel::migrate
