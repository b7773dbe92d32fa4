//===- SourceText.h - From the AST to places in text ------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CODE_SOURCETEXT_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CODE_SOURCETEXT_H

#include "accel/migrate/Planner.h"
#include "accel/migrate/TrainingProgram.h"

#include "clang/AST/ASTContext.h"
#include "clang/AST/Stmt.h"
#include "clang/Basic/SourceManager.h"

#include <map>
#include <optional>

namespace accel::migrate {

/// Maps locations to places in files that may be edited, and to the words that
/// stand there.
class SourceText {
public:
  SourceText(clang::ASTContext &Context, const PlanOptions &Options)
      : Context(Context), SM(Context.getSourceManager()), Options(Options) {}

  /// The text of `Range` (token range) as one piece of one file. Nothing when
  /// it does not stand in a file as it is: `problem` then says why.
  std::optional<TextRange> range(clang::SourceRange Range);
  /// The same, or a piece of one macro's text, which then says for which use of the
  /// macro it is.
  std::optional<TextRange> rangeOrMacro(clang::SourceRange Range);
  /// Where `Range` stands in the same text as `Outer`, and inside of it: an argument's
  /// place in a macro's text is the parameter's.
  std::optional<TextRange> within(const TextRange &Outer,
                                  clang::SourceRange Range);
  /// Whether what stands at `Loc` is written by a use of a macro, or by what is used in
  /// its text.
  bool isWrittenBy(clang::SourceLocation Loc, unsigned Use);
  /// Where the body of a macro of the project's has the text of a range, which is
  /// `Word` or ends with it; nothing for text that no such body has.
  std::optional<TextRange> inMacroBody(clang::SourceRange Range,
                                       llvm::StringRef Word);
  std::optional<TextRange> charRange(clang::CharSourceRange Range);

  /// Behind the token at `Loc`.
  clang::SourceLocation behind(clang::SourceLocation Loc) const;

  /// From `Begin` up to but without the token at `End`.
  std::optional<TextRange> upTo(clang::SourceLocation Begin,
                                clang::SourceLocation End);

  /// The same, or a piece of one macro's text.
  std::optional<TextRange> upToOrMacro(clang::SourceLocation Begin,
                                       clang::SourceLocation End);

  /// Why the last range could not be had: a finding id and a message.
  struct Problem {
    const char *Id;
    std::string Message;
    std::string Remedy;
  };
  const Problem &problem() const { return LastProblem; }

  llvm::StringRef text(const TextRange &Range) const;
  /// The text as it is spelled, for messages and generated code; "" when it is
  /// spread over macros.
  std::string text(clang::SourceRange Range);

  /// A finding at `Loc` (where a macro is expanded, for code out of macros).
  Finding finding(llvm::StringRef Id, clang::SourceLocation Loc,
                  std::string Message, std::string Remedy = "");

  /// Lines of their own: the first in a block, before a statement and the comment
  /// above it, and after a statement. A block that is `{}` gets lines, indented from
  /// the one that `Owner` begins on.
  std::optional<LinePoint> topOf(const clang::CompoundStmt *Block,
                                 clang::SourceLocation Owner = {});
  /// The same for a loop's body, which may be a statement without braces.
  std::optional<BodyPoint> bodyTop(const clang::Stmt *Body);
  std::optional<LinePoint> before(const clang::Stmt *S);
  /// Before a statement in a macro's text, which `In` is in.
  std::optional<LinePoint> before(const clang::Stmt *S, const TextRange &In);
  std::optional<LinePoint> after(const clang::Stmt *S);
  /// The same, in the text of a macro that goes on behind it: what was declared there
  /// may be gone behind the macro.
  std::optional<LinePoint> afterInMacro(const clang::Stmt *S);
  /// Whether it is what `(f(pack), ...)` becomes in an instance of a template.
  bool isFold(const clang::Stmt *S);
  /// The statement with its line, when nothing else stands on it.
  std::optional<TextRange> wholeLines(const clang::Stmt *S);

  /// The real path of the file that `Loc` is in.
  std::string fileOf(clang::SourceLocation Loc) {
    return Loc.isValid() ? file(SM.getFileID(SM.getFileLoc(Loc))).RealPath : "";
  }

  /// Whether the file that `Loc` is in may be changed.
  bool mayEdit(clang::SourceLocation Loc);

  /// All uses of macros whose text may be edited; `TextRange::Use` counts them.
  const std::vector<UsedMacro> &macroUses();

  clang::ASTContext &Context;
  const clang::SourceManager &SM;

private:
  struct FileText {
    std::string RealPath;
    llvm::StringRef Buffer;
    bool MayEdit = false;
    std::string Eol;
    std::string Step; ///< What a line is indented by in a block.
  };
  const FileText &file(clang::FileID Id);
  std::optional<LinePoint> lineAt(clang::FileID Id, unsigned Offset,
                                  unsigned IndentFrom);
  std::optional<std::pair<clang::FileID, unsigned>>
  endOf(const clang::Stmt *S);
  std::vector<TextRange> places(clang::SourceLocation Begin,
                                clang::SourceLocation End);
  std::vector<TextRange> firstPlaces(clang::SourceLocation Loc);
  std::optional<TextRange> inOneMacro(clang::SourceRange Range);
  std::optional<LinePoint> topInMacro(const clang::CompoundStmt *Block);
  LinePoint lineBehind(const TextRange &Place);
  BodyPoint braced(const FileText &F, unsigned Begin, unsigned End);

  const PlanOptions &Options;
  std::map<clang::FileID, FileText> Files;
  Problem LastProblem{"", "", ""};
  bool HasUses = false;
  std::vector<UsedMacro> Uses;
  std::map<unsigned, unsigned> UseOf; ///< By the expansion's offset.
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_CODE_SOURCETEXT_H
