//===- Session.cpp - One run of accel-migrate -----------------------------===//

#include "Session.h"

#include "Inputs.h"
#include "Parallel.h"
#include "Programs.h"

#include "accel/migrate/CMake.h"
#include "accel/migrate/Findings.h"
#include "accel/migrate/KeptText.h"
#include "accel/migrate/Report.h"
#include "accel/migrate/Write.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <chrono>
#include <iterator>
#include <mutex>
#include <set>

using namespace llvm;

namespace accel::migrate {

namespace {

class Session {
public:
  explicit Session(SessionOptions O)
      : Options(std::move(O)), Shown(Options.Quiet) {}

  int run();

private:
  Error checkOutputs() const;
  void analyse();
  void verify(EditGroup &Group);
  bool verifySources(EditGroup &Group, const UnitPlan &Unit,
                     const std::vector<std::string> &Sources,
                     const TextOverlay &NewTexts, UnitCallback OnUnit);
  bool verifyUnit(EditGroup &Group, const UnitPlan &Unit,
                  const TextOverlay &NewTexts);
  bool verifyReaders(EditGroup &Group, const UnitPlan &Unit,
                     const TextOverlay &NewTexts);
  Outcome outcomeOf(size_t Index, const EditGroup &Group) const;
  void makeRecord(std::vector<EditGroup> Groups);
  void noteOtherReaders(const EditGroup &Group, function_ref<void(Finding)> Add);
  void linkWithCMake();
  void tell();
  void emit(ArrayRef<FileEdit> Edits);
  Error write(ArrayRef<FileEdit> Edits);
  Expected<bool> isTheOriginal(ArrayRef<FileEdit> Edits);
  void print(ArrayRef<FileEdit> Edits);
  void flushOutput();
  void summarize(size_t All, size_t Changed, size_t Refused);
  void count(ParseTimes &Sum, const ParsedUnit &Unit);
  void printStats();

  void raise(ExitCode Code) {
    std::lock_guard<std::mutex> Guard(Mutex);
    Record.ExitCode = std::max<int>(Record.ExitCode, Code);
  }
  void fail(Error E) {
    errs() << "accel-migrate: error: " << toString(std::move(E)) << '\n';
    raise(ExitInternal);
  }
  raw_ostream &talk() { return Options.Quiet ? nulls() : errs(); }
  PlanOptions planOptions(PlanOptions::LintTy Lint = PlanOptions::None) {
    PlanOptions Result;
    Result.Lint = Options.TheMode == SessionOptions::Lint ? PlanOptions::Only
                                                          : Lint;
    Result.MatchSingleDevice = Options.MatchSingleDevice;
    return Result;
  }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         Start)
        .count();
  }

  SessionOptions Options;
  Progress Shown;
  std::chrono::steady_clock::time_point Start =
      std::chrono::steady_clock::now();
  std::unique_ptr<Frontend> TheFrontend;
  std::unique_ptr<Programs> ThePrograms;
  std::vector<UnitPlan> Units;
  RunRecord Record;
  /// Explaining a line of a migrated file: what it was made from.
  TextOverlay Originals;
  /// For what several threads add to: the exit code and the times.
  std::mutex Mutex;
  ParseTimes Analysis, Verification;
  double WriteSeconds = 0;
  bool WriteFailed = false;
  unsigned Parses = 0, ParsesWithPrefix = 0, ParsesWithAccel = 0;
};

} // namespace

Error Session::checkOutputs() const {
  if (!Options.ReportFile.empty())
    if (Error E = checkOutput(Options.ReportFile))
      return E;
  if (Options.TheMode != SessionOptions::Tree ||
      !sys::fs::exists(Options.OutRoot) ||
      sys::fs::is_directory(Options.OutRoot))
    return Error::success();
  std::error_code Code = std::make_error_code(std::errc::not_a_directory);
  return createStringError(Code,
                           "'" + Options.OutRoot + "': " + Code.message());
}

