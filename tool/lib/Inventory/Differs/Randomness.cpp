//===- Randomness.cpp - Random numbers of the host, and seeds -------------===//
//
// The host's generators are not LibTorch's: each process has its own, and they
// stay equal as long as they are seeded alike and all processes draw alike.
//
//===----------------------------------------------------------------------===//

#include "Differs.h"
#include "SampleState.h"
#include "Code/AstVisitor.h"
#include "Code/Closures.h"
#include "Code/Quiet.h"
#include "Code/TorchTypes.h"

#include "accel/migrate/ProjectSources.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

static constexpr char Early[] =
    "a generator is seeded before main begins, when no accelerator exists, with "
    "something that differs between processes";

/// Whether code reads a clock or a random device.
static bool drawsPerProcess(const Stmt *S) {
  return existsIn(S, [](const Stmt *Part) {
    if (const auto *C = dyn_cast<CallExpr>(Part))
      if (const FunctionDecl *F = C->getDirectCallee(); F && isPerProcess(F))
        return true;
    const auto *Made = dyn_cast<CXXConstructExpr>(Part);
    return Made && isRandomDevice(Made->getConstructor()->getParent());
  });
}

/// The variable or field that an expression names; null where it is neither.
static const ValueDecl *entityOf(const Expr *E) {
  E = plain(E);
  if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
    return Ref->getDecl();
  if (const auto *M = dyn_cast<MemberExpr>(E))
    return M->getMemberDecl();
  return nullptr;
}

/// The generator that a call draws from: its variable, or the function that
/// has it for itself (`rand`). Null where it is not known.
static const ValueDecl *generatorOf(const CallExpr *E) {
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E)) {
    const auto *M = cast<CXXMethodDecl>(O->getDirectCallee());
    if (isEngine(M->getParent()))
      return entityOf(O->getArg(0));
    return O->getNumArgs() > 1 ? entityOf(O->getArg(1)) : nullptr;
  }
  const FunctionDecl *F = E->getDirectCallee();
  if (F->isExternC() || F->getName() == "rand")
    return F->getCanonicalDecl();
  if (const auto *M = dyn_cast<CXXMemberCallExpr>(E))
    return entityOf(M->getImplicitObjectArgument());
  return E->getNumArgs() ? entityOf(E->getArg(E->getNumArgs() - 1)) : nullptr;
}

/// Whether a call lets a loader load in threads of its own.
static bool setsWorkers(const CallExpr *E, const FunctionDecl *F) {
  const auto *M = dyn_cast_or_null<CXXMethodDecl>(F);
  if (nameOf(M) != "workers" || !isTorch(M) || E->getNumArgs() != 1)
    return false;
  const auto *Number = dyn_cast<IntegerLiteral>(plain(E->getArg(0)));
  return !Number || Number->getValue() != 0;
}

/// Adds the fields that code assigns to, or counts up.
static void addWritten(const Stmt *S, std::set<const ValueDecl *> &Fields) {
  eachIn<Expr>(S, [&](const Expr *E) {
    const Expr *To = nullptr;
    if (const auto *Assign = dyn_cast<BinaryOperator>(E);
        Assign && Assign->isAssignmentOp())
      To = Assign->getLHS();
    else if (const auto *Count = dyn_cast<UnaryOperator>(E);
             Count && Count->isIncrementDecrementOp())
      To = Count->getSubExpr();
    if (const auto *M = To ? dyn_cast<MemberExpr>(plain(To)) : nullptr)
      Fields.insert(M->getMemberDecl());
  });
}

/// Whether a number is the same each time that the same sample is loaded: made
/// from the index that get() is given, constants, and fields that do not change.
static bool isOfTheSample(const Stmt *S, const std::set<const ValueDecl *> &Written) {
  if (!S)
    return false;
  if (const auto *Ref = dyn_cast<DeclRefExpr>(S)) {
    const auto *V = dyn_cast<VarDecl>(Ref->getDecl());
    if (!V)
      return true; // A function, an enumerator.
    if (isa<ParmVarDecl>(V)) {
      const auto *Get = dyn_cast<CXXMethodDecl>(V->getDeclContext());
      return Get && Get->isVirtual() && nameOf(Get) == "get" &&
             V->getType()->isIntegerType();
    }
    if (V->hasGlobalStorage())
      return V->getType().isConstQualified();
    return isOfTheSample(V->getInit(), Written);
  }
  if (const auto *M = dyn_cast<MemberExpr>(S))
    return isa<CXXThisExpr>(plain(M->getBase())) &&
           M->getType()->isArithmeticType() &&
           !Written.count(M->getMemberDecl());
  if (const auto *C = dyn_cast<CallExpr>(S);
      C && (!C->getDirectCallee() || !isInStd(C->getDirectCallee())))
    return false;
  if (const auto *U = dyn_cast<UnaryOperator>(S);
      U && U->isIncrementDecrementOp())
    return false;
  return llvm::all_of(S->children(), [&](const Stmt *Child) {
    return isOfTheSample(Child, Written);
  });
}

