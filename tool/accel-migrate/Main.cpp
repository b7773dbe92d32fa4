//===- Main.cpp - The command accel-migrate -------------------------------===//

#include "Heap.h"
#include "Session.h"

#include "accel/migrate/Config.h"
#include "accel/migrate/Findings.h"
#include "accel/migrate/Report.h"
#include "accel/migrate/Write.h"

#include "clang/Basic/Version.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Process.h"

#include <map>

using namespace llvm;
using namespace accel::migrate;

namespace {

enum class ColorMode { Auto, Always, Never };

cl::OptionCategory Category("Options of accel-migrate");
cl::SubCommand UndoCommand("undo", "Take a migration back");

constexpr char Overview[] =
    "Turns single-device LibTorch training programs into distributed ones.\n"
    "\n"
    "By default it shows what it would change and writes nothing. A file is\n"
    "migrated completely or, with the reason, not at all.\n";

constexpr char Examples[] = R"(
EXAMPLES:

  accel-migrate train.cpp                  show the changes
  accel-migrate --write train.cpp          make them
  accel-migrate undo                       take the last --write back
  accel-migrate --out-root out src/*.cpp   write the migrated files to out/
  accel-migrate --verify train.cpp         make them if the program still
                                           computes the same
  accel-migrate --verify --build 'make train' --run 'train --epochs 2' train.cpp
  accel-migrate -p build train.cpp         flags from build/compile_commands.json
  accel-migrate train.cpp -- -std=c++20 -I include
  accel-migrate --format=sarif train.cpp > run.sarif
  accel-migrate --report run.html train.cpp  a page to read
  accel-migrate --lint train.cpp           is it safe on several processes?
  accel-migrate --explain ACL0001          what a finding means
  accel-migrate --explain train.cpp:42     why this line is changed, or not

EXIT CODES:

  0  done, or nothing to do
  1  a file was refused, --check found something to change, --lint
     something wrong, or --verify that the programs differ
  2  usage
  3  a file does not compile, or LibTorch was not found
  4  internal error, or reading or writing failed
)";

/// The options, made when LLVM's own of the same names are gone. What a session
/// takes as it is given goes to `Options`.
struct CommandLine {
  SessionOptions Options;

  cl::list<std::string> Files{cl::Positional, cl::desc("FILE|DIR... [-- FLAGS]"),
                              cl::cat(Category), cl::sub(cl::SubCommand::getTopLevel())};
  cl::opt<std::string, true> BuildDir{
      "p", cl::value_desc("DIR"), cl::location(Options.Frontend.BuildDir),
      cl::cat(Category),
      cl::desc("Folder with the compile_commands.json (default: looked for "
               "from the file's folder upwards, then LibTorch's own flags)")};
  cl::opt<bool> Write{"write", cl::cat(Category),
                      cl::desc("Change the files; `undo` takes it back")};
  cl::opt<std::string, true> OutRoot{
      "out-root", cl::value_desc("DIR"), cl::location(Options.OutRoot),
      cl::cat(Category),
      cl::desc("Write the changed files below DIR and leave the sources alone")};
  cl::opt<bool> Verify{
      "verify", cl::cat(Category),
      cl::desc("Build the original and the migrated program in a temporary "
               "folder, compare them with `accel verify`, and change the files "
               "only if they are equal")};
  cl::opt<std::string, true> Build{
      "build", cl::value_desc("COMMAND"), cl::location(Options.TryOut.Build),
      cl::cat(Category),
      cl::desc("For --verify: the project's build command (default: CMake if "
               "there is a CMakeLists.txt, which --cmake makes find accel, "
               "else one call of c++)")};
  cl::opt<std::string, true> Run{
      "run", cl::value_desc("COMMAND"), cl::location(Options.TryOut.Run),
      cl::cat(Category),
      cl::desc("For --verify: the built program, as seen from the current "
               "folder, and its arguments (default: the program that the build "
               "has made, without arguments)")};
  cl::opt<std::string, true> NumProcesses{
      "num-processes", cl::value_desc("LIST"),
      cl::location(Options.TryOut.NumProcesses), cl::cat(Category),
      cl::desc("For --verify: numbers of processes to try (default: 1,2)")};
  cl::opt<bool> Check{
      "check", cl::cat(Category),
      cl::desc("Only list the files that would change; exit code 1 if any")};
  cl::opt<bool> Lint{
      "lint", cl::cat(Category),
      cl::desc("Only look for collective calls that not every process makes, "
               "in programs that use accel; exit code 1 if any")};
  cl::opt<bool> PerProcessBatch{
      "per-process-batch", cl::cat(Category),
      cl::desc("Keep the batch size per process, so that the batch of all "
               "grows with their number, instead of following the "
               "single-device training")};
  cl::opt<bool, true> CMake{
      "cmake", cl::location(Options.CMake), cl::cat(Category),
      cl::desc("Also add accel to the project's CMakeLists.txt: find_package "
               "and the link item of the file's target")};
  cl::opt<std::string, true> InRoot{
      "in-root", cl::value_desc("DIR"), cl::location(Options.Frontend.InRoot),
      cl::cat(Category),
      cl::desc("Change no file outside of DIR (default: the project, which is "
               "the nearest folder above that has .git)")};
  cl::opt<std::string> Explain{
      "explain", cl::value_desc("ID|FILE:LINE"), cl::cat(Category),
      cl::desc("Print the page of a finding or rule, or say why a line is "
               "changed or not and what is known of it")};
  cl::opt<SessionOptions::Format, true> Format{
      "format", cl::location(Options.TheFormat), cl::cat(Category),
      cl::desc("What to print on the standard output:"),
      cl::values(
          clEnumValN(SessionOptions::Text, "text",
                     "a diff, or what --check lists (default)"),
          clEnumValN(SessionOptions::Json, "json",
                     "changes and findings as JSON (docs/accel-migrate.md)"),
          clEnumValN(SessionOptions::Sarif, "sarif",
                     "the same as SARIF 2.1.0, for editors and forges"),
          clEnumValN(SessionOptions::Yaml, "yaml",
                     "the same for clang-apply-replacements"))};
  cl::opt<std::string, true> Report{
      "report", cl::value_desc("FILE.html"), cl::location(Options.ReportFile),
      cl::cat(Category),
      cl::desc("Also write a page with the sources side by side, the reasons, "
               "the findings, and what changes for the results")};
  cl::opt<bool, true> Quiet{
      "quiet", cl::location(Options.Quiet), cl::cat(Category),
      cl::desc("Say nothing on the standard error but errors and refusals")};
  cl::opt<ColorMode> Color{
      "color", cl::cat(Category), cl::init(ColorMode::Auto),
      cl::desc("Colour the output:"),
      cl::values(clEnumValN(ColorMode::Auto, "auto", "on a terminal (default)"),
                 clEnumValN(ColorMode::Always, "always", "always"),
                 clEnumValN(ColorMode::Never, "never", "never"))};
  cl::opt<unsigned, true> Jobs{
      "j", cl::value_desc("N"), cl::location(Options.Jobs), cl::cat(Category),
      cl::desc("Read N programs at a time (default: as many as there are "
               "cores)")};
  cl::opt<bool, true> Stats{"stats", cl::location(Options.Stats),
                            cl::cat(Category),
                            cl::desc("Print how long each phase took")};
  cl::opt<bool> NoCache{
      "no-cache", cl::cat(Category),
      cl::desc("Neither use nor make precompiled LibTorch headers (in "
               "$XDG_CACHE_HOME/accel, else ~/.cache/accel)")};
  cl::opt<std::string, true> CacheDir{
      "cache-dir", cl::value_desc("DIR"),
      cl::location(Options.Frontend.CacheDir), cl::cat(Category),
      cl::desc("Keep precompiled LibTorch headers in DIR, and use only those")};
  cl::opt<std::string, true> StateDir{
      "state-dir", cl::value_desc("DIR"), cl::location(Options.StateDir),
      cl::cat(Category),
      cl::sub(cl::SubCommand::getTopLevel()), cl::sub(UndoCommand),
      cl::desc("Keep what undo needs in DIR (default: .accel/undo in the "
               "common folder of the changed files)")};
  cl::opt<std::string, true> ResourceDir{
      "resource-dir", cl::value_desc("DIR"),
      cl::location(Options.Frontend.ResourceDir), cl::cat(Category),
      cl::desc("Clang's resource folder (clang-19 -print-resource-dir)")};
  cl::opt<std::string, true> AccelInclude{
      "accel-include", cl::value_desc("DIR"),
      cl::location(Options.Frontend.AccelIncludeDir), cl::cat(Category),
      cl::desc("Folder that holds accel/accel.h (default: looked for beside "
               "the executable)")};
  cl::opt<bool> HelpTable{
      "help-table", cl::cat(Category), cl::ReallyHidden,
      cl::desc("Print the options as JSON, for what makes the man page and "
               "completions")};
  cl::list<std::string> UndoFiles{
      cl::Positional, cl::desc("[FILE...]"), cl::cat(Category),
      cl::sub(UndoCommand)};
  cl::extrahelp Help{Examples};
};

} // namespace

static void printVersion(raw_ostream &OS) {
  OS << "accel-migrate " ACCEL_VERSION "\n"
     << "clang " CLANG_VERSION_STRING ", configured with LibTorch "
     << ACCEL_CONFIGURED_TORCH_VERSION "\n";
}

/// What `--help` says, as data (packaging/pages).
static void printHelpTable(CommandLine &Line) {
  auto ValuesOf = [](const cl::generic_parser_base &Parser) {
    json::Array Values;
    for (unsigned I = 0; I != Parser.getNumOptions(); ++I)
      Values.push_back(
          json::Array{Parser.getOption(I), Parser.getDescription(I)});
    return Values;
  };
  auto Spelled = [](StringRef Name) {
    return ((Name.size() == 1 ? "-" : "--") + Name).str();
  };
  json::Array Options;
  std::map<StringRef, const cl::Option *> Sorted;
  for (const auto &Entry : cl::getRegisteredOptions())
    if (is_contained(Entry.second->Categories, &Category) &&
        Entry.second->getOptionHiddenFlag() == cl::NotHidden)
      Sorted[Entry.first()] = Entry.second;
  for (const auto &[Name, O] : Sorted) {
    json::Object Option{{"names", json::Array{Spelled(Name)}},
                        {"value", O->ValueStr},
                        {"description", O->HelpStr}};
    if (O == &Line.Format)
      Option["values"] = ValuesOf(Line.Format.getParser());
    if (O == &Line.Color)
      Option["values"] = ValuesOf(Line.Color.getParser());
    Options.push_back(std::move(Option));
  }
  Options.push_back(json::Object{{"names", json::Array{"-h", "--help"}},
                                 {"value", ""},
                                 {"description", "Print this help and exit"}});
  Options.push_back(json::Object{{"names", json::Array{"--version"}},
                                 {"value", ""},
                                 {"description", "Print the version and exit"}});
  json::Array Commands; // A list with one list in braces would be that list.
  Commands.push_back(json::Array{"undo", UndoCommand.getDescription()});
  outs() << formatv("{0:2}\n",
                    json::Value(json::Object{
                        {"name", "accel-migrate"},
                        {"description", Overview},
                        {"usage", "[OPTIONS] FILE|DIR... [-- FLAGS]"},
                        {"commands", std::move(Commands)},
                        {"footer", StringRef(Examples).trim()},
                        {"options", std::move(Options)}}));
}

static bool wantsColor(ColorMode Mode, raw_fd_ostream &OS) {
  bool Wants = Mode == ColorMode::Always ||
               (Mode == ColorMode::Auto && OS.is_displayed() &&
                !sys::Process::GetEnv("NO_COLOR"));
  OS.enable_colors(Wants);
  return Wants;
}

static int usageError(const Twine &Message) {
  errs() << "accel-migrate: error: " << Message
         << "\nTry 'accel-migrate --help'.\n";
  return ExitUsage;
}

/// Whether `--explain` was given FILE:LINE; then both go to the options.
static bool explainsLine(StringRef Place, SessionOptions &Options) {
  auto [File, Line] = Place.rsplit(':');
  unsigned Number;
  if (File.empty() || Line.getAsInteger(10, Number) || Number == 0)
    return false;
  Options.ExplainFile = realPath(File);
  Options.ExplainLine = Number;
  return true;
}

static int explain(StringRef Id) {
  if (const EmbeddedPage *Page = findPage(Id)) {
    outs() << StringRef(Page->Text).trim() << '\n';
    return ExitDone;
  }
  errs() << "accel-migrate: error: there is no page '" << Id
         << "' (for a line: FILE:LINE); there are:\n";
  for (const EmbeddedPage *Page = EmbeddedPages; Page->Name; ++Page)
    errs() << "  " << Page->Name << '\n';
  return ExitUsage;
}

static int runUndo(const CommandLine &Line) {
  std::vector<std::string> Files;
  for (const std::string &Name : Line.UndoFiles)
    Files.push_back(realPath(Name));
  Expected<UndoResult> Result = undo(Files, Line.Options.StateDir);
  if (!Result) {
    std::error_code Code;
    handleAllErrors(Result.takeError(), [&](const ErrorInfoBase &E) {
      errs() << "accel-migrate: error: " << E.message() << '\n';
      Code = E.convertToErrorCode();
    });
    return Code == std::errc::no_such_file_or_directory ? ExitRefused
                                                        : ExitInternal;
  }
  for (const Finding &F : Result->Refusals)
    printFinding(errs(), F, Line.Options.ColorErr);
  for (const std::string &File : Result->Restored)
    errs() << displayPath(File) << ": restored\n";
  for (const std::string &File : Result->Unchanged)
    errs() << displayPath(File) << ": is as it was before the migration\n";
  return Result->Refusals.empty() ? ExitDone : ExitRefused;
}

int main(int argc, char **argv) {
  // LLVM has options --color and --stats of its own.
  for (StringRef Name : {"color", "stats"})
    if (cl::Option *O = cl::getRegisteredOptions().lookup(Name))
      O->removeArgument();
  static CommandLine Line;
  cl::HideUnrelatedOptions(Category);
  cl::HideUnrelatedOptions(Category, UndoCommand);
  cl::SetVersionPrinter(printVersion);

  // What stands behind `--` is the compiler's.
  SessionOptions &Options = Line.Options;
  int OwnCount = std::find(argv, argv + argc, StringRef("--")) - argv;
  if (OwnCount != argc)
    Options.Frontend.Flags.emplace(argv + OwnCount + 1, argv + argc);

  std::string Errors;
  raw_string_ostream ErrorStream(Errors);
  if (!cl::ParseCommandLineOptions(OwnCount, argv, Overview, &ErrorStream)) {
    errs() << Errors;
    return ExitUsage;
  }

  if (Line.HelpTable) {
    printHelpTable(Line);
    return ExitDone;
  }
  Options.ColorOut = wantsColor(Line.Color, outs());
  Options.ColorErr = wantsColor(Line.Color, errs());
  if (UndoCommand)
    return runUndo(Line);
  Options.Files = Line.Files;
  if (!Line.Explain.empty()) {
    if (!explainsLine(Line.Explain, Options))
      return explain(Line.Explain);
    // A header is explained by a file that includes it, if one is named.
    if (Options.Files.empty())
      Options.Files.push_back(Options.ExplainFile);
    if (Line.Write || Line.Verify || Line.Check || !Options.OutRoot.empty() ||
        !Options.ReportFile.empty() ||
        Options.TheFormat != SessionOptions::Text)
      return usageError("--explain FILE:LINE goes with no other output");
  }
  if (Options.Files.empty())
    return usageError("no files were given");
  if (Line.Write + Line.Check + Line.Lint + Line.Verify +
          !Options.OutRoot.empty() >
      1)
    return usageError("--write, --verify, --check, --lint and --out-root "
                      "exclude each other");
  if (!Line.Verify &&
      (!Options.TryOut.Build.empty() || !Options.TryOut.Run.empty() ||
       Line.NumProcesses.getNumOccurrences() != 0))
    return usageError("--build, --run and --num-processes belong to --verify");
  const std::string &InRoot = Options.Frontend.InRoot;
  if (!InRoot.empty() && !sys::fs::is_directory(InRoot))
    return usageError("--in-root: '" + InRoot + "' is not a folder");
  if (Options.Frontend.Flags && !Options.Frontend.BuildDir.empty())
    return usageError("-p and flags behind -- exclude each other");

  Options.TheMode = Line.Write                ? SessionOptions::Write
                    : Line.Check              ? SessionOptions::Check
                    : Line.Lint               ? SessionOptions::Lint
                    : Line.Verify             ? SessionOptions::Verify
                    : Options.OutRoot.empty() ? SessionOptions::Diff
                                              : SessionOptions::Tree;
  Options.MatchSingleDevice = !Line.PerProcessBatch;
  Options.Frontend.UseCache = !Line.NoCache;
  Options.Frontend.Executable =
      sys::fs::getMainExecutable(argv[0], reinterpret_cast<void *>(&explain));
  prepareHeap();
  return runSession(std::move(Options));
}
