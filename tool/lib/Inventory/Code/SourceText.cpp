//===- SourceText.cpp - From the AST to places in text --------------------===//

#include "SourceText.h"
#include "ProgramIndex.h"

#include "accel/migrate/Findings.h"

#include "clang/AST/Expr.h"
#include "clang/Basic/SourceManager.h"
#include "clang/Lex/Lexer.h"

using namespace accel::migrate;
using namespace clang;

/// What the first block that is indented is indented by.
static std::string indentStep(StringRef Buffer) {
  StringRef Head, Line;
  for (StringRef Rest = Buffer; !Rest.empty();) {
    std::tie(Line, Rest) = Rest.split('\n');
    if (Line.trim().empty())
      continue;
    const StringRef Outer = Head.substr(0, Head.find_first_not_of(" \t"));
    StringRef Step = Line.substr(0, Line.find_first_not_of(" \t"));
    if (Head.rtrim().ends_with("{") && Step.consume_front(Outer) &&
        !Step.empty() && !Line.rtrim().ends_with(":"))
      return Step.str();
    Head = Line;
  }
  return "  ";
}

const SourceText::FileText &SourceText::file(FileID Id) {
  auto [It, New] = Files.try_emplace(Id);
  FileText &F = It->second;
  if (!New)
    return F;
  if (OptionalFileEntryRef Entry = SM.getFileEntryRefForID(Id)) {
    F.RealPath = Entry->getFileEntry().tryGetRealPathName().str();
    if (F.RealPath.empty())
      F.RealPath = Entry->getName().str();
    F.MayEdit = Options.MayEdit && Options.MayEdit(F.RealPath);
  }
  F.Buffer = SM.getBufferData(Id);
  const size_t Line = F.Buffer.find('\n');
  F.Eol = Line != StringRef::npos && Line > 0 && F.Buffer[Line - 1] == '\r'
              ? "\r\n"
              : "\n";
  F.Step = indentStep(F.Buffer);
  return F;
}

bool SourceText::mayEdit(SourceLocation Loc) {
  return Loc.isValid() && file(SM.getFileID(SM.getFileLoc(Loc))).MayEdit;
}

/// Whether what stands at `Loc` stands in a file, or in macro arguments that
/// do. The text of a macro's body is not the place's own, even where an
/// expansion is all of a range.
static bool isSpelledInFile(SourceLocation Loc, const SourceManager &SM) {
  while (Loc.isMacroID()) {
    if (!SM.isMacroArgExpansion(Loc))
      return false;
    Loc = SM.getImmediateSpellingLoc(Loc);
  }
  return Loc.isValid();
}

std::optional<TextRange> SourceText::charRange(CharSourceRange Range) {
  const CharSourceRange InFile =
      Lexer::makeFileCharRange(Range, SM, Context.getLangOpts());
  const bool Begins = isSpelledInFile(Range.getBegin(), SM);
  // ROOT_DIR "/net.pt": of a macro that is a part of the range its name is the place's.
  const bool IsWhole = SM.getExpansionLoc(Range.getBegin()) ==
                       SM.getExpansionLoc(Range.getEnd());
  if (InFile.isInvalid() ||
      (IsWhole && (!Begins || !isSpelledInFile(Range.getEnd(), SM)))) {
    SourceLocation Loc = Range.getBegin();
    if (!Loc.isMacroID() || Begins)
      Loc = Range.getEnd();
    std::string Macro = "a macro";
    if (Loc.isMacroID())
      Macro = "the macro " +
              Lexer::getImmediateMacroName(Loc, SM, Context.getLangOpts()).str();
    LastProblem = {"ACL0102",
                   "what must change here is written by " + Macro +
                       ", which other places may use, too",
                   "Write the call out instead of using the macro."};
    return std::nullopt;
  }
  const auto [Id, Offset] = SM.getDecomposedLoc(InFile.getBegin());
  const FileText &F = file(Id);
  if (!F.MayEdit) {
    LastProblem = {"ACL0014",
                   "what must change here stands in " +
                       (F.RealPath.empty() ? std::string("no file")
                                           : F.RealPath) +
                       ", which is outside of what may be changed",
                   "Name the file on the command line, or make the folder it "
                   "is in part of the project."};
    return std::nullopt;
  }
  const unsigned End = SM.getDecomposedLoc(InFile.getEnd()).second;
  return TextRange{F.RealPath, Offset, End - Offset};
}