/// Whether the objects that a call draws with are variables of the callable that
/// draws, so that nothing of them is left for the next sample; and the generator
/// is seeded with what is another thing in each run, or belongs to the sample.
static bool isMadeAnew(const CallExpr *Draw, const ValueDecl *Generator,
                       const FunctionDecl *Drawer, const ProgramIndex &Index) {
  auto IsOwn = [&](const ValueDecl *Object) {
    const auto *V = dyn_cast_or_null<VarDecl>(Object);
    return V && V->isLocalVarDecl() && !V->isStaticLocal() &&
           !V->getType()->isReferenceType() && V->getDeclContext() == Drawer;
  };
  const auto *V = dyn_cast_or_null<VarDecl>(Generator);
  if (V && V->isLocalVarDecl() && drawsPerProcess(V->getInit()))
    return true;
  if (!IsOwn(V) || !V->getInit())
    return false;
  // A distribution may keep a number for the next call.
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(Draw))
    if (const ValueDecl *Distribution = entityOf(O->getArg(0));
        Distribution && !IsOwn(Distribution))
      return false;
  std::set<const ValueDecl *> Written;
  for (const FunctionDecl *F : Index.Functions)
    if (Index.loadsSamples(F))
      addWritten(F->getBody(), Written);
  return isOfTheSample(V->getInit(), Written);
}

/// `std::generate(words.begin(), words.end(), std::ref(device))`: the device.
static const Expr *fillsFromDevice(const CallExpr *E, const FunctionDecl *F) {
  if ((nameOf(F) != "generate" && nameOf(F) != "generate_n") || !isInStd(F) ||
      E->getNumArgs() != 3)
    return nullptr;
  const Expr *Last = E->getArg(2);
  const ValueDecl *Device = placeOf(Last);
  return Device && isRandomDevice(recordOf(Device->getType())) ? Last : nullptr;
}

void Randomness::call(const CallExpr *E, const FunctionDecl *F) {
  if (Differs.agreesAsDraw(E))
    keptDraw(E);
  else if (const Expr *Device = fillsFromDevice(E, F))
    fill(E, Device);
  else if (drawsOnHost(E))
    hostDraw(E);
  else if (seeds(F) && E->getNumArgs() >= 1)
    seed(E, E->getArg(0));
  else if (setsWorkers(E, F))
    Draws.HasWorkers = true;
}

void Randomness::hostDraw(const CallExpr *E) {
  if (!Text.mayEdit(E->getExprLoc()))
    return;
  const bool Loads = inSamples();
  if (const Expr *Device = drawnFromDevice(E)) {
    if (Loads)
      say("ACL0153", E->getExprLoc(),
          "the data set draws from a random device: its numbers are distributed "
          "as before but are not the same on each run",
          "Draw from a std::mt19937 that is seeded with a constant, in the "
          "constructor.");
    else
      deviceDraw(E, Device);
    return;
  }
  const ValueDecl *Generator = generatorOf(E);
  if (!Loads)
    Draws.Elsewhere.push_back({Generator, E});
  else if (!isMadeAnew(E, Generator,
                       Lambdas.empty() ? Function
                                       : operatorOf(Lambdas.back()),
                       Index))
    Draws.InDatasets.push_back({Generator, E});
}

/// `distribution(device)` is process 0's number; `std::shuffle(first, last,
/// device)` and `std::generate(first, last, std::ref(device))` draw from an engine
/// that process 0's device has seeded.
void Randomness::deviceDraw(const CallExpr *E, const Expr *Device) {
  const FunctionDecl *F = E->getDirectCallee();
  const bool IsNumber = E->getType()->isArithmeticType();
  // What takes any generator.
  static const llvm::StringSet<> Names = {"shuffle", "sample", "generate",
                                          "generate_n"};
  const bool TakesAny = Names.count(nameOf(F));
  if ((!IsNumber && !TakesAny) || Index.BeforeMain.count(Function) ||
      !Differs.isReachedByAll(Path, Function))
    return say("ACL0127", E->getExprLoc(),
               "what is drawn from a random device differs between processes",
               "Draw from a std::mt19937, seeded with a constant or from the "
               "random device.");
  if (IsNumber)
    edit(EditKind::DifferingNumber, E->getSourceRange());
  else
    edit(EditKind::DifferingRandomDevice, Device->getSourceRange());
}

void Randomness::fill(const CallExpr *E, const Expr *Device) {
  if (Text.mayEdit(E->getExprLoc()) && !inSamples())
    deviceDraw(E, Device);
}

