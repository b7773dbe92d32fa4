//===- Explain.cpp - Why a line is changed or not -------------------------===//

#include "Blocks.h"

#include "accel/migrate/Report.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

using namespace llvm;

namespace accel::migrate {

namespace {

/// Lines from 1, both included.
struct Lines {
  unsigned First, Last;
  bool holds(unsigned Line) const { return First <= Line && Line <= Last; }
};

class Explainer {
public:
  Explainer(raw_ostream &OS, const RunRecord &Record, const std::string &File,
            unsigned Line)
      : OS(OS), Record(Record), File(File), Line(Line), Asked(Line) {
    for (const EditGroup &Group : Record.Groups)
      for (const FileEdit &E : Group.Files)
        if (E.File == File)
          Edit = &E;
  }

  void explain(bool InNewText);

private:
  struct Placed {
    const Change *Of;
    Lines Old, New;
  };
  std::vector<Placed> placed() const;
  unsigned oldLineOf(unsigned NewLine) const;
  void printLine(char Sign, StringRef Text, unsigned Number) {
    printLine(Sign, Text, Number, Number);
  }
  void printLine(char Sign, StringRef Text, unsigned Number, unsigned Shown) {
    OS << "  " << Sign << ' ' << Shown << " | "
       << linesOf(Text)[Number - 1].rtrim("\r\n") << '\n';
  }
  void printReasons(ArrayRef<const Change *> Changes);
  void changed(ArrayRef<Placed> Changes, bool InNewText);
  void unchanged();
  void knowledge(bool IsChanged);
  bool isNothing(StringRef Text) const;

