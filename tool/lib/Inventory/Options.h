//===- Options.h - Options as they are spelled ------------------*- C++ -*-===//
//
// `SoftmaxOptions(1)`, `MSELossOptions().reduction(torch::kSum)`: what is set
// in a chain of calls on a value of an options class.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_OPTIONS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_OPTIONS_H

#include "clang/AST/ASTContext.h"
#include "clang/AST/ExprCXX.h"

#include <optional>
#include <string>
#include <vector>

namespace accel::migrate {

struct OptionSet {
  std::vector<std::pair<std::string, const clang::Expr *>> Given;

  /// What an option is set to last, or null.
  const clang::Expr *find(llvm::StringRef Name) const {
    const clang::Expr *Found = nullptr;
    for (const auto &[Key, Value] : Given)
      if (Key == Name)
        Found = Value;
    return Found;
  }
};

/// The options in `E`: an options value, or the construction of a module (or
/// its holder) from them. Nothing when they cannot be seen.
std::optional<OptionSet> optionsOf(const clang::Expr *E,
                                   const clang::ASTContext &Context);

/// The enumerator in a variant of torch::k…: "kSum"; "" when not to be seen.
std::string enumeratorOf(const clang::Expr *E);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_OPTIONS_H
