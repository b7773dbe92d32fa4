//===- MacroText.cpp - Places in the text of macros -----------------------===//
//
// What a macro of the person's writes may be edited in the macro's text. Each place
// there says which use of the macro it was found in: whether all uses want the same is
// looked at when all changes are known (Rules/MacroChanges.cpp).
//
//===----------------------------------------------------------------------===//

#include "SourceText.h"

#include "clang/Basic/CharInfo.h"
#include "clang/Lex/Lexer.h"

#include "llvm/ADT/STLExtras.h"

using namespace accel::migrate;
using namespace clang;

/// The parameters of a macro; `Head` is what stands between `#define` and its text.
static std::vector<std::string> parametersIn(StringRef Head) {
  std::vector<std::string> Names;
  const size_t Open = Head.find('(');
  if (Open == StringRef::npos)
    return Names;
  for (StringRef Rest = Head.drop_front(Open + 1); !Rest.empty();) {
    StringRef Name;
    std::tie(Name, Rest) = Rest.split(',');
    Name = Name.split(')').first.ltrim(" \t\r\n\\").take_while([](char C) {
      return isAsciiIdentifierContinue(C);
    });
    if (!Name.empty())
      Names.push_back(Name.str());
  }
  return Names;
}

/// What stands between the `#define` of the directive that `Offset` is in and there.
static StringRef headOf(StringRef Buffer, unsigned Offset) {
  const StringRef Before = Buffer.take_front(Offset);
  size_t Start = Before.size();
  do {
    Start = Before.rfind('\n', Start);
    if (Start == StringRef::npos)
      break;
  } while (Before.take_front(Start).rtrim("\r").ends_with("\\") && Start-- > 0);
  const StringRef Line =
      Start == StringRef::npos ? Before : Before.drop_front(Start + 1);
  return Line.split("define").second;
}

const std::vector<UsedMacro> &SourceText::macroUses() {
  if (HasUses)
    return Uses;
  HasUses = true;
  for (unsigned I = 0; I < SM.local_sloc_entry_size(); ++I) {
    const SrcMgr::SLocEntry &Entry = SM.getLocalSLocEntry(I);
    if (!Entry.isExpansion() || !Entry.getExpansion().isMacroBodyExpansion())
      continue;
    const SrcMgr::ExpansionInfo &Info = Entry.getExpansion();
    if (!Info.getSpellingLoc().isFileID())
      continue;
    const auto [Id, Offset] = SM.getDecomposedLoc(Info.getSpellingLoc());
    // What is put together by ## stands in no file.
    if (!SM.getFileEntryRefForID(Id) || !file(Id).MayEdit)
      continue;
    const StringRef Head = headOf(SM.getBufferData(Id), Offset).ltrim();
    const unsigned Next = I + 1 < SM.local_sloc_entry_size()
                              ? SM.getLocalSLocEntry(I + 1).getOffset()
                              : SM.getNextLocalOffset();
    UsedMacro Use;
    Use.Macro = Head.take_while([](char C) {
                      return isAsciiIdentifierContinue(C);
                    }).str();
    if (Head.drop_front(Use.Macro.size()).starts_with("("))
      Use.Parameters = parametersIn(Head);
    Use.Text = {file(Id).RealPath, Offset, Next - Entry.getOffset() - 1};
    const auto [At, Where] =
        SM.getDecomposedLoc(SM.getFileLoc(Info.getExpansionLocStart()));
    Use.Words = SM.getBufferData(Id).substr(Offset, Use.Text.Length).str();
    Use.At = {file(At).RealPath, Where, 0};
    Use.Line = SM.getLineNumber(At, Where);
    Use.Column = SM.getColumnNumber(At, Where);
    Uses.push_back(std::move(Use));
    UseOf[Entry.getOffset()] = Uses.size();
  }
  return Uses;
}

