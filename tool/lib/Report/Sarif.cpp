//===- Sarif.cpp - The record as a log of SARIF 2.1.0 ---------------------===//
//
// Findings and changes are results; their ids and rules are described by their
// pages. A single change does not make a program that works, so the changes of
// files that depend on each other are one fix, at a result of its own.
//
//===----------------------------------------------------------------------===//

#include "accel/migrate/Config.h"
#include "accel/migrate/Findings.h"
#include "accel/migrate/Report.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace accel::migrate {

namespace {

constexpr char SchemaUri[] = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/"
                             "errata01/os/schemas/sarif-schema-2.1.0.json";

/// Of the result that carries a whole migration.
constexpr char MigrationRule[] = "migration";

class SarifWriter {
public:
  explicit SarifWriter(const RunRecord &Record) : Record(Record) {}

  json::Value log();

private:
  unsigned ruleIndex(StringRef Id);
  json::Object result(StringRef Rule, StringRef Level, std::string Message,
                      json::Value Location);
  json::Object changeResult(const FileEdit &File, const Change &C);
  json::Object findingResult(const Finding &F);
  json::Object migrationResult(const EditGroup &Group);
  json::Object region(StringRef Text, unsigned Offset, unsigned Length) const;

  const RunRecord &Record;
  json::Array Rules;
  StringMap<unsigned> Indices;
};

} // namespace

static json::Object message(StringRef Text) {
  return json::Object{{"text", json::fixUTF8(Text)}};
}

/// A path as a part of a URI.
static std::string uriOf(StringRef Path) {
  std::string Result;
  for (unsigned char C : Path)
    if (isAlnum(C) || StringRef("-._~/").contains(C))
      Result += C;
    else
      (Result += '%').append({hexdigit(C >> 4), hexdigit(C & 15)});
  return Result;
}

/// Relative to SRCROOT, the current folder, or absolute.
static json::Object artifactLocation(StringRef File) {
  std::string Name = displayPath(File);
  if (sys::path::is_absolute(Name))
    return json::Object{{"uri", "file://" + uriOf(Name)}};
  return json::Object{{"uri", uriOf(Name)}, {"uriBaseId", "SRCROOT"}};
}

static json::Object location(StringRef File,
                             std::optional<json::Object> Region) {
  json::Object Place{{"artifactLocation", artifactLocation(File)}};
  if (Region)
    Place["region"] = std::move(*Region);
  return json::Object{{"physicalLocation", std::move(Place)}};
}

/// Line and column, from 1; columns count code points.
static std::pair<unsigned, unsigned> placeOf(StringRef Text, unsigned Offset) {
  unsigned Line = lineAndColumn(Text, Offset).first;
  StringRef Before = Text.take_front(Offset);
  Before = Before.drop_front(Before.rfind('\n') + 1); // npos + 1 is 0.
  unsigned Column = 1;
  for (unsigned char C : Before)
    Column += (C & 0xC0) != 0x80;
  return {Line, Column};
}

json::Object SarifWriter::region(StringRef Text, unsigned Offset,
                                 unsigned Length) const {
  auto [Line, Column] = placeOf(Text, Offset);
  auto [EndLine, EndColumn] = placeOf(Text, Offset + Length);
  return json::Object{{"startLine", Line},
                      {"startColumn", Column},
                      {"endLine", EndLine},
                      {"endColumn", EndColumn}};
}

static StringRef sarifLevel(Severity Level) {
  return Level == Severity::Refusal   ? "error"
         : Level == Severity::Warning ? "warning"
                                      : "note";
}

/// The index of the rule's description, which is made when it is first needed.
unsigned SarifWriter::ruleIndex(StringRef Id) {
  auto [Known, IsNew] = Indices.try_emplace(Id, Rules.size());
  if (!IsNew)
    return Known->second;
  StringRef Level = "note", Title = "what the migrated program needs";
  if (const FindingKind *Kind = findFindingKind(Id)) {
    Title = Kind->Title;
    Level = sarifLevel(Kind->Level);
  } else if (Id == MigrationRule) {
    Title = "all changes that belong together";
  }
  json::Object Rule{
      {"id", Id},
      {"shortDescription", message(Title)},
      {"defaultConfiguration", json::Object{{"level", Level}}}};
  if (const EmbeddedPage *Page = findPage(Id))
    Rule["help"] = json::Object{{"text", json::fixUTF8(Page->Text)},
                                {"markdown", json::fixUTF8(Page->Text)}};
  Rules.push_back(std::move(Rule));
  return Known->second;
}

