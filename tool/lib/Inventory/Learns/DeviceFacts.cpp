//===- DeviceFacts.cpp - How the device is chosen -------------------------===//

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"
#include "Learns.h"

using namespace accel::migrate;
using namespace clang;

enum class DeviceLiteral { None, Cpu, Cuda };

/// Whether `T` is, or refers to, a class of LibTorch's.
static bool isTorchClass(QualType T, llvm::StringRef Name) {
  const CXXRecordDecl *D = T.getNonReferenceType()->getAsCXXRecordDecl();
  return nameOf(D) == Name && isTorch(D);
}

static bool isDevice(QualType T) { return isTorchClass(T, "Device"); }

static bool isDeviceType(QualType T) {
  const auto *E = T.getNonReferenceType()->getAs<EnumType>();
  return E && E->getDecl()->getName() == "DeviceType" && isTorch(E->getDecl());
}

static bool isTensorOptions(QualType T) {
  return isTorchClass(T, "TensorOptions");
}

/// A call of torch::cuda::is_available().
static bool asksForCuda(const Expr *E) {
  const FunctionDecl *F = calleeOf(E);
  return isTorch(F) &&
         (nameOf(F) == "hasCUDA" ||
          (nameOf(F) == "is_available" &&
           llvm::StringRef(qualifiedName(F)).contains("::cuda::")));
}

/// The same, or a variable that has its answer.
static bool isCudaQuestion(const Expr *E) {
  if (asksForCuda(E))
    return true;
  const VarDecl *V = variableOf(E);
  return V && V->isLocalVarDecl() && V->getInit() &&
         V->getType().getNonReferenceType()->isBooleanType() &&
         asksForCuda(plain(V->getInit()));
}

static DeviceLiteral namedDevice(const StringLiteral *Text) {
  if (Text->getString().starts_with("cuda"))
    return DeviceLiteral::Cuda;
  return Text->getString() == "cpu" ? DeviceLiteral::Cpu : DeviceLiteral::None;
}

/// `torch::kCUDA`, `torch::Device(torch::kCUDA, 1)`, `"cuda:0"`.
static DeviceLiteral deviceLiteral(const Expr *E) {
  E = bare(E);
  if (const auto *Ref = dyn_cast_or_null<DeclRefExpr>(E)) {
    const llvm::StringRef Name = nameOf(Ref->getDecl());
    if (!isDeviceType(Ref->getType()))
      return DeviceLiteral::None;
    if (Name == "kCUDA" || Name == "CUDA")
      return DeviceLiteral::Cuda;
    return Name == "kCPU" || Name == "CPU" ? DeviceLiteral::Cpu
                                           : DeviceLiteral::None;
  }
  const auto *Made = dyn_cast_or_null<CXXConstructExpr>(E);
  if (!Made || Made->getNumArgs() == 0 ||
      !(isDevice(Made->getType()) || isLibrary(Made->getConstructor())))
    return DeviceLiteral::None;
  if (const auto *Text = dyn_cast<StringLiteral>(bare(Made->getArg(0))))
    return namedDevice(Text);
  return deviceLiteral(Made->getArg(0));
}

/// What a device is made from, through the constructions of it.
static const Expr *origin(const Expr *E) {
  E = bare(E);
  while (const auto *Made = dyn_cast_or_null<CXXConstructExpr>(E)) {
    if (Made->getNumArgs() == 0)
      break;
    E = bare(Made->getArg(0));
  }
  return E;
}

/// `torch::cuda::is_available() ? torch::kCUDA : torch::kCPU`, also as text, in what
/// makes a device.
static const ConditionalOperator *choiceIn(const Expr *E) {
  const auto *Choice = dyn_cast_or_null<ConditionalOperator>(origin(E));
  if (!Choice || !isCudaQuestion(plain(Choice->getCond())))
    return nullptr;
  const auto NamesDevice = [](const Expr *Answer) {
    const auto *Text = dyn_cast<StringLiteral>(bare(Answer));
    return (Text ? namedDevice(Text) : deviceLiteral(Answer)) !=
           DeviceLiteral::None;
  };
  return NamesDevice(Choice->getTrueExpr()) && NamesDevice(Choice->getFalseExpr())
             ? Choice
             : nullptr;
}

