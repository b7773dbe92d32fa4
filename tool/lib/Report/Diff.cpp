//===- Diff.cpp - A unified diff of a file's changes ----------------------===//

#include "Blocks.h"

#include "accel/migrate/Report.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace accel::migrate {

static constexpr size_t ContextLinesOfDiff = 3;

namespace {

class DiffPrinter {
public:
  DiffPrinter(raw_ostream &OS, const FileEdit &File, bool Colored)
      : OS(OS), File(File), Colored(Colored), Old(linesOf(File.Before)),
        New(linesOf(File.After)) {}

  void print() {
    std::string Name = displayPath(File.File);
    std::vector<LineBlock> Blocks = changedBlocks(File, Old, New);
    std::vector<ArrayRef<LineBlock>> Hunks = hunksOf(Blocks);
    // In colour the diff is for a person, and each hunk has its reasons above
    // it. What reads a plain one skips lines only in front of a file's header.
    if (!Colored)
      for (ArrayRef<LineBlock> Hunk : Hunks)
        printReasons(reasonsOf(Hunk), Name + ":");
    // As git does it: -p1 takes the first folder off.
    StringRef Slash = sys::path::is_absolute(Name) ? "" : "/";
    paint(raw_ostream::WHITE, "--- a" + Slash + Name, true);
    paint(raw_ostream::WHITE, "+++ b" + Slash + Name, true);
    for_each(Hunks, [&](ArrayRef<LineBlock> Hunk) { printHunk(Hunk); });
  }

private:
  /// Blocks whose contexts would meet are one hunk.
  static std::vector<ArrayRef<LineBlock>> hunksOf(ArrayRef<LineBlock> Blocks) {
    std::vector<ArrayRef<LineBlock>> Hunks;
    for (size_t I = 0; I != Blocks.size();) {
      size_t Next = I + 1;
      while (Next != Blocks.size() && Blocks[Next].OldBegin -
                                              Blocks[Next - 1].OldEnd <=
                                          2 * ContextLinesOfDiff)
        ++Next;
      Hunks.push_back(Blocks.slice(I, Next - I));
      I = Next;
    }
    return Hunks;
  }

  void printReasons(ArrayRef<LineReason> Reasons, const Twine &Place) {
    for (const LineReason &R : Reasons)
      paint(raw_ostream::YELLOW,
            "# " + Place + Twine(R.NewLine + 1) + ": " + R.Of->Why + " [" +
                R.Of->Rule + "]",
            false);
  }

  void printHunk(ArrayRef<LineBlock> Blocks) {
    size_t Before = std::min(ContextLinesOfDiff, Blocks.front().OldBegin);
    size_t After = std::min(ContextLinesOfDiff, Old.size() - Blocks.back().OldEnd);
    size_t OldBegin = Blocks.front().OldBegin - Before;
    size_t OldCount = Blocks.back().OldEnd + After - OldBegin;
    size_t NewBegin = Blocks.front().NewBegin - Before;
    size_t NewCount = Blocks.back().NewEnd + After - NewBegin;
    std::vector<LineReason> Reasons = reasonsOf(Blocks);
    if (Colored)
      printReasons(Reasons, "line ");
    // An empty range is named by the line before it.
    std::string Header;
    raw_string_ostream HeaderStream(Header);
    HeaderStream << "@@ -" << OldBegin + (OldCount != 0) << ',' << OldCount
                 << " +" << NewBegin + (NewCount != 0) << ',' << NewCount
                 << " @@";
    if (!Colored && Reasons.size() == 1) {
      HeaderStream << ' ' << Reasons[0].Of->Why << " [" << Reasons[0].Of->Rule
                   << ']';
    } else if (!Colored && !Reasons.empty()) {
      SetVector<StringRef> Rules;
      for (const LineReason &R : Reasons)
        Rules.insert(R.Of->Rule);
      HeaderStream << " [";
      interleaveComma(Rules, HeaderStream);
      HeaderStream << "], see above";
    }
    paint(raw_ostream::CYAN, Header, false);

    size_t At = OldBegin;
    for (const LineBlock &B : Blocks) {
      for (; At < B.OldBegin; ++At)
        printLine(' ', Old[At]);
      for (; At < B.OldEnd; ++At)
        printLine('-', Old[At]);
      for (size_t N = B.NewBegin; N < B.NewEnd; ++N)
        printLine('+', New[N]);
    }
    for (size_t End = At + After; At < End; ++At)
      printLine(' ', Old[At]);
  }

  void printLine(char Sign, StringRef Line) {
    bool HasBreak = Line.consume_back("\n");
    std::string Text = Sign + Line.str();
    if (Sign == ' ')
      OS << Text << '\n';
    else
      paint(Sign == '+' ? raw_ostream::GREEN : raw_ostream::RED, Text, false);
    if (!HasBreak)
      OS << "\\ No newline at end of file\n";
  }

  void paint(raw_ostream::Colors Color, const Twine &Text, bool Bold) {
    if (Colored)
      OS.changeColor(Color, Bold);
    OS << Text;
    if (Colored)
      OS.resetColor();
    OS << '\n';
  }

  raw_ostream &OS;
  const FileEdit &File;
  bool Colored;
  std::vector<StringRef> Old, New;
};

} // namespace

void printDiff(raw_ostream &OS, const FileEdit &File, bool Colored) {
  DiffPrinter(OS, File, Colored).print();
}

} // namespace accel::migrate
