//===- Blocks.h - Which lines of two texts differ ---------------*- C++ -*-===//
//
// The changes say where the texts differ, so nothing has to be searched.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_LIB_REPORT_BLOCKS_H
#define ACCEL_LIB_REPORT_BLOCKS_H

#include "accel/migrate/Edit.h"

#include "llvm/ADT/StringRef.h"

#include <vector>

namespace accel::migrate {

/// Why a change is made, at a line (from 0) of the new text.
struct LineReason {
  const Change *Of;
  size_t NewLine;
};

/// Lines [OldBegin, OldEnd) of the old text become [NewBegin, NewEnd) of the
/// new one (from 0).
struct LineBlock {
  size_t OldBegin, OldEnd, NewBegin, NewEnd;
  std::vector<LineReason> Reasons;
};

/// The lines of a text, each with its line break; the last may have none.
std::vector<llvm::StringRef> linesOf(llvm::StringRef Text);

/// A file's changed lines, with pointers into its changes. `Old` and `New` are
/// the lines of its texts.
std::vector<LineBlock> changedBlocks(const FileEdit &File,
                                 llvm::ArrayRef<llvm::StringRef> Old,
                                 llvm::ArrayRef<llvm::StringRef> New);

/// The blocks' reasons; of equal ones the first.
std::vector<LineReason> reasonsOf(llvm::ArrayRef<LineBlock> Blocks);

} // namespace accel::migrate

#endif // ACCEL_LIB_REPORT_BLOCKS_H
