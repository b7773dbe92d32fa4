//===- TorchTypes.cpp - What LibTorch's types mean ------------------------===//

#include "TorchTypes.h"

#include "clang/AST/ASTContext.h"
#include "clang/AST/DeclTemplate.h"
#include "clang/AST/ExprCXX.h"
#include "clang/Basic/SourceManager.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

std::string accel::migrate::qualifiedName(const NamedDecl *D) {
  std::string Name;
  llvm::raw_string_ostream OS(Name);
  PrintingPolicy Policy(D->getASTContext().getPrintingPolicy());
  Policy.SuppressInlineNamespace = true;
  D->printQualifiedName(OS, Policy);
  return Name;
}

llvm::StringRef accel::migrate::nameOf(const NamedDecl *D) {
  return D && D->getIdentifier() ? D->getName() : "";
}

llvm::StringRef accel::migrate::torchNameOf(const NamedDecl *D) {
  return isTorch(D) ? nameOf(D) : "";
}

llvm::StringRef accel::migrate::stdNameOf(const NamedDecl *D) {
  return isInStd(D) ? nameOf(D) : "";
}

llvm::StringRef accel::migrate::torchNameOf(const Expr *E) {
  return torchNameOf(calleeOf(plain(E)));
}

const CXXRecordDecl *accel::migrate::recordOf(QualType T) {
  if (T.isNull())
    return nullptr;
  T = T.getNonReferenceType();
  if (const auto *Pointer = T->getAs<PointerType>())
    T = Pointer->getPointeeType();
  return T->getAsCXXRecordDecl();
}

bool accel::migrate::isOrDerives(const CXXRecordDecl *D, llvm::StringRef Base) {
  if (!D)
    return false;
  if (D->getName() == Base.rsplit("::").second && qualifiedName(D) == Base)
    return true;
  D = D->getDefinition();
  return D && llvm::any_of(D->bases(), [&](const CXXBaseSpecifier &B) {
           return isOrDerives(B.getType()->getAsCXXRecordDecl(), Base);
         });
}

const CXXRecordDecl *accel::migrate::findInLine(
    const CXXRecordDecl *D,
    llvm::function_ref<bool(const CXXRecordDecl *)> Holds) {
  while (D && D->getDefinition()) {
    D = D->getDefinition();
    if (Holds(D))
      return D;
    if (D->getNumBases() != 1)
      return nullptr;
    D = D->bases_begin()->getType()->getAsCXXRecordDecl();
  }
  return nullptr;
}

bool accel::migrate::isTensor(QualType T) {
  const CXXRecordDecl *D = T.isNull() ? nullptr
                                      : T.getNonReferenceType()
                                            ->getAsCXXRecordDecl();
  return (nameOf(D) == "Tensor" || nameOf(D) == "TensorBase") && isTorch(D);
}

bool accel::migrate::isWritableReference(QualType T) {
  return T->isLValueReferenceType() && !T->getPointeeType().isConstQualified();
}

llvm::SmallVector<QualType, 4> accel::migrate::typeArgumentsOf(const Decl *D) {
  llvm::SmallVector<QualType, 4> Types;
  const TemplateArgumentList *Args = nullptr;
  if (const auto *S = dyn_cast_or_null<ClassTemplateSpecializationDecl>(D))
    Args = &S->getTemplateArgs();
  else if (const auto *F = dyn_cast_or_null<FunctionDecl>(D))
    Args = F->getTemplateSpecializationArgs();
  if (Args)
    for (const TemplateArgument &Arg : Args->asArray())
      if (Arg.getKind() == TemplateArgument::Type)
        Types.push_back(Arg.getAsType());
  return Types;
}

QualType accel::migrate::typeArgumentOf(const Decl *D, unsigned I) {
  const auto Types = typeArgumentsOf(D);
  return I < Types.size() ? Types[I] : QualType();
}

/// Of a std::vector; null for other types.
static QualType elementOfVector(QualType T) {
  const CXXRecordDecl *D = recordOf(T);
  return stdNameOf(D) == "vector" ? typeArgumentOf(D, 0) : QualType();
}

bool accel::migrate::isVectorOfTensors(QualType T) {
  return isTensor(elementOfVector(T));
}

