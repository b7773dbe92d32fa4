//===- TrainingProgram.h - What was found in a program ----------*- C++ -*-===//
//
// The facts that the rules decide on, by the four questions: what enters, what
// learns, what leaves, what may differ. Plain values: places in text and words.
// Nothing of the AST outlives the inventory, and no fact says what to do about
// it.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_TRAININGPROGRAM_H
#define ACCEL_MIGRATE_TRAININGPROGRAM_H

#include "accel/migrate/Change.h"

#include <optional>
#include <string>
#include <vector>

namespace accel::migrate {

/// A place where a line of its own can be put. `Before` and `After` are what
/// the neighbouring line says: indentation and line break, or blanks where the
/// place is inside of a line.
struct LinePoint {
  TextRange At; ///< Length 0, or the blanks that the line replaces.
  std::string Before;
  std::string After;

  /// `Text` as it has to be inserted here.
  std::string wrap(const std::string &Text) const {
    return Before + Text + After;
  }
  /// Whether there is no line of its own here: `{ statement; }`, or `{}`.
  bool isInsideLine() const {
    return Before.find('\n') != std::string::npos ||
           After.find('\n') == std::string::npos;
  }
};

using FunctionId = unsigned;

/// A function (a template is one function), or a lambda.
struct FunctionFact {
  std::string Name;
  bool IsMain = false;
  /// A lambda: what it sees depends on its captures, so that nothing is
  /// declared in it.
  bool IsLambda = false;
  /// The function around a lambda that sees all of its names ([&]).
  std::optional<FunctionId> Around;
  /// Where its first statement goes.
  LinePoint Top;
  /// The whole body of a main that is a try block with its handlers: what has to
  /// outlive the handlers goes around it.
  std::optional<TextRange> Try;
  /// Every unqualified name that is declared or used in it.
  std::vector<std::string> Names;
};

/// An expression, in a function.
struct Spelled {
  FunctionId In = 0;
  TextRange Range;
};

/// What makes a buffer, which is to be placed like a batch.
struct BufferFact : Spelled {
  std::string Like;            ///< The batch's name.
  std::optional<unsigned> Dim; ///< Where it is not the batch's own dimension.
};

/// A batch that no loader makes, to be shared out where it stands.
struct BatchFact : Spelled {
  bool StepsFirst = false; ///< Along dimension 1, where its samples are.
};

/// `std::mt19937 generator(std::random_device{}());`, a global variable.
struct EarlyEngineFact {
  FunctionId Main = 0;
  std::string Name; ///< As main spells it.
};

/// `torch::optim::SGD optimizer(model->parameters(), …)`.
struct OptimizerFact {
  FunctionId In = 0;
  /// Where the type is spelled: in the declaration, in its initialiser, or
  /// both.
  std::vector<TextRange> TypeNames;
  /// How a function that takes a reference is given it, e.g. "*optimizer"; empty
  /// where it has no name here.
  std::string Object;
  /// The same for the models that it trains, as far as they are seen.
  std::vector<std::string> Models;
  /// Offset of the block that the declaration stands in, and the number of
  /// trainings in it that come before.
  unsigned Block = 0;
  unsigned Trainings = 0;
  /// Behind the last of: this declaration, a model's, `model->to(device)`.
  LinePoint SetUp;

