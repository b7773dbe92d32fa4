//===- Full.cpp - Memory of tensors ---------------------------------------===//
//
// What reads memory is given the whole tensor.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

#include <set>
#include <tuple>

using namespace accel::migrate;

/// A name for the whole of `Variable`: its last word.
static std::string stemOf(llvm::StringRef Variable) {
  static constexpr char Letters[] = "abcdefghijklmnopqrstuvwxyz"
                                    "ABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  static constexpr char Digits[] = "0123456789";
  // list[0] is no 0.
  const size_t End = Variable.find_last_of(Letters);
  if (End == llvm::StringRef::npos)
    return "tensor";
  const size_t Behind =
      Variable.find_first_not_of(std::string(Letters) + Digits, End);
  Variable = Variable.take_front(Behind);
  const size_t Last =
      Variable.find_last_not_of(std::string(Letters) + Digits);
  return Variable.substr(Last == llvm::StringRef::npos ? 0 : Last + 1).str();
}

void accel::migrate::applyFull(RuleContext &Context) {
  const char *Why = "memory is read here, of the tensor that one device has";
  std::set<std::tuple<std::string, unsigned, std::string>> Declared;
  for (const MemoryFact &Memory : Context.Program.Memory) {
    const std::string Accelerator = Context.accelerator(Memory.In);
    if (Memory.Variable.empty()) {
      Context.wrap(Memory.Object, nullptr, "full", {{"accelerator", Accelerator}},
                   Why);
      continue;
    }
    if (Memory.At.At.File.empty()) {
      Context.wrap(
          Memory.Object, nullptr, "full-assign-here",
          {{"accelerator", Accelerator}, {"variable", Memory.Variable}}, Why);
      continue;
    }
    const std::string Whole =
        Memory.IsConst
            ? Context.freeName(Memory.In, {"whole_" + stemOf(Memory.Variable),
                                           "all_of_" + stemOf(Memory.Variable)})
            : Memory.Variable;
    if (Declared
            .insert({Memory.At.At.File, Memory.At.At.Offset, Memory.Variable})
            .second)
      Context.insertLine(Memory.At,
                         Memory.IsConst ? "full-declare" : "full-assign",
                         {{"whole", Whole},
                          {"variable", Memory.Variable},
                          {"accelerator", Accelerator}},
                         Why);
    if (Memory.IsConst)
      Context.replace(Memory.Object, "full-use", {{"whole", Whole}}, Why);
  }
}