namespace {
/// Where a token stands: in an argument, in the text of a macro, or in a file.
struct Level {
  SourceLocation Loc;
  /// Of an argument the parameter in the macro's text; otherwise where the text begins.
  SourceLocation::UIntTy Key;
  bool IsArgument;
};
} // namespace

/// The levels of a token, from the inside. It is on an outer one where it is the first
/// (`IsEnd`: the last) of what that one has in its place.
static std::vector<Level> levelsOf(SourceLocation Loc, bool IsEnd,
                                   const SourceManager &SM,
                                   const LangOptions &Options) {
  std::vector<Level> Levels;
  while (Loc.isMacroID()) {
    const FileID Id = SM.getFileID(Loc);
    const SrcMgr::SLocEntry &Entry = SM.getSLocEntry(Id);
    const bool IsArgument = Entry.getExpansion().isMacroArgExpansion();
    const SourceLocation Start = Entry.getExpansion().getExpansionLocStart();
    Levels.push_back({Loc,
                      IsArgument ? Start.getRawEncoding() : Entry.getOffset(),
                      IsArgument});
    SourceLocation Outer;
    const unsigned Length =
        Lexer::MeasureTokenLength(SM.getSpellingLoc(Loc), SM, Options);
    if (IsEnd ? !SM.isAtEndOfImmediateMacroExpansion(
                    Loc.getLocWithOffset(Length), &Outer)
              : !SM.isAtStartOfImmediateMacroExpansion(Loc, &Outer))
      break;
    Loc = Outer;
  }
  return Levels;
}

/// The places in macros' texts that have all of what stands from the token at `Begin`
/// to the one at `End`; what is written in an argument comes before the parameter.
std::vector<TextRange> SourceText::places(SourceLocation Begin,
                                          SourceLocation End) {
  macroUses();
  std::vector<TextRange> Result;
  const std::vector<Level> Ends =
      levelsOf(End, /*IsEnd=*/true, SM, Context.getLangOpts());
  for (const Level &From :
       levelsOf(Begin, /*IsEnd=*/false, SM, Context.getLangOpts())) {
    const auto To = llvm::find_if(Ends, [&](const Level &L) {
      return L.IsArgument == From.IsArgument && L.Key == From.Key;
    });
    if (To == Ends.end())
      continue;
    if (From.IsArgument) {
      llvm::append_range(Result, places(SM.getImmediateSpellingLoc(From.Loc),
                                        SM.getImmediateSpellingLoc(To->Loc)));
      continue;
    }
    const auto Use = UseOf.find(From.Key);
    const auto [Id, First] = SM.getDecomposedSpellingLoc(From.Loc);
    const auto [LastId, Last] = SM.getDecomposedSpellingLoc(To->Loc);
    if (Use == UseOf.end() || Id != LastId || Last < First)
      continue;
    const unsigned Length = Lexer::MeasureTokenLength(
        SM.getSpellingLoc(To->Loc), SM, Context.getLangOpts());
    const TextRange Place{file(Id).RealPath, First, Last + Length - First,
                          Use->second};
    if (Place.isIn(Uses[Use->second - 1].Text))
      Result.push_back(Place);
  }
  return Result;
}

/// Where, in the text of macros, what begins with the token at `Loc` begins.
std::vector<TextRange> SourceText::firstPlaces(SourceLocation Loc) {
  macroUses();
  std::vector<TextRange> Result;
  for (const Level &L :
       levelsOf(Loc, /*IsEnd=*/false, SM, Context.getLangOpts())) {
    if (L.IsArgument) {
      llvm::append_range(Result,
                         firstPlaces(SM.getImmediateSpellingLoc(L.Loc)));
      continue;
    }
    const auto Use = UseOf.find(L.Key);
    if (Use == UseOf.end())
      continue;
    const TextRange &Text = Uses[Use->second - 1].Text;
    Result.push_back({Text.File, SM.getDecomposedSpellingLoc(L.Loc).second, 0,
                      Use->second});
  }
  return Result;
}

