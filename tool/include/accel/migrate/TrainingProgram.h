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

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
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

/// What becomes of a piece of text, as Edits.def says.
enum class EditKind {
#define ACCEL_EDIT(Kind, Rule, Form, Template, Why) Kind,
#include "accel/migrate/Edits.def"
};

/// The rule that changes it.
constexpr const char *ruleOf(EditKind Kind) {
  constexpr const char *Rules[] = {
#define ACCEL_EDIT(Kind, Rule, Form, Template, Why) Rule,
#include "accel/migrate/Edits.def"
  };
  return Rules[static_cast<unsigned>(Kind)];
}

/// What one of the simple rules changes.
struct EditFact {
  EditKind Kind;
  FunctionId In = 0;
  TextRange Range = {};
  /// Of some kinds, what the new text has of the old one.
  std::string Value = {};
  /// It stands in the body of a macro, in no function of its own.
  bool InMacro = false;

  bool isOf(std::string_view Rule) const { return ruleOf(Kind) == Rule; }
};

/// What makes a buffer, which is to be placed like a batch.
struct BufferFact : Spelled {
  std::string Like;            ///< The batch's name.
  std::optional<unsigned> Dim; ///< Where it is not the batch's own dimension.
};

/// `torch::optim::SGD optimizer(model->parameters(), …)`.
struct OptimizerFact {
  FunctionId In = 0;
  /// Where the type is spelled: in the declaration, in its initialiser, or
  /// both.
  std::vector<TextRange> TypeNames;
  /// How a function that takes a reference is given it, e.g. "*optimizer"; empty
  /// where it has no name here.
  std::string Object = {};
  /// The same for the models that it trains, as far as they are seen.
  std::vector<std::string> Models = {};
  /// Offset of the block that the declaration stands in, and the number of
  /// trainings in it that come before.
  unsigned Block = 0;
  unsigned Trainings = 0;
  /// Behind the last of: this declaration, a model's, `model->to(device)`.
  LinePoint SetUp = {};

  /// Otherwise only types change: somebody else holds it.
  bool isPrepared() const { return !Object.empty() || !Models.empty(); }
};

/// `Schedule<decltype(optimizer)>`, of a class template of the program.
struct OptimizerTypeFact {
  FunctionId In = 0;
  TextRange Range;
  std::string Class; ///< What it is without the rewriter.
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

/// Variables that become whole, or are shared out, on a line of their own.
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

/// Behind files that data sets read, and before folders that are asked for.
struct FileWaitFact {
  FunctionId In = 0;
  LinePoint At;
  const char *Why = "";
  /// Of a branch that has no braces: behind its statement.
  std::optional<LinePoint> Close;
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
  std::vector<EditFact> Edits;
  std::vector<OptimizerFact> Optimizers;
  std::vector<OptimizerTypeFact> OptimizerTypes;
  /// A data set of theirs draws numbers of the host: all processes have to draw
  /// them all.
  bool LoadsWholeBatches = false;
  std::vector<TrainingLoopFact> TrainingLoops;
  std::vector<BackwardFact> Backwards;
  std::vector<BufferFact> Buffers;
  std::vector<VariablesFact> Distributed;
  std::vector<VariablesFact> Gathers;
  std::vector<MemoryFact> Memory;
  std::vector<SaveFact> Saves;
  std::vector<ArchiveFact> Archives; ///< That are written to files, or streams.
  /// Functions of the person's that are used and have no body here.
  std::vector<MissingFunction> Missing;
  std::vector<GuardFact> Guards;
  std::vector<FileWaitFact> FileWaits;
  /// What was seen and stops the migration, or should be known.
  std::vector<Finding> Findings;

  /// Whether one of the simple rules has something to change.
  bool hasEdits(std::string_view Rule) const {
    return std::any_of(Edits.begin(), Edits.end(),
                       [&](const EditFact &E) { return E.isOf(Rule); });
  }
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_TRAININGPROGRAM_H
