//===- Instantiations.h - What of the templates is read ---------*- C++ -*-===//
//
// Most of a unit's time goes to the bodies of LibTorch's and the standard
// library's templates, which the compiler instantiates at the end of the unit.
// What says nothing about the user's code is taken out of Clang's queue.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_LIB_FRONTEND_INSTANTIATIONS_H
#define ACCEL_LIB_FRONTEND_INSTANTIATIONS_H

#include "ProvenTemplates.h"
#include "UserScope.h"

#include "accel/migrate/Frontend.h"

#include "clang/AST/Mangle.h"
#include "clang/AST/Type.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <optional>

namespace clang {
class DeclGroupRef;
class Sema;
} // namespace clang

namespace accel::migrate {

/// One per unit.
class Instantiations {
public:
  /// `Proven` is of the precompiled header that is used, or null. `OfOriginal`
  /// has the keys of what the program itself asks for: an analysis adds to it,
  /// in a result that is not instantiated.
  Instantiations(UserLocations &User, const clang::SourceManager &SM,
                 Thoroughness How, ProvenTemplates *Proven,
                 llvm::DenseSet<uint64_t> *OfOriginal)
      : User(User), SM(SM), How(How), Proven(Proven), OfOriginal(*OfOriginal) {}

  /// To be called with every declaration that the parser finishes, those that
  /// it instantiates among them.
  void drop(clang::Sema &S, clang::DeclGroupRef Group);

  /// To be called when the unit has turned out to have no error.
  void remember();

private:
  using Pending = std::pair<clang::ValueDecl *, clang::SourceLocation>;

  enum Question {
    /// Is anything part of it that is not in the precompiled header?
    Mentions,
    /// Is anything part of it that accel's headers declare?
    MentionsAccel,
    /// May using it ask for an instantiation of a template of the user's?
    MayInstantiate,
  };
  bool answers(Question Q, const clang::Decl *D);
  bool isOfUser(Question Q, const clang::Decl *D);
  bool isOfUser(Question Q, clang::QualType Type);
  bool isMadeOfUser(Question Q, clang::QualType Type);
  bool isOfUser(Question Q, const clang::TemplateArgument &Argument);
  bool hasTemplates(const clang::RecordDecl *Class);
  bool isNeeded(const clang::Decl *D);
  /// The key of what has one name in all units; none for the rest.
  std::optional<uint64_t> keyOf(const clang::Decl *D);
  bool changesForeign(const clang::Decl *D) const;

  UserLocations &User;
  const clang::SourceManager &SM;
  Thoroughness How;
  ProvenTemplates *Proven;
  llvm::DenseSet<uint64_t> &OfOriginal;
  std::optional<clang::ASTNameGenerator> Names;
  bool DroppedPrecompiled = false;
  size_t KnownUndefined = 0; ///< Entries of UndefinedButUsed that were looked at.
  llvm::DenseSet<const clang::Decl *> Kept, Dropped; ///< Canonical.
  /// The end of the queue when it was looked through last: what stands in front
  /// of it was kept, too.
  Pending LastKept;
  std::vector<Pending> Skipped; ///< What of the proven was dropped.
  std::vector<uint64_t> Seen;   ///< Keys of what is proven by this unit.
  llvm::DenseMap<const clang::Type *, bool> Known[3]; ///< Canonical types.
};

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_INSTANTIATIONS_H
