//===- FileWaits.cpp - Where processes wait because of files ---------------===//

#include "Leaves.h"

#include "llvm/Support/Path.h"

using namespace accel::migrate;
using namespace clang;

/// Whether there is a wait already: the statement before may end with one.
static bool waitsThere(const TrainingProgram &Program, const LinePoint &Point) {
  auto IsThere = [&](const LinePoint &Other) {
    return Other.At.File == Point.At.File && Other.At.Offset == Point.At.Offset;
  };
  return llvm::any_of(Program.Saves,
                      [&](const SaveFact &Save) {
                        return Save.ReadLater && IsThere(Save.After);
                      }) ||
         llvm::any_of(Program.Guards,
                      [&](const GuardFact &Guard) {
                        return Guard.After && IsThere(*Guard.After);
                      }) ||
         llvm::any_of(Program.FileWaits, [&](const FileWaitFact &Wait) {
           return IsThere(Wait.At);
         });
}

static void addWait(const Unit &U, FunctionId In, BodyPoint At, const char *Why) {
  if (!waitsThere(U.Program, At.Top))
    U.Program.FileWaits.push_back(
        {In, std::move(At.Top), Why, std::move(At.Close)});
}

/// All wait before a folder is made that somebody asks for.
static void addFolderWaits(const Unit &U, llvm::MutableArrayRef<FileUse> Files) {
  for (const FileUse *Made : findFolderWaits(U.Index, Files)) {
    if (!U.Text.mayEdit(Made->Use->getExprLoc()))
      continue;
    std::optional<BodyPoint> Point;
    if (Made->Makes && !Made->HasBlock)
      Point = U.Text.bodyTop(Made->Makes);
    else if (Made->Makes)
      if (std::optional<LinePoint> Before = U.Text.before(Made->Makes))
        Point = BodyPoint{std::move(*Before), std::nullopt};
    if (!Point)
      U.say("ACL0226", Made->Use->getExprLoc(),
            "a folder is made for which another process may ask later, and goes on "
            "as if it had been there before",
            "Put the call into a block of its own, in braces.");
    else
      addWait(U, Made->Here, std::move(*Point),
              "all have asked whether the folder is there");
  }
}

/// Waits around statements of the main process that make files or take them away.
static void addMoveWaits(const Unit &U, llvm::MutableArrayRef<FileUse> Files) {
  for (const MoveWaits &W : findMoveWaits(U.Index, Files)) {
    const std::optional<TextRange> At =
        U.Text.range(W.Move->Moved->getSourceRange());
    if (!At) { // A macro's text.
      U.say("ACL0226", W.Move->Use->getExprLoc(),
            "a macro makes a file, or takes one away, which other processes may "
            "read meanwhile, and they cannot wait there",
            "Write it out, as a statement in a block.");
      continue;
    }
    // Where its answer is used, all are told behind it.
    const auto IsThere = [&](const GuardFact &Guard) {
      return Guard.Range.File == At->File && Guard.Range.Offset == At->Offset;
    };
    if (W.Before && llvm::none_of(U.Program.Guards, IsThere))
      if (std::optional<LinePoint> Before = U.Text.before(W.Move->Moved))
        addWait(U, W.Move->Here, {std::move(*Before), std::nullopt},
                "the file goes when all have read it");
    for (GuardFact &Guard : U.Program.Guards) {
      if (!IsThere(Guard))
        continue;
      if (W.Move->HasBlock) {
        if (W.Before)
          Guard.Before = U.Text.before(W.Move->Moved);
        if (Guard.Before && waitsThere(U.Program, *Guard.Before))
          Guard.Before.reset();
        if (W.Behind)
          Guard.After = U.Text.after(W.Move->Moved);
      } else if (std::optional<BodyPoint> Body = U.Text.bodyTop(W.Move->Moved)) {
        Guard.Before = std::move(Body->Top);
        Guard.Close = Body->Close;
        Guard.WaitsBehind |= W.Behind;
      }
      break;
    }
  }
}

/// "line 12", with the file where `Beside` stands in another one.
static std::string lineOf(const Unit &U, const Expr *E, const Expr *Beside) {
  const SourceManager &SM = U.Text.SM;
  const SourceLocation At = SM.getExpansionLoc(E->getExprLoc());
  std::string Line = "line " + std::to_string(SM.getSpellingLineNumber(At));
  if (SM.getFileID(At) !=
      SM.getFileID(SM.getExpansionLoc(Beside->getExprLoc())))
    Line += " of '" + llvm::sys::path::filename(SM.getFilename(At)).str() + "'";
  return Line;
}

/// Files that are read where the program may not have written them yet.
static void addReadBacks(const Unit &U, llvm::MutableArrayRef<FileUse> Files) {
  for (const ReadBack &Found : findReadBacks(U.Index, Files)) {
    if (!U.Text.mayEdit(Found.Write->Use->getExprLoc()))
      continue;
    if (Found.Behind) {
      if (std::optional<LinePoint> Point = U.Text.after(Found.Behind))
        addWait(U, U.Functions.of(U.Index.Main), {std::move(*Point), std::nullopt},
                "data sets read files that are written until here");
      continue;
    }
    if (const std::optional<Spelled> &Path = Found.Read->Argument) {
      U.Program.Edits.push_back({EditKind::ReadPath, Path->In, Path->Range});
      continue;
    }
    U.say("ACL0226", Found.Read->Use->getExprLoc(),
           "this may read a file that the main process writes in " +
               lineOf(U, Found.Write->Use, Found.Read->Use) +
               ", before it is written",
           "Close the file, call accelerator.wait_for_everyone() on all "
           "processes, and read it then.");
    break;
  }
}

void accel::migrate::addFileWaits(const Unit &U,
                                  llvm::MutableArrayRef<FileUse> Files) {
  // May find that a question whether a file is there has to be agreed on.
  addMoveWaits(U, Files);
  addFolderWaits(U, Files);
  addReadBacks(U, Files);
}
