//===- Diff.cpp - A unified diff of a file's changes ----------------------===//
//
// The changes say where the texts differ, so nothing has to be searched.
//
//===----------------------------------------------------------------------===//

#include "accel/migrate/Report.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace accel::migrate {

static constexpr size_t ContextLines = 3;

namespace {

/// Why a change is made, at a line (from 0) of the new text.
struct Reason {
  const Change *Of;
  size_t NewLine;
};

/// Lines [OldBegin, OldEnd) of the old text become [NewBegin, NewEnd) of the
/// new one.
struct Block {
  size_t OldBegin, OldEnd, NewBegin, NewEnd;
  std::vector<Reason> Reasons;
};

/// The lines of a text, each with its line break; the last may have none.
std::vector<StringRef> linesOf(StringRef Text) {
  std::vector<StringRef> Lines;
  while (!Text.empty()) {
    size_t Break = Text.find('\n');
    size_t Length = Break == StringRef::npos ? Text.size() : Break + 1;
    Lines.push_back(Text.take_front(Length));
    Text = Text.drop_front(Length);
  }
  return Lines;
}

class DiffPrinter {
public:
  DiffPrinter(raw_ostream &OS, const FileEdit &File, bool Colored)
      : OS(OS), File(File), Colored(Colored), Old(linesOf(File.Before)),
        New(linesOf(File.After)) {}

  void print() {
    std::string Name = displayPath(File.File);
    paint(raw_ostream::WHITE, "--- " + Name, true);
    paint(raw_ostream::WHITE, "+++ " + Name, true);
    std::vector<Block> Blocks = findBlocks();
    for (size_t I = 0; I != Blocks.size();) {
      size_t Next = I + 1;
      while (Next != Blocks.size() && Blocks[Next].OldBegin -
                                              Blocks[Next - 1].OldEnd <=
                                          2 * ContextLines)
        ++Next;
      printHunk(ArrayRef(Blocks).slice(I, Next - I));
      I = Next;
    }
  }

private:
  /// Groups changes that touch the same or adjoining lines.
  std::vector<Block> findBlocks() const {
    std::vector<Block> Blocks;
    ptrdiff_t Shift = 0; // New line number minus old, behind the last change.
    for (const Change &C : File.Changes) {
      StringRef Text = File.Before;
      size_t Begin = Text.take_front(C.Range.Offset).count('\n');
      StringRef Replaced = Text.substr(C.Range.Offset, C.Range.Length);
      size_t End = Begin + Replaced.count('\n') + 1;
      // Whole lines put in front of a line leave that line as it is.
      bool AtLineStart = C.Range.Offset == 0 || Text[C.Range.Offset - 1] == '\n';
      bool WholeLines = AtLineStart && StringRef(C.Replacement).ends_with("\n");
      if (WholeLines && (Replaced.empty() || Replaced.ends_with("\n")))
        --End;
      End = std::min(End, Old.size());
      size_t NewBegin = Begin + Shift;
      Shift += ptrdiff_t(StringRef(C.Replacement).count('\n')) -
               ptrdiff_t(Replaced.count('\n'));
      if (Blocks.empty() || Begin > Blocks.back().OldEnd)
        Blocks.push_back({Begin, End, NewBegin, 0, {}});
      Block &B = Blocks.back();
      B.OldEnd = std::max(B.OldEnd, End);
      B.NewEnd = std::min<size_t>(B.OldEnd + Shift, New.size());
      if (!C.Why.empty())
        B.Reasons.push_back({&C, NewBegin});
    }
    if (!Blocks.empty() && Blocks.back().OldEnd == Old.size())
      Blocks.back().NewEnd = New.size();
    for (Block &B : Blocks)
      trim(B);
    return Blocks;
  }

  /// Equal lines at both ends of a block are context.
  void trim(Block &B) const {
    while (B.OldBegin < B.OldEnd && B.NewBegin < B.NewEnd &&
           Old[B.OldBegin] == New[B.NewBegin])
      ++B.OldBegin, ++B.NewBegin;
    while (B.OldBegin < B.OldEnd && B.NewBegin < B.NewEnd &&
           Old[B.OldEnd - 1] == New[B.NewEnd - 1])
      --B.OldEnd, --B.NewEnd;
  }

  void printHunk(ArrayRef<Block> Blocks) {
    size_t Before = std::min(ContextLines, Blocks.front().OldBegin);
    size_t After = std::min(ContextLines, Old.size() - Blocks.back().OldEnd);
    size_t OldBegin = Blocks.front().OldBegin - Before;
    size_t OldCount = Blocks.back().OldEnd + After - OldBegin;
    size_t NewBegin = Blocks.front().NewBegin - Before;
    size_t NewCount = Blocks.back().NewEnd + After - NewBegin;
    std::vector<Reason> Reasons;
    for (const Block &B : Blocks)
      for (const Reason &R : B.Reasons)
        if (none_of(Reasons, [&](const Reason &Other) {
              return Other.Of->Why == R.Of->Why && Other.Of->Rule == R.Of->Rule;
            }))
          Reasons.push_back(R);

    // In colour the diff is for a person, and each reason has its line.
    if (Colored)
      for (const Reason &R : Reasons)
        paint(raw_ostream::YELLOW,
              "# line " + Twine(R.NewLine + 1) + ": " + R.Of->Why + " [" +
                  R.Of->Rule + "]",
              false);
    // An empty range is named by the line before it.
    std::string Header;
    raw_string_ostream HeaderStream(Header);
    HeaderStream << "@@ -" << OldBegin + (OldCount != 0) << ',' << OldCount
                 << " +" << NewBegin + (NewCount != 0) << ',' << NewCount
                 << " @@";
    if (!Colored)
      for (const Reason &R : Reasons)
        HeaderStream << (R.Of == Reasons.front().Of ? " " : "; ") << R.Of->Why;
    paint(raw_ostream::CYAN, Header, false);

    size_t At = OldBegin;
    for (const Block &B : Blocks) {
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
