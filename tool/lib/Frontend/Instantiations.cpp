//===- Instantiations.cpp - What of the templates is read -----------------===//

#include "Instantiations.h"

#include "clang/AST/DeclGroup.h"
#include "clang/AST/DeclTemplate.h"
#include "clang/Sema/ExternalSemaSource.h"
#include "clang/Sema/Sema.h"

#include <algorithm>

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

/// Whether a declaration gives foreign templates a new meaning: it stands in a
/// namespace that is not the user's, or specializes a template that is not.
bool Instantiations::changesForeign(const Decl *D) const {
  auto IsForeign = [&](const Decl *Other) {
    return Other && !User.contains(Other->getLocation(), SM);
  };
  if (IsForeign(D))
    return false;
  if (const auto *N = dyn_cast<NamespaceDecl>(D))
    return IsForeign(N->getFirstDecl());
  if (const auto *C = dyn_cast<ClassTemplateSpecializationDecl>(D))
    return IsForeign(C->getSpecializedTemplate());
  if (const auto *F = dyn_cast<FunctionDecl>(D))
    return IsForeign(F->getPrimaryTemplate());
  if (const auto *V = dyn_cast<VarTemplateSpecializationDecl>(D))
    return IsForeign(V->getSpecializedTemplate());
  return false;
}

void Instantiations::drop(Sema &S, DeclGroupRef Group) {
  if (!DroppedPrecompiled) {
    DroppedPrecompiled = true;
    dropPrecompiled(S);
  }
  if (Proven && any_of(Group, [&](Decl *D) { return changesForeign(D); })) {
    // What other units have proven need not hold here, nor the reverse.
    Proven = nullptr;
    for (const Pending &P : Skipped)
      Dropped.erase(P.first->getCanonicalDecl());
    S.PendingInstantiations.insert(S.PendingInstantiations.end(),
                                   Skipped.begin(), Skipped.end());
  }
  if (How != Thoroughness::Analysis && !Proven)
    return;
  if (!Names)
    Names.emplace(S.getASTContext());
  // What was asked for by the body of a foreign template stands in the queue of
  // that body, which is this one while the body is being instantiated. Clang
  // takes from the front and adds at the end.
  auto &Queue = S.PendingInstantiations;
  auto New = std::find(Queue.rbegin(), Queue.rend(), LastKept).base();
  auto Last = std::remove_if(New, Queue.end(), [&](const Pending &P) {
    const Decl *D = P.first->getCanonicalDecl();
    if (Kept.contains(D))
      return false;
    if (isNeeded(D)) {
      Kept.insert(D);
      return false;
    }
    Dropped.insert(D);
    if (How != Thoroughness::Analysis)
      Skipped.push_back(P);
    return true;
  });
  Queue.erase(Last, Queue.end());
  LastKept = Queue.empty() ? Pending() : Queue.back();
  // Clang misses the body of what has no linkage. The list is long, and this
  // function is called for every declaration.
  if (!Dropped.empty() && S.UndefinedButUsed.size() != KnownUndefined) {
    S.UndefinedButUsed.remove_if([&](const auto &Used) {
      return Dropped.contains(Used.first->getCanonicalDecl());
    });
    KnownUndefined = S.UndefinedButUsed.size();
  }
}

void Instantiations::remember() {
  if (Proven)
    Proven->add(Seen);
}

std::optional<uint64_t> Instantiations::keyOf(const Decl *D) {
  // Names of what cannot be seen elsewhere need not be unique.
  const auto *F = dyn_cast<FunctionDecl>(D);
  if (!F || !F->isExternallyVisible())
    return std::nullopt;
  return ProvenTemplates::keyOf(Names->getName(F));
}

bool Instantiations::isNeeded(const Decl *D) {
  if (How == Thoroughness::Analysis) {
    if (isOfUser(MayInstantiate, D))
      return true;
    if (std::optional<uint64_t> Key = keyOf(D))
      OfOriginal.insert(*Key);
    return false;
  }
  const bool IsOwn = isOfUser(Mentions, D);
  if (IsOwn && How == Thoroughness::Complete)
    return true;
  std::optional<uint64_t> Key = keyOf(D);
  if (!Key)
    return true;
  // Such as LibTorch's own data loader, which accel's stands on, with a dataset
  // of the user's.
  if (IsOwn)
    return isOfUser(MayInstantiate, D) ||
           (isOfUser(MentionsAccel, D) && !OfOriginal.contains(*Key));
  if (Proven->contains(*Key))
    return false;
  Seen.push_back(*Key);
  return true;
}

static bool isInAccel(const Decl *D) {
  const NamespaceDecl *Outermost = nullptr;
  for (const DeclContext *C = D->getDeclContext(); C; C = C->getParent())
    if (const auto *N = dyn_cast<NamespaceDecl>(C))
      Outermost = N;
  return Outermost && Outermost->getIdentifier() &&
         Outermost->getName() == "accel";
}