/// The innermost of the places; nothing where other text takes part.
std::optional<TextRange> SourceText::inOneMacro(SourceRange Range) {
  const std::vector<TextRange> All = places(Range.getBegin(), Range.getEnd());
  return All.empty() ? std::nullopt : std::optional(All.front());
}

std::optional<TextRange> SourceText::rangeOrMacro(SourceRange Range) {
  std::optional<TextRange> R = range(Range);
  return R || LastProblem.Id != llvm::StringRef("ACL0102") ? R : inOneMacro(Range);
}

std::optional<TextRange> SourceText::within(const TextRange &Outer,
                                            SourceRange Range) {
  if (!Outer.Use) {
    // `LOSS.backward()`: a macro that is all of it stands there with its name.
    const CharSourceRange InFile =
        Lexer::makeFileCharRange(CharSourceRange::getTokenRange(Range), SM,
                                 Context.getLangOpts());
    if (InFile.isInvalid())
      return std::nullopt;
    const auto [Id, Begin] = SM.getDecomposedLoc(InFile.getBegin());
    const TextRange R{file(Id).RealPath, Begin,
                      SM.getDecomposedLoc(InFile.getEnd()).second - Begin};
    return R.isIn(Outer) ? std::optional(R) : std::nullopt;
  }
  for (const TextRange &Place : places(Range.getBegin(), Range.getEnd()))
    if (Place.Use == Outer.Use && Place.isIn(Outer))
      return Place;
  return std::nullopt;
}

std::optional<TextRange> SourceText::upToOrMacro(SourceLocation Begin,
                                                 SourceLocation End) {
  if (std::optional<TextRange> R = upTo(Begin, End))
    return R;
  if (LastProblem.Id != llvm::StringRef("ACL0102"))
    return std::nullopt;
  for (const TextRange &From : places(Begin, Begin))
    for (const TextRange &To : firstPlaces(End))
      if (To.Use == From.Use && To.Offset >= From.Offset)
        return From.part(0, To.Offset - From.Offset);
  return std::nullopt;
}

bool SourceText::isWrittenBy(SourceLocation Loc, unsigned Use) {
  macroUses();
  while (Loc.isMacroID()) {
    const auto It =
        UseOf.find(SM.getSLocEntry(SM.getFileID(Loc)).getOffset());
    if (It != UseOf.end() && It->second == Use)
      return true;
    Loc = SM.getImmediateExpansionRange(Loc).getBegin();
  }
  return false;
}

std::optional<LinePoint> SourceText::before(const Stmt *S, const TextRange &In) {
  for (const TextRange &Place : firstPlaces(S->getBeginLoc()))
    if (Place.Use == In.Use)
      return LinePoint{Place, "", " "};
  return std::nullopt;
}

std::optional<LinePoint> SourceText::topInMacro(const CompoundStmt *Block) {
  const std::optional<TextRange> Brace =
      inOneMacro(SourceRange(Block->getLBracLoc()));
  return Brace ? std::optional(lineBehind(*Brace)) : std::nullopt;
}

LinePoint SourceText::lineBehind(const TextRange &Place) {
  const TextRange &Whole = Uses[Place.Use - 1].Text;
  const StringRef Rest =
      text(Whole).drop_front(Place.Offset + Place.Length - Whole.Offset);
  // A line of its own, where the macro's next line begins.
  StringRef Next = Rest.ltrim(" \t");
  const bool IsUnix = Next.consume_front("\\\n");
  if (IsUnix || Next.consume_front("\\\r\n"))
    return LinePoint{
        Place.part(Place.Length + Rest.size() - Next.size(), 0),
        Next.take_while([](char C) { return C == ' ' || C == '\t'; }).str(),
        IsUnix ? "\n" : "\r\n"};
  return LinePoint{Place.part(Place.Length, 0), " ", ""};
}
