//===- Instantiations.h - What of the templates is read ---------*- C++ -*-===//
//
// Most of a unit's time goes to the bodies of LibTorch's and the standard
// library's templates, which the compiler instantiates at the end of the unit.
// What says nothing about the user's code is taken out of Clang's queue.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_LIB_FRONTEND_INSTANTIATIONS_H
#define ACCEL_LIB_FRONTEND_INSTANTIATIONS_H

#include "UserScope.h"

#include "accel/migrate/Frontend.h"

#include "clang/AST/Type.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace clang {
class Sema;
class TemplateArgumentList;
} // namespace clang

namespace accel::migrate {

/// One per unit.
class Instantiations {
public:
  Instantiations(UserLocations &User, const clang::SourceManager &SM,
                 Thoroughness How)
      : User(User), SM(SM), How(How) {}

  /// To be called with every declaration that the parser finishes, those that
  /// it instantiates among them.
  void drop(clang::Sema &S);

private:
  bool isOfUser(const clang::Decl *D);
  bool isOfUser(clang::QualType Type);
  bool isMadeOfUser(clang::QualType Type);
  bool isOfUser(const clang::TemplateArgument &Argument);
  bool isOfUser(const clang::TemplateArgumentList *Arguments);

  UserLocations &User;
  const clang::SourceManager &SM;
  Thoroughness How;
  bool DroppedPrecompiled = false;
  llvm::DenseSet<const clang::Decl *> Kept, Dropped; ///< Canonical.
  llvm::DenseMap<const clang::Type *, bool> Known; ///< Canonical types.
};

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_INSTANTIATIONS_H