std::optional<TextRange> SourceText::range(SourceRange Range) {
  return charRange(CharSourceRange::getTokenRange(Range));
}

std::optional<TextRange> SourceText::inMacroBody(SourceRange Range,
                                                 StringRef Word) {
  const SourceLocation Begin = Range.getBegin(), End = Range.getEnd();
  if (!Begin.isMacroID() || isSpelledInFile(Begin, SM))
    return std::nullopt;
  const auto [Id, From] = SM.getDecomposedSpellingLoc(Begin);
  const auto [LastId, Last] = SM.getDecomposedSpellingLoc(End);
  // What is put together by ## stands in no file.
  if (Id != LastId || Last < From || !SM.getFileEntryRefForID(Id) ||
      !file(Id).MayEdit)
    return std::nullopt;
  const unsigned To = Last + Lexer::MeasureTokenLength(
                                 SM.getSpellingLoc(End), SM,
                                 Context.getLangOpts());
  const StringRef Spelled = SM.getBufferData(Id).substr(From, To - From);
  if (!Spelled.ends_with(Word) || Spelled.find_first_of(" \t\n\\") != StringRef::npos)
    return std::nullopt;
  return TextRange{file(Id).RealPath, From, To - From};
}

std::optional<TextRange> SourceText::upTo(SourceLocation Begin,
                                          SourceLocation End) {
  // What begins at `End` may be written by a macro: it begins where that is
  // named.
  if (End.isMacroID() && !isSpelledInFile(End, SM))
    End = SM.getExpansionLoc(End);
  return charRange(CharSourceRange::getCharRange(Begin, End));
}

std::string SourceText::text(SourceRange Range) {
  const CharSourceRange InFile = Lexer::makeFileCharRange(
      CharSourceRange::getTokenRange(Range), SM, Context.getLangOpts());
  if (InFile.isInvalid())
    return "";
  return Lexer::getSourceText(InFile, SM, Context.getLangOpts()).str();
}

Finding SourceText::finding(StringRef Id, SourceLocation Loc,
                            std::string Message, std::string Remedy) {
  TextRange Range;
  unsigned Line = 0, Column = 0;
  if (Loc.isValid()) {
    const auto [File, Offset] = SM.getDecomposedLoc(SM.getFileLoc(Loc));
    Range = {file(File).RealPath, Offset, 0};
    Line = SM.getLineNumber(File, Offset);
    Column = SM.getColumnNumber(File, Offset);
  }
  Finding F = makeFinding(Id, Range, std::move(Message), std::move(Remedy));
  F.Line = Line;
  F.Column = Column;
  return F;
}

static unsigned lineStart(StringRef Buffer, unsigned Offset) {
  const size_t Break = Buffer.rfind('\n', Offset);
  return Break == StringRef::npos ? 0 : Break + 1;
}

static StringRef blanksAt(StringRef Buffer, unsigned Offset) {
  return Buffer.substr(Offset).take_while(
      [](char C) { return C == ' ' || C == '\t'; });
}

/// Offset of the line behind `Offset` when nothing but blanks and a comment
/// stand between; otherwise nothing.
static std::optional<unsigned> nextLine(StringRef Buffer, unsigned Offset) {
  StringRef Rest = Buffer.substr(Offset);
  const size_t Break = Rest.find('\n');
  if (Break == StringRef::npos)
    return std::nullopt;
  const StringRef Line = Rest.take_front(Break).trim();
  const bool Comment =
      Line.starts_with("//") ||
      (Line.starts_with("/*") && Line.find("*/") == Line.size() - 2);
  if (!Line.empty() && !Comment)
    return std::nullopt;
  return Offset + Break + 1;
}