bool accel::migrate::isContainerOfTensors(QualType T) {
  const CXXRecordDecl *D = recordOf(T);
  const bool IsMap = stdNameOf(D) == "map" || stdNameOf(D) == "unordered_map" ||
                     torchNameOf(D) == "OrderedDict";
  return isVectorOfTensors(T) || (IsMap && isTensor(typeArgumentOf(D, 1)));
}

static bool isScriptValue(QualType T) {
  return torchNameOf(recordOf(T)) == "IValue";
}

bool accel::migrate::isScriptInputs(QualType T) {
  return isScriptValue(elementOfVector(T));
}

bool accel::migrate::holdsScriptValues(QualType T) {
  return isScriptValue(T) ||
         llvm::any_of(typeArgumentsOf(recordOf(T)), isScriptValue);
}

static bool isOfTensors(const TemplateArgument &A) {
  return A.getKind() == TemplateArgument::Pack
             ? llvm::any_of(A.pack_elements(), isOfTensors)
             : A.getKind() == TemplateArgument::Type &&
                   holdsTensors(A.getAsType());
}

bool accel::migrate::holdsTensors(QualType T) {
  if (isTensor(T))
    return true;
  const CXXRecordDecl *D = recordOf(T);
  if (const auto *S = dyn_cast_or_null<ClassTemplateSpecializationDecl>(D);
      S && llvm::any_of(S->getTemplateArgs().asArray(), isOfTensors))
    return true;
  // A struct of the program's own.
  return D && D->getDefinition() && !isLibrary(D) &&
         llvm::any_of(D->getDefinition()->fields(), [](const FieldDecl *F) {
           return isTensor(F->getType());
         });
}

/// Whether objects can be copied, as far as the class itself says.
static bool isCopied(const CXXRecordDecl *D) {
  return !(D->needsImplicitCopyConstructor() &&
           !D->needsOverloadResolutionForCopyConstructor() &&
           D->defaultedCopyConstructorIsDeleted()) &&
         llvm::none_of(D->ctors(), [](const CXXConstructorDecl *C) {
           return C->isCopyConstructor() && C->isDeleted();
         });
}

/// Whether a member can be made by `{}` and copied, and is no `T` or container of
/// such.
static bool isPlainMember(const FieldDecl *F, const CXXRecordDecl *T) {
  const QualType Type = F->getType();
  if (Type->isArrayType() || Type->isReferenceType() || F->isBitField() ||
      !F->getIdentifier())
    return false;
  const CXXRecordDecl *D = recordOf(Type);
  if (!D || !D->getDefinition())
    return !D;
  D = D->getDefinition();
  if (!isCopied(D) || (!D->isAggregate() && !D->hasDefaultConstructor()))
    return false;
  return llvm::none_of(typeArgumentsOf(D), [&](QualType Arg) {
    return declaresSameEntity(recordOf(Arg), T);
  });
}

bool accel::migrate::isStructOfTensors(QualType T) {
  constexpr unsigned MostMembers = 16;
  const CXXRecordDecl *D = recordOf(T);
  D = D && !T->isPointerType() ? D->getDefinition() : nullptr;
  if (!D || D->isUnion() || isLibrary(D) || !D->isAggregate() || !isCopied(D) ||
      D->getNumBases() != 0 || D->isDependentType())
    return false;
  const auto Fields = llvm::to_vector(D->fields());
  const auto Holds = [](const FieldDecl *F) {
    return isTensor(F->getType()) || isStructOfTensors(F->getType()) ||
           (isInStd(recordOf(F->getType())) && holdsTensors(F->getType()));
  };
  return Fields.size() <= MostMembers && llvm::any_of(Fields, Holds) &&
         llvm::all_of(Fields, [&](const FieldDecl *F) {
           return isPlainMember(F, D) &&
                  !(Holds(F) && F->getType().isConstQualified());
         });
}

bool accel::migrate::isHostNumber(QualType T) {
  T = T.getNonReferenceType();
  if (T->isArithmeticType() || T->isEnumeralType() || T->isPointerType())
    return true;
  const CXXRecordDecl *D = T->getAsCXXRecordDecl();
  return nameOf(D) == "Scalar" || nameOf(D) == "basic_string";
}