/// `seed = device();`, `Environment environment(device());`
void Randomness::keptDraw(const CallExpr *E) {
  if (!Differs.isReachedByAll(Path, Function))
    return say("ACL0127", E->getExprLoc(),
               "what is drawn from a random device differs between processes, and "
               "not all of them draw it",
               "Draw it where all processes do.");
  edit(EditKind::DifferingNumber, E->getSourceRange());
}

/// Something that differs becomes process 0's where it seeds a generator.
void Randomness::seed(const Expr *Whole, const Expr *Seed) {
  const SourceLocation Loc = Whole->getExprLoc();
  if (!Text.mayEdit(Loc) || !Differs.in(Seed))
    return;
  if (inSamples())
    return say("ACL0153", Loc,
                  "the data set seeds a generator with something that differs "
                  "between processes: its numbers are distributed as before "
                  "but are not the same on each run",
                  "Seed it with a constant, in the constructor.");
  if (Index.BeforeMain.count(Function))
    return say("ACL0184", Loc, Early, "Seed it in main.");
  if (!plain(Seed)->getType()->isArithmeticType())
    return say("ACL0127", Loc,
               "the seed differs between processes, which would then draw "
               "different batches",
               "Seed with a constant, or with a value that is read from the "
               "command line.");
  edit(EditKind::Seed, plain(Seed)->getSourceRange());
}

/// What a std::seed_seq is made of: `{device(), device()}`.
template <typename Visit>
static void forEachWord(const Stmt *S, const Visit &Each) {
  for (const Stmt *Child : S->children()) {
    const auto *E = dyn_cast_or_null<Expr>(Child);
    if (!E)
      continue;
    if (isa<InitListExpr, CXXStdInitializerListExpr, MaterializeTemporaryExpr,
            ImplicitCastExpr>(E) &&
        !E->getType()->isArithmeticType())
      forEachWord(E, Each);
    else
      Each(E);
  }
}

void Randomness::construct(const CXXConstructExpr *E) {
  const CXXRecordDecl *D = E->getConstructor()->getParent();
  if (E->getConstructor()->isCopyOrMoveConstructor())
    return;
  if (isSeedSequence(D)) {
    // Each word that differs is process 0's.
    forEachWord(E, [&](const Expr *Word) { seed(E, Word); });
    return;
  }
  if (!isEngine(D))
    return;
  for (const Expr *Arg : E->arguments())
    if (!isa<CXXDefaultArgExpr>(Arg))
      seed(E, Arg);
}

void Randomness::field(const FieldDecl *F, const CXXRecordDecl *Owner,
                       bool Early) {
  const Expr *Init = F->getInClassInitializer();
  if (!Init || !drawsPerProcess(Init) || !Text.mayEdit(F->getLocation()))
    return;
  if (isOrDerives(Owner, "torch::data::datasets::BatchDataset"))
    return say("ACL0153", F->getLocation(),
                  "'" + F->getNameAsString() +
                      "' is seeded with something that differs between "
                      "processes",
                  "Seed it with a constant.");
  std::vector<const CallExpr *> Kept;
  eachIn<CallExpr>(Init, [&](const CallExpr *E) {
    if (Differs.agreesAsDraw(E))
      Kept.push_back(E);
  });
  if (!Kept.empty() && !Early) {
    for (const CallExpr *Draw : Kept) {
      Initialiser = Draw;
      edit(EditKind::DifferingNumber, Draw->getSourceRange());
    }
    Initialiser = nullptr;
    return;
  }
  // An engine made from one number.
  const auto *Made = dyn_cast<CXXConstructExpr>(plain(Init));
  if (const auto *List = dyn_cast<InitListExpr>(plain(Init));
      List && List->getNumInits() == 1)
    Made = dyn_cast<CXXConstructExpr>(plain(List->getInit(0)));
  if (Early || !Made || !isEngine(Made->getConstructor()->getParent()) ||
      Made->getNumArgs() < 1 ||
      !plain(Made->getArg(0))->getType()->isArithmeticType()) {
    // A device or a time that is only kept is judged where it is used.
    const CXXRecordDecl *D = recordOf(F->getType());
    if (!Kept.empty() || (D && isEngine(D)))
      say(Early ? "ACL0184" : "ACL0127", F->getLocation(),
          "'" + F->getNameAsString() +
              "' is seeded with something that differs between processes" +
              (Early ? ", perhaps before main begins" : ""),
          "Seed it with a constant.");
    return;
  }
  Initialiser = plain(Made->getArg(0));
  edit(EditKind::Seed, Initialiser->getSourceRange());
  Initialiser = nullptr;
}

