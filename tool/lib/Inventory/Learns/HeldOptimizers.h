//===- HeldOptimizers.h - Where optimizers are held by value ----*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_HELDOPTIMIZERS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_HELDOPTIMIZERS_H

#include "Code/SourceText.h"

#include <set>

namespace accel::migrate {

/// Whether accel::AcceleratedOptimizer can derive from the class: an optimizer of
/// LibTorch's, or one of the program's that has one `step` and no optimizer inside,
/// whose steps would be counted twice. Behind a pointer to the base class stands
/// what is constructed.
bool canTakePart(const clang::CXXRecordDecl *Class);

/// Whether `T` is an optimizer's class, and no pointer or reference.
bool isOptimizerByValue(clang::QualType T);

/// Where a type is spelled, without `const` and the like; not where it is `auto`.
std::optional<clang::SourceRange>
spellingOf(const clang::TypeSourceInfo *Info);

/// The places in the unit at which the program spells the class of an optimizer
/// that it holds by value: variables, fields, parameters, results,
/// and elements of containers. All of them get the class that derives from it,
/// so that one can be moved to the other; if one cannot be changed, none is.
class HeldOptimizers {
public:
  explicit HeldOptimizers(SourceText &Text);

  const std::vector<TextRange> &types() const { return Types; }
  /// Whether the type of `D` is one of those.
  bool isDeclared(const clang::ValueDecl *D) const {
    return Declared.count(D->getCanonicalDecl()) != 0;
  }

private:
  std::vector<TextRange> Types;
  std::set<const clang::Decl *> Declared;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_HELDOPTIMIZERS_H