/// A line at `Offset`, which starts a line; indented as the line that holds
/// `IndentFrom`.
std::optional<LinePoint> SourceText::lineAt(FileID Id, unsigned Offset,
                                            unsigned IndentFrom) {
  const FileText &F = file(Id);
  if (!F.MayEdit)
    return std::nullopt;
  return LinePoint{{F.RealPath, Offset, 0},
                   blanksAt(F.Buffer, lineStart(F.Buffer, IndentFrom)).str(),
                   F.Eol};
}

std::optional<LinePoint> SourceText::topOf(const CompoundStmt *Block,
                                           SourceLocation Owner) {
  // In an argument of a macro it stands as it is.
  if (!isSpelledInFile(Block->getLBracLoc(), SM))
    return std::nullopt;
  const SourceLocation Open = SM.getFileLoc(Block->getLBracLoc());
  const auto [Id, Brace] = SM.getDecomposedLoc(Open);
  const FileText &F = file(Id);
  if (!F.MayEdit)
    return std::nullopt;
  const std::optional<unsigned> Next = nextLine(F.Buffer, Brace + 1);
  if (!Next && F.Buffer.substr(Brace + 1).starts_with("}")) {
    const auto [OwnerId, From] = SM.getDecomposedLoc(
        Owner.isValid() ? SM.getFileLoc(Owner) : Open);
    const std::string Outer =
        blanksAt(F.Buffer, lineStart(F.Buffer, OwnerId == Id ? From : Brace)).str();
    return LinePoint{
        {F.RealPath, Brace + 1, 0}, F.Eol + Outer + F.Step, F.Eol + Outer};
  }
  if (!Next)
    return LinePoint{{F.RealPath, Brace + 1, 0}, " ", ""};
  if (!Block->body_empty()) {
    const SourceLocation First = SM.getFileLoc((*Block->body_begin())->getBeginLoc());
    const auto [FirstId, Offset] = SM.getDecomposedLoc(First);
    if (FirstId == Id)
      return lineAt(Id, *Next, Offset);
  }
  // An empty block: one step further in than its brace.
  std::optional<LinePoint> P = lineAt(Id, *Next, Brace);
  P->Before += F.Step;
  return P;
}

/// Where `(f(pack), ...)` is spelled in whose instance a statement begins at `Begin`: such
/// have no parentheses. Nothing where none stands in front.
static std::optional<std::pair<unsigned, unsigned>>
foldAround(StringRef Buffer, unsigned Begin, const LangOptions &Options) {
  const size_t Open = Buffer.take_front(Begin).find_last_not_of(" \t\r\n");
  if (Open == StringRef::npos || Buffer[Open] != '(')
    return std::nullopt;
  Lexer Tokens(SourceLocation(), Options, Buffer.begin(), Buffer.begin() + Open,
               Buffer.end());
  unsigned Depth = 0;
  for (Token T; !Tokens.LexFromRawLexer(T);) {
    Depth += T.is(tok::l_paren);
    if (T.is(tok::r_paren) && --Depth == 0)
      return std::make_pair(unsigned(Open), Tokens.getCurrentBufferOffset());
  }
  return std::nullopt;
}

/// Braces around the statement of a body that has none: they and the statement get
/// lines of their own, unless a comment stands where the brace would.
BodyPoint SourceText::braced(const FileText &F, unsigned Begin, unsigned End) {
  const StringRef Head = F.Buffer.take_front(Begin).rtrim();
  const unsigned HeadLine = lineStart(F.Buffer, Head.size());
  BodyPoint Result;
  if (const StringRef Line = Head.substr(HeadLine);
      Line.contains("//") || Line.ends_with("*/")) {
    Result.Top = LinePoint{{F.RealPath, Begin, 0}, "{ ", " "};
    Result.Close = LinePoint{{F.RealPath, End, 0}, " ", " }"};
    return Result;
  }
  const std::string Outer = F.Eol + blanksAt(F.Buffer, HeadLine).str();
  const unsigned BodyLine = lineStart(F.Buffer, Begin);
  const std::string Inner =
      BodyLine == HeadLine ? Outer + F.Step
                           : F.Eol + blanksAt(F.Buffer, BodyLine).str();
  Result.Top = LinePoint{{F.RealPath, unsigned(Head.size()),
                          Begin - unsigned(Head.size())},
                         " {" + Inner, Inner};
  Result.Close = LinePoint{{F.RealPath, End, 0}, Inner, Outer + "}"};
  return Result;
}