/// What an owner of the standard library, or a reference of it, has: T of
/// std::unique_ptr<T>. Null for what is none.
static QualType ownedBy(const CXXRecordDecl *D) {
  static const llvm::StringSet<> Owners = {"shared_ptr", "unique_ptr",
                                           "optional", "reference_wrapper"};
  return Owners.count(stdNameOf(D)) ? typeArgumentOf(D, 0) : QualType();
}

/// Through pointers and owners to the class that derives from `Base`.
static const CXXRecordDecl *pointedTo(QualType T, llvm::StringRef Base) {
  const CXXRecordDecl *D = recordOf(T);
  if (!D || !D->getIdentifier())
    return nullptr;
  if (isOrDerives(D, Base))
    return D;
  const QualType Owned = ownedBy(D);
  return Owned.isNull() ? nullptr : pointedTo(Owned, Base);
}

bool accel::migrate::isAnyModule(QualType T) {
  return torchNameOf(recordOf(T)) == "AnyModule";
}

const CXXRecordDecl *accel::migrate::moduleOf(QualType T) {
  constexpr llvm::StringLiteral Module("torch::nn::Module");
  if (const CXXRecordDecl *D = pointedTo(T, Module))
    return D;
  const CXXRecordDecl *D = recordOf(T);
  if (const QualType Owned = ownedBy(D); !Owned.isNull())
    return moduleOf(Owned);
  // ModuleHolder<Impl>, or a class that derives from it.
  const CXXRecordDecl *Holder = findInLine(D, [](const CXXRecordDecl *Class) {
    return torchNameOf(Class) == "ModuleHolder";
  });
  return recordOf(typeArgumentOf(Holder, 0));
}

const CXXRecordDecl *accel::migrate::optimizerOf(QualType T) {
  return pointedTo(T, "torch::optim::Optimizer");
}

const CXXRecordDecl *accel::migrate::schedulerOf(QualType T) {
  return pointedTo(T, "torch::optim::LRScheduler");
}

const CXXRecordDecl *accel::migrate::loaderOf(QualType T) {
  return pointedTo(T, "torch::data::DataLoaderBase");
}

/// The outermost namespace that `D` is in.
static const NamespaceDecl *outermostNamespace(const Decl *D) {
  const NamespaceDecl *Last = nullptr;
  for (const DeclContext *C = D ? D->getDeclContext() : nullptr; C;
       C = C->getParent())
    if (const auto *N = dyn_cast<NamespaceDecl>(C))
      Last = N;
  return Last;
}

/// People put classes of their own into LibTorch's namespaces, in headers that
/// may have been found where only the system's are looked for.
static bool isInTorchHeader(const Decl *D) {
  const SourceManager &SM = D->getASTContext().getSourceManager();
  const SourceLocation Loc = SM.getExpansionLoc(D->getLocation());
  if (Loc.isInvalid())
    return true;
  const llvm::StringRef File = SM.getFilename(Loc);
  return llvm::any_of(
      std::initializer_list<llvm::StringRef>{"/ATen/", "/c10/", "/caffe2/",
                                             "/torch/csrc/", "/include/torch/"},
      [&](llvm::StringRef Folder) { return File.contains(Folder); });
}

bool accel::migrate::isTorch(const Decl *D) {
  static const llvm::StringSet<> Names = {"at", "c10", "torch", "caffe2"};
  return Names.count(nameOf(outermostNamespace(D))) && isInTorchHeader(D);
}

bool accel::migrate::isInStd(const Decl *D) {
  return nameOf(outermostNamespace(D)) == "std";
}

bool accel::migrate::isLibrary(const Decl *D) {
  return isTorch(D) || isInStd(D);
}

bool accel::migrate::makesFolder(const FunctionDecl *F) {
  if (F->isExternC())
    return nameOf(F) == "mkdir";
  return (nameOf(F) == "create_directory" ||
          nameOf(F) == "create_directories") &&
         llvm::StringRef(qualifiedName(F)).contains("filesystem::");
}

bool accel::migrate::tellsFolderMade(const CallExpr *E) {
  const FunctionDecl *F = E->getDirectCallee();
  return F && makesFolder(F) && (F->isExternC() || E->getNumArgs() == 1);
}

