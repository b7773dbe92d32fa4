//===- Rule.h - From facts to changes ---------------------------*- C++ -*-===//
//
// A rule turns the facts of one subject into changes. It is rows in Edits.def, or a
// source in lib/Rules where there is something to decide; one row in Rules.def, one
// page in docs/rules and one test in test/migrate/rules. Rules do not see the AST,
// and do not see each other.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_RULE_H
#define ACCEL_MIGRATE_RULE_H

#include "accel/migrate/Planner.h"
#include "accel/migrate/TrainingProgram.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace accel::migrate {

/// What a rule reads, and where its changes go.
class RuleContext {
public:
  RuleContext(const TrainingProgram &Program, const PlanOptions &Options)
      : Program(Program), Options(Options) {}

  const TrainingProgram &Program;
  const PlanOptions &Options;

  /// How code in this function names the accelerator. Asking for it makes the
  /// accelerator rule declare it there.
  std::string accelerator(FunctionId In);
  /// The same for what is put at `At`, which may be in the text of a macro: that is
  /// used in more functions than this one.
  std::string accelerator(FunctionId In, const TextRange &At);
  /// The accelerator where no line can declare a name for it.
  std::string inlineAccelerator() const;

  /// The options that the accelerator is made with, as they are written.
  std::string acceleratorOptions() const;

  /// `Wanted`, or a name like it that nothing in the function has.
  std::string freeName(FunctionId In,
                       llvm::ArrayRef<std::string> Wanted) const;

  /// The functions that asked, with the name that they were given.
  const std::map<FunctionId, std::string> &acceleratorNames() const {
    return Names;
  }

  /// The rule that is running; stands in its changes.
  void begin(llvm::StringRef Name) { Running = Name; }
  llvm::StringRef running() const { return Running; }

  using Values = llvm::ArrayRef<std::pair<llvm::StringRef, llvm::StringRef>>;

  /// The text `Range` becomes the template `Text`.
  void replace(const TextRange &Range, llvm::StringRef Text, Values With,
               std::string Why, int Priority = 0);
  /// A line made of the template `Text` is put at `Point`.
  void insertLine(const LinePoint &Point, llvm::StringRef Text, Values With,
                  std::string Why, int Priority = 0);
  /// The template is written around what stands in `Object`, which other rules
  /// may change too: its part before `{{object}}` goes before, its part behind
  /// replaces `Tail`, or goes behind the object where there is no tail.
  void wrap(const TextRange &Object, const TextRange *Tail, llvm::StringRef Text,
            Values With, std::string Why);
  /// Braces around the statement of a body that has none, where no line is put at
  /// one of its ends.
  void openBraces(const BodyPoint &Body, std::string Why);
  void closeBraces(const LinePoint &Close, std::string Why);
  /// The text `Range` is taken out.
  void remove(const TextRange &Range, std::string Why);

  std::vector<Change> Changes;

private:
  void add(const TextRange &Range, std::string Replacement, std::string Why,
           int Priority);

  std::map<FunctionId, std::string> Names;
  std::string Running;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_RULE_H