  raw_ostream &OS;
  const RunRecord &Record;
  const std::string &File;
  /// In the text that was analysed, and as it was asked for.
  unsigned Line, Asked;
  const FileEdit *Edit = nullptr;
};

} // namespace

static unsigned lineOf(StringRef Text, size_t Offset) {
  return lineAndColumn(Text, Offset).first;
}

/// The lines that `Length` bytes at `Offset` touch; a final line break belongs
/// to the line that it ends.
static Lines linesAt(StringRef Text, size_t Offset, size_t Length) {
  return {lineOf(Text, Offset),
          lineOf(Text, Length ? Offset + Length - 1 : Offset)};
}

std::vector<Explainer::Placed> Explainer::placed() const {
  std::vector<Placed> Result;
  ptrdiff_t Shift = 0;
  for (const Change &C : Edit->Changes) {
    Placed P{&C, linesAt(Edit->Before, C.Range.Offset, C.Range.Length),
             linesAt(Edit->After, C.Range.Offset + Shift, C.Replacement.size())};
    Shift += ptrdiff_t(C.Replacement.size()) - ptrdiff_t(C.Range.Length);
    Result.push_back(P);
  }
  return Result;
}

/// The old line that an unchanged line of the new text was.
unsigned Explainer::oldLineOf(unsigned NewLine) const {
  ptrdiff_t Shift = 0;
  for (const Placed &P : placed()) {
    if (P.New.Last >= NewLine)
      break;
    Shift += ptrdiff_t(StringRef(P.Of->Replacement).count('\n')) -
             ptrdiff_t(StringRef(Edit->Before)
                           .substr(P.Of->Range.Offset, P.Of->Range.Length)
                           .count('\n'));
  }
  return unsigned(ptrdiff_t(NewLine) - Shift);
}

void Explainer::printReasons(ArrayRef<const Change *> Changes) {
  SetVector<std::pair<StringRef, StringRef>> Reasons;
  for (const Change *C : Changes)
    Reasons.insert({C->Rule, C->Why});
  for (auto [Rule, Why] : Reasons)
    OS << "  " << Why << " [" << Rule << "]\n";
}

/// Whole lines that are put in front of a line do not change it.
static bool isLineInFront(const Change &C, StringRef Before) {
  return C.Range.Length == 0 && StringRef(C.Replacement).ends_with("\n") &&
         (C.Range.Offset == 0 || Before[C.Range.Offset - 1] == '\n');
}

void Explainer::changed(ArrayRef<Placed> Changes, bool InNewText) {
  std::vector<const Change *> Here, InFront;
  SetVector<unsigned> OldLines, NewLines;
  for (const Placed &P : Changes) {
    bool IsInFront = isLineInFront(*P.Of, Edit->Before);
    (IsInFront && !InNewText ? InFront : Here).push_back(P.Of);
    if (!IsInFront)
      for (unsigned L = P.Old.First; L <= P.Old.Last; ++L)
        OldLines.insert(L);
    if (!IsInFront || InNewText)
      for (unsigned L = P.New.First; L <= P.New.Last; ++L)
        NewLines.insert(L);
  }
  if (!Here.empty()) {
    OS << displayPath(File) << ':' << Asked
       << (OldLines.empty() ? ": this line is added\n"
                            : ": this line is changed\n");
    for (unsigned L : OldLines)
      printLine('-', Edit->Before, L);
    for (unsigned L : NewLines)
      if (!Edit->After.empty() && L <= linesOf(Edit->After).size())
        printLine('+', Edit->After, L);
    printReasons(Here);
  }
  if (InFront.empty())
    return;
  if (Here.empty()) {
    OS << displayPath(File) << ':' << Asked << ": this line is not changed\n";
    printLine(' ', Edit->Before, Line);
  }
  OS << "In front of it is put:\n";
  for (const Placed &P : Changes)
    if (is_contained(InFront, P.Of))
      for (unsigned L = P.New.First; L <= P.New.Last; ++L)
        printLine('+', Edit->After, L);
  printReasons(InFront);
}

/// Only blanks, or a comment of a line's length.
bool Explainer::isNothing(StringRef Text) const {
  Text = Text.trim();
  return Text.empty() || Text.starts_with("//");
}

void Explainer::unchanged() {
  StringRef Text = Record.textOf(File);
  OS << displayPath(File) << ':' << Asked << ": this line is not changed\n";
  printLine(' ', Text, Line, Asked);

  std::vector<const Change *> Withheld;
  for (const Change &C : Record.Withheld)
    if (C.Range.File == File &&
        linesAt(Text, C.Range.Offset, C.Range.Length).holds(Line))
      Withheld.push_back(&C);
  if (!Withheld.empty()) {
    OS << "It would be, were the file not refused:\n";
    printReasons(Withheld);
  }
  if (isNothing(linesOf(Text)[Line - 1]))
    OS << "There is no code in it.\n";
}

/// What was found in the line, and what stops the migration.
void Explainer::knowledge(bool IsChanged) {
  StringRef Text = Record.textOf(File);
  std::vector<const Finding *> Here, Refusals;
  for (const Finding &F : Record.Findings) {
    if (F.Range.File == File && F.Line == Line)
      Here.push_back(&F);
    else if (F.Level == Severity::Refusal)
      Refusals.push_back(&F);
  }
  if (!Here.empty()) {
    OS << "What was found here:\n";
    for (const Finding *F : Here)
      printFinding(OS, *F, /*Colored=*/false);
  }
  if (!Refusals.empty() && !Edit) {
    OS << (Here.empty() ? "No line is changed, since this stops the migration:\n"
                        : "This stops the migration, too:\n");
    for (const Finding *F : Refusals)
      printFinding(OS, *F, /*Colored=*/false);
  }

  if (isNothing(linesOf(Text)[Line - 1]) || !Here.empty() ||
      (!Edit && !Refusals.empty()))
    return;
  bool IsTraining = any_of(Record.Units, [](const UnitRecord &Unit) {
    return Unit.Result != Outcome::NoTraining;
  });
  if (!IsTraining)
    OS << "The file has no training code: nothing here computes gradients or "
          "steps an optimizer.\n";
  else if (!IsChanged)
    OS << "No rule asks for a change of it: each process runs it as it is.\n";
}

void Explainer::explain(bool InNewText) {
  if (Edit) {
    std::vector<Placed> Changes;
    for (const Placed &P : placed())
      if ((InNewText ? P.New : P.Old).holds(Line))
        Changes.push_back(P);
    if (!Changes.empty()) {
      changed(Changes, InNewText);
      if (!InNewText) // What is known is known of the old text.
        knowledge(/*IsChanged=*/true);
      return;
    }
    if (InNewText)
      Line = oldLineOf(Line);
  }
  if (linesOf(Record.textOf(File)).size() < Line) {
    OS << displayPath(File) << ':' << Asked
       << ": none of the files that were read has this line\n";
    for (const Finding &F : Record.Findings)
      printFinding(OS, F, /*Colored=*/false);
    return;
  }
  for (const UnitRecord &Unit : Record.Units)
    if (Unit.Result == Outcome::AlreadyMigrated) {
      OS << displayPath(File) << ':' << Asked
         << ": the file is migrated already, and what it was made from is not "
            "known (no .accel/undo has it)\n";
      return;
    }
  unchanged();
  knowledge(/*IsChanged=*/false);
}

void printExplanation(raw_ostream &OS, const RunRecord &Record,
                      const std::string &File, unsigned Line, bool InNewText) {
  Explainer(OS, Record, File, Line).explain(InNewText);
}

} // namespace accel::migrate