const Expr *accel::migrate::plain(const Expr *E) {
  while (E) {
    const Expr *Before = E;
    E = E->IgnoreParenImpCasts();
    if (const auto *X = dyn_cast<FullExpr>(E))
      E = X->getSubExpr();
    else if (const auto *X = dyn_cast<MaterializeTemporaryExpr>(E))
      E = X->getSubExpr();
    else if (const auto *X = dyn_cast<CXXBindTemporaryExpr>(E))
      E = X->getSubExpr();
    else if (const auto *X = dyn_cast<SubstNonTypeTemplateParmExpr>(E))
      E = X->getReplacement();
    else if (const auto *X = dyn_cast<CXXDefaultArgExpr>(E))
      E = X->getExpr();
    else if (const auto *X = dyn_cast<CXXDefaultInitExpr>(E))
      E = X->getExpr();
    else if (const auto *X = dyn_cast<CXXConstructExpr>(E);
             X && X->getNumArgs() >= 1 &&
             X->getConstructor()->isCopyOrMoveConstructor())
      E = X->getArg(0);
    if (E == Before)
      return E;
  }
  return E;
}

const Expr *accel::migrate::bare(const Expr *E) {
  while (E) {
    const Expr *Before = E;
    E = plain(E);
    if (const auto *X = dyn_cast<CXXStdInitializerListExpr>(E))
      E = X->getSubExpr();
    else if (const auto *X = dyn_cast<ExplicitCastExpr>(E))
      E = X->getSubExpr();
    else if (const auto *X = dyn_cast<CXXConstructExpr>(E)) {
      static constexpr llvm::StringLiteral Wrappers[] = {
          "ArrayRef", "OptionalArrayRef", "optional", "Scalar", "SymInt",
          "IListRef", "reference_wrapper", "TensorDataContainer"};
      const CXXRecordDecl *D = X->getConstructor()->getParent();
      if (X->getNumArgs() >= 1 && llvm::is_contained(Wrappers, nameOf(D)))
        E = X->getArg(0);
    }
    if (E == Before)
      return E;
  }
  return E;
}

llvm::ArrayRef<const Expr *> accel::migrate::passedBy(const CallExpr *Call) {
  const llvm::ArrayRef<const Expr *> Args(Call->getArgs(), Call->getNumArgs());
  return isa<CXXOperatorCallExpr>(Call) &&
                 isa_and_nonnull<CXXMethodDecl>(Call->getDirectCallee())
             ? Args.drop_front()
             : Args;
}

const CXXOperatorCallExpr *
accel::migrate::operatorCall(const Stmt *E, OverloadedOperatorKind Of) {
  const auto *Call = dyn_cast_or_null<CXXOperatorCallExpr>(E);
  return Call && Call->getOperator() == Of ? Call : nullptr;
}

const ValueDecl *accel::migrate::declNamedBy(const Expr *E) {
  const auto *Ref = dyn_cast_or_null<DeclRefExpr>(plain(E));
  return Ref ? Ref->getDecl() : nullptr;
}

const VarDecl *accel::migrate::varNamedBy(const Expr *E) {
  return dyn_cast_or_null<VarDecl>(declNamedBy(E));
}

const ValueDecl *accel::migrate::placeOf(const Expr *E) {
  E = bare(E);
  if (!E)
    return nullptr;
  if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
    return dyn_cast<VarDecl>(Ref->getDecl());
  if (const auto *Member = dyn_cast<MemberExpr>(E))
    return isa<CXXThisExpr>(plain(Member->getBase()))
               ? dyn_cast<FieldDecl>(Member->getMemberDecl())
               : nullptr;
  if (const auto *Call = dyn_cast<CXXOperatorCallExpr>(E))
    if (Call->getOperator() == OO_Star || Call->getOperator() == OO_Arrow)
      return placeOf(Call->getArg(0));
  if (const auto *Unary = dyn_cast<UnaryOperator>(E))
    if (Unary->getOpcode() == UO_Deref || Unary->getOpcode() == UO_AddrOf)
      return placeOf(Unary->getSubExpr());
  const FunctionDecl *F = calleeOf(E);
  if (const auto *Call = dyn_cast<CXXMemberCallExpr>(E);
      Call && Call->getNumArgs() == 0 &&
      (nameOf(F) == "get" || nameOf(F) == "ptr" || stdNameOf(F) == "value"))
    return placeOf(Call->getImplicitObjectArgument());
  static const llvm::StringSet<> Same = {"move", "forward", "ref"};
  if (const auto *Call = dyn_cast<CallExpr>(E);
      Call && Call->getNumArgs() == 1 && Same.count(stdNameOf(F)))
    return placeOf(Call->getArg(0));
  return nullptr;
}

