//===- TrainingProgram.h - What was found in a program ----------*- C++ -*-===//
//
// The facts that the rules decide on. Plain values: places in text, words and
// placements. Nothing of the AST outlives the inventory, and no fact says what
// to do about it.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_TRAININGPROGRAM_H
#define ACCEL_MIGRATE_TRAININGPROGRAM_H

#include "accel/migrate/Change.h"
#include "accel/migrate/Placement.h"

#include "llvm/Support/raw_ostream.h"

#include <optional>
#include <string>
#include <vector>

namespace accel::migrate {

/// A place where a line of its own can be put. `Before` and `After` are what
/// the neighbouring line says: indentation and line break, or blanks where the
/// place is inside of a line.
struct LinePoint {
  TextRange At; ///< Length 0.
  std::string Before;
  std::string After;

  /// `Text` as it has to be inserted here.
  std::string wrap(const std::string &Text) const {
    return Before + Text + After;
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
  /// Where its first statement goes.
  LinePoint Top;
  /// Every unqualified name that is declared or used in it.
  std::vector<std::string> Names;
};

/// An expression, in a function.
struct Spelled {
  FunctionId In = 0;
  TextRange Range;
};

/// `torch::optim::SGD optimizer(model->parameters(), …)`.
struct OptimizerFact {
  FunctionId In = 0;
  /// Where the type is spelled: in the declaration, in its initialiser, or
  /// both.
  std::vector<TextRange> TypeNames;
  /// How a function that takes a reference is given it, e.g. "*optimizer".
  std::string Object;
  /// The same for the model that it trains; empty where that is not seen.
  std::string Model;
  /// Offset of the block that the declaration stands in.
  unsigned Block = 0;
  /// Behind the last of: this declaration, the model's, `model->to(device)`.
  LinePoint SetUp;
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
    Selection,       ///< An `if` that only chooses; to be taken out.
    Condition,       ///< `torch::cuda::is_available()`.
    Literal,         ///< `torch::kCUDA`, `torch::Device("cuda:1")`.
    CudaCall,        ///< `cuda()`, without the object.
  };
  FunctionId In = 0;
  KindTy Kind = Initialiser;
  TextRange Range;
};

/// A loop over batches that contains a backward.
struct TrainingLoopFact {
  FunctionId In = 0;
  LinePoint BodyTop;
  /// The models that it trains, as far as they have names where it begins.
  std::vector<std::string> Models;
  /// False: batches are made in the loop, and each process makes all of it.
  bool HasLoader = true;
};

/// A loop over a loader that does not train and can be left before its end.
struct LeftLoopFact {
  FunctionId In = 0;
  LinePoint BodyTop;
};

/// `loss.backward()`: `Object` is the loss, `Tail` from the dot to the end.
struct BackwardFact {
  FunctionId In = 0;
  TextRange Object;
  TextRange Tail;
  /// A mean, a sum, or replicated: then it counts once on each process.
  Placement Loss = Placement::MeanOfRows;
  /// The argument `retain_graph` as it is spelled, or empty.
  std::string RetainGraph;
};

/// `net->forward(x, y)` on a whole batch whose rows can be shared out.
struct ParallelCallFact {
  FunctionId In = 0;
  TextRange Head; ///< `net->forward(`: all before the first argument.
  std::string Model;
};

/// A training loop that every process runs in full, where the program shares
/// something else, or shares out the calls of models in it.
struct WholeLoopFact {
  bool InParts = false;
  std::vector<BackwardFact> Backwards;
  std::vector<Finding> Why; ///< Why it is not shared: refusals.
  Finding Note;
};

/// A tensor that differs between processes and whose value the program wants.
struct MetricReadFact {
  FunctionId In = 0;
  TextRange Object;
  Placement Value = Placement::MeanOfRows;
  /// Behind the loop: of its last batch.
  bool LastBatch = false;
};

/// Variables to be gathered or split at a place.
struct BatchVariablesFact {
  FunctionId In = 0;
  std::vector<std::string> Variables;
  LinePoint At;
};

/// Variables of a batch that are split into variables of their own at a place,
/// and where these are used from there on: the number of the variable, and its
/// name in the text.
struct BatchPartsFact {
  FunctionId In = 0;
  std::vector<std::string> Variables;
  LinePoint At;
  std::vector<std::pair<unsigned, TextRange>> Uses;
};

/// A state that is kept from batch to batch, to be split before the loop.
struct StateFact {
  FunctionId In = 0;
  std::string Variable;
  unsigned Dim = 0; ///< The dimension of the samples.
  LinePoint At;
};

/// `x.size(0)` used as a number: `Object` is x, `Tail` from the dot to the end.
struct BatchSizeFact {
  FunctionId In = 0;
  TextRange Object;
  TextRange Tail;
};

struct PrintFact {
  enum KindTy {
    Cout,     ///< The name std::cout.
    Cerr,     ///< The name std::cerr or std::clog, for a message that is no
              ///< farewell.
    Printf,   ///< The name printf.
    Puts,     ///< From the name puts to before its argument.
    Putchar,  ///< From the name putchar to before its argument.
    FprintfStdout, ///< From the name fprintf to before the format.
    Vprintf,       ///< From the name vprintf to before the format.
    FmtPrint,      ///< Before the first argument of fmt::print and its like.
    CStdout,       ///< The name stdout, given to one of C's functions.
  };
  FunctionId In = 0;
  KindTy Kind = Cout;
  TextRange Range;
};

/// `torch::save(x, path)`: `Callee` is the name.
struct SaveFact {
  FunctionId In = 0;
  TextRange Callee;
  /// Behind the statement.
  LinePoint After;
  /// Whether the program reads a file again.
  bool ReadLater = false;
};

/// Something that differs between processes and must not.
struct BroadcastFact {
  enum KindTy {
    Seed,     ///< A number that seeds a generator.
    Decision, ///< A condition that is a number.
    Truth,    ///< A condition that is something else.
    Key,      ///< A call that waits for a key.
  };
  FunctionId In = 0;
  KindTy Kind = Seed;
  TextRange Range;
};

/// A statement that only the main process runs.
struct GuardFact {
  FunctionId In = 0;
  TextRange Range;
  /// The callee and the parenthesis behind it, where arguments may be
  /// calculated first: on all processes.
  std::optional<TextRange> Callee, Open;
};

/// All facts of a translation unit. The vectors are in the order of the text.
struct TrainingProgram {
  bool HasTraining = false;
  bool AlreadyMigrated = false;
  std::vector<FunctionFact> Functions;
  std::vector<OptimizerFact> Optimizers;
  std::vector<OptimizerTypeFact> OptimizerTypes;
  std::vector<SchedulerFact> Schedulers;
  std::vector<Spelled> Loaders; ///< The name torch::data::make_data_loader.
  std::vector<DeviceFact> Devices;
  std::vector<TrainingLoopFact> TrainingLoops;
  std::vector<LeftLoopFact> LeftLoops;
  std::vector<BackwardFact> Backwards;
  std::vector<WholeLoopFact> WholeLoops;
  std::vector<MetricReadFact> MetricReads;
  std::vector<BatchVariablesFact> Gathers;
  std::vector<BatchVariablesFact> Shards;
  std::vector<BatchPartsFact> Parts;
  std::vector<Spelled> InlineShards; ///< Whole batches, to be split in place.
  std::vector<StateFact> States;
  std::vector<BatchSizeFact> BatchSizes;
  std::vector<BatchSizeFact> Squeezes; ///< x.squeeze() on rows.
  /// Sizes of the whole batch in shapes of this process's part.
  std::vector<Spelled> LocalSizes;
  /// Calls of models in batch loops on tensors that every process has in full.
  std::vector<Spelled> Replicated;
  std::vector<ParallelCallFact> Parallel;
  /// Models of TorchScript, in front of `.forward`, that are given rows.
  std::vector<Spelled> Scripted;
  std::vector<Spelled> NormClips;  ///< The name clip_grad_norm_.
  std::vector<Spelled> ValueClips; ///< The name clip_grad_value_.
  std::vector<PrintFact> Prints;
  std::vector<SaveFact> Saves;
  /// Functions of the person's that are used and have no body here.
  std::vector<MissingFunction> Missing;
  std::vector<BroadcastFact> Broadcasts;
  std::vector<Spelled> Paths; ///< Paths of files that are opened to be written.
  /// Paths of files that are read, and that the program may have written.
  std::vector<Spelled> ReadPaths;
  std::vector<Spelled> Commands; ///< Of popen(command, "w").
  std::vector<GuardFact> Guards;
  /// What was seen and stops the migration, or should be known.
  std::vector<Finding> Findings;
};

/// One line for each fact; two instantiations of a template agree when their
/// facts print alike.
void printFacts(const TrainingProgram &Program, llvm::raw_ostream &OS);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_TRAININGPROGRAM_H