/// `device = torch::kCUDA;` and nothing else.
static const VarDecl *onlyAssigns(const Stmt *S) {
  if (const auto *Block = dyn_cast_or_null<CompoundStmt>(S))
    return Block->size() == 1 ? onlyAssigns(Block->body_front()) : nullptr;
  const Expr *P = plain(dyn_cast_or_null<Expr>(S));
  const Expr *To = nullptr, *Made = nullptr;
  const auto *Call = dyn_cast_or_null<CXXOperatorCallExpr>(P);
  const auto *Assign = dyn_cast_or_null<BinaryOperator>(P);
  if (Call && Call->getOperator() == OO_Equal) {
    To = Call->getArg(0);
    Made = Call->getArg(1);
  } else if (Assign && Assign->getOpcode() == BO_Assign) {
    To = Assign->getLHS();
    Made = Assign->getRHS();
  }
  return deviceLiteral(Made) != DeviceLiteral::None ? variableOf(To) : nullptr;
}

/// The `if` in the same block that does nothing but choose `V`.
const IfStmt *DeviceFacts::selectionOf(const VarDecl *V) {
  const CompoundStmt *Block = block();
  if (!Block)
    return nullptr;
  for (const Stmt *S : Block->body()) {
    const auto *If = dyn_cast<IfStmt>(S);
    if (If && !If->getInit() && isCudaQuestion(plain(If->getCond())) &&
        onlyAssigns(If->getThen()) == V &&
        (!If->getElse() || onlyAssigns(If->getElse()) == V))
      return If;
  }
  return nullptr;
}

/// `torch::Device device(kind);`, where an `if` that asks for CUDA has chosen the
/// kind, besides what it prints. The statements that chose it, its declaration
/// first; empty where it is something else.
std::vector<const Stmt *> DeviceFacts::choicesOf(const Expr *Init) {
  const CompoundStmt *Block = block();
  const VarDecl *Kind = variableOf(bare(Init));
  std::vector<const Stmt *> Result;
  if (!Block || !Kind || !isDeviceType(Kind->getType()) ||
      Kind->getType()->isReferenceType() ||
      (Kind->getInit() && deviceLiteral(Kind->getInit()) != DeviceLiteral::Cpu))
    return Result;
  std::vector<const Stmt *> Choices; // Statements `kind = torch::kCUDA;`.
  size_t Uses = 0, InQuestion = 0;
  for (const Stmt *S : Block->body()) {
    const auto *Declared = dyn_cast<DeclStmt>(S);
    if (Declared && Declared->isSingleDecl() && Declared->getSingleDecl() == Kind)
      Result.push_back(S);
    const size_t Before = Choices.size();
    // Not `if (cuda) kind = torch::kCUDA;`: something must stand there.
    eachIn<CompoundStmt>(S, [&](const CompoundStmt *Inner) {
      for (const Stmt *Child : Inner->body())
        if (isa<Expr>(Child) && onlyAssigns(Child) == Kind)
          Choices.push_back(Child);
    });
    eachIn<DeclRefExpr>(
        S, [&](const DeclRefExpr *E) { Uses += E->getDecl() == Kind; });
    if (onlyAssigns(S) == Kind && isa<Expr>(S))
      Choices.push_back(S);
    const auto *If = dyn_cast<IfStmt>(S);
    if (If && !If->getInit() && isCudaQuestion(plain(If->getCond())))
      InQuestion += Choices.size() - Before;
  }
  // Each use is one of those choices, but for the one that is asked about.
  if (Result.size() != 1 || InQuestion == 0 ||
      InQuestion != Choices.size() || Uses != InQuestion + 1)
    return {};
  llvm::append_range(Result, Choices);
  return Result;
}

