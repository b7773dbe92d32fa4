//===- FirstError.cpp - The first thing that a compiler rejects -----------===//

#include "FirstError.h"

#include "clang/Basic/DiagnosticLex.h"
#include "clang/Basic/DiagnosticSerialization.h"
#include "clang/Basic/FileManager.h"

using namespace llvm;
using namespace clang;

namespace accel::migrate {

void FirstErrorConsumer::setPlace(const Diagnostic &Info) {
  const SourceManager &SM = Info.getSourceManager();
  SourceLocation Loc = SM.getExpansionLoc(Info.getLocation());
  auto [File, Offset] = SM.getDecomposedLoc(Loc);
  if (OptionalFileEntryRef Ref = SM.getFileEntryRefForID(File))
    Error.Place.File = SM.getFileManager().getCanonicalName(*Ref).str();
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
  if (Id == diag::err_pp_file_not_found)
    Error.MissingHeader = Info.getArgStdStr(0);
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
