//===- Session.cpp - One run of accel-migrate -----------------------------===//

#include "Session.h"

#include "accel/migrate/Findings.h"
#include "accel/migrate/Report.h"
#include "accel/migrate/Write.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <chrono>

using namespace llvm;

namespace accel::migrate {

namespace {

class Session {
public:
  explicit Session(SessionOptions O) : Options(std::move(O)) {}

  int run();

private:
  bool resolveFiles();
  void analyse(const std::string &File);
  void verify(EditGroup &Group);
  bool verifyUnit(EditGroup &Group, size_t Unit, const TextOverlay &NewTexts);
  void report(const EditGroup &Group);
  void reportUnchanged(const UnitPlan &Unit);
  void emit(ArrayRef<FileEdit> Edits);
  void summarize(size_t Changed, size_t Refused);
  void count(ParseTimes &Sum, const ParsedUnit &Unit);
  void printStats();

  void raise(ExitCode Code) { Exit = std::max(Exit, Code); }
  raw_ostream &talk() { return Options.Quiet ? nulls() : errs(); }
  PlanOptions planOptions() {
    PlanOptions Result;
    Result.MatchSingleDevice = Options.MatchSingleDevice;
    Result.MayEdit = [this](const std::string &Path) {
      return TheFrontend->mayEdit(Path);
    };
    return Result;
  }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         Start)
        .count();
  }

  SessionOptions Options;
  std::chrono::steady_clock::time_point Start =
      std::chrono::steady_clock::now();
  std::unique_ptr<Frontend> TheFrontend;
  std::vector<UnitPlan> Units;
  ExitCode Exit = ExitDone;
  ParseTimes Analysis, Verification;
  double WriteSeconds = 0;
  unsigned Parses = 0, ParsesWithPrefix = 0;
};

} // namespace

/// Replaces names by real paths, each once. Says what is not a file.
bool Session::resolveFiles() {
  std::vector<std::string> Real;
  bool Good = true;
  for (const std::string &Name : Options.Files) {
    sys::fs::file_status Status;
    std::error_code Code = sys::fs::status(Name, Status);
    if (!Code && !sys::fs::is_regular_file(Status))
      Code = std::make_error_code(sys::fs::is_directory(Status)
                                      ? std::errc::is_a_directory
                                      : std::errc::invalid_argument);
    if (Code) {
      errs() << "accel-migrate: error: '" << Name << "': " << Code.message()
             << '\n';
      Good = false;
      continue;
    }
    std::string Path = realPath(Name);
    if (!is_contained(Real, Path))
      Real.push_back(std::move(Path));
  }
  Options.Files = std::move(Real);
  return Good;
}

void Session::count(ParseTimes &Sum, const ParsedUnit &Unit) {
  Sum.Precompile += Unit.Times.Precompile;
  Sum.Parse += Unit.Times.Parse;
  Sum.Callback += Unit.Times.Callback;
  ++Parses;
  ParsesWithPrefix += Unit.UsedPrefix;
}

void Session::analyse(const std::string &File) {
  UnitPlan Unit;
  Unit.MainFile = File;
  ParsedUnit Parsed = TheFrontend->parse(
      File, {}, [&](clang::ASTContext &Context, clang::Preprocessor &PP) {
        Unit.ThePlan = planMigration(Context, PP, planOptions());
      });
  count(Analysis, Parsed);
  if (Parsed.State != ParsedUnit::Status::Parsed) {
    raise(Parsed.State == ParsedUnit::Status::Crashed ? ExitInternal
                                                      : ExitDoesNotCompile);
    Unit.ThePlan = Plan();
    Unit.ThePlan.Findings.push_back(Parsed.Problem);
  }
  append_range(Unit.ThePlan.Findings, Parsed.Notes);
  Unit.Files = std::move(Parsed.UserFiles);
  Units.push_back(std::move(Unit));
}

/// The line of a text, without the blanks around it.
static StringRef lineOf(StringRef Text, unsigned Line) {
  for (; Line > 1; --Line)
    Text = Text.split('\n').second;
  return Text.split('\n').first.trim();
}

/// Parses a unit with the new texts in place (P3), and plans again: there must
/// be nothing left to do (P5).
bool Session::verifyUnit(EditGroup &Group, size_t Unit,
                         const TextOverlay &NewTexts) {
  const std::string &File = Units[Unit].MainFile;
  Plan Second;
  ParsedUnit Parsed = TheFrontend->parse(
      File, NewTexts, [&](clang::ASTContext &Context, clang::Preprocessor &PP) {
        Second = planMigration(Context, PP, planOptions());
      });
  count(Verification, Parsed);
  if (Parsed.State == ParsedUnit::Status::Crashed) {
    raise(ExitInternal);
    Group.Problems.push_back(Parsed.Problem);
    return false;
  }
  if (Parsed.State == ParsedUnit::Status::Rejected) {
    const Finding &Error = Parsed.Problem;
    std::string Message =
        "the migrated text would not compile: " + Error.Message;
    auto Text = NewTexts.find(Error.Range.File);
    if (Text != NewTexts.end() && Error.Line)
      Message += ", in '" + lineOf(Text->second, Error.Line).str() + "'";
    Group.Problems.push_back(makeFinding(
        "ACL0012", {File, 0, 0}, std::move(Message),
        "The file is left alone. Please report it, with the file if you can."));
    return false;
  }
  if (!Second.AlreadyMigrated && (!Second.Changes.empty() || Second.refused())) {
    std::string Rule = Second.Changes.empty() ? Second.Findings.front().Message
                                              : Second.Changes.front().Rule;
    Group.Problems.push_back(makeFinding(
        "ACL0013", {File, 0, 0},
        "a second run would not leave the migrated text alone (" + Rule + ")",
        "The file is left alone. Please report it, with the file if you can."));
    return false;
  }
  return true;
}