void DeviceFacts::variable(const VarDecl *V) {
  const bool Device = isDevice(V->getType());
  if ((!Device && !isDeviceType(V->getType())) || !V->getInit() ||
      V->getType()->isReferenceType())
    return;
  const Stmt *Statement = nullptr;
  block(&Statement);
  const auto *Declaration = dyn_cast_or_null<DeclStmt>(Statement);
  const Expr *Bare = origin(V->getInit());
  // The condition's answer, both ways, is a device.
  const bool Choice = choiceIn(Bare) != nullptr;
  const DeviceLiteral Literal =
      Choice ? DeviceLiteral::None : deviceLiteral(V->getInit());
  const IfStmt *Selection =
      Literal != DeviceLiteral::None ? selectionOf(V) : nullptr;
  std::vector<TextRange> Choices;
  if (Device && Literal == DeviceLiteral::None && !Choice)
    for (const Stmt *S : choicesOf(Bare)) {
      const std::optional<TextRange> Lines = Text.wholeLines(S);
      if (!Lines)
        return; // By a macro: as it is, it is right, too.
      Choices.push_back(*Lines);
    }
  if (!Choice && !Selection && Choices.empty() &&
      !(Device && Literal == DeviceLiteral::Cuda))
    return;
  if (!Declaration || !Declaration->isSingleDecl() ||
      Declaration->getSingleDecl() != V)
    return; // torch::kCUDA is each process's own device, too.
  const std::optional<TextRange> Range =
      Text.upTo(Text.behind(V->getLocation()), Declaration->getEndLoc());
  if (!Range)
    return problem(V->getLocation());
  edit(Device ? EditKind::DeviceInitialiser : EditKind::DeviceTypeInitialiser, *Range);
  Consumed.insert(V->getInit());
  for (const TextRange &Lines : Choices) {
    // Those before the variable have been seen as assignments.
    llvm::erase_if(Program.Edits, [&](const EditFact &Earlier) {
      return Earlier.isOf("device") && Earlier.Kind != EditKind::DeviceSelection &&
             Earlier.Range.File == Lines.File &&
             Earlier.Range.Offset >= Lines.Offset &&
             Earlier.Range.Offset < Lines.Offset + Lines.Length;
    });
    edit(EditKind::DeviceSelection, Lines);
  }
  if (!Selection)
    return;
  const std::optional<TextRange> Lines = Text.wholeLines(Selection);
  if (!Lines)
    return say("ACL0102", Selection->getBeginLoc(),
               "the choice of the device is written by a macro",
               "Write it out.");
  edit(EditKind::DeviceSelection, *Lines);
  Consumed.insert(Selection);
}

void DeviceFacts::staysCudas(SourceLocation Loc, const std::string &What) {
  say("ACL0185", Loc, What,
      "Nothing has to be done on a machine with CUDA; other devices have no "
      "such thing.");
}

/// Whether the program names something of CUDA's own, which has no other form.
bool DeviceFacts::isCudasOwn(const NamedDecl *D, SourceLocation Loc) {
  const std::string Name = isTorch(D) ? qualifiedName(D) : "";
  const bool IsOwn = llvm::StringRef(Name).starts_with("c10::cuda::") ||
                     llvm::StringRef(Name).starts_with("at::cuda::");
  if (IsOwn)
    staysCudas(Loc, "'" + Name + "' is CUDA's own and stays");
  return IsOwn;
}

/// The device that an expression is, as it is spelled.
void DeviceFacts::chosen(EditKind Kind, const Expr *E) {
  const Expr *Spelled = bare(E);
  if (!Consumed.count(Spelled) && edit(Kind, Spelled->getSourceRange()))
    Consumed.insert({E, Spelled});
}

/// std::make_shared and others that make an object of what they are given.
static bool makesObject(const FunctionDecl *F) {
  return (nameOf(F).starts_with("make_") || nameOf(F).starts_with("emplace")) &&
         isInStd(F);
}