std::optional<BodyPoint> SourceText::bodyTop(const Stmt *Body) {
  BodyPoint Result;
  if (const auto *Block = dyn_cast<CompoundStmt>(Body)) {
    std::optional<LinePoint> Top = topOf(Block);
    if (!Top)
      Top = topInMacro(Block);
    if (!Top)
      return std::nullopt;
    Result.Top = std::move(*Top);
    return Result;
  }
  // One statement.
  const auto End = endOf(Body);
  SourceLocation Begin = Body->getBeginLoc(), Last = Body->getEndLoc();
  // `for (…) STEP(x);`: the macro is all of it.
  const LangOptions &Options = Context.getLangOpts();
  if ((Begin.isMacroID() &&
       !Lexer::isAtStartOfMacroExpansion(Begin, SM, Options, &Begin)) ||
      (Last.isMacroID() &&
       !Lexer::isAtEndOfMacroExpansion(Last, SM, Options, &Last)))
    return std::nullopt;
  if (!End || isa<NullStmt>(Body))
    return std::nullopt;
  const auto [Id, Offset] = SM.getDecomposedLoc(Begin);
  const FileText &F = file(Id);
  if (!F.MayEdit || Id != End->first)
    return std::nullopt;
  const auto Fold = foldAround(F.Buffer, Offset, Context.getLangOpts());
  return braced(F, Fold ? Fold->first : Offset, End->second);
}

/// The start of the comment that says what the line at `Start` does: of the lines above
/// it that hold a comment and nothing else; but not above what is told to the tool.
static unsigned commentStart(StringRef Buffer, unsigned Start) {
  while (Start > 1) {
    const unsigned Above = lineStart(Buffer, Start - 2);
    const StringRef Line = Buffer.slice(Above, Start).trim();
    if (!Line.starts_with("//") || Line.contains("accel-migrate:"))
      break;
    Start = Above;
  }
  return Start;
}

bool SourceText::isFold(const Stmt *S) {
  const auto [Id, Offset] = SM.getDecomposedLoc(SM.getFileLoc(S->getBeginLoc()));
  return isa<Expr>(S) &&
         foldAround(file(Id).Buffer, Offset, Context.getLangOpts()).has_value();
}

std::optional<LinePoint> SourceText::before(const Stmt *S) {
  const SourceLocation Begin = SM.getFileLoc(S->getBeginLoc());
  const auto [Id, Offset] = SM.getDecomposedLoc(Begin);
  const FileText &F = file(Id);
  if (!F.MayEdit)
    return std::nullopt;
  const unsigned Start = lineStart(F.Buffer, Offset);
  if (Start + blanksAt(F.Buffer, Start).size() == Offset)
    return lineAt(Id, commentStart(F.Buffer, Start), Offset);
  return LinePoint{{F.RealPath, Offset, 0}, "", " "};
}

/// Whether the range of a statement ends in front of its semicolon: that of the
/// statement that it ends with.
static bool endsBeforeSemicolon(const Stmt *S) {
  while (S)
    if (const auto *If = dyn_cast<IfStmt>(S))
      S = If->getElse() ? If->getElse() : If->getThen();
    else if (isa<ForStmt, CXXForRangeStmt, WhileStmt>(S))
      S = bodyOf(S);
    else if (const auto *Switch = dyn_cast<SwitchStmt>(S))
      S = Switch->getBody();
    else if (const auto *Case = dyn_cast<SwitchCase>(S))
      S = Case->getSubStmt();
    else if (const auto *Label = dyn_cast<LabelStmt>(S))
      S = Label->getSubStmt();
    else if (const auto *Attributed = dyn_cast<AttributedStmt>(S))
      S = Attributed->getSubStmt();
    else
      return isa<Expr, ReturnStmt, BreakStmt, ContinueStmt, GotoStmt, DoStmt>(S);
  return false;
}

