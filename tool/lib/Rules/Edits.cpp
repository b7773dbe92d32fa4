//===- Edits.cpp - The simple rules ---------------------------------------===//
//
// What they change and how is said in Edits.def.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

#include "accel/migrate/Templates.h"

using namespace accel::migrate;

namespace {
enum class Form { Becomes, Around, Top, Gone };

/// A row of Edits.def.
struct Edit {
  Form How;
  llvm::StringLiteral Template;
  const char *Why;
};
} // namespace

static constexpr Edit Edits[] = {
#define ACCEL_EDIT(Kind, Rule, How, Template, Why) {Form::How, Template, Why},
#include "accel/migrate/Edits.def"
};

void accel::migrate::applyEdits(RuleContext &Context) {
  for (const EditFact &Fact : Context.Program.Edits) {
    if (ruleOf(Fact.Kind) != Context.running())
      continue;
    const Edit &E = Edits[static_cast<size_t>(Fact.Kind)];
    if (E.How == Form::Gone) {
      Context.remove(Fact.Range, E.Why);
      continue;
    }
    std::string Accelerator;
    if (hasPlaceholder(E.Template, "accelerator"))
      Accelerator = Fact.InMacro ? Context.inlineAccelerator()
                                 : Context.accelerator(Fact.In, Fact.Range);
    const std::pair<llvm::StringRef, llvm::StringRef> With[] = {
        {"accelerator", Accelerator}, {"value", Fact.Value}};
    if (E.How == Form::Becomes)
      Context.replace(Fact.Range, E.Template, With, E.Why);
    else if (E.How == Form::Around)
      Context.wrap(Fact.Range, nullptr, E.Template, With, E.Why);
    else
      Context.insertLine(Context.Program.Functions[Fact.In].Top, E.Template, With,
                         E.Why, /*Priority=*/-90);
  }
}