namespace {
/// Whether code names a variable, or declares another one of its name.
class UseOfVariable : public AstVisitor {
public:
  explicit UseOfVariable(const VarDecl *V) : Sought(V->getCanonicalDecl()) {}
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    Named |= E->getDecl()->getCanonicalDecl() == Sought;
    return true;
  }
  bool VisitVarDecl(VarDecl *V) override {
    Hidden |= V->getDeclName() == Sought->getDeclName();
    return true;
  }
  bool Named = false;
  bool Hidden = false;

private:
  const ValueDecl *Sought;
};
} // namespace

/// Whether what runs before main may draw from a global generator.
static bool drawnFromEarly(const VarDecl *V, const ProgramIndex &Index) {
  UseOfVariable Uses(V);
  for (const VarDecl *Other : Index.Globals)
    if (Other != V && Other->getInit())
      Uses.TraverseStmt(const_cast<Expr *>(Other->getInit()));
  for (const FunctionDecl *F : Index.BeforeMain)
    Uses.TraverseDecl(const_cast<FunctionDecl *>(F));
  return Uses.Named;
}

/// Whether a variable of a program of several sources is defined in another one than
/// main, which does not see it.
static bool isInOtherSource(const VarDecl *V, const FunctionDecl *Main,
                            const SourceManager &SM) {
  const SourceLocation At = SM.getExpansionLoc(V->getLocation());
  if (SM.getFileID(At) == SM.getFileID(SM.getExpansionLoc(Main->getLocation())))
    return false;
  return isSource(SM.getFilename(At));
}

void Randomness::global(const VarDecl *V) {
  const CXXRecordDecl *D = recordOf(V->getType());
  if (!D || !isEngine(D) || !drawsPerProcess(V->getInit()))
    return;
  // Where nothing has drawn from it, main can seed it once more.
  const FunctionDecl *Main = Index.Main;
  const SourceManager &SM = Index.Context.getSourceManager();
  if (!Main || !Text.mayEdit(Main->getLocation()) || !V->isFileVarDecl() ||
      V->isStaticDataMember() || V->getTLSKind() != VarDecl::TLS_None ||
      !SM.isBeforeInTranslationUnit(V->getLocation(), Main->getLocation()) ||
      isInOtherSource(V, Main, SM) ||
      drawnFromEarly(V, Index))
    return say("ACL0184", V->getLocation(), Early, "Seed it in main.");
  std::string Name;
  llvm::raw_string_ostream OS(Name);
  PrintingPolicy Policy = Index.Context.getPrintingPolicy();
  Policy.SuppressUnwrittenScope = true;
  V->printQualifiedName(OS, Policy);
  UseOfVariable InMain(V);
  InMain.TraverseDecl(const_cast<FunctionDecl *>(Main));
  if (InMain.Hidden)
    Name = "::" + Name;
  Program.Edits.push_back(
      {EditKind::SeedBeforeMain, Functions.of(Main), TextRange(), Name});
}

void HostDraws::check(const Unit &U) const {
  // Loaders that stay LibTorch's load whole batches in any case.
  if (!U.Program.hasEdits("loader"))
    return;
  // The option is given where the accelerator is made.
  const FunctionDecl *Main = U.Index.Main;
  const bool HasMain = Main && U.Text.mayEdit(Main->getLocation());
  if (const Expr *Change = changeBySamples(U.Index)) {
    U.Program.LoadsWholeBatches |= HasMain;
    U.say(HasMain ? "ACL0186" : "ACL0153", Change->getExprLoc(),
          HasMain ? "every process loads whole batches, since the data set changes "
                    "what it keeps with each sample: all have what one device has"
                  : "the data set changes what it keeps with each sample: each "
                    "process loads its own samples only, and comes to have another "
                    "data set than one device",
          HasMain ? "" : "Make the Accelerator with load_whole_batches(true).");
  }
  if (InDatasets.empty())
    return;
  if (HasMain) {
    U.Program.LoadsWholeBatches = true;
    U.say("ACL0186", InDatasets.front().Call->getExprLoc(),
          "every process loads whole batches, since the data set draws random "
          "numbers that are not LibTorch's: all draw what one device draws");
    if (!HasWorkers)
      return;
  } else {
    for (const Draw &Loads : InDatasets)
      U.say("ACL0153", Loads.Call->getExprLoc(),
            "the data set draws random numbers that are not LibTorch's: each "
            "process draws for its own samples, so that they are distributed as "
            "before but are not the same numbers",
            "Draw with torch::rand where the numbers must be the same, or make "
            "the Accelerator with load_whole_batches(true).");
  }
  for (const Draw &Loads : InDatasets)
    for (const Draw &Other : Elsewhere)
      if (!Loads.Generator || !Other.Generator ||
          Loads.Generator == Other.Generator)
        U.say("ACL0127", Other.Call->getExprLoc(),
              "the data set and other code both draw random numbers of the "
              "host: while samples are loaded by threads, or by each process "
              "for itself, the numbers drawn here would come to differ",
              "Give the data set a generator of its own, or draw with "
              "torch::rand.");
}
