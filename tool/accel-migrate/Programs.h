//===- Programs.h - What is migrated together -------------------*- C++ -*-===//
//
// The unit of a migration is a program: the source with main and those that
// define what it uses. It is read as one text, so that the analysis sees every
// body, and changed as a whole or not at all.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_TOOL_PROGRAMS_H
#define ACCEL_MIGRATE_TOOL_PROGRAMS_H

#include "Progress.h"

#include "accel/migrate/Edit.h"
#include "accel/migrate/Frontend.h"
#include "accel/migrate/Planner.h"
#include "accel/migrate/ProjectSources.h"

#include <functional>
#include <mutex>

namespace accel::migrate {

class Programs {
public:
  /// `Overlay` stands for files on the disk. `OnParse` is told of every parse,
  /// by one thread at a time.
  Programs(Frontend &TheFrontend, PlanOptions Options, TextOverlay Overlay,
           std::function<void(const ParsedUnit &)> OnParse)
      : TheFrontend(TheFrontend), Options(std::move(Options)),
        Overlay(std::move(Overlay)), OnParse(std::move(OnParse)) {}

  /// Plans the programs that the named files belong to, each once; reads `Jobs`
  /// of them at a time (0: as many as there are cores). A file that is part of
  /// no program stands for itself.
  /// `Shown` says how many of the programs with a `main` have been read.
  std::vector<UnitPlan> plan(const std::vector<std::string> &Named,
                             unsigned Jobs, Progress &Shown);

  /// How a unit was read.
  ParsedUnit::Status stateOf(const UnitPlan &Unit) const;

  /// Reads sources of a unit once more, and all that a compiler does with them,
  /// which the plan did not need. What is wrong with them; empty: nothing. Then
  /// the state is what it turned out to be.
  std::optional<Finding> recheck(const UnitPlan &Unit,
                                 const std::vector<std::string> &Sources);

  /// The sources of a unit that have to be parsed again when these files
  /// change. May be called by several threads.
  std::vector<std::string> readersOf(const UnitPlan &Unit,
                                     const TextOverlay &Changed);

  /// The programs (their main files) beyond `Units` that read `File`, and have
  /// not been migrated before.
  std::vector<std::string> othersWith(const std::string &File,
                                      llvm::ArrayRef<UnitPlan> Units);

private:
  /// `Registered`: sources that nothing in the program calls.
  UnitPlan planProgram(const std::string &Main, bool MainElsewhere = false,
                       bool Joins = false,
                       llvm::ArrayRef<std::string> Registered = {});
  bool joinRegistered(const UnitPlan &Alone, std::vector<UnitPlan> &Units);
  void joinReaders(std::vector<UnitPlan> &Units);
  UnitPlan planBeside(UnitPlan Alone, llvm::ArrayRef<UnitPlan> Others);
  bool read(UnitPlan &Unit, const std::vector<std::string> &Sources,
            ParsedUnit &Parsed);
  void widen(UnitPlan &Unit);
  ParsedUnit parse(const UnitPlan &Unit, const std::vector<std::string> &Sources,
                   Thoroughness How, UnitCallback OnUnit);
  void setState(const UnitPlan &Unit, ParsedUnit::Status State);
  /// What `Question` says of the project of a file.
  template <class Callable>
  auto ask(const std::string &File, Callable Question);
  bool mentionsTorch(const std::string &File);

  Frontend &TheFrontend;
  PlanOptions Options;
  TextOverlay Overlay;
  std::function<void(const ParsedUnit &)> OnParse;

  /// Held for questions and answers, never while something is parsed.
  mutable std::mutex Mutex;
  std::map<std::string, ProjectSources> Projects; ///< By folder.
  std::map<std::string, ParsedUnit::Status> States; ///< By main file.
  /// The sources that training programs have beside what is called, by main file.
  std::map<std::string, std::vector<std::string>> RegisteredBy;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_TOOL_PROGRAMS_H
