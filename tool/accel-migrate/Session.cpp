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
  Outcome outcomeOf(size_t Index, const EditGroup &Group) const;
  void makeRecord(std::vector<EditGroup> Groups);
  void tell();
  void emit(ArrayRef<FileEdit> Edits);
  Error write(ArrayRef<FileEdit> Edits);
  void print(ArrayRef<FileEdit> Edits);
  void summarize(size_t Changed, size_t Refused);
  void count(ParseTimes &Sum, const ParsedUnit &Unit);
  void printStats();

  void raise(ExitCode Code) {
    Record.ExitCode = std::max<int>(Record.ExitCode, Code);
  }
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
  /// How each unit was read.
  std::vector<ParsedUnit::Status> States;
  RunRecord Record;
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
  States.push_back(Parsed.State);
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

Outcome Session::outcomeOf(size_t Index, const EditGroup &Group) const {
  const UnitPlan &Unit = Units[Index];
  switch (States[Index]) {
  case ParsedUnit::Status::Rejected:
    return Outcome::DoesNotCompile;
  case ParsedUnit::Status::Crashed:
    return Outcome::Crashed;
  case ParsedUnit::Status::Parsed:
    break;
  }
  if (Group.Refused)
    return Outcome::Refused;
  if (Unit.ThePlan.AlreadyMigrated)
    return Outcome::AlreadyMigrated;
  if (!Unit.ThePlan.HasTraining)
    return Outcome::NoTraining;
  return any_of(Group.Files,
                [&](const FileEdit &Edit) { return Unit.Files.count(Edit.File); })
             ? Outcome::Migrated
             : Outcome::NothingToDo;
}

static bool isSame(const Finding &A, const Finding &B) {
  return A.Id == B.Id && A.Range.File == B.Range.File &&
         A.Range.Offset == B.Range.Offset && A.Message == B.Message;
}

/// Puts down what was found, by units and groups.
void Session::makeRecord(std::vector<EditGroup> Groups) {
  Record.Mode = Options.TheMode == SessionOptions::Diff    ? "diff"
                : Options.TheMode == SessionOptions::Check ? "check"
                : Options.TheMode == SessionOptions::Write ? "write"
                                                           : "tree";
  Record.MatchSingleDevice = Options.MatchSingleDevice;
  auto Add = [&](const Finding &F) {
    // Units that share a header say the same about it.
    if (none_of(Record.Findings,
                [&](const Finding &Known) { return isSame(F, Known); }))
      Record.Findings.push_back(F);
  };
  Record.Units.resize(Units.size());
  for (const EditGroup &Group : Groups) {
    for (size_t Unit : Group.Units) {
      Record.Units[Unit] = {Units[Unit].MainFile, outcomeOf(Unit, Group)};
      for_each(Units[Unit].ThePlan.Findings, Add);
    }
    for_each(Group.Problems, Add);
    if (Group.Refused)
      raise(ExitRefused);
  }
  for (const UnitPlan &Unit : Units)
    Record.Texts.insert(Unit.Files.begin(), Unit.Files.end());
  Record.Groups = std::move(Groups);
}

/// Says on the standard error what there is to say.
void Session::tell() {
  for (const Finding &F : Record.Findings)
    printFinding(F.Level == Severity::Refusal ? errs() : talk(), F,
                 Options.ColorErr);
  for (const UnitRecord &Unit : Record.Units) {
    StringRef What =
        Unit.Result == Outcome::AlreadyMigrated
            ? "already migrated, nothing to do"
        : Unit.Result == Outcome::NoTraining
            ? "no training code found: nothing here computes gradients or "
              "steps an optimizer"
        : Unit.Result == Outcome::NothingToDo ? "nothing to do"
                                              : "";
    if (!What.empty())
      talk() << displayPath(Unit.File) << ": " << What << '\n';
  }
}

Error Session::write(ArrayRef<FileEdit> Edits) {
  if (Options.TheMode == SessionOptions::Write)
    return writeInPlace(Edits, Options.StateDir);
  if (Options.TheMode != SessionOptions::Tree)
    return Error::success();
  std::vector<std::string> Files = Options.Files;
  for (const FileEdit &Edit : Edits)
    Files.push_back(Edit.File);
  return writeTree(Edits, commonFolder(Files), Options.OutRoot);
}

/// The product, on the standard output.
void Session::print(ArrayRef<FileEdit> Edits) {
  switch (Options.TheFormat) {
  case SessionOptions::Json:
    return printJson(outs(), Record);
  case SessionOptions::Sarif:
    return printSarif(outs(), Record);
  case SessionOptions::Yaml:
    return printYaml(outs(), Record);
  case SessionOptions::Text:
    break;
  }
  for (const FileEdit &Edit : Edits)
    if (Options.TheMode == SessionOptions::Diff)
      printDiff(outs(), Edit, Options.ColorOut);
    else if (Options.TheMode == SessionOptions::Check)
      outs() << displayPath(Edit.File) << '\n';
}

void Session::emit(ArrayRef<FileEdit> Edits) {
  double Before = seconds();
  if (Options.TheMode == SessionOptions::Check && !Edits.empty())
    raise(ExitRefused);
  auto Fail = [&](Error E) {
    errs() << "accel-migrate: error: " << toString(std::move(E)) << '\n';
    raise(ExitInternal);
  };
  if (Error E = write(Edits))
    Fail(std::move(E));
  print(Edits);
  outs().flush();
  if (outs().has_error()) {
    std::error_code Code = outs().error();
    outs().clear_error();
    Fail(createStringError(Code, "standard output: " + Code.message()));
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

  for (EditGroup &Group : Groups)
    verify(Group);
  makeRecord(std::move(Groups));
  tell();

  std::vector<FileEdit> Edits;
  size_t Changed = 0, Refused = 0;
  for (const EditGroup &Group : Record.Groups) {
    if (Group.Refused)
      Refused += Group.Units.size();
    for (size_t Unit : Group.Units)
      Changed += any_of(Group.Files, [&](const FileEdit &Edit) {
        return Edit.File == Units[Unit].MainFile;
      });
    append_range(Edits, Group.Files);
  }
  emit(Edits);
  summarize(Record.ExitCode == ExitInternal ? 0 : Changed, Refused);
  if (Options.Stats)
    printStats();
  return Record.ExitCode;
}

int runSession(SessionOptions Options) {
  return Session(std::move(Options)).run();
}

} // namespace accel::migrate
