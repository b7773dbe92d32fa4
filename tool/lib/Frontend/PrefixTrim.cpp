//===- PrefixTrim.cpp - What a precompiled header need not list -----------===//
//
// What is left out stays in the file where something else refers to it. Clang
// then reads it beside the one that the unit has made; both mean the same. For
// a class this is so when it only has bases: of two that have a member `type`
// Clang would say that the name is ambiguous.
//
//===----------------------------------------------------------------------===//

#include "PrefixTrim.h"

#include "clang/AST/ASTContext.h"
#include "clang/AST/ASTMutationListener.h"
#include "clang/AST/DeclTemplate.h"
#include "clang/AST/RecursiveASTVisitor.h"
#include "clang/Basic/SourceManager.h"
#include "clang/Frontend/MultiplexConsumer.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Config/abi-breaking.h"
#include "llvm/Support/Path.h"

#include <optional>
#include <vector>

using namespace llvm;
using namespace clang;

namespace accel::migrate {

namespace {

/// The sets that the templates keep, which Clang only opens to what is derived
/// from them.
struct OpenClass : ClassTemplateDecl {
  static auto &of(ClassTemplateDecl *D) {
    return (D->*&OpenClass::getSpecializations)();
  }
};
struct OpenVariable : VarTemplateDecl {
  static auto &of(VarTemplateDecl *D) {
    return (D->*&OpenVariable::getSpecializations)();
  }
};
struct OpenFunction : FunctionTemplateDecl {
  static auto &of(FunctionTemplateDecl *D) {
    return (D->*&OpenFunction::getSpecializations)();
  }
};

bool isInTypeTraits(const Decl *D) {
  const SourceManager &SM = D->getASTContext().getSourceManager();
  return sys::path::filename(SM.getFilename(
             SM.getExpansionLoc(D->getLocation()))) == "type_traits";
}

bool hasOwnMember(const CXXRecordDecl *Pattern) {
  return any_of(Pattern->decls(), [](const Decl *Member) {
    return !Member->isImplicit() && !isa<StaticAssertDecl>(Member);
  });
}

/// std::is_same, std::__and_ and their like: a value that comes from a base.
bool isListed(const ClassTemplateDecl *D) {
  if (!isInTypeTraits(D))
    return true;
  const auto *First = cast<ClassTemplateDecl>(D->getCanonicalDecl());
  bool IsDefined = false;
  auto HasOwnMember = [&](const CXXRecordDecl *Pattern) {
    const CXXRecordDecl *Definition = Pattern->getDefinition();
    IsDefined |= Definition != nullptr;
    return Definition && hasOwnMember(Definition);
  };
  SmallVector<ClassTemplatePartialSpecializationDecl *, 8> Partial;
  const_cast<ClassTemplateDecl *>(First)->getPartialSpecializations(Partial);
  return HasOwnMember(First->getTemplatedDecl()) ||
         any_of(Partial, HasOwnMember) || !IsDefined;
}

/// std::is_same_v and its like.
bool isListed(const VarTemplateDecl *D) { return !isInTypeTraits(D); }

bool isImplicit(TemplateSpecializationKind Kind) {
  return Kind == TSK_ImplicitInstantiation || Kind == TSK_Undeclared;
}

template <typename EntryT, typename KindT>
void trim(FoldingSetVector<EntryT> &Set, KindT KindOf) {
  std::vector<EntryT *> Kept;
  for (EntryT &Entry : Set)
    if (!isImplicit(KindOf(Entry)))
      Kept.push_back(&Entry);
  Set.clear();
  for (EntryT *Entry : Kept)
    Set.InsertNode(Entry);
}

class ListTrimmer : public RecursiveASTVisitor<ListTrimmer> {
public:
  // Templates are declared, never part of a statement or a type.
  bool TraverseStmt(Stmt *) { return true; }
  bool TraverseType(QualType) { return true; }
  bool TraverseTypeLoc(TypeLoc) { return true; }