json::Object SarifWriter::result(StringRef Rule, StringRef Level,
                                 std::string Message, json::Value Location) {
  return json::Object{{"ruleId", Rule},
                      {"ruleIndex", ruleIndex(Rule)},
                      {"level", Level},
                      {"message", message(Message)},
                      {"locations", json::Array{std::move(Location)}}};
}

json::Object SarifWriter::findingResult(const Finding &F) {
  std::string Message = F.Message;
  if (!F.Remedy.empty())
    Message += ". " + F.Remedy;
  std::optional<json::Object> Region;
  StringRef Text = Record.textOf(F.Range.File);
  if (F.Line && F.Range.Offset <= Text.size() && !Text.empty())
    Region = region(Text, F.Range.Offset, F.Range.Length);
  else if (F.Line)
    Region = json::Object{{"startLine", F.Line}};
  json::Object R = result(F.Id, sarifLevel(F.Level), Message,
                          F.Range.File.empty()
                              ? json::Value(nullptr)
                              : location(F.Range.File, std::move(Region)));
  if (F.Range.File.empty())
    R["locations"] = json::Array();
  return R;
}

json::Object SarifWriter::changeResult(const FileEdit &File, const Change &C) {
  return result(
      C.Rule, "note", C.Why,
      location(File.File, region(File.Before, C.Range.Offset, C.Range.Length)));
}

json::Object SarifWriter::migrationResult(const EditGroup &Group) {
  json::Array Changes, Locations;
  unsigned Count = 0;
  for (const FileEdit &File : Group.Files) {
    json::Array Replacements;
    for (const Change &C : separateChanges(File))
      Replacements.push_back(json::Object{
          {"deletedRegion",
           region(File.Before, C.Range.Offset, C.Range.Length)},
          {"insertedContent", message(C.Replacement)}});
    Count += File.Changes.size();
    Changes.push_back(
        json::Object{{"artifactLocation", artifactLocation(File.File)},
                     {"replacements", std::move(Replacements)}});
    Locations.push_back(location(File.File, std::nullopt));
  }
  std::string Message =
      formatv("{0} {1} make this program run on several processes", Count,
              Count == 1 ? "change" : "changes");
  json::Object R = result(MigrationRule, "note", Message, nullptr);
  R["locations"] = std::move(Locations);
  R["fixes"] = json::Array{
      json::Object{{"description", message("migrate the program")},
                   {"artifactChanges", std::move(Changes)}}};
  return R;
}

json::Value SarifWriter::log() {
  json::Array Results;
  for (const Finding &F : Record.Findings)
    Results.push_back(findingResult(F));
  for (const EditGroup &Group : Record.Groups) {
    for (const FileEdit &File : Group.Files) {
      // What is written around something is two changes for one reason.
      const Change *Last = nullptr;
      for (const Change &C : File.Changes)
        if (!Last || Last->Rule != C.Rule || Last->Why != C.Why ||
            lineAndColumn(File.Before, Last->Range.Offset).first !=
                lineAndColumn(File.Before, C.Range.Offset).first) {
          Results.push_back(changeResult(File, C));
          Last = &C;
        }
    }
    if (!Group.Files.empty())
      Results.push_back(migrationResult(Group));
  }
  SmallString<256> Current, Directory;
  if (sys::fs::current_path(Current) || sys::fs::real_path(Current, Directory))
    Directory = "/";
  std::string Root = "file://" + uriOf(Directory);
  if (!StringRef(Root).ends_with("/"))
    Root += '/';

  json::Object Driver{{"name", "accel-migrate"},
                      {"version", ACCEL_VERSION},
                      {"semanticVersion", ACCEL_VERSION},
                      {"rules", std::move(Rules)}};
  json::Object Run{
      {"tool", json::Object{{"driver", std::move(Driver)}}},
      {"columnKind", "unicodeCodePoints"},
      {"originalUriBaseIds",
       json::Object{{"SRCROOT", json::Object{{"uri", std::move(Root)}}}}},
      {"invocations",
       json::Array{json::Object{
           {"exitCode", Record.ExitCode},
           // Refusals are what the tool is for; the rest is failure.
           {"executionSuccessful", Record.ExitCode <= 1}}}},
      {"results", std::move(Results)}};
  return json::Object{{"$schema", SchemaUri},
                      {"version", "2.1.0"},
                      {"runs", json::Array{std::move(Run)}}};
}

void printSarif(raw_ostream &OS, const RunRecord &Record) {
  OS << formatv("{0:2}\n", SarifWriter(Record).log());
}

} // namespace accel::migrate
