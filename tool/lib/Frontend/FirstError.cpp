//===- FirstError.cpp - The first thing that a compiler rejects -----------===//

#include "FirstError.h"

#include "IncludeScan.h"

#include "clang/Basic/DiagnosticLex.h"
#include "clang/Basic/DiagnosticSerialization.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace clang;

namespace accel::migrate {

/// Whether the preprocessor comes to the end of `Text` whatever macros there are:
/// it ends within no #if but a header guard.
static bool endsUnconditionally(StringRef Text) {
  SmallVector<bool, 8> Guards; // For each #if that is open.
  StringRef Line, Rest, Guard;
  bool IsFirst = true;
  while (!Text.empty()) {
    std::tie(Line, Text) = Text.split('\n');
    const StringRef Word = directiveOf(Line, Rest);
    if (Word.empty())
      continue;
    if (Word == "if" || Word == "ifdef" || Word == "ifndef") {
      Guards.push_back(false);
      if (IsFirst && Word == "ifndef")
        Guard = Rest;
    } else if (Word == "endif") {
      if (!Guards.empty())
        Guards.pop_back();
    } else if (Word == "define" && Guards.size() == 1 && !Guard.empty() &&
               Rest == Guard) {
      Guards.front() = true;
    } else if (Word.starts_with("el") && !Guards.empty()) {
      Guards.back() = false;
    }
    if (Word != "ifndef" || !IsFirst)
      Guard = "";
    IsFirst = false;
  }
  return all_of(Guards, [](bool IsGuard) { return IsGuard; });
}

/// The same of an #include, and of those of the file that it stands in.
static bool isReachedAlways(SourceLocation Loc, const SourceManager &SM) {
  while (Loc.isValid()) {
    auto [File, Offset] = SM.getDecomposedExpansionLoc(Loc);
    if (!endsUnconditionally(SM.getBufferData(File).take_front(Offset)))
      return false;
    Loc = SM.getIncludeLoc(File);
  }
  return true;
}

void FirstErrorConsumer::setPlace(const Diagnostic &Info) {
  const SourceManager &SM = Info.getSourceManager();
  SourceLocation Loc = SM.getExpansionLoc(Info.getLocation());
  auto [File, Offset] = SM.getDecomposedLoc(Loc);
  if (StringRef Path = realPathOf(File, SM); !Path.empty())
    Error.Place.File = Path.str();
  Error.Place.Offset = Offset;
  Error.Line = SM.getLineNumber(File, Offset);
  Error.Column = SM.getColumnNumber(File, Offset);
}

void FirstErrorConsumer::HandleDiagnostic(DiagnosticsEngine::Level Level,
                                          const Diagnostic &Info) {
  DiagnosticConsumer::HandleDiagnostic(Level, Info);
  bool HasPlace = Info.getLocation().isValid() && Info.hasSourceManager();
  if (Level == DiagnosticsEngine::Note) {
    if (WantsUserPlace && HasPlace &&
        User.contains(Info.getLocation(), Info.getSourceManager())) {
      setPlace(Info);
      WantsUserPlace = false;
    }
    return;
  }
  if (Level < DiagnosticsEngine::Error)
    return;
  if (Error.happened()) {
    WantsUserPlace = false;
    return;
  }

  SmallString<256> Text;
  Info.FormatDiagnostic(Text);
  Error.Message = std::string(Text);
  unsigned Id = Info.getID();
  Error.IsPrefixProblem =
      Id >= diag::DIAG_START_SERIALIZATION && Id < diag::DIAG_START_LEX;
  // What is wrong nowhere in the text is wrong with the command.
  Error.IsCommandLine = !HasPlace && !Error.IsPrefixProblem;
  if (Id == diag::err_pp_file_not_found) {
    Error.MissingHeader = Info.getArgStdStr(0);
    Error.IsAlwaysMissing =
        HasPlace && isReachedAlways(Info.getLocation(), Info.getSourceManager());
  }
  StringRef Category = DiagnosticIDs::getCategoryNameFromID(
      DiagnosticIDs::getCategoryNumberForDiag(Id));
  Error.IsPlain =
      Category == "Parse Issue" || Category == "Lexical or Preprocessor Issue";
  if (HasPlace) {
    setPlace(Info);
    WantsUserPlace = !User.contains(Info.getLocation(), Info.getSourceManager());
  }
}

} // namespace accel::migrate