  bool VisitClassTemplateDecl(ClassTemplateDecl *D) {
    if (D->isFirstDecl() && !isListed(D))
      trim(OpenClass::of(D), [](const ClassTemplateSpecializationDecl &S) {
        return S.getSpecializationKind();
      });
    return true;
  }
  bool VisitVarTemplateDecl(VarTemplateDecl *D) {
    if (D->isFirstDecl() && !isListed(D))
      trim(OpenVariable::of(D), [](const VarTemplateSpecializationDecl &S) {
        return S.getSpecializationKind();
      });
    return true;
  }
  bool VisitFunctionTemplateDecl(FunctionTemplateDecl *D) {
    if (D->isFirstDecl())
      trim(OpenFunction::of(D), [](const FunctionTemplateSpecializationInfo &S) {
        return S.getTemplateSpecializationKind();
      });
    return true;
  }
};

/// Tells the writer of everything but the specializations that are not listed.
/// Those of templates that lie in another precompiled header, below this one,
/// are listed by what is said here. Of modules, Objective-C, OpenMP and
/// Microsoft's ABI, which no prefix has, nothing is said.
class MutationFilter : public ASTMutationListener {
public:
  explicit MutationFilter(ASTMutationListener &Writer) : Writer(Writer) {}

  void AddedCXXTemplateSpecialization(
      const ClassTemplateDecl *TD,
      const ClassTemplateSpecializationDecl *D) override {
    if (isListed(TD))
      Writer.AddedCXXTemplateSpecialization(TD, D);
  }
  void AddedCXXTemplateSpecialization(
      const VarTemplateDecl *TD,
      const VarTemplateSpecializationDecl *D) override {
    if (isListed(TD))
      Writer.AddedCXXTemplateSpecialization(TD, D);
  }
  void AddedCXXTemplateSpecialization(const FunctionTemplateDecl *TD,
                                      const FunctionDecl *D) override {
    if (!isImplicit(D->getTemplateSpecializationKind()))
      Writer.AddedCXXTemplateSpecialization(TD, D);
  }

#define FORWARD(Function, Parameters, Arguments)                               \
  void Function Parameters override { Writer.Function Arguments; }
  FORWARD(CompletedTagDefinition, (const TagDecl *D), (D))
  FORWARD(AddedVisibleDecl, (const DeclContext *DC, const Decl *D), (DC, D))
  FORWARD(AddedCXXImplicitMember, (const CXXRecordDecl *RD, const Decl *D),
          (RD, D))
  FORWARD(ResolvedExceptionSpec, (const FunctionDecl *FD), (FD))
  FORWARD(DeducedReturnType, (const FunctionDecl *FD, QualType T), (FD, T))
  FORWARD(ResolvedOperatorDelete,
          (const CXXDestructorDecl *DD, const FunctionDecl *F, Expr *ThisArg),
          (DD, F, ThisArg))
  FORWARD(CompletedImplicitDefinition, (const FunctionDecl *D), (D))
  FORWARD(InstantiationRequested, (const ValueDecl *D), (D))
  FORWARD(VariableDefinitionInstantiated, (const VarDecl *D), (D))
  FORWARD(FunctionDefinitionInstantiated, (const FunctionDecl *D), (D))
  FORWARD(DefaultArgumentInstantiated, (const ParmVarDecl *D), (D))
  FORWARD(DefaultMemberInitializerInstantiated, (const FieldDecl *D), (D))
  FORWARD(DeclarationMarkedUsed, (const Decl *D), (D))
  FORWARD(AddedManglingNumber, (const Decl *D, unsigned Number), (D, Number))
  FORWARD(AddedStaticLocalNumbers, (const Decl *D, unsigned N), (D, N))
  FORWARD(AddedAnonymousNamespace,
          (const TranslationUnitDecl *TU, NamespaceDecl *Namespace),
          (TU, Namespace))
#undef FORWARD

private:
  ASTMutationListener &Writer;
};

class TrimmingConsumer : public MultiplexConsumer {
public:
  using MultiplexConsumer::MultiplexConsumer;

  ASTMutationListener *GetASTMutationListener() override {
    ASTMutationListener *Writer = MultiplexConsumer::GetASTMutationListener();
    if (Writer && !Filter)
      Filter.emplace(*Writer);
    return Filter ? &*Filter : nullptr;
  }

  void HandleTranslationUnit(ASTContext &Context) override {
    ListTrimmer().TraverseDecl(Context.getTranslationUnitDecl());
    MultiplexConsumer::HandleTranslationUnit(Context);
  }

private:
  std::optional<MutationFilter> Filter;
};

} // namespace

std::unique_ptr<ASTConsumer> trimPrefix(std::unique_ptr<ASTConsumer> Generator) {
  // A Clang that checks itself takes a function that is there twice for a
  // mistake.
  if (LLVM_ENABLE_ABI_BREAKING_CHECKS)
    return Generator;
  std::vector<std::unique_ptr<ASTConsumer>> One;
  One.push_back(std::move(Generator));
  return std::make_unique<TrimmingConsumer>(std::move(One));
}

} // namespace accel::migrate