void Session::count(ParseTimes &Sum, const ParsedUnit &Unit) {
  std::lock_guard<std::mutex> Guard(Mutex);
  Sum.Precompile += Unit.Times.Precompile;
  Sum.Parse += Unit.Times.Parse;
  Sum.Callback += Unit.Times.Callback;
  ++Parses;
  ParsesWithPrefix += Unit.UsedPrefix;
  ParsesWithAccel += Unit.UsedAccelPrefix;
}

void Session::analyse() {
  ThePrograms = std::make_unique<Programs>(
      *TheFrontend, planOptions(), Originals,
      [this](const ParsedUnit &Parsed) { count(Analysis, Parsed); });
  Units = ThePrograms->plan(Options.Files, Options.Jobs, Shown);
  for (const UnitPlan &Unit : Units) {
    const ParsedUnit::Status State = ThePrograms->stateOf(Unit);
    if (State != ParsedUnit::Status::Parsed)
      raise(State == ParsedUnit::Status::Crashed ? ExitInternal
                                                 : ExitDoesNotCompile);
  }
}

/// The line of a text, without the blanks around it.
static StringRef lineOf(StringRef Text, unsigned Line) {
  for (; Line > 1; --Line)
    Text = Text.split('\n').second;
  return Text.split('\n').first.trim();
}

/// Parses sources with the new texts in place (P3).
bool Session::verifySources(EditGroup &Group, const UnitPlan &Unit,
                            const std::vector<std::string> &Sources,
                            const TextOverlay &NewTexts, UnitCallback OnUnit) {
  ParsedUnit Parsed =
      TheFrontend->parse(Unit.MainFile, Sources, NewTexts,
                         Thoroughness::Result, OnUnit);
  count(Verification, Parsed);
  if (Parsed.State == ParsedUnit::Status::Crashed) {
    raise(ExitInternal);
    Group.Problems.push_back(Parsed.Problem);
    return false;
  }
  if (Parsed.State == ParsedUnit::Status::Rejected) {
    // The original was not read to the last template.
    if (std::optional<Finding> Problem = ThePrograms->recheck(Unit, Sources)) {
      raise(ThePrograms->stateOf(Unit) == ParsedUnit::Status::Crashed
                ? ExitInternal
                : ExitDoesNotCompile);
      Group.Problems.push_back(std::move(*Problem));
      return false;
    }
    const Finding &Error = Parsed.Problem;
    std::string Message =
        "the migrated text would not compile: " + Error.Message;
    auto Text = NewTexts.find(Error.Range.File);
    if (Text != NewTexts.end() && Error.Line)
      Message += ", in '" + lineOf(Text->second, Error.Line).str() + "'";
    Group.Problems.push_back(makeFinding(
        "ACL0012", {Sources.size() == 1 ? Sources.front() : Unit.MainFile, 0, 0},
        std::move(Message),
        "The file is left alone. Please report it, with the file if you can."));
    return false;
  }
  return true;
}

/// Parses a unit again, together and then each of its sources that reads
/// something new by itself, and plans again: there must be nothing left to do
/// (P5).
bool Session::verifyUnit(EditGroup &Group, const UnitPlan &Unit,
                         const TextOverlay &NewTexts) {
  UnitPlan Again;
  if (!verifySources(Group, Unit, Unit.Sources, NewTexts,
                     [&](clang::ASTContext &Context) {
                       PlanOptions OfUnit = planOptions(PlanOptions::Output);
                       OfUnit.MayEdit = [&](const std::string &Path) {
                         return TheFrontend->mayEdit(Path, Unit.MainFile);
                       };
                       Again.ThePlan = planMigration(Context, OfUnit);
                     }))
    return false;
  Again.Files = Unit.Files;
  for (const auto &[File, Text] : NewTexts)
    Again.Files[File] = Text;
  respectMarkers(Again);
  const Plan &Second = Again.ThePlan;
  if (Second.AlreadyMigrated && !Second.Findings.empty()) {
    const Finding &First = Second.Findings.front();
    auto Text = NewTexts.find(First.Range.File);
    Group.Problems.push_back(makeFinding(
        "ACL0016", {Unit.MainFile, 0, 0},
        "the migrated text would leave processes apart (" + First.Id + "): " +
            First.Message +
            (Text != NewTexts.end() && First.Line
                 ? ", in '" + lineOf(Text->second, First.Line).str() + "'"
                 : ""),
        First.Remedy));
    return false;
  }
  if (!Second.AlreadyMigrated && (!Second.Changes.empty() || Second.refused())) {
    std::string Rule = Second.Changes.empty() ? Second.Findings.front().Message
                                              : Second.Changes.front().Rule;
    Group.Problems.push_back(makeFinding(
        "ACL0016", {Unit.MainFile, 0, 0},
        "a second run would not leave the migrated text alone (" + Rule + ")",
        "The file is left alone. Please report it, with the file if you can."));
    return false;
  }
  return Unit.Sources.size() == 1 || verifyReaders(Group, Unit, NewTexts);
}

