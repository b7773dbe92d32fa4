//===- Programs.h - What is migrated together -------------------*- C++ -*-===//
//
// The unit of a migration is a program: the source with main and those that
// define what it uses. It is read as one text, so that the analysis sees every
// body, and changed as a whole or not at all.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_TOOL_PROGRAMS_H
#define ACCEL_MIGRATE_TOOL_PROGRAMS_H

#include "accel/migrate/Edit.h"
#include "accel/migrate/Frontend.h"
#include "accel/migrate/Planner.h"
#include "accel/migrate/ProjectSources.h"

#include <functional>

namespace accel::migrate {

class Programs {
public:
  /// `Overlay` stands for files on the disk. `OnParse` is told of every parse.
  Programs(Frontend &TheFrontend, PlanOptions Options, TextOverlay Overlay,
           std::function<void(const ParsedUnit &)> OnParse)
      : TheFrontend(TheFrontend), Options(std::move(Options)),
        Overlay(std::move(Overlay)), OnParse(std::move(OnParse)) {}

  /// Plans the programs that the named files belong to, each once. A file that
  /// is part of no program stands for itself.
  std::vector<UnitPlan> plan(const std::vector<std::string> &Named);

  /// How a unit was read.
  ParsedUnit::Status stateOf(const UnitPlan &Unit) const {
    return States.at(Unit.MainFile);
  }

  /// The sources of a unit that have to be parsed again when these files
  /// change.
  std::vector<std::string> readersOf(const UnitPlan &Unit,
                                     const TextOverlay &Changed);

private:
  UnitPlan planProgram(const std::string &Main);
  bool read(UnitPlan &Unit, const std::vector<std::string> &Sources,
            ParsedUnit &Parsed);
  void widen(UnitPlan &Unit);
  ProjectSources &projectOf(const std::string &File);
  bool mentionsTorch(const std::string &File);

  Frontend &TheFrontend;
  PlanOptions Options;
  TextOverlay Overlay;
  std::function<void(const ParsedUnit &)> OnParse;
  std::map<std::string, ProjectSources> Projects; ///< By folder.
  std::map<std::string, ParsedUnit::Status> States; ///< By main file.
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_TOOL_PROGRAMS_H
