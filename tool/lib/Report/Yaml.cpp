//===- Yaml.cpp - The record as clang-apply-replacements takes it ---------===//
//
// The format of `clang-tidy --export-fixes`, which carries the reasons beside
// the replacements. It is Clang's, so Clang's own traits write it: the one
// place in Report that includes a header of Clang's, of its text-only part.
//
//===----------------------------------------------------------------------===//

#include "accel/migrate/Report.h"

#include "clang/Tooling/DiagnosticsYaml.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"

using namespace llvm;
using clang::tooling::Diagnostic;

namespace accel::migrate {

static Diagnostic diagnosticOf(StringRef Name, StringRef Message,
                               const TextRange &Range,
                               Diagnostic::Level Level, StringRef Directory) {
  Diagnostic D(Name, Level, Directory);
  D.Message.Message = Message.str();
  D.Message.FilePath = Range.File;
  D.Message.FileOffset = Range.Offset;
  return D;
}

static Diagnostic::Level levelOf(Severity Level) {
  switch (Level) {
  case Severity::Note:
    return Diagnostic::Remark;
  case Severity::Warning:
    return Diagnostic::Warning;
  case Severity::Refusal:
    return Diagnostic::Error;
  }
  llvm_unreachable("a severity without a level");
}

void printYaml(raw_ostream &OS, const RunRecord &Record) {
  SmallString<256> Directory;
  sys::fs::current_path(Directory);
  clang::tooling::TranslationUnitDiagnostics Document;
  if (!Record.Units.empty())
    Document.MainSourceFile = Record.Units.front().File;
  for (const Finding &F : Record.Findings)
    Document.Diagnostics.push_back(diagnosticOf(
        F.Id, F.Remedy.empty() ? F.Message : F.Message + ". " + F.Remedy,
        F.Range, levelOf(F.Level), Directory));
  for (const EditGroup &Group : Record.Groups)
    for (const FileEdit &File : Group.Files)
      for (const Change &C : separateChanges(File)) {
        Diagnostic D = diagnosticOf("accel-" + C.Rule, C.Why, C.Range,
                                    Diagnostic::Remark, Directory);
        cantFail(D.Message.Fix[File.File].add(clang::tooling::Replacement(
            File.File, C.Range.Offset, C.Range.Length, C.Replacement)));
        Document.Diagnostics.push_back(std::move(D));
      }
  yaml::Output Out(OS, nullptr, /*WrapColumn=*/0);
  Out << Document;
}

} // namespace accel::migrate