SourceLocation SourceText::behind(SourceLocation Loc) const {
  return Lexer::getLocForEndOfToken(Loc, 0, SM, Context.getLangOpts());
}

/// The offset behind a statement and its semicolon.
std::optional<std::pair<FileID, unsigned>> SourceText::endOf(const Stmt *S) {
  const SourceLocation Last = SM.getExpansionRange(S->getEndLoc()).getEnd();
  const SourceLocation End = behind(Last);
  if (End.isInvalid())
    return std::nullopt;
  auto [Id, Offset] = SM.getDecomposedLoc(End);
  const StringRef Buffer = file(Id).Buffer;
  if (endsBeforeSemicolon(S)) {
    const unsigned Begin =
        SM.getDecomposedLoc(SM.getFileLoc(S->getBeginLoc())).second;
    if (const auto Fold = foldAround(Buffer, Begin, Context.getLangOpts()))
      Offset = Fold->second;
    const StringRef Rest = Buffer.substr(Offset);
    const size_t Semi = Rest.find_first_not_of(" \t\r\n");
    if (Semi == StringRef::npos || Rest[Semi] != ';')
      return std::nullopt;
    Offset += Semi + 1;
  }
  return std::make_pair(Id, Offset);
}

std::optional<LinePoint> SourceText::after(const Stmt *S) {
  const auto End = endOf(S);
  if (!End)
    return std::nullopt;
  const auto [Id, Offset] = *End;
  const FileText &F = file(Id);
  if (!F.MayEdit)
    return std::nullopt;
  const unsigned Begin =
      SM.getDecomposedLoc(SM.getFileLoc(S->getBeginLoc())).second;
  if (const std::optional<unsigned> Next = nextLine(F.Buffer, Offset))
    return lineAt(Id, *Next, Begin);
  return LinePoint{{F.RealPath, Offset, 0}, " ", ""};
}

std::optional<LinePoint> SourceText::afterInMacro(const Stmt *S) {
  const SourceLocation End = S->getEndLoc();
  if (!End.isMacroID() || isSpelledInFile(End, SM) ||
      Lexer::isAtEndOfMacroExpansion(End, SM, Context.getLangOpts()))
    return after(S);
  std::optional<TextRange> R = inOneMacro(S->getSourceRange());
  if (!R)
    return std::nullopt;
  if (endsBeforeSemicolon(S)) {
    const TextRange &Whole = Uses[R->Use - 1].Text;
    const StringRef Rest =
        text(Whole).drop_front(R->Offset + R->Length - Whole.Offset);
    const size_t Semi = Rest.find_first_not_of(" \t\r\n\\");
    if (Semi == StringRef::npos || Rest[Semi] != ';')
      return std::nullopt;
    R->Length += Semi + 1;
  }
  return lineBehind(*R);
}

std::optional<TextRange> SourceText::wholeLines(const Stmt *S) {
  const auto End = endOf(S);
  if (!End || S->getBeginLoc().isMacroID())
    return std::nullopt;
  const auto [Id, Begin] = SM.getDecomposedLoc(S->getBeginLoc());
  const FileText &F = file(Id);
  if (!F.MayEdit || Id != End->first)
    return std::nullopt;
  const unsigned Start = lineStart(F.Buffer, Begin);
  const std::optional<unsigned> Next = nextLine(F.Buffer, End->second);
  const bool Alone = Start + blanksAt(F.Buffer, Start).size() == Begin && Next;
  if (!Alone)
    return TextRange{F.RealPath, Begin, End->second - Begin};
  return TextRange{F.RealPath, Start, *Next - Start};
}

llvm::StringRef SourceText::text(const TextRange &Range) const {
  for (const auto &[Id, F] : Files)
    if (F.RealPath == Range.File)
      return F.Buffer.substr(Range.Offset, Range.Length);
  return "";
}