/// `std::make_shared<Trainer>(torch::kCUDA)`: it becomes a DeviceType, too,
/// which the constructor may take as a Device.
void DeviceFacts::forwarded(const CallExpr *E) {
  for (const Expr *Arg : E->arguments())
    if (!isa<CXXDefaultArgExpr>(Arg) && isDeviceType(bare(Arg)->getType()) &&
        deviceLiteral(Arg) == DeviceLiteral::Cuda)
      chosen(EditKind::DeviceTypeLiteral, Arg);
}

/// `!E`, where `Path` leads to.
static const Expr *negationOf(const Expr *E, llvm::ArrayRef<const Stmt *> Path) {
  for (const Stmt *S : llvm::reverse(Path)) {
    if (S == E || isa<ParenExpr, ImplicitCastExpr>(S))
      continue;
    const auto *Not = dyn_cast<UnaryOperator>(S);
    return Not && Not->getOpcode() == UO_LNot ? Not : nullptr;
  }
  return nullptr;
}

/// `device == torch::kCUDA`: not so for a device with a number.
void DeviceFacts::compared(const CXXOperatorCallExpr *E) {
  if ((E->getOperator() != OO_EqualEqual && E->getOperator() != OO_ExclaimEqual) ||
      E->getNumArgs() != 2)
    return;
  // C++17 has no operator for the kind on the left.
  const Expr *Kind = origin(E->getArg(1));
  if (!isDevice(E->getArg(1)->getType()) || !isa_and_nonnull<DeclRefExpr>(Kind) ||
      !isDeviceType(Kind->getType()) || deviceLiteral(Kind) != DeviceLiteral::Cuda)
    return;
  // What `.is_cuda()` can be put behind, and nothing else changes in.
  const Expr *Asked = plain(E->getArg(0));
  const auto *Call = dyn_cast<CXXMemberCallExpr>(Asked);
  if (!isDevice(Asked->getType()) ||
      !(isa<DeclRefExpr, MemberExpr>(Asked) || (Call && Call->getNumArgs() == 0)))
    return;
  const std::optional<TextRange> All = editable(E->getSourceRange());
  const std::optional<TextRange> Part =
      All ? editable(Asked->getSourceRange()) : std::nullopt;
  if (!Part)
    return;
  edit(EditKind::DeviceQuestion, *All,
       (E->getOperator() == OO_ExclaimEqual ? "!" : "") + Text.text(*Part).str());
  Consumed.insert(E);
}

/// `torch::Device(kind, 1)`: which one it is, the accelerator has chosen.
void DeviceFacts::numbered(const Expr *Kind, const Expr *Number) {
  edit(EditKind::DeviceNumber,
       SourceRange(Text.behind(Kind->getEndLoc()), Number->getEndLoc()));
}

/// `device.set_index(1)`: the same.
void DeviceFacts::numbered(const CXXMemberCallExpr *E) {
  const auto *Callee = cast<MemberExpr>(E->getCallee()->IgnoreParens());
  if (Callee->isArrow() || !isDevice(Callee->getBase()->getType()))
    return;
  if (const Stmt *Statement = statementOf(E))
    if (const std::optional<TextRange> Lines = Text.wholeLines(Statement)) {
      edit(EditKind::DeviceSelection, *Lines);
      return;
    }
  edit(EditKind::DeviceInitialiser,
       SourceRange(Text.behind(Callee->getBase()->getEndLoc()), E->getEndLoc()));
}

