//===- Programs.cpp - What is migrated together ---------------------------===//

#include "Programs.h"

#include "Parallel.h"

#include "accel/migrate/Findings.h"
#include "accel/migrate/KeptText.h"
#include "accel/migrate/Report.h"

#include "llvm/ADT/STLExtras.h"

#include <set>

using namespace llvm;

namespace accel::migrate {

/// What is found brings new things to look for; a program that is not complete
/// after this many rounds is read as far as it was found.
static constexpr int MaxRounds = 6;

template <class Callable>
auto Programs::ask(const std::string &File, Callable Question) {
  auto [Folder, IsMarked] = projectOf(File);
  std::lock_guard<std::mutex> Guard(Mutex);
  return Question(
      Projects.try_emplace(Folder, Folder, IsMarked).first->second);
}

ParsedUnit::Status Programs::stateOf(const UnitPlan &Unit) const {
  std::lock_guard<std::mutex> Guard(Mutex);
  return States.at(Unit.MainFile);
}

void Programs::setState(const UnitPlan &Unit, ParsedUnit::Status State) {
  std::lock_guard<std::mutex> Guard(Mutex);
  States[Unit.MainFile] = State;
}

ParsedUnit Programs::parse(const UnitPlan &Unit,
                           const std::vector<std::string> &Sources,
                           Thoroughness How, UnitCallback OnUnit) {
  ParsedUnit Parsed =
      TheFrontend.parse(Unit.MainFile, Sources, Overlay, How, OnUnit);
  std::lock_guard<std::mutex> Guard(Mutex);
  OnParse(Parsed);
  return Parsed;
}

/// Parses and plans. What was planned before stays when that fails.
bool Programs::read(UnitPlan &Unit, const std::vector<std::string> &Sources,
                    ParsedUnit &Parsed) {
  PlanOptions OfUnit = Options;
  OfUnit.MainElsewhere = Unit.MainElsewhere;
  OfUnit.Joins = Unit.Joins;
  OfUnit.MayEdit = [&](const std::string &Path) {
    return TheFrontend.mayEdit(Path, Unit.MainFile);
  };
  Plan NewPlan;
  Parsed = parse(Unit, Sources, Thoroughness::Analysis,
                 [&](clang::ASTContext &Context) {
                   NewPlan = planMigration(Context, OfUnit);
                 });
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
  return ask(File, [&](ProjectSources &Project) {
    return Project.mentions(File, "torch/");
  });
}

std::optional<Finding>
Programs::recheck(const UnitPlan &Unit,
                  const std::vector<std::string> &Sources) {
  ParsedUnit Parsed = parse(Unit, Sources, Thoroughness::Complete,
                            [](clang::ASTContext &) {});
  if (Parsed.State == ParsedUnit::Status::Parsed)
    return std::nullopt;
  setState(Unit, Parsed.State);
  return std::move(Parsed.Problem);
}

/// Adds the sources that define what the unit uses.
void Programs::widen(UnitPlan &Unit) {
  std::vector<std::string> LeftOut;
  std::string Why;
  for (int Round = 0; Round < MaxRounds; ++Round) {
    if (Unit.ThePlan.AlreadyMigrated)
      break;
    std::vector<std::string> Known = Unit.Sources;
    append_range(Known, LeftOut);
    std::vector<std::string> More =
        ask(Unit.MainFile, [&](ProjectSources &Project) {
          return Project.defining(Unit.ThePlan.Missing, Known);
        });
    if (Round == 0 && none_of(Unit.Sources, [&](const std::string &S) {
          return mentionsTorch(S);
        }) &&
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
      std::vector<std::string> Culprits;
      ask(Unit.MainFile, [&](ProjectSources &Project) {
        auto Reads = [&](const std::string &Source) {
          return Project.reads(Source, Problem.Range.File);
        };
        if (none_of(Unit.Sources, Reads))
          copy_if(More, std::back_inserter(Culprits), Reads);
      });
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
  ask(Unit.MainFile, [&](ProjectSources &Project) {
    copy_if(LeftOut, std::back_inserter(Trains),
            [&](const std::string &S) { return Project.trains(S); });
  });
  if (!Trains.empty())
    Unit.ThePlan.Findings.push_back(makeFinding(
        "ACL0015", {Unit.MainFile, 0, 0},
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

UnitPlan Programs::planProgram(const std::string &Main, bool MainElsewhere,
                               bool Joins,
                               ArrayRef<std::string> Registered) {
  UnitPlan Unit;
  Unit.MainFile = Main;
  Unit.MainElsewhere = MainElsewhere;
  Unit.Joins = Joins;
  ParsedUnit Parsed;
  std::vector<std::string> Sources(Registered.begin(), Registered.end());
  Sources.push_back(Main);
  const bool Good = read(Unit, Sources, Parsed);
  setState(Unit, Parsed.State);
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

static std::set<std::string> changedBy(ArrayRef<UnitPlan> Units) {
  std::set<std::string> Files;
  for (const UnitPlan &Unit : Units)
    for (const Change &C : Unit.ThePlan.Changes)
      Files.insert(C.Range.File);
  return Files;
}

/// A source that no main is seen to use, and was read alone. Where it changes what a
/// program with a main changes, too, it is linked to that: the text must be the same for
/// both.
UnitPlan Programs::planBeside(UnitPlan Alone, ArrayRef<UnitPlan> Others) {
  const std::set<std::string> Changed = changedBy(Others);
  const bool Shares = any_of(Alone.ThePlan.Changes, [&](const Change &C) {
    return Changed.count(C.Range.File) != 0;
  });
  return Shares ? planProgram(Alone.MainFile, /*MainElsewhere=*/true)
                : std::move(Alone);
}

/// A source that trains and that nothing calls: an object of namespace scope registers
/// it, with a function of the program that it is linked to. Whether there is one such
/// program, of which it is a part now.
bool Programs::joinRegistered(const UnitPlan &Alone,
                              std::vector<UnitPlan> &Units) {
  if (!Alone.ThePlan.HasTraining || Alone.ThePlan.AlreadyMigrated)
    return false;
  auto IsOfAlone = [&](const std::string &Source) {
    return is_contained(Alone.Sources, Source);
  };
  std::vector<UnitPlan *> Fitting;
  for (UnitPlan &Unit : Units)
    if (ask(Unit.MainFile, [&](ProjectSources &Project) {
          // One that has nothing of LibTorch has been read without the others.
          return Project.hasMain(Unit.MainFile) &&
                 (any_of(Unit.Sources, IsOfAlone) ||
                  any_of(Project.defining(Unit.ThePlan.Missing, Unit.Sources),
                         IsOfAlone));
        }))
      Fitting.push_back(&Unit);
  if (Fitting.size() != 1)
    return false;
  UnitPlan &Program = *Fitting.front();
  const ParsedUnit::Status Before = stateOf(Program);
  std::vector<std::string> All = RegisteredBy[Program.MainFile];
  All.push_back(Alone.MainFile);
  UnitPlan Joined = planProgram(Program.MainFile, /*MainElsewhere=*/false,
                                /*Joins=*/false, All);
  if (stateOf(Joined) != ParsedUnit::Status::Parsed) {
    setState(Program, Before); // They cannot be read as one text.
    return false;
  }
  RegisteredBy[Program.MainFile] = std::move(All);
  Program = std::move(Joined);
  return true;
}

/// A program that trains nothing, and reads a header that is changed for one that
/// does: what is changed in it asks for an accelerator.
void Programs::joinReaders(std::vector<UnitPlan> &Units) {
  const std::set<std::string> Changed = changedBy(Units);
  for (UnitPlan &Unit : Units) {
    const bool Reads = any_of(Unit.Files, [&](const auto &File) {
      return Changed.count(File.first) != 0;
    });
    if (!Reads || Unit.ThePlan.HasTraining ||
        stateOf(Unit) != ParsedUnit::Status::Parsed ||
        !ask(Unit.MainFile, [&](ProjectSources &Project) {
          return Project.hasMain(Unit.MainFile);
        }))
      continue;
    UnitPlan Joined =
        planProgram(Unit.MainFile, Unit.MainElsewhere, /*Joins=*/true);
    // What it is refused for must not hold up the training.
    if (!Joined.ThePlan.refused())
      Unit = std::move(Joined);
  }
}

std::vector<UnitPlan> Programs::plan(const std::vector<std::string> &Named,
                                     unsigned Jobs, Progress &Shown) {
  std::vector<std::string> Mains;
  copy_if(Named, std::back_inserter(Mains), [&](const std::string &File) {
    return ask(File, [&](ProjectSources &P) { return P.hasMain(File); });
  });
  std::vector<UnitPlan> Units(Mains.size());
  Shown.begin("reading program", Mains.size());
  inParallel(Mains.size(), Jobs, [&](size_t I) {
    Units[I] = planProgram(Mains[I]);
    Shown.advance();
  });
  for (const std::string &File : Named) {
    auto HasFile = [&](const UnitPlan &Unit) {
      return Unit.MainFile == File || Unit.Files.count(File);
    };
    if (any_of(Units, HasFile))
      continue;
    for (const std::string &Main : ask(File, [&](ProjectSources &Project) {
           return Project.programsWith(File);
         })) {
      if (any_of(Units, [&](const UnitPlan &U) { return U.MainFile == Main; }))
        continue;
      UnitPlan Unit = planProgram(Main);
      if (HasFile(Unit))
        Units.push_back(std::move(Unit));
    }
    if (any_of(Units, HasFile))
      continue;
    UnitPlan Alone = planProgram(File);
    if (!joinRegistered(Alone, Units))
      Units.push_back(planBeside(std::move(Alone), Units));
  }
  joinReaders(Units);
  return Units;
}

std::vector<std::string> Programs::readersOf(const UnitPlan &Unit,
                                             const TextOverlay &Changed) {
  std::vector<std::string> Result;
  for (const std::string &Source : Unit.Sources)
    if (any_of(Changed, [&](const auto &File) {
          return ask(Source, [&](ProjectSources &Project) {
            return Project.reads(Source, File.first);
          });
        }))
      Result.push_back(Source);
  return Result;
}

std::vector<std::string> Programs::othersWith(const std::string &File,
                                              ArrayRef<UnitPlan> Units) {
  return ask(File, [&](ProjectSources &Project) {
    std::vector<std::string> Mains = Project.programsWith(File);
    erase_if(Mains, [&](const std::string &Main) {
      return any_of(Units,
                    [&](const UnitPlan &Unit) {
                      return Unit.MainFile == Main || Unit.Files.count(Main);
                    }) ||
             Project.mentions(Main, "accel/accel.h");
    });
    return Mains;
  });
}

} // namespace accel::migrate
