//===- Threads.cpp - What runs in a thread of its own ---------------------===//

#include "Threads.h"
#include "Code/TorchTypes.h"

#include "clang/AST/DeclTemplate.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringSwitch.h"

using namespace accel::migrate;
using namespace clang;

bool accel::migrate::isThread(const CXXRecordDecl *D) {
  return (nameOf(D) == "thread" || nameOf(D) == "jthread") && isInStd(D);
}

/// std::function and others that hold something that is called later.
static bool isHeldFunction(const CXXRecordDecl *D) {
  return D && D->getIdentifier() && isInStd(D) &&
         llvm::StringSwitch<bool>(D->getName())
             .Cases("function", "packaged_task", "move_only_function", true)
             .Default(false);
}

namespace {
/// Looks for threads and functions in an object: in its fields, and in what
/// containers and pointers of the standard library have in them. Threads in an object
/// of another class are that one's: what they run it is given.
class Parts {
public:
  explicit Parts(const CXXRecordDecl *Whole) : Whole(Whole) { fields(Whole); }

  bool Threads = false, Functions = false;

private:
  void of(QualType T) {
    T = T.getNonReferenceType().getCanonicalType();
    T = QualType(T->getBaseElementTypeUnsafe(), 0);
    Functions |= T->isFunctionPointerType();
    if (T->isPointerType())
      return of(T->getPointeeType());
    const CXXRecordDecl *D = T->getAsCXXRecordDecl();
    if (!D || !Seen.insert(D->getCanonicalDecl()).second || isTorch(D))
      return;
    Threads |= isThread(D);
    Functions |= isHeldFunction(D);
    if (!isInStd(D)) {
      const bool HadThreads = Threads;
      fields(D);
      if (!Whole->Encloses(D))
        Threads = HadThreads;
      return;
    }
    for (const QualType Argument : typeArgumentsOf(D))
      of(Argument);
  }

  void fields(const CXXRecordDecl *D) {
    D = D->getDefinition();
    if (!D)
      return;
    for (const CXXBaseSpecifier &Base : D->bases())
      if (const CXXRecordDecl *B = recordOf(Base.getType()); B && !isTorch(B))
        isInStd(B) ? of(Base.getType()) : fields(B);
    for (const FieldDecl *Field : D->fields())
      of(Field->getType());
  }

  const CXXRecordDecl *Whole;
  llvm::SmallPtrSet<const CXXRecordDecl *, 16> Seen;
};
} // namespace

/// Whether the template arguments of a call make a thread: make_unique and
/// emplace_back forward to its constructor.
static bool makesThread(const CallExpr *E, const FunctionDecl *F) {
  const TemplateArgumentList *Types = nullptr;
  if (F->getName().starts_with("make_"))
    Types = F->getTemplateSpecializationArgs();
  else if (F->getName().starts_with("emplace"))
    if (const auto *Container =
            dyn_cast<ClassTemplateSpecializationDecl>(F->getDeclContext()))
      Types = &Container->getTemplateArgs();
  return Types &&
         llvm::any_of(Types->asArray(), [](const TemplateArgument &Argument) {
           return Argument.getKind() == TemplateArgument::Type &&
                  isThread(Argument.getAsType()->getAsCXXRecordDecl());
         });
}

/// std::for_each(std::execution::par, …).
static bool hasParallelPolicy(const CallExpr *E) {
  return llvm::any_of(E->arguments(), [](const Expr *Arg) {
    const CXXRecordDecl *D = recordOf(Arg->getType());
    return nameOf(D).starts_with("parallel_") && nameOf(D).ends_with("policy");
  });
}

/// std::async(std::launch::deferred, …): it runs where its result is asked for.
static bool isDeferred(const CallExpr *E) {
  const auto *Policy = dyn_cast<DeclRefExpr>(plain(E->getArg(0)));
  return Policy && isa<EnumConstantDecl>(Policy->getDecl()) &&
         Policy->getDecl()->getName() == "deferred";
}

bool accel::migrate::runsInThreads(const CallExpr *E, const FunctionDecl *F) {
  if (!F->getIdentifier() || E->getNumArgs() == 0)
    return false;
  const llvm::StringRef Name = F->getName();
  if (isTorch(F)) // of ATen's own pools
    return llvm::StringSwitch<bool>(Name)
        .Cases("parallel_for", "parallel_reduce", "launch", "intraop_launch",
               true)
        .Default(false);
  if (isInStd(F))
    return (Name == "async" && !isDeferred(E)) || makesThread(E, F) ||
           hasParallelPolicy(E);
  if (Name == "pthread_create")
    return true;
  const std::string Qualified = qualifiedName(F);
  const llvm::StringRef In(Qualified);
  return (In.starts_with("tbb::") && Name.starts_with("parallel_")) ||
         In == "QtConcurrent::run" ||
         (In.contains("asio::") &&
          (Name == "post" || Name == "dispatch" || Name == "defer"));
}

bool accel::migrate::isGivenToPool(const Expr *E, const FunctionDecl *F) {
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  if (!M || isLibrary(M))
    return false;
  const QualType T = E->getType().getNonReferenceType();
  const CXXRecordDecl *D = recordOf(T);
  const bool IsCalled = T->isFunctionType() || T->isFunctionPointerType() ||
                        T->isMemberFunctionPointerType() ||
                        (D && (D->isLambda() || isHeldFunction(D) ||
                               (isInStd(D) && nameOf(D).starts_with("_Bind"))));
  if (!IsCalled)
    return false;
  const Parts Pool(M->getParent());
  return Pool.Threads && Pool.Functions;
}

bool accel::migrate::isOpenMPRegion(const Stmt *S, const SourceManager &SM) {
  const SourceLocation Begin = S->getBeginLoc();
  if (!Begin.isFileID())
    return false;
  const auto [File, Offset] = SM.getDecomposedLoc(Begin);
  llvm::StringRef Before = SM.getBufferData(File).take_front(Offset), Line;
  do { // comments may stand between them
    std::tie(Before, Line) = Before.rtrim().rsplit('\n');
    Line = Line.ltrim();
  } while (Line.starts_with("//"));
  if (!Line.consume_front("#"))
    return false;
  llvm::SmallVector<llvm::StringRef, 8> Words;
  Line.split(Words, ' ', -1, /*KeepEmpty=*/false);
  return Words.size() > 2 && Words[0] == "pragma" && Words[1] == "omp" &&
         llvm::is_contained(Words, "parallel");
}
