//===- ExactTypes.h - Who asks for an optimizer's very class ----*- C++ -*-===//
//
// An optimizer that takes part becomes one of a class that derives from its own. Code
// that only uses it does not notice; a specialisation, an overload or `typeid` for the
// class itself does.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_EXACTTYPES_H
#define ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_EXACTTYPES_H

#include "Code/SourceText.h"

namespace accel::migrate {

/// A place that would choose otherwise for the derived class.
struct ExactType {
  clang::SourceLocation Loc;
  std::string Class; ///< As it is printed: "torch::optim::Adam".
  std::string How;   ///< "a specialisation is for"
};

/// All of the unit's own text, each place once.
std::vector<ExactType> findExactTypes(SourceText &Text);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_EXACTTYPES_H
