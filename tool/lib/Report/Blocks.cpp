//===- Blocks.cpp - Which lines of two texts differ -----------------------===//

#include "Blocks.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace accel::migrate {

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

/// Equal lines at both ends of a block are context.
static void trim(LineBlock &B, ArrayRef<StringRef> Old, ArrayRef<StringRef> New) {
  while (B.OldBegin < B.OldEnd && B.NewBegin < B.NewEnd &&
         Old[B.OldBegin] == New[B.NewBegin])
    ++B.OldBegin, ++B.NewBegin;
  while (B.OldBegin < B.OldEnd && B.NewBegin < B.NewEnd &&
         Old[B.OldEnd - 1] == New[B.NewEnd - 1])
    --B.OldEnd, --B.NewEnd;
}

std::vector<LineBlock> changedBlocks(const FileEdit &File, ArrayRef<StringRef> Old,
                                 ArrayRef<StringRef> New) {
  // Changes that touch the same or adjoining lines are one block.
  std::vector<LineBlock> Blocks;
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
    LineBlock &B = Blocks.back();
    B.OldEnd = std::max(B.OldEnd, End);
    B.NewEnd = std::min<size_t>(B.OldEnd + Shift, New.size());
    if (!C.Why.empty())
      B.Reasons.push_back({&C, NewBegin});
  }
  if (!Blocks.empty() && Blocks.back().OldEnd == Old.size())
    Blocks.back().NewEnd = New.size();
  for (LineBlock &B : Blocks)
    trim(B, Old, New);
  return Blocks;
}

std::vector<LineReason> reasonsOf(ArrayRef<LineBlock> Blocks) {
  std::vector<LineReason> Reasons;
  for (const LineBlock &B : Blocks)
    for (const LineReason &R : B.Reasons)
      if (none_of(Reasons, [&](const LineReason &Other) {
            return Other.Of->Why == R.Of->Why && Other.Of->Rule == R.Of->Rule;
          }))
        Reasons.push_back(R);
  return Reasons;
}

} // namespace accel::migrate
