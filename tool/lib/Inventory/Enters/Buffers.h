//===- Buffers.h - What is filled with parts of a batch ---------*- C++ -*-===//
//
// `auto outputs = torch::zeros({x.size(0), steps}); outputs.select(1, t).copy_(y);`:
// a buffer that has the sizes of a batch and is written step by step. Every
// process has all of it, so that what is written would be collected, and what is
// made of it done in full. It is placed like the batch; so is what is put
// together of a batch's rows that were taken out one by one, `torch::stack(rows)`.
// A wrong guess costs speed and never a result.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_BUFFERS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_BUFFERS_H

#include "Cut.h"

#include <optional>
#include <string>

namespace accel::migrate {

struct Buffer {
  const clang::FunctionDecl *In = nullptr; ///< The function around it.
  const clang::VarDecl *Variable = nullptr; ///< Null where it has none.
  const clang::Expr *Made = nullptr; ///< What it is made by.
  std::string Like;                  ///< The batch's variable.
  /// The buffer's dimension that is the batch's; nothing: that of the same number.
  std::optional<unsigned> Dim;
};

/// Those in functions that training steps run; `Cuts` knows the batches.
std::vector<Buffer> findBuffers(const ProgramIndex &Index, const Cut &Cuts);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_BUFFERS_H