void DeviceFacts::call(const CallExpr *E, const FunctionDecl *F) {
  if (const auto *Operator = dyn_cast<CXXOperatorCallExpr>(E))
    compared(Operator);
  if (makesObject(F))
    return forwarded(E);
  if (nameOf(F) == "synchronize" && isTorch(F) &&
      qualifiedName(F) == "torch::cuda::synchronize") {
    edit(EditKind::DeviceSynchronize, E->getSourceRange());
    return;
  }
  if (isCudasOwn(F, E->getBeginLoc()))
    return;
  if ((nameOf(F) == "setenv" || nameOf(F) == "putenv") && E->getNumArgs() > 0)
    if (const auto *Variable = dyn_cast<StringLiteral>(bare(E->getArg(0))))
      if (Variable->getString().starts_with("CUDA_VISIBLE_DEVICES"))
        return staysCudas(
            E->getBeginLoc(),
            "CUDA_VISIBLE_DEVICES is set when the process has its device "
            "already, and so without effect; accel launch --gpu-ids says which "
            "GPUs are used");
  if (asksForCuda(E)) {
    // Nothing is done with the answer.
    if (statementOf(E))
      return;
    // What is only printed is not a choice.
    if (llvm::any_of(Path, [](const Stmt *S) {
          const auto *O = dyn_cast<CXXOperatorCallExpr>(S);
          return O && O->getOperator() == OO_LessLess;
        }))
      return;
    const Expr *Negated = negationOf(E, Path);
    edit(Negated ? EditKind::DeviceNegation : EditKind::DeviceCondition,
         (Negated ? Negated : E)->getSourceRange());
    return;
  }
  const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
  if (!Member || !isTorch(F))
    return;
  const llvm::StringRef Name = nameOf(F);
  if (Name == "set_index")
    return numbered(Member);
  const Expr *Object = Member->getImplicitObjectArgument();
  const QualType Type = Object->getType()->isPointerType()
                            ? Object->getType()->getPointeeType()
                            : Object->getType();
  const bool TensorOrModel = isTensor(Type) || moduleOf(Type);
  if (Name == "cuda" && TensorOrModel) {
    const auto *Callee = cast<MemberExpr>(Member->getCallee()->IgnoreParens());
    edit(EditKind::DeviceCall, SourceRange(Callee->getMemberLoc(), E->getEndLoc()));
    return;
  }
  const bool Options = isTensorOptions(Object->getType()) && Name == "device";
  // options.device(torch::kCUDA, 1)
  if (Options && E->getNumArgs() == 2) {
    const Expr *Kind = E->getArg(0), *Number = E->getArg(1);
    if (deviceLiteral(Kind) == DeviceLiteral::Cuda)
      edit(EditKind::DeviceLiteral, SourceRange(Kind->getBeginLoc(), Number->getEndLoc()));
    else if (isDeviceType(bare(Kind)->getType()))
      numbered(Kind, Number);
    return;
  }
  if ((Name == "to" && TensorOrModel) || Options)
    for (const Expr *Arg : Member->arguments())
      if (!isa<CXXDefaultArgExpr>(Arg) &&
          deviceLiteral(Arg) == DeviceLiteral::Cuda)
        chosen(EditKind::DeviceLiteral, Arg);
}

/// `device = torch::kCUDA`, `kind = torch::kCUDA`.
void DeviceFacts::assigned(const Expr *To, const Expr *Made) {
  const bool Type = isDeviceType(To->getType());
  if ((Type || isDevice(To->getType())) &&
      deviceLiteral(Made) == DeviceLiteral::Cuda)
    chosen(Type ? EditKind::DeviceTypeLiteral : EditKind::DeviceLiteral, Made);
}

/// Whether what `Path` leads to, `E` included, is an argument that a function
/// is given; what is compared is none.
static bool isArgument(const std::vector<const Stmt *> &Path, const Expr *E) {
  for (const Stmt *S : llvm::reverse(Path)) {
    if (S == E || isa<ImplicitCastExpr, MaterializeTemporaryExpr,
                      CXXBindTemporaryExpr, CXXFunctionalCastExpr>(S))
      continue;
    const FunctionDecl *F = nullptr;
    if (const auto *Made = dyn_cast<CXXConstructExpr>(S)) {
      if (Made->getConstructor()->isCopyOrMoveConstructor())
        continue;
      F = Made->getConstructor();
    } else if (!isa<CXXOperatorCallExpr>(S)) {
      F = calleeOf(dyn_cast<Expr>(S));
    }
    return F && !isInStd(F);
  }
  return false;
}

