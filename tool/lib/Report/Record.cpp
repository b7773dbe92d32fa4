//===- Record.cpp - What a run found and did ------------------------------===//

#include "accel/migrate/Record.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace llvm;

namespace accel::migrate {

StringRef outcomeName(Outcome O) {
  switch (O) {
  case Outcome::Migrated:
    return "migrated";
  case Outcome::NothingToDo:
    return "nothing-to-do";
  case Outcome::AlreadyMigrated:
    return "already-migrated";
  case Outcome::NoTraining:
    return "no-training";
  case Outcome::Refused:
    return "refused";
  case Outcome::DoesNotCompile:
    return "does-not-compile";
  case Outcome::Crashed:
    return "crashed";
  }
  llvm_unreachable("an outcome without a name");
}

StringRef severityName(Severity Level) {
  switch (Level) {
  case Severity::Note:
    return "note";
  case Severity::Warning:
    return "warning";
  case Severity::Refusal:
    return "refusal";
  }
  llvm_unreachable("a severity without a name");
}

/// Adds `More` to a list of words, once.
static void addOnce(std::string &List, const std::string &More,
                    StringRef Separator) {
  SmallVector<StringRef, 4> Known;
  StringRef(List).split(Known, Separator);
  if (!More.empty() && !is_contained(Known, More))
    List += (List.empty() ? "" : Separator.str()) + More;
}

std::vector<Change> separateChanges(const FileEdit &File) {
  std::vector<Change> Result;
  for (const Change &C : File.Changes) {
    if (Result.empty() ||
        Result.back().Range.Offset + Result.back().Range.Length <
            C.Range.Offset) {
      Result.push_back(C);
      continue;
    }
    Change &Last = Result.back();
    Last.Range.Length = C.Range.Offset + C.Range.Length - Last.Range.Offset;
    Last.Replacement += C.Replacement;
    addOnce(Last.Rule, C.Rule, ", ");
    addOnce(Last.Why, C.Why, "; ");
  }
  return Result;
}

namespace {

enum class Share { Both, Match, PerProcess };

struct ResultRow {
  Share Which;
  StringLiteral When, Topic, Text;
};

} // namespace

static constexpr ResultRow ResultRows[] = {
#define ACCEL_RESULT(Which, When, Topic, Text)                                 \
  {Share::Which, When, Topic, Text},
#include "accel/migrate/Results.def"
};

std::vector<ResultNote> resultNotes(const RunRecord &Record) {
  StringSet<> Seen;
  for (const EditGroup &Group : Record.Groups)
    for (const FileEdit &File : Group.Files)
      for (const Change &C : File.Changes)
        Seen.insert(C.Rule);
  if (Seen.empty())
    return {};
  for (const Finding &F : Record.Findings)
    Seen.insert(F.Id);

  std::vector<ResultNote> Notes;
  const Share Other =
      Record.MatchSingleDevice ? Share::PerProcess : Share::Match;
  for (const ResultRow &Row : ResultRows) {
    if (Row.Which == Other || (!Row.When.empty() && !Seen.contains(Row.When)))
      continue;
    auto Known = find_if(
        Notes, [&](const ResultNote &N) { return N.Topic == Row.Topic; });
    if (Known == Notes.end())
      Notes.push_back({Row.Topic.str(), Row.Text.str()});
    else
      Known->Text += " " + Row.Text.str();
  }
  return Notes;
}

} // namespace accel::migrate
