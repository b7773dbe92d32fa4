//===- Full.cpp - Memory of tensors ---------------------------------------===//
//
// What reads memory is given the whole tensor.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

using namespace accel::migrate;

/// A name for the whole of `Variable`: its last word.
static std::string stemOf(llvm::StringRef Variable) {
  const auto IsWord = [](char C) { return llvm::isAlnum(C) || C == '_'; };
  while (!Variable.empty()) {
    size_t Begin = Variable.size();
    while (Begin > 0 && IsWord(Variable[Begin - 1]))
      --Begin;
    const llvm::StringRef Word = Variable.drop_front(Begin);
    // list[0] is no 0.
    if (!Word.empty() && !llvm::isDigit(Word.front()))
      return Word.str();
    Variable = Variable.drop_back(std::max<size_t>(Word.size(), 1));
  }
  return "tensor";
}

namespace {
/// The names of the tensors that are declared: of two variables with one last word, as
/// `first->bias` and `last->bias`, each has its own.
class WholeNames {
public:
  explicit WholeNames(const RuleContext &Context) : Context(Context) {}

  std::string of(FunctionId In, const std::string &Variable) {
    std::string &Name = Names[{In, Variable}];
    if (!Name.empty())
      return Name;
    const std::string Stem = stemOf(Variable);
    for (unsigned Number = 1; Name.empty(); ++Number) {
      const std::string Last =
          Number == 1 ? Stem : Stem + "_" + std::to_string(Number);
      const std::string Free =
          Context.freeName(In, {"whole_" + Last, "all_of_" + Last});
      if (Given.insert({In, Free}).second)
        Name = Free;
    }
    return Name;
  }

private:
  const RuleContext &Context;
  std::map<std::pair<FunctionId, std::string>, std::string> Names;
  std::set<std::pair<FunctionId, std::string>> Given;
};
} // namespace

void accel::migrate::applyFull(RuleContext &Context) {
  const char *Why = "memory is read here, of the tensor that one device has";
  std::set<std::tuple<std::string, unsigned, unsigned, std::string>> Declared;
  WholeNames Names(Context);
  for (const MemoryFact &Memory : Context.Program.Memory) {
    const std::string Full = Memory.IsWritten ? "full_" : "full";
    // p->data_ptr() becomes whole_p.data_ptr(), or full(*p).data_ptr().
    const bool IsNamed = !Memory.At.At.File.empty() && !Memory.IsConst;
    if (Memory.Arrow && !IsNamed)
      Context.replace(*Memory.Arrow, "full-dot", {}, Why);
    if (Memory.Variable.empty()) {
      Context.wrap(Memory.Object, nullptr,
                   Memory.WantsName ? "full-lvalue" : "full",
                   {{"accelerator", Context.accelerator(Memory.In, Memory.Object)},
                    {"full", Full},
                    {"star", Memory.Arrow ? "*" : ""}},
                   Why);
      continue;
    }
    if (Memory.At.At.File.empty()) {
      Context.wrap(
          Memory.Object, nullptr, "full-assign-here",
          {{"accelerator", Context.accelerator(Memory.In, Memory.Object)},
           {"full", Full},
           {"star", Memory.Arrow ? "*" : ""},
           {"variable", Memory.Variable}},
          Why);
      continue;
    }
    const std::string Whole =
        Memory.IsConst ? Names.of(Memory.In, Memory.Variable) : Memory.Variable;
    if (Declared
            .insert({Memory.At.At.File, Memory.At.At.Offset, Memory.At.At.Use,
                     Memory.Variable})
            .second)
      Context.insertLine(Memory.At,
                         Memory.IsConst ? "full-declare" : "full-assign",
                         {{"whole", Whole},
                          {"variable", Memory.Variable},
                          {"full", Full},
                          {"accelerator",
                           Context.accelerator(Memory.In, Memory.At.At)}},
                         Why);
    if (Memory.IsConst)
      Context.replace(Memory.Object, "full-use", {{"whole", Whole}}, Why);
  }
}