bool Instantiations::answers(Question Q, const Decl *D) {
  switch (Q) {
  case Mentions:
    return !SM.isLoadedSourceLocation(D->getLocation());
  case MentionsAccel:
    return isInAccel(D);
  case MayInstantiate:
    return User.contains(D->getLocation(), SM);
  }
  llvm_unreachable("a question more");
}

/// For what is to be instantiated, and for parts of its arguments.
bool Instantiations::isOfUser(Question Q, const Decl *D) {
  if (answers(Q, D))
    return true;
  for (; D; D = cast_or_null<Decl>(D->getDeclContext())) {
    const TemplateArgumentList *Arguments = nullptr;
    if (const auto *F = dyn_cast<FunctionDecl>(D))
      Arguments = F->getTemplateSpecializationArgs();
    else if (const auto *C = dyn_cast<ClassTemplateSpecializationDecl>(D))
      Arguments = &C->getTemplateArgs();
    else if (const auto *V = dyn_cast<VarTemplateSpecializationDecl>(D))
      Arguments = &V->getTemplateArgs();
    if (Arguments &&
        any_of(Arguments->asArray(),
               [&](const TemplateArgument &A) { return isOfUser(Q, A); }))
      return true;
  }
  return false;
}

bool Instantiations::isOfUser(Question Q, const TemplateArgument &Argument) {
  switch (Argument.getKind()) {
  case TemplateArgument::Type:
    return isOfUser(Q, Argument.getAsType());
  case TemplateArgument::Declaration:
    return isOfUser(Q, Argument.getAsDecl());
  case TemplateArgument::Template:
  case TemplateArgument::TemplateExpansion:
    return isOfUser(
        Q, Argument.getAsTemplateOrTemplatePattern().getAsTemplateDecl());
  case TemplateArgument::Pack:
    return any_of(Argument.pack_elements(),
                  [&](const TemplateArgument &A) { return isOfUser(Q, A); });
  case TemplateArgument::NullPtr:
  case TemplateArgument::Integral:
    return isOfUser(Q, Argument.getNonTypeTemplateArgumentType());
  case TemplateArgument::Null:
  case TemplateArgument::StructuralValue:
  case TemplateArgument::Expression:
    break;
  }
  return true;
}

bool Instantiations::isOfUser(Question Q, QualType Type) {
  if (Type.isNull())
    return true;
  Type = Type.getCanonicalType();
  // A type that leads back to itself adds nothing.
  auto [Entry, IsNew] = Known[Q].try_emplace(Type.getTypePtr(), false);
  if (!IsNew)
    return Entry->second;
  const bool Result = isMadeOfUser(Q, Type);
  return Known[Q][Type.getTypePtr()] = Result;
}

/// For a canonical type.
bool Instantiations::isMadeOfUser(Question Q, QualType Type) {
  if (Type->isBuiltinType())
    return false;
  if (const auto *Record = dyn_cast<RecordType>(Type))
    return Q == MayInstantiate ? hasTemplates(Record->getDecl())
                               : isOfUser(Q, Record->getDecl());
  if (const auto *Enum = dyn_cast<EnumType>(Type))
    return Q != MayInstantiate && isOfUser(Q, Enum->getDecl());
  if (Type->isPointerType() || Type->isReferenceType())
    return isOfUser(Q, Type->getPointeeType());
  if (const auto *Array = dyn_cast<clang::ArrayType>(Type))
    return isOfUser(Q, Array->getElementType());
  if (const auto *Member = dyn_cast<MemberPointerType>(Type))
    return isOfUser(Q, Member->getPointeeType()) ||
           isOfUser(Q, QualType(Member->getClass(), 0));
  if (const auto *Function = dyn_cast<FunctionProtoType>(Type))
    return isOfUser(Q, Function->getReturnType()) ||
           any_of(Function->param_types(),
                  [&](QualType T) { return isOfUser(Q, T); });
  return true;
}

/// Whether using a class may instantiate something of the user's: it is one of
/// the user's templates, or has members that are, a generic lambda's call among
/// them, by itself or in a base or a field.
bool Instantiations::hasTemplates(const RecordDecl *Class) {
  const auto *Record = dyn_cast<CXXRecordDecl>(Class);
  if (!Record || !User.contains(Record->getLocation(), SM))
    return isOfUser(MayInstantiate, Class);
  Record = Record->getDefinition();
  if (!Record || Record->getTemplateInstantiationPattern() ||
      Record->isDependentContext() || Record->isLocalClass())
    return true;
  return any_of(Record->decls(),
                [](const Decl *D) { return isa<TemplateDecl>(D); }) ||
         any_of(Record->bases(),
                [&](const CXXBaseSpecifier &Base) {
                  return isOfUser(MayInstantiate, Base.getType());
                }) ||
         any_of(Record->fields(), [&](const FieldDecl *F) {
           return isOfUser(MayInstantiate, F->getType());
         });
}

} // namespace accel::migrate