/// Parses each source of a unit that reads something new by itself. What the
/// first of them lacks is said.
bool Session::verifyReaders(EditGroup &Group, const UnitPlan &Unit,
                            const TextOverlay &NewTexts) {
  const std::vector<std::string> Readers =
      ThePrograms->readersOf(Unit, NewTexts);
  std::vector<EditGroup> Results(Readers.size());
  inParallel(Readers.size(), Options.Jobs, [&](size_t I) {
    verifySources(Results[I], Unit, {Readers[I]}, NewTexts,
                  [](clang::ASTContext &) {});
  });
  const auto Bad = find_if(
      Results, [](const EditGroup &Result) { return !Result.Problems.empty(); });
  if (Bad == Results.end())
    return true;
  append_range(Group.Problems, std::move(Bad->Problems));
  return false;
}

void Session::verify(EditGroup &Group) {
  if (Group.Refused || Group.Files.empty())
    return;
  TextOverlay NewTexts = Originals;
  for (const FileEdit &Edit : Group.Files)
    NewTexts[Edit.File] = Edit.After;
  for (size_t Unit : Group.Units)
    if (!verifyUnit(Group, Units[Unit], NewTexts)) {
      Group.Refused = true;
      Group.Files.clear();
      return;
    }
}

Outcome Session::outcomeOf(size_t Index, const EditGroup &Group) const {
  const UnitPlan &Unit = Units[Index];
  switch (ThePrograms->stateOf(Unit)) {
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

/// Names the programs that will read a changed file and are not changed.
void Session::noteOtherReaders(const EditGroup &Group,
                               function_ref<void(Finding)> Add) {
  for (const FileEdit &Edit : Group.Files)
    for (const std::string &Main : ThePrograms->othersWith(Edit.File, Units))
      Add(makeFinding("ACL0163", {Edit.File, 0, 0},
                      "the program of '" + displayPath(Main) +
                          "', which was not named, reads this file, too",
                      "Name both in one run."));
}

/// Puts down what was found, by units and groups.
void Session::makeRecord(std::vector<EditGroup> Groups) {
  Record.Mode = Options.TheMode == SessionOptions::Diff    ? "diff"
                : Options.TheMode == SessionOptions::Check ? "check"
                : Options.TheMode == SessionOptions::Write ? "write"
                : Options.TheMode == SessionOptions::Lint  ? "lint"
                                                           : "tree";
  Record.MatchSingleDevice = Options.MatchSingleDevice;
  auto Add = [&](const Finding &F) { addOnce(Record.Findings, F); };
  Record.Units.resize(Units.size());
  for (const EditGroup &Group : Groups) {
    for (size_t Unit : Group.Units) {
      Record.Units[Unit] = {Units[Unit].MainFile, outcomeOf(Unit, Group)};
      for_each(Units[Unit].ThePlan.Findings, Add);
    }
    for_each(Group.Problems, Add);
    noteOtherReaders(Group, Add);
    if (Group.Refused)
      raise(ExitRefused);
  }
  for (const EditGroup &Group : Groups)
    if (Group.Refused)
      for (size_t Unit : Group.Units)
        append_range(Record.Withheld, Units[Unit].ThePlan.Changes);
  if (Options.TheMode == SessionOptions::Lint &&
      any_of(Record.Findings, [](const Finding &F) {
        return F.Level == Severity::Warning;
      }))
    raise(ExitRefused);
  for (const UnitPlan &Unit : Units)
    Record.Texts.insert(Unit.Files.begin(), Unit.Files.end());
  Record.Groups = std::move(Groups);
}

/// Adds what the CMakeLists.txt files need, as a group of its own.
void Session::linkWithCMake() {
  std::set<std::string> Sources;
  for (const EditGroup &Group : Record.Groups)
    for (size_t Unit : Group.Units)
      if (Record.Units[Unit].Result == Outcome::Migrated ||
          Record.Units[Unit].Result == Outcome::AlreadyMigrated)
        copy_if(Units[Unit].Sources, std::inserter(Sources, Sources.end()),
                isSource);
  CMakeResult Result = linkAccel(
      std::vector<std::string>(Sources.begin(), Sources.end()),
      [&](StringRef Path) { return TheFrontend->mayEdit(Path); });
  append_range(Record.Findings, std::move(Result.Notes));
  if (Result.Files.empty())
    return;
  for (const FileEdit &Edit : Result.Files)
    Record.Texts[Edit.File] = Edit.Before;
  EditGroup Group;
  Group.Files = std::move(Result.Files);
  Record.Groups.push_back(std::move(Group));
}

/// Says on the standard error what there is to say.
void Session::tell() {
  // What --lint looks for is its product.
  const bool Lint = Options.TheMode == SessionOptions::Lint;
  for (const Finding &F : Record.Findings)
    if (!Lint || F.Level != Severity::Warning)
      printFinding(F.Level == Severity::Refusal ? errs() : talk(), F,
                   Options.ColorErr);
  if (Lint)
    return;
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

/// Builds and runs what would come out, beside the original.
Expected<bool> Session::isTheOriginal(ArrayRef<FileEdit> Edits) {
  TryOutOptions TryOut = Options.TryOut;
  size_t Programs = 0;
  for (const EditGroup &Group : Record.Groups)
    if (!Group.Refused && !Group.Files.empty() && !Group.Units.empty()) {
      Programs += Group.Units.size();
      append_range(TryOut.Sources, Units[Group.Units.front()].Sources);
    }
  if (Programs != 1) {
    errs() << "accel-migrate: error: --verify runs one program, and these are "
           << Programs << "; nothing is written\n";
    raise(ExitUsage);
    return false;
  }
  erase_if(TryOut.Sources, [](StringRef File) { return !isSource(File); });
  TryOut.Root = Options.Frontend.InRoot.empty()
                    ? ""
                    : realPath(Options.Frontend.InRoot);
  TryOut.Executable = Options.Frontend.Executable;
  if (Options.Frontend.Flags)
    TryOut.Flags = *Options.Frontend.Flags;
  TryOut.Quiet = Options.Quiet;
  Expected<TryOutResult> Result = tryOut(Edits, TryOut);
  if (!Result)
    return Result.takeError();
  if (*Result == TryOutResult::Equal)
    return true;
  raise(*Result == TryOutResult::NotBuilt ? ExitDoesNotCompile : ExitRefused);
  errs() << "nothing is written: the migrated program "
         << (*Result == TryOutResult::Different  ? "is not the original\n"
             : *Result == TryOutResult::NotBuilt ? "was not run\n"
                                                 : "could not be compared\n");
  return false;
}

Error Session::write(ArrayRef<FileEdit> Edits) {
  if (Options.TheMode == SessionOptions::Verify) {
    if (Edits.empty())
      return Error::success();
    Expected<bool> Same = isTheOriginal(Edits);
    if (!Same)
      return Same.takeError();
    if (*Same)
      return writeInPlace(Edits, Options.StateDir);
    WriteFailed = true;
    return Error::success();
  }
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
  if (Options.TheMode == SessionOptions::Lint)
    for (const Finding &F : Record.Findings)
      if (F.Level == Severity::Warning)
        printFinding(outs(), F, Options.ColorOut);
  for (const FileEdit &Edit : Edits)
    if (Options.TheMode == SessionOptions::Diff)
      printDiff(outs(), Edit, Options.ColorOut);
    else if (Options.TheMode == SessionOptions::Check)
      outs() << displayPath(Edit.File) << '\n';
}

void Session::flushOutput() {
  outs().flush();
  if (!outs().has_error())
    return;
  std::error_code Code = outs().error();
  outs().clear_error();
  fail(createStringError(Code, "standard output: " + Code.message()));
}

void Session::emit(ArrayRef<FileEdit> Edits) {
  double Before = seconds();
  if (Options.TheMode == SessionOptions::Check && !Edits.empty())
    raise(ExitRefused);
  if (Error E = write(Edits)) {
    fail(std::move(E));
    WriteFailed = true;
  }
  print(Edits);
  flushOutput();
  if (!Options.ReportFile.empty()) {
    std::string Page;
    raw_string_ostream OS(Page);
    printHtml(OS, Record);
    if (Error E = writeOutput(Options.ReportFile, Page))
      fail(std::move(E));
  }
  WriteSeconds = seconds() - Before;
}

void Session::summarize(size_t All, size_t Changed, size_t Refused) {
  bool Writes = Options.TheMode == SessionOptions::Write ||
                Options.TheMode == SessionOptions::Tree ||
                Options.TheMode == SessionOptions::Verify;
  raw_ostream &OS = talk();
  if (Options.TheMode == SessionOptions::Lint) {
    const size_t Found = count_if(Record.Findings, [](const Finding &F) {
      return F.Level == Severity::Warning;
    });
    OS << All << (All == 1 ? " file: " : " files: ") << Found
       << (Found == 1 ? " finding, " : " findings, ")
       << format("%.1f s", seconds()) << '\n';
    return;
  }
  OS << All << (All == 1 ? " file: " : " files: ") << Changed
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
                    "with LibTorch precompiled: {7} of {8} parses\n"
                    "with accel precompiled: {9}\n",
                    Analysis.Precompile + Verification.Precompile,
                    Analysis.Parse, Analysis.Callback, Verification.Parse,
                    Verification.Callback, WriteSeconds, seconds(),
                    ParsesWithPrefix, Parses, ParsesWithAccel);
}

int Session::run() {
  if (!resolveFiles(Options.Files))
    return ExitUsage;
  if (Options.ExplainLine) {
    Originals = originalsOf(Options.ExplainFile, Options.StateDir);
    if (!hasLine(Options.ExplainFile, Options.ExplainLine))
      return ExitUsage;
  }
  Options.Frontend.OnPrecompile = [this] {
    Shown.clear();
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
  // Nothing is begun whose end is known to fail.
  if (Error E = checkOutputs()) {
    fail(std::move(E));
    return Record.ExitCode;
  }

  analyse();
  std::vector<EditGroup> Groups = mergePlans(
      Units, [&](StringRef Path) { return TheFrontend->mayEdit(Path); });

  Shown.begin("checking program", Groups.size());
  inParallel(Groups.size(), Options.Jobs, [&](size_t I) {
    verify(Groups[I]);
    Shown.advance();
  });
  makeRecord(std::move(Groups));
  if (Options.ExplainLine) {
    printExplanation(outs(), Record, Options.ExplainFile, Options.ExplainLine,
                     Originals.count(Options.ExplainFile) != 0);
    flushOutput();
    // The question was answered, unless the file could not be read.
    return Record.ExitCode == ExitRefused ? ExitDone : Record.ExitCode;
  }
  if (Options.CMake)
    linkWithCMake();
  tell();

  std::vector<FileEdit> Edits;
  size_t All = 0, Changed = 0, Refused = 0;
  for (const EditGroup &Group : Record.Groups) {
    std::set<std::string> Sources;
    for (size_t Unit : Group.Units)
      Sources.insert(Units[Unit].Sources.begin(), Units[Unit].Sources.end());
    All += Sources.size();
    if (Group.Refused)
      Refused += Sources.size();
    Changed += count_if(Group.Files, [&](const FileEdit &Edit) {
      return Sources.count(Edit.File) != 0;
    });
    append_range(Edits, Group.Files);
  }
  emit(Edits);
  summarize(All, WriteFailed ? 0 : Changed, Refused);
  if (Options.Stats)
    printStats();
  return Record.ExitCode;
}

int runSession(SessionOptions Options) {
  return Session(std::move(Options)).run();
}

} // namespace accel::migrate
