//===- MacroChanges.cpp - Changes in the text of macros -------------------===//
//
// A macro has one text for all of its uses. What changes in it has to be right at each
// of them, which it is where each leads to the same changes.
//
//===----------------------------------------------------------------------===//

#include "MacroChanges.h"

#include "accel/migrate/Findings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Path.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace accel::migrate;
using llvm::StringRef;

namespace {
/// What one use wants: places, texts and the order of insertions, sorted.
using Wish = std::vector<std::tuple<unsigned, unsigned, int, std::string>>;
/// A macro: where its text begins.
using Place = std::pair<std::string, unsigned>;
} // namespace

static Place placeOf(const UsedMacro &Use) {
  return {Use.Text.File, Use.Text.Offset};
}

/// Output is changed in a macro for all who use it, whoever they are.
static bool isForAll(const Change &C) { return C.Rule == "print" && !C.Range.Use; }

std::vector<UsedMacro>
accel::migrate::keptMacros(llvm::ArrayRef<Change> Changes,
                           llvm::ArrayRef<UsedMacro> Uses) {
  std::map<Place, UsedMacro> Kept;
  for (const UsedMacro &Use : Uses)
    if (llvm::none_of(Changes, [&](const Change &C) {
          return !isForAll(C) && C.Range.isIn(Use.Text);
        }))
      Kept.try_emplace(placeOf(Use), Use);
  std::vector<UsedMacro> Result;
  for (auto &[At, Use] : Kept)
    Result.push_back(std::move(Use));
  return Result;
}

static Finding refusal(const UsedMacro &Use, std::string Why) {
  Finding F = makeFinding("ACL0102", Use.At, std::move(Why),
                          "Write the call out instead of using the macro, or give "
                          "what differs a macro of its own.");
  F.Line = Use.Line;
  F.Column = Use.Column;
  return F;
}

static std::string nameOf(const UsedMacro &Use) {
  return llvm::sys::path::filename(Use.At.File).str() + ":" +
         std::to_string(Use.Line);
}

/// Whether a change names a parameter of the macro, which then stands for something
/// else. What it keeps of the text may.
static bool namesParameter(const Change &C, const UsedMacro &Use) {
  const StringRef Kept =
      StringRef(Use.Words).substr(C.Range.Offset - Use.Text.Offset, C.Range.Length);
  StringRef Text = C.Replacement;
  while (!Text.empty()) {
    const StringRef Word =
        Text.take_while([](char C) { return llvm::isAlnum(C) || C == '_'; });
    if (llvm::is_contained(Use.Parameters, Word) && !Kept.contains(Word))
      return true;
    Text = Text.drop_front(std::max<size_t>(Word.size(), 1));
  }
  return false;
}

/// A macro's text is one line: those that are added are continued.
static std::string continued(StringRef Text) {
  std::string Result;
  for (size_t I = 0; I < Text.size(); ++I) {
    const bool Breaks =
        Text[I] == '\n' || Text.substr(I).starts_with("\r\n");
    if (Breaks && !StringRef(Result).ends_with("\r"))
      Result += " \\";
    Result += Text[I];
  }
  return Result;
}

void accel::migrate::mergeMacroChanges(Plan &ThePlan,
                                       llvm::ArrayRef<UsedMacro> Uses) {
  std::vector<Wish> Wishes(Uses.size());
  std::vector<bool> IsChanged(Uses.size());
  for (const Change &C : ThePlan.Changes) {
    if (!C.Range.Use)
      continue;
    const unsigned I = C.Range.Use - 1;
    Wishes[I].emplace_back(C.Range.Offset, C.Range.Length, C.Priority,
                           C.Replacement);
    IsChanged[I] = true;
  }
  std::map<Place, unsigned> First; ///< Of each macro a use that changes it.
  for (unsigned I = 0; I < Uses.size(); ++I) {
    llvm::sort(Wishes[I]);
    if (IsChanged[I])
      First.try_emplace(placeOf(Uses[I]), I);
  }
  for (unsigned I = 0; I < Uses.size(); ++I) {
    const auto It = First.find(placeOf(Uses[I]));
    if (It == First.end() || Wishes[I] == Wishes[It->second])
      continue;
    const UsedMacro &Other = Uses[It->second];
    ThePlan.Findings.push_back(refusal(
        Other, "what must change here is written by the macro " + Other.Macro +
                   ", which is used at " + nameOf(Uses[I]) + ", too, where " +
                   (IsChanged[I] ? "something else has to change in it"
                                 : "nothing has to change in it")));
    return;
  }
  for (const Change &C : ThePlan.Changes) {
    const auto In = llvm::find_if(
        Uses, [&](const UsedMacro &Use) { return C.Range.isIn(Use.Text); });
    if (isForAll(C) || In == Uses.end())
      continue;
    const UsedMacro &Use = C.Range.Use ? Uses[C.Range.Use - 1] : *In;
    const StringRef Text = C.Replacement;
    const char *Why = !C.Range.Use || Text.contains("//") || Text.contains('#')
                          ? "whose text cannot say it"
                      : namesParameter(C, Use)
                          ? "one of whose parameters has a name that is needed"
                          : nullptr;
    if (!Why)
      continue;
    ThePlan.Findings.push_back(
        refusal(Use, "what must change here is written by the macro " +
                         Use.Macro + ", " + Why));
    return;
  }
  llvm::erase_if(ThePlan.Changes, [&](const Change &C) {
    return C.Range.Use && First.at(placeOf(Uses[C.Range.Use - 1])) + 1 != C.Range.Use;
  });
  for (Change &C : ThePlan.Changes)
    if (C.Range.Use) {
      C.Replacement = continued(C.Replacement);
      C.Range.Use = 0;
    }
}