const VarDecl *accel::migrate::variableOf(const Expr *E) {
  return dyn_cast_or_null<VarDecl>(placeOf(E));
}

const LambdaExpr *accel::migrate::lambdaIn(const ValueDecl *D) {
  const auto *V = dyn_cast_or_null<VarDecl>(D);
  const Expr *Init = V && V->getInit() ? bare(V->getInit()) : nullptr;
  if (const auto *Made = dyn_cast_or_null<CXXConstructExpr>(Init);
      Made && Made->getNumArgs() > 0 &&
      stdNameOf(Made->getConstructor()->getParent()) == "function")
    Init = bare(Made->getArg(0));
  return dyn_cast_or_null<LambdaExpr>(Init);
}

std::optional<int64_t>
accel::migrate::constantOf(const Expr *E, const ASTContext &Context) {
  E = bare(E);
  if (!E || E->isValueDependent() || !E->getType()->isIntegralOrEnumerationType())
    return std::nullopt;
  Expr::EvalResult Result;
  if (!E->EvaluateAsInt(Result, Context, Expr::SE_NoSideEffects))
    return std::nullopt;
  return Result.Val.getInt().getExtValue();
}

const FunctionDecl *accel::migrate::calleeOf(const Expr *E) {
  const auto *Call = dyn_cast_or_null<CallExpr>(E);
  return Call ? Call->getDirectCallee() : nullptr;
}

SpelledObject accel::migrate::objectOf(const CXXMemberCallExpr *Call) {
  const Expr *Object = Call->getImplicitObjectArgument();
  if (const auto *Arrow = operatorCall(plain(Object), OO_Arrow))
    return {Arrow->getArg(0), true};
  return {Object,
          cast<MemberExpr>(Call->getCallee()->IgnoreParens())->isArrow()};
}

bool accel::migrate::neverReturns(const Stmt *S) {
  if (const auto *Block = dyn_cast_or_null<CompoundStmt>(S))
    S = Block->body_empty() ? nullptr : Block->body_back();
  const auto *E = dyn_cast_or_null<Expr>(S);
  if (!E)
    return false;
  E = plain(E);
  if (isa<CXXThrowExpr>(E))
    return true;
  const FunctionDecl *F = calleeOf(E);
  return F && F->isNoReturn();
}

bool accel::migrate::existsIn(const Stmt *S,
                              llvm::function_ref<bool(const Stmt *)> Holds,
                              LambdaBodies Bodies) {
  if (!S || (Bodies == LambdaBodies::Skip && isa<LambdaExpr>(S)))
    return false;
  return Holds(S) || llvm::any_of(S->children(), [&](const Stmt *Child) {
           return existsIn(Child, Holds, Bodies);
         });
}

bool accel::migrate::isNamedIn(const ValueDecl *V, const Stmt *S) {
  return V &&
         existsIn(S, [&](const Stmt *Part) { return referredTo(Part) == V; });
}

const ValueDecl *accel::migrate::referredTo(const Stmt *S) {
  if (const auto *Ref = dyn_cast_or_null<DeclRefExpr>(S))
    return Ref->getDecl();
  const auto *Member = dyn_cast_or_null<MemberExpr>(S);
  return Member ? Member->getMemberDecl() : nullptr;
}

bool accel::migrate::namesInPlace(llvm::StringRef Name) {
  return Name.ends_with("_") && !Name.ends_with("__");
}

bool accel::migrate::describesTensor(const FunctionDecl *F) {
  static const llvm::StringSet<> Names = {
      "size",  "sizes",       "numel",   "dim",    "defined",
      "dtype", "scalar_type", "options", "device", "is_cuda"};
  return isa_and_nonnull<CXXMethodDecl>(F) && Names.count(torchNameOf(F));
}

bool accel::migrate::givesMemory(const FunctionDecl *F) {
  static const llvm::StringSet<> Names = {
      "data_ptr",          "const_data_ptr",    "mutable_data_ptr",
      "accessor",          "packed_accessor32", "packed_accessor64",
      "packed_accessor",   "storage"};
  return Names.count(torchNameOf(F));
}