/// `torch::Device(torch::kCUDA, 1)` in an expression.
void DeviceFacts::construct(const CXXConstructExpr *Made) {
  const Expr *E = Made;
  const CXXConstructorDecl *Constructor = Made->getConstructor();
  if (isCudasOwn(Constructor->getParent(), E->getBeginLoc()) ||
      Constructor->isCopyOrMoveConstructor())
    return;
  const ConditionalOperator *Choice = choiceIn(E);
  if (isTensorOptions(E->getType()) && Made->getNumArgs() == 1 &&
      isDeviceType(bare(Made->getArg(0))->getType()) &&
      (Choice || deviceLiteral(Made->getArg(0)) == DeviceLiteral::Cuda)) {
    if (!isConsumed())
      chosen(EditKind::DeviceLiteral, Made->getArg(0));
    return;
  }
  if (!isDevice(E->getType()))
    return;
  // With an index, as text, as an argument, or as a member's initialiser.
  // Elsewhere torch::kCUDA alone is compared, or kept.
  const bool Index =
      Made->getNumArgs() == 2 && !isa<CXXDefaultArgExpr>(Made->getArg(1));
  const bool Text = Made->getNumArgs() >= 1 &&
                    isa<StringLiteral>(bare(Made->getArg(0)));
  if (Index && !Choice && deviceLiteral(E) == DeviceLiteral::None &&
      isDeviceType(bare(Made->getArg(0))->getType()))
    return numbered(Made->getArg(0), Made->getArg(1));
  if (!Choice &&
      (deviceLiteral(E) != DeviceLiteral::Cuda ||
       (!Index && !Text && !isArgument(Path, E) &&
        !(Initialiser && bare(Initialiser) == bare(E)))))
    return;
  if (isConsumed())
    return;
  SourceRange Range = E->getSourceRange();
  // `device(torch::kCUDA)` of a member, whose name belongs to the construction, or
  // `{torch::kCUDA, 1}`.
  if (Made->getParenOrBraceRange().isValid() && !isa<CXXTemporaryObjectExpr>(Made) &&
      Made->getNumArgs() > 0)
    Range = {Made->getArg(0)->getBeginLoc(),
             Index ? Made->getArg(1)->getEndLoc() : Made->getArg(0)->getEndLoc()};
  // The cast that spells `torch::Device(…)`.
  const auto Around = llvm::find_if(llvm::reverse(Path), [&](const Stmt *S) {
    return S != E && !isa<MaterializeTemporaryExpr, CXXBindTemporaryExpr,
                          ImplicitCastExpr>(S);
  });
  if (Around != Path.rend() && isa<CXXFunctionalCastExpr>(*Around))
    Range = (*Around)->getSourceRange();
  if (edit(EditKind::DeviceLiteral, Range) && Choice)
    Consumed.insert(Choice);
}

void accel::migrate::addGlobalDevices(const Unit &U) {
  const ProgramIndex &Index = U.Index;
  SourceText &Text = U.Text;
  for (const VarDecl *V : Index.Globals) {
    const CXXRecordDecl *D = recordOf(V->getType());
    if (nameOf(D) != "Device" || !isTorch(D) ||
        !Text.mayEdit(V->getLocation()) ||
        (V->getInit() && deviceLiteral(V->getInit()) == DeviceLiteral::Cpu))
      continue;
    const bool Seen =
        Index.Main && !V->getType().isConstQualified() &&
        !V->getDeclContext()->isRecord() &&
        Text.SM.isBeforeInTranslationUnit(V->getLocation(),
                                          Index.Main->getLocation());
    if (!Seen) {
      U.say("ACL0139", V->getLocation(),
          "the device '" + V->getNameAsString() +
              "' is chosen before main begins and stays as it is",
          "A torch::kCUDA without a number is each process's own device; "
          "another choice has to be made in main.");
      continue;
    }
    const std::optional<TextRange> R =
        Text.range({V->getLocation(), V->getLocation()});
    if (!R)
      continue;
    U.Program.Edits.push_back(
        {EditKind::DeviceGlobal, U.Functions.of(Index.Main), *R,
         V->isInAnonymousNamespace() ? V->getNameAsString() : qualifiedName(V)});
  }
}
