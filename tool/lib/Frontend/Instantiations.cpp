//===- Instantiations.cpp - What of the templates is read -----------------===//

#include "Instantiations.h"

#include "clang/AST/DeclTemplate.h"
#include "clang/Sema/ExternalSemaSource.h"
#include "clang/Sema/Sema.h"

using namespace llvm;
using namespace clang;

namespace accel::migrate {

/// What LibTorch's headers themselves still need at the end of a unit, virtual
/// functions of its templates above all, takes longer than all the rest. To
/// read it is to take it from the precompiled header, so that Clang finds
/// nothing to do.
static void dropPrecompiled(Sema &S) {
  ExternalSemaSource *Source = S.getExternalSource();
  if (!Source)
    return;
  SmallVector<std::pair<ValueDecl *, SourceLocation>, 0> Instantiations;
  Source->ReadPendingInstantiations(Instantiations);
  SmallVector<ExternalVTableUse, 0> VTables;
  Source->ReadUsedVTables(VTables);
}

void Instantiations::drop(Sema &S) {
  if (!DroppedPrecompiled) {
    DroppedPrecompiled = true;
    dropPrecompiled(S);
  }
  if (How == Thoroughness::Complete)
    return;
  // What was asked for by the body of a foreign template stands in the queue of
  // that body, which is this one while the body is being instantiated.
  llvm::erase_if(S.PendingInstantiations, [&](const auto &Pending) {
    const Decl *D = Pending.first->getCanonicalDecl();
    if (Kept.contains(D))
      return false;
    const bool Keeps = isOfUser(D);
    (Keeps ? Kept : Dropped).insert(D);
    return !Keeps;
  });
  // Clang misses the body of what has no linkage.
  if (!Dropped.empty())
    S.UndefinedButUsed.remove_if([&](const auto &Used) {
      return Dropped.contains(Used.first->getCanonicalDecl());
    });
}

/// Whether a declaration is the user's, is in something of the user's, or was
/// made for something of the user's.
bool Instantiations::isOfUser(const Decl *D) {
  for (; D; D = cast_or_null<Decl>(D->getDeclContext())) {
    if (User.contains(D->getLocation(), SM))
      return true;
    if (const auto *F = dyn_cast<FunctionDecl>(D)) {
      if (isOfUser(F->getTemplateSpecializationArgs()))
        return true;
    } else if (const auto *C = dyn_cast<ClassTemplateSpecializationDecl>(D)) {
      if (isOfUser(&C->getTemplateArgs()))
        return true;
    } else if (const auto *V = dyn_cast<VarTemplateSpecializationDecl>(D)) {
      if (isOfUser(&V->getTemplateArgs()))
        return true;
    }
    if (isa<TranslationUnitDecl>(D))
      break;
  }
  return false;
}

bool Instantiations::isOfUser(const TemplateArgumentList *Arguments) {
  return Arguments &&
         any_of(Arguments->asArray(),
                [&](const TemplateArgument &A) { return isOfUser(A); });
}

bool Instantiations::isOfUser(const TemplateArgument &Argument) {
  switch (Argument.getKind()) {
  case TemplateArgument::Type:
    return isOfUser(Argument.getAsType());
  case TemplateArgument::Declaration:
    return isOfUser(Argument.getAsDecl());
  case TemplateArgument::Template:
  case TemplateArgument::TemplateExpansion:
    return isOfUser(
        Argument.getAsTemplateOrTemplatePattern().getAsTemplateDecl());
  case TemplateArgument::Pack:
    return any_of(Argument.pack_elements(),
                  [&](const TemplateArgument &A) { return isOfUser(A); });
  case TemplateArgument::NullPtr:
  case TemplateArgument::Integral:
    return isOfUser(Argument.getNonTypeTemplateArgumentType());
  case TemplateArgument::Null:
  case TemplateArgument::StructuralValue:
  case TemplateArgument::Expression:
    break;
  }
  return true;
}

bool Instantiations::isOfUser(QualType Type) {
  if (Type.isNull())
    return true;
  Type = Type.getCanonicalType();
  // A type that leads back to itself adds nothing.
  auto [Entry, IsNew] = Known.try_emplace(Type.getTypePtr(), false);
  if (!IsNew)
    return Entry->second;

  const bool Result = isMadeOfUser(Type);
  return Known[Type.getTypePtr()] = Result;
}

/// For a canonical type.
bool Instantiations::isMadeOfUser(QualType Type) {
  if (Type->isBuiltinType())
    return false;
  if (const auto *Tag = dyn_cast<TagType>(Type))
    return isOfUser(Tag->getDecl());
  if (Type->isPointerType() || Type->isReferenceType())
    return isOfUser(Type->getPointeeType());
  if (const auto *Array = dyn_cast<clang::ArrayType>(Type))
    return isOfUser(Array->getElementType());
  if (const auto *Member = dyn_cast<MemberPointerType>(Type))
    return isOfUser(Member->getPointeeType()) ||
           isOfUser(QualType(Member->getClass(), 0));
  if (const auto *Function = dyn_cast<FunctionProtoType>(Type))
    return isOfUser(Function->getReturnType()) ||
           any_of(Function->param_types(),
                  [&](QualType T) { return isOfUser(T); });
  return true;
}

} // namespace accel::migrate
