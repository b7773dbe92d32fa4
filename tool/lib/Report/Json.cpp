//===- Json.cpp - The record as JSON --------------------------------------===//
//
// docs/accel-migrate.schema.json describes the document; `Version` changes when
// a reader would have to.
//
//===----------------------------------------------------------------------===//

#include "accel/migrate/Config.h"
#include "accel/migrate/Findings.h"
#include "accel/migrate/Report.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace llvm;

namespace accel::migrate {

static constexpr int Version = 1;

/// Text of the user's, which need not be UTF-8.
static std::string text(StringRef Text) { return json::fixUTF8(Text); }

static json::Object placeOf(const Change &C, StringRef Before) {
  auto [Line, Column] = lineAndColumn(Before, C.Range.Offset);
  return json::Object{{"offset", C.Range.Offset},
                      {"length", C.Range.Length},
                      {"line", Line},
                      {"column", Column}};
}

static json::Object fileOf(const FileEdit &File) {
  json::Array Changes;
  for (const Change &C : File.Changes) {
    json::Object O = placeOf(C, File.Before);
    O["replacement"] = text(C.Replacement);
    O["rule"] = C.Rule;
    O["why"] = text(C.Why);
    Changes.push_back(std::move(O));
  }
  return json::Object{{"path", text(displayPath(File.File))},
                      {"changes", std::move(Changes)}};
}

static json::Object findingOf(const Finding &F) {
  json::Object O{{"id", F.Id},
                 {"level", severityName(F.Level)},
                 {"message", text(F.Message)}};
  if (const FindingKind *Kind = findFindingKind(F.Id))
    O["title"] = Kind->Title;
  if (!F.Remedy.empty())
    O["remedy"] = text(F.Remedy);
  if (!F.Range.File.empty())
    O["path"] = text(displayPath(F.Range.File));
  if (F.Line) {
    O["line"] = F.Line;
    O["column"] = F.Column;
  }
  return O;
}

void printJson(raw_ostream &OS, const RunRecord &Record) {
  json::Array Inputs, Files, Findings, Results;
  for (const UnitRecord &Unit : Record.Units)
    Inputs.push_back(json::Object{{"path", text(displayPath(Unit.File))},
                                  {"outcome", outcomeName(Unit.Result)}});
  for (const EditGroup &Group : Record.Groups)
    for (const FileEdit &File : Group.Files)
      Files.push_back(fileOf(File));
  for (const Finding &F : Record.Findings)
    Findings.push_back(findingOf(F));
  for (const ResultNote &Note : resultNotes(Record))
    Results.push_back(
        json::Object{{"topic", Note.Topic}, {"text", Note.Text}});

  SmallString<256> Directory;
  sys::fs::current_path(Directory);
  json::Object Document{
      {"version", Version},
      {"tool", json::Object{{"name", "accel-migrate"},
                            {"version", ACCEL_VERSION}}},
      {"directory", text(Directory)},
      {"mode", Record.Mode},
      {"share", Record.MatchSingleDevice ? "match_single_device"
                                         : "per_process_batch"},
      {"exitCode", Record.ExitCode},
      {"inputs", std::move(Inputs)},
      {"files", std::move(Files)},
      {"findings", std::move(Findings)},
      {"results", std::move(Results)}};
  OS << formatv("{0:2}\n", json::Value(std::move(Document)));
}

} // namespace accel::migrate
