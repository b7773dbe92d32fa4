//===- KeptText.cpp - Text that is not to be changed ----------------------===//

#include "accel/migrate/KeptText.h"

#include "accel/migrate/Findings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace accel::migrate {

namespace {

struct KeptRange {
  unsigned Begin = 0, End = 0; ///< Whole lines.
  unsigned MarkerLine = 0;     ///< 1-based.
};

/// Finds the markers of one file.
class MarkerScan {
public:
  MarkerScan(StringRef File, StringRef Text) : File(File), Text(Text) {}

  void run() {
    unsigned Line = 0, Offset = 0;
    KeptRange Open; // None as long as its line is 0.
    for (StringRef Rest = Text; !Rest.empty();) {
      size_t Length = std::min(Rest.find('\n'), Rest.size() - 1) + 1;
      StringRef Word = markerIn(Rest.take_front(Length));
      ++Line;
      unsigned End = Offset + Length;
      if (Word == "keep") {
        Kept.push_back({Offset, End, Line});
      } else if (Word == "off") {
        if (Open.MarkerLine)
          complain(Offset, Line, "'off' follows another 'off'");
        else
          Open = {Offset, End, Line};
      } else if (Word == "on") {
        if (Open.MarkerLine)
          Kept.push_back({Open.Begin, End, Open.MarkerLine});
        else
          complain(Offset, Line, "'on' follows no 'off'");
        Open = {};
      } else if (!Word.empty()) {
        complain(Offset, Line, ("'" + Word + "' is no marker").str());
      }
      Offset = End;
      Rest = Rest.drop_front(Length);
    }
    if (Open.MarkerLine)
      Kept.push_back({Open.Begin, unsigned(Text.size()), Open.MarkerLine});
  }

  std::vector<KeptRange> Kept;
  std::vector<Finding> Complaints;

private:
  /// The word behind `// accel-migrate:`, or nothing.
  static StringRef markerIn(StringRef Line) {
    size_t At = Line.find("//");
    for (; At != StringRef::npos; At = Line.find("//", At + 2)) {
      StringRef Comment = Line.substr(At + 2).ltrim(" \t/");
      if (!Comment.consume_front("accel-migrate:"))
        continue;
      StringRef Word = Comment.trim().take_while(
          [](char C) { return !isSpace(C) && C != '(' && C != ','; });
      return Word.empty() ? "(nothing)" : Word;
    }
    return "";
  }

  void complain(unsigned Offset, unsigned Line, std::string What) {
    Finding F = makeFinding("ACL0033", {File.str(), Offset, 0}, std::move(What),
                            "Write // accel-migrate: off, on or keep.");
    F.Line = Line;
    F.Column = 1;
    Complaints.push_back(std::move(F));
  }

  StringRef File, Text;
};

} // namespace

/// Whether a change reaches into a range. An insertion at its begin stands
/// before it.
static bool reachesInto(const Change &C, const KeptRange &R) {
  unsigned End = C.Range.Offset + C.Range.Length;
  if (C.Range.Length == 0)
    return C.Range.Offset > R.Begin && C.Range.Offset < R.End;
  return C.Range.Offset < R.End && End > R.Begin;
}

void respectMarkers(UnitPlan &Unit) {
  if (Unit.ThePlan.AlreadyMigrated || !Unit.ThePlan.HasTraining)
    return;
  for (const auto &[Path, Text] : Unit.Files) {
    const std::string &File = Path; // Lambdas capture no parts of a pair.
    if (!StringRef(Text).contains("accel-migrate:"))
      continue;
    MarkerScan Scan(File, Text);
    Scan.run();
    append_range(Unit.ThePlan.Findings, Scan.Complaints);
    std::vector<Change> Left;
    for (Change &C : Unit.ThePlan.Changes) {
      auto Range = find_if(Scan.Kept, [&](const KeptRange &R) {
        return C.Range.File == File && reachesInto(C, R);
      });
      if (Range == Scan.Kept.end()) {
        Left.push_back(std::move(C));
        continue;
      }
      // To print on every process is what was asked for.
      if (C.Rule == "print")
        continue;
      Finding F = makeFinding(
          "ACL0033", C.Range,
          "the rule '" + C.Rule + "' must change this, and the marker in line " +
              std::to_string(Range->MarkerLine) + " forbids it",
          "Take the marker away, or make the whole migration by hand.");
      std::tie(F.Line, F.Column) = lineAndColumn(Text, C.Range.Offset);
      Unit.ThePlan.Findings.push_back(std::move(F));
    }
    Unit.ThePlan.Changes = std::move(Left);
  }
}

/// What stands in a part without comments and directives.
static std::string codeIn(StringRef Part) {
  std::string Code;
  while (!Part.empty()) {
    if (Part.consume_front("//")) {
      Part = Part.drop_until([](char C) { return C == '\n'; });
    } else if (Part.consume_front("/*")) {
      size_t End = Part.find("*/");
      Part = End == StringRef::npos ? "" : Part.substr(End + 2);
    } else {
      Code += Part.front();
      Part = Part.drop_front();
    }
  }
  std::string Result;
  SmallVector<StringRef> Lines;
  StringRef(Code).split(Lines, '\n');
  for (StringRef Line : Lines)
    if (!Line.ltrim().starts_with("#"))
      Result += (Line + "\n").str();
  return Result;
}

void reportUnseen(UnitPlan &Unit) {
  Plan &P = Unit.ThePlan;
  if (P.AlreadyMigrated || !P.HasTraining)
    return;
  std::map<std::string, std::string> Lines;
  for (const TextRange &Range : Unit.Unseen) {
    auto File = Unit.Files.find(Range.File);
    if (File == Unit.Files.end())
      continue;
    StringRef Text = File->second;
    std::string Code = codeIn(Text.substr(Range.Offset, Range.Length));
    if (StringRef(Code).trim().empty())
      continue;
    unsigned First = lineAndColumn(Text, Range.Offset).first;
    // The line break behind the last directive may belong to the part.
    unsigned End = Range.Offset + std::max(Range.Length, 1u) - 1;
    unsigned Last = lineAndColumn(Text, End).first;
    std::string &All = Lines[Range.File];
    All += (All.empty() ? "" : ", ") + std::to_string(First) + "–" +
           std::to_string(Last);
  }
  for (const auto &Entry : Lines)
    if (Entry.first == Unit.MainFile ||
        any_of(P.Changes,
               [&](const Change &C) { return C.Range.File == Entry.first; }))
      P.Findings.push_back(makeFinding(
          "ACL0032", {Entry.first, 0, 0},
          "the preprocessor leaves out lines " + Entry.second +
              " with these flags; they were not looked at and stay as they are",
          "Nothing has to be done for the results. A build that compiles them "
          "prints and saves there on every process; to change them, too, migrate "
          "with its flags (-D behind --)."));
}

} // namespace accel::migrate
