//===- IncludeInsertion.cpp - Where #include <accel/accel.h> goes ---------===//

#include "accel/migrate/Edit.h"

#include "clang/Basic/LangOptions.h"
#include "clang/Lex/Lexer.h"

using namespace llvm;
using namespace clang;

namespace accel::migrate {

namespace {

/// A preprocessor directive of the text.
struct Directive {
  StringRef Keyword;
  StringRef Rest;   ///< Up to the end of the line, without the line break.
  unsigned End;     ///< Offset behind the line break.
  unsigned Depth;   ///< How many conditionals are open around it.
  bool InBraces;    ///< In a function or a namespace.
};

} // namespace

/// Directives in the text, found by Clang's lexer, so that comments and raw
/// strings are not taken for any.
static std::vector<Directive> directivesOf(StringRef Text) {
  LangOptions Options;
  Options.CPlusPlus = Options.CPlusPlus11 = Options.LineComment = true;
  // The lexer wants its text to end with a zero.
  std::string Copy = Text.str();
  Lexer Lex(SourceLocation(), Options, Copy.data(), Copy.data(),
            Copy.data() + Copy.size());
  std::vector<Directive> Found;
  unsigned Depth = 0, Braces = 0;
  for (Token Tok; !Lex.LexFromRawLexer(Tok);) {
    Braces += Tok.is(tok::l_brace);
    Braces -= Tok.is(tok::r_brace) && Braces;
    if (Tok.isNot(tok::hash) || !Tok.isAtStartOfLine())
      continue;
    if (Lex.LexFromRawLexer(Tok))
      break;
    if (Tok.isNot(tok::raw_identifier) || Tok.isAtStartOfLine())
      continue;
    size_t NameEnd = Lex.getCurrentBufferOffset();
    size_t Break = Text.find('\n', NameEnd);
    size_t End = Break == StringRef::npos ? Text.size() : Break + 1;
    StringRef Keyword = Text.slice(NameEnd - Tok.getLength(), NameEnd);
    if (Keyword == "endif" && Depth)
      --Depth;
    Found.push_back(
        {Keyword, Text.slice(NameEnd, Break).trim(), unsigned(End), Depth,
         Braces != 0});
    if (Keyword.starts_with("if"))
      ++Depth;
  }
  return Found;
}

static StringRef headerOf(const Directive &D) {
  if (D.Keyword != "include" || D.Rest.size() < 2)
    return "";
  char Close = D.Rest.front() == '<' ? '>' : '"';
  return D.Rest.drop_front().take_until([&](char C) { return C == Close; });
}

/// Whether the line is a directive's, or continues one.
static bool isInDirective(StringRef Text, unsigned Offset) {
  StringRef Before = Text.take_front(Offset);
  while (true) {
    const size_t Break = Before.rfind('\n');
    if (Break == StringRef::npos)
      return Before.ltrim().starts_with("#");
    const StringRef Line = Before.substr(Break + 1);
    Before = Before.take_front(Break);
    if (!Before.rtrim('\r').ends_with("\\"))
      return Line.ltrim().starts_with("#");
  }
}

/// Where the first of the changes is from which on accel's names are used. What a
/// macro is replaced by is used later.
static unsigned firstUse(StringRef Text, ArrayRef<Change> Changes) {
  unsigned First = Text.size();
  for (const Change &C : Changes)
    if (C.Range.Offset < First && StringRef(C.Replacement).contains("accel") &&
        !isInDirective(Text, C.Range.Offset))
      First = C.Range.Offset;
  return First;
}

std::optional<Change> accelInclude(StringRef File, StringRef Text,
                                   ArrayRef<Change> Changes) {
  std::vector<Directive> Directives = directivesOf(Text);
  const unsigned First = firstUse(Text, Changes);
  erase_if(Directives, [&](const Directive &D) { return D.End > First; });
  const Directive *Place = nullptr;
  bool PlaceIsTorch = false;
  for (const Directive &D : Directives) {
    StringRef Header = headerOf(D);
    if (Header.empty())
      continue;
    if (Header == "accel/accel.h")
      return std::nullopt;
    if (D.InBraces) // A list that is read inside of a function, say.
      continue;
    bool IsTorch = Header.starts_with("torch/");
    bool IsBetter = !Place || (IsTorch && !PlaceIsTorch) ||
                    (IsTorch == PlaceIsTorch && D.Depth <= Place->Depth);
    if (!IsBetter)
      continue;
    Place = &D;
    PlaceIsTorch = IsTorch;
  }
  // Without includes: behind what guards the file.
  for (size_t I = 0; !Place && I < Directives.size() && I < 2; ++I)
    if ((Directives[I].Keyword == "pragma" && Directives[I].Rest == "once") ||
        (I == 1 && Directives[0].Keyword == "ifndef" &&
         Directives[1].Keyword == "define" &&
         Directives[0].Rest == Directives[1].Rest))
      Place = &Directives[I];

  StringRef Break = Text.contains("\r\n") ? "\r\n" : "\n";
  unsigned Offset = Text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  std::string Line = ("#include <accel/accel.h>" + Break).str();
  if (Place) {
    Offset = Place->End;
    StringRef Before = Text.take_front(Offset);
    if (!Before.ends_with("\n")) // The last line of the file has no end.
      Line = (Break + "#include <accel/accel.h>").str();
    else
      Break = Before.ends_with("\r\n") ? "\r\n" : "\n",
      Line = ("#include <accel/accel.h>" + Break).str();
  }
  return Change{{File.str(), Offset, 0},
                std::move(Line),
                "include",
                "declares the runtime",
                /*Priority=*/-1000};
}

} // namespace accel::migrate