  /// Otherwise only types change: somebody else holds it.
  bool isPrepared() const { return !Object.empty() || !Models.empty(); }
};

/// `Schedule<decltype(optimizer)>`, of a class template of the program.
struct OptimizerTypeFact {
  FunctionId In = 0;
  TextRange Range;
  std::string Class; ///< What it is without the rewriter.
};

/// `torch::optim::StepLR scheduler(optimizer, …)`.
struct SchedulerFact {
  FunctionId In = 0;
  std::vector<TextRange> TypeNames;
};

/// How a device is chosen or named.
struct DeviceFact {
  enum KindTy {
    Initialiser,     ///< All of a torch::Device variable's initialiser.
    TypeInitialiser, ///< The same of a DeviceType variable.
    Selection,       ///< A statement that only chooses; to be taken out.
    Condition,       ///< `torch::cuda::is_available()`.
    Negation,        ///< `!torch::cuda::is_available()`.
    Literal,         ///< `torch::kCUDA`, `torch::Device("cuda:1")`.
    TypeLiteral,     ///< `torch::kCUDA` where a DeviceType is assigned.
    CudaCall,        ///< `cuda()`, without the object.
    CudaQuestion,    ///< `device == torch::kCUDA`, whose device has a number.
    Synchronize,     ///< `torch::cuda::synchronize()`.
    Global,          ///< A variable that is made before main.
  };
  FunctionId In = 0;
  KindTy Kind = Initialiser;
  TextRange Range;
  /// Global: the variable, as main can name it. CudaQuestion: the device that is
  /// asked about, with a '!' where it is not to be one.
  std::string Name = {};
};

/// The body of a loop in which it may be that no statement can be put, for want
/// of braces.
struct BodyPoint {
  LinePoint Top; ///< `Before` has the brace, in a body without.
  /// Behind the statement of a body without braces: `After` closes them.
  std::optional<LinePoint> Close;
};

/// A loop whose passes are training steps.
struct TrainingLoopFact {
  FunctionId In = 0;
  BodyPoint Body;
  /// The models that it trains, as far as they have names where it begins.
  std::vector<std::string> Models;
  /// It stands in another one.
  bool Inner = false;
  /// What is the body of a loop, of a function that is called for each step, or of a
  /// condition in a loop.
  enum KindTy { Loop, Function, Block };
  KindTy Kind = Loop;
};

/// `loss.backward()`: `Object` is the loss, `Tail` from the dot to the end.
struct BackwardFact {
  FunctionId In = 0;
  TextRange Object;
  TextRange Tail;
  /// The parenthesis in front of the object, which then ends in Tail; empty where
  /// there is none.
  TextRange Open;
  /// What stands between several losses, whose sum it is.
  std::vector<TextRange> Between;
  /// `Object` is a pointer to the loss.
  bool IsPointer = false;
  /// The argument `gradient`; then `Tail` is what stands behind it.
  TextRange Gradient;
  /// What stands between the object and the gradient.
  TextRange BeforeGradient;
  /// The argument `retain_graph` as it is spelled, or empty.
  std::string RetainGraph;
};

/// Variables that are given what all processes have of them, on a line of
/// their own.
struct VariablesFact {
  FunctionId In = 0;
  std::vector<std::string> Variables;
  LinePoint At;
};

/// A tensor whose memory is read.
struct MemoryFact {
  FunctionId In = 0;
  /// What is to be whole: a variable or a member, as it is spelled; empty where
  /// it is made whole where it stands.
  std::string Variable;
  /// It cannot be assigned to, so that another variable takes its place.
  bool IsConst = false;
  /// It may be written into, then or later: all that share it have to see that.
  bool IsWritten = false;
  /// What stands there must not be a temporary: an accessor cannot be made of one.
  bool WantsName = false;
  /// Before the statement; nowhere: the variable becomes whole where it stands.
  LinePoint At;
  TextRange Object; ///< The tensor in the statement, or what points to it.
  /// Behind the object: the `->` of what points to the tensor; empty for a tensor.
  std::optional<TextRange> Arrow;
};

struct PrintFact {
  enum KindTy {
    Cout,     ///< The name std::cout.
    Cerr,     ///< The name std::cerr or std::clog, for a message that is no
              ///< farewell.
    Printf,   ///< The name printf.
    Puts,     ///< From the name puts to before its argument.
    Literal,  ///< From the name puts or putchar to behind the literal that is
              ///< its argument, which is a format as it is written.
    Putchar,  ///< From the name putchar to before its argument.
    FprintfStdout, ///< From the name fprintf to before the format.
    Vprintf,       ///< From the name vprintf to before the format.
    FmtPrint,      ///< Before the first argument of fmt::print and its like.
    CStdout,       ///< The name stdout, given to one of C's functions.
    CStderr,       ///< The name stderr, for a message that is no farewell.
    Descriptor,    ///< The 1 that is given to write or dprintf.
    TensorStream,  ///< Before the tensor that torch::print is given.
    TensorWidth,   ///< Behind it, where no width follows.
    EarlyCout,     ///< As Cout, Cerr, CStdout, in what is made before main.
    EarlyCerr,
    EarlyCStdout,
  };
  FunctionId In = 0;
  KindTy Kind = Cout;
  TextRange Range;
  /// It stands in the body of a macro, in no function of its own.
  bool InMacro = false;
  /// Of Literal: the format.
  std::string Format = "";
};

/// `torch::save(x, path)`: `Callee` is the name.
struct SaveFact {
  FunctionId In = 0;
  TextRange Callee;
  /// Behind the statement.
  LinePoint After;
  /// Where the statement is all of a branch, which gets braces: instead.
  std::optional<BodyPoint> Braces;
  /// Whether the program reads a file again.
  bool ReadLater = false;
  bool ToStream = false; ///< Of memory, or of a file that was opened before.
};

/// `archive.save_to(path)`.
struct ArchiveFact {
  FunctionId In = 0;
  TextRange Object;  ///< `archive`
  TextRange Between; ///< `.save_to(`
  bool IsPointer = false;
};

/// Something that differs between processes and must not.
struct BroadcastFact {
  enum KindTy {
    Decision, ///< A condition that is a number.
    Truth,    ///< A condition that is something else.
    Number,   ///< A number, or a list, that is given to LibTorch or drawn.
    Device,   ///< A random device that is shuffled with.
    Name,     ///< A string that names files.
    CName,    ///< The same, of C.
    Path,     ///< The same, a std::filesystem::path.
    Key,      ///< A call that waits for a key.
    Status,   ///< A call that the main process makes, whose answer is a number.
    Success,  ///< The same, whose answer is a truth.
  };
  FunctionId In = 0;
  KindTy Kind = Decision;
  TextRange Range;
};

/// What reads the standard input.
struct InputFact {
  enum KindTy {
    Cin,     ///< The name std::cin.
    Scanf,   ///< From the name scanf to before the format.
    Getchar, ///< All of getchar().
    CStdin,  ///< The name stdin, given to one of C's functions.
  };
  FunctionId In = 0;
  KindTy Kind = Cin;
  TextRange Range;
};

/// A statement that only the main process runs.
struct GuardFact {
  FunctionId In = 0;
  TextRange Range;
  /// The callee and the parenthesis behind it, where arguments must be
  /// evaluated first, on all processes, since tensors are read in them.
  std::optional<TextRange> Callee, Open;
  /// Arguments that are tensors, which have to be whole.
  std::vector<TextRange> Tensors;
  /// Before a statement that takes files away which may be read still, and behind
  /// one that makes files, or takes some away, which may be read then.
  std::optional<LinePoint> Before, After;
  /// Where the statement is all of a branch and others have to stand beside it,
  /// at `Before` and here, in front of the brace.
  std::optional<LinePoint> Close;
  bool WaitsBehind = false; ///< There, too.
};

/// Behind files that data sets read.
struct FileWaitFact {
  FunctionId In = 0;
  LinePoint At;
  const char *Why = "";
};

/// All facts of a translation unit. The vectors are in the order of the text.
struct TrainingProgram {
  bool HasTraining = false;
  /// Whether main is seen, which makes the accelerator.
  bool HasMain = false;
  bool AlreadyMigrated = false;
  std::vector<FunctionFact> Functions;
  /// The uses of macros whose text may be edited.
  std::vector<UsedMacro> MacroUses;
  std::vector<OptimizerFact> Optimizers;
  std::vector<OptimizerTypeFact> OptimizerTypes;
  std::vector<SchedulerFact> Schedulers;
  std::vector<Spelled> Loaders; ///< The name torch::data::make_data_loader.
  /// A data set of theirs draws numbers of the host: all processes have to draw
  /// them all.
  bool LoadsWholeBatches = false;
  std::vector<DeviceFact> Devices;
  std::vector<TrainingLoopFact> TrainingLoops;
  std::vector<BackwardFact> Backwards;
  std::vector<BatchFact> Batches;
  std::vector<BufferFact> Buffers;
  std::vector<VariablesFact> Gathers;
  std::vector<MemoryFact> Memory;
  std::vector<Spelled> NormClips;  ///< The name clip_grad_norm_.
  std::vector<Spelled> ValueClips; ///< The name clip_grad_value_.
  /// Of tasks that train and are waited for at once: the policy that is given to
  /// std::async; the task, where none is.
  std::vector<Spelled> LaunchPolicies;
  std::vector<Spelled> LaunchedTasks;
  std::vector<PrintFact> Prints;
  std::vector<SaveFact> Saves;
  std::vector<ArchiveFact> Archives; ///< That are written to files, or streams.
  /// Functions of the person's that are used and have no body here.
  std::vector<MissingFunction> Missing;
  std::vector<Spelled> Seeds; ///< Numbers that differ and seed a generator.
  std::vector<EarlyEngineFact> EarlyEngines;
  std::vector<BroadcastFact> Broadcasts;
  std::vector<Spelled> Paths; ///< Paths of files that are opened to be written.
  /// Paths of files that are read, and that the program may have written.
  std::vector<Spelled> ReadPaths;
  std::vector<Spelled> Commands; ///< Of popen(command, "w").
  std::vector<GuardFact> Guards;
  std::vector<FileWaitFact> FileWaits;
  std::vector<InputFact> Inputs;
  /// What was seen and stops the migration, or should be known.
  std::vector<Finding> Findings;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_TRAININGPROGRAM_H