void Session::verify(EditGroup &Group) {
  if (Group.Refused || Group.Files.empty())
    return;
  TextOverlay NewTexts;
  for (const FileEdit &Edit : Group.Files)
    NewTexts[Edit.File] = Edit.After;
  for (size_t Unit : Group.Units)
    if (!verifyUnit(Group, Unit, NewTexts)) {
      Group.Refused = true;
      Group.Files.clear();
      return;
    }
}

void Session::reportUnchanged(const UnitPlan &Unit) {
  std::string Name = displayPath(Unit.MainFile);
  if (Unit.ThePlan.AlreadyMigrated)
    talk() << Name << ": already migrated, nothing to do\n";
  else if (!Unit.ThePlan.HasTraining)
    talk() << Name << ": no training code found: nothing here computes "
                      "gradients or steps an optimizer\n";
  else
    talk() << Name << ": nothing to do\n";
}

void Session::report(const EditGroup &Group) {
  auto Print = [&](const Finding &F) {
    raw_ostream &OS = F.Level == Severity::Refusal ? errs() : talk();
    printFinding(OS, F, Options.ColorErr);
  };
  for (size_t Unit : Group.Units) {
    const Plan &P = Units[Unit].ThePlan;
    for_each(P.Findings, Print);
    if (!Group.Refused && P.Changes.empty() && P.NeedInclude.empty())
      reportUnchanged(Units[Unit]);
  }
  for_each(Group.Problems, Print);
  if (Group.Refused)
    raise(ExitRefused);
}

void Session::emit(ArrayRef<FileEdit> Edits) {
  double Before = seconds();
  Error E = Error::success();
  switch (Options.TheMode) {
  case SessionOptions::Diff:
    for (const FileEdit &Edit : Edits)
      printDiff(outs(), Edit, Options.ColorOut);
    break;
  case SessionOptions::Check:
    for (const FileEdit &Edit : Edits)
      outs() << displayPath(Edit.File) << '\n';
    if (!Edits.empty())
      raise(ExitRefused);
    break;
  case SessionOptions::Write:
    E = writeInPlace(Edits, Options.StateDir);
    break;
  case SessionOptions::Tree: {
    std::vector<std::string> Files = Options.Files;
    for (const FileEdit &Edit : Edits)
      Files.push_back(Edit.File);
    E = writeTree(Edits, commonFolder(Files), Options.OutRoot);
    break;
  }
  }
  outs().flush();
  if (!E && outs().has_error()) {
    E = createStringError(outs().error(), "standard output: " +
                                              outs().error().message());
    outs().clear_error();
  }
  if (E) {
    errs() << "accel-migrate: error: " << toString(std::move(E)) << '\n';
    raise(ExitInternal);
  }
  WriteSeconds = seconds() - Before;
}

void Session::summarize(size_t Changed, size_t Refused) {
  bool Writes = Options.TheMode == SessionOptions::Write ||
                Options.TheMode == SessionOptions::Tree;
  raw_ostream &OS = talk();
  OS << Units.size() << (Units.size() == 1 ? " file: " : " files: ") << Changed
     << (Writes ? " changed, " : " to change, ") << Refused << " refused, "
     << format("%.1f s", seconds());
  if (Options.TheMode == SessionOptions::Diff && Changed)
    OS << " (nothing is written; --write or --out-root DIR does)";
  OS << '\n';
}

void Session::printStats() {
  errs() << formatv("precompile LibTorch {0,8:F2} s\n"
                    "parse               {1,8:F2} s\n"
                    "analyse             {2,8:F2} s\n"
                    "parse the result    {3,8:F2} s\n"
                    "analyse the result  {4,8:F2} s\n"
                    "show or write       {5,8:F2} s\n"
                    "all                 {6,8:F2} s\n"
                    "with LibTorch precompiled: {7} of {8} parses\n",
                    Analysis.Precompile + Verification.Precompile,
                    Analysis.Parse, Analysis.Callback, Verification.Parse,
                    Verification.Callback, WriteSeconds, seconds(),
                    ParsesWithPrefix, Parses);
}

int Session::run() {
  if (!resolveFiles())
    return ExitUsage;
  Options.Frontend.OnPrecompile = [this] {
    talk() << "precompiling LibTorch's headers for these flags; this is done "
              "once...\n";
  };
  Expected<std::unique_ptr<Frontend>> NewFrontend =
      Frontend::create(Options.Frontend);
  if (!NewFrontend) {
    errs() << "accel-migrate: error: " << toString(NewFrontend.takeError())
           << '\n';
    return ExitUsage;
  }
  TheFrontend = std::move(*NewFrontend);

  for (const std::string &File : Options.Files)
    analyse(File);
  std::vector<EditGroup> Groups = mergePlans(
      Units, [&](StringRef Path) { return TheFrontend->mayEdit(Path); });

  std::vector<FileEdit> Edits;
  size_t Changed = 0, Refused = 0;
  for (EditGroup &Group : Groups) {
    verify(Group);
    report(Group);
    if (Group.Refused)
      Refused += Group.Units.size();
    for (size_t Unit : Group.Units)
      Changed += any_of(Group.Files, [&](const FileEdit &Edit) {
        return Edit.File == Units[Unit].MainFile;
      });
    append_range(Edits, Group.Files);
  }
  emit(Edits);
  summarize(Exit == ExitInternal ? 0 : Changed, Refused);
  if (Options.Stats)
    printStats();
  return Exit;
}

int runSession(SessionOptions Options) {
  return Session(std::move(Options)).run();
}

} // namespace accel::migrate
