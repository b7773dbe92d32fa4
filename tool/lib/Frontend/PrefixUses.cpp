//===- PrefixUses.cpp - What LibTorch's headers ask for -------------------===//

#include "PrefixUses.h"

#include "clang/Frontend/CompilerInstance.h"
#include "clang/Lex/PPCallbacks.h"
#include "clang/Lex/Preprocessor.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace llvm;
using namespace clang;

namespace accel::migrate {

/// Written behind everything else, so that half a file is not taken for one.
static constexpr llvm::StringLiteral LastLine = "#end";

class PrefixUses::Watch : public PPCallbacks {
public:
  Watch(PrefixUses &Uses, const SourceManager &SM, StringRef ResourceDir)
      : Uses(Uses), SM(SM), BuiltinDir(ResourceDir) {
    sys::path::append(BuiltinDir, "include");
  }

  void InclusionDirective(SourceLocation Hash, const Token &, StringRef Name,
                          bool IsAngled, CharSourceRange,
                          OptionalFileEntryRef File, StringRef SearchPath,
                          StringRef, const clang::Module *, bool,
                          SrcMgr::CharacteristicKind) override {
    // What lies beside the header that includes it is found before any folder
    // is searched.
    OptionalFileEntryRef Includer =
        SM.getFileEntryRefForID(SM.getFileID(SM.getExpansionLoc(Hash)));
    if (!IsAngled && Includer && Includer->getDir().getName() == SearchPath)
      return;
    (File ? Uses.Found : Uses.Missing).insert(Name.str());
  }

  void HasInclude(SourceLocation Loc, StringRef Name, bool,
                  OptionalFileEntryRef File,
                  SrcMgr::CharacteristicKind) override {
    // Clang's own headers ask for the next one of their name, of which they make
    // use on other systems only: on this one they would have found it.
    OptionalFileEntryRef Asking =
        SM.getFileEntryRefForID(SM.getFileID(SM.getExpansionLoc(Loc)));
    if (!File && Asking && Asking->getDir().getName() == BuiltinDir)
      return;
    (File ? Uses.Found : Uses.Missing).insert(Name.str());
  }

private:
  PrefixUses &Uses;
  const SourceManager &SM;
  SmallString<128> BuiltinDir;
};

void PrefixUses::watch(CompilerInstance &Compiler) {
  Compiler.getPreprocessor().addPPCallbacks(
      std::make_unique<Watch>(*this, Compiler.getSourceManager(),
                              Compiler.getHeaderSearchOpts().ResourceDir));
}

void PrefixUses::addIdentifiers(Preprocessor &PP) {
  for (const auto &Entry : PP.getIdentifierTable())
    Identifiers.insert(Entry.getKey());
}

Error PrefixUses::write(StringRef Path) const {
  return writeToOutput(Path, [&](raw_ostream &OS) {
    for (const std::string &Name : Found)
      OS << '<' << Name << '\n';
    for (const std::string &Name : Missing)
      OS << '?' << Name << '\n';
    for (const auto &Entry : Identifiers)
      OS << Entry.getKey() << '\n';
    OS << LastLine << '\n';
    return Error::success();
  });
}

std::optional<PrefixUses> PrefixUses::read(StringRef Path) {
  auto Buffer = MemoryBuffer::getFile(Path);
  if (!Buffer)
    return std::nullopt;
  PrefixUses Uses;
  Uses.File = std::move(*Buffer);
  StringRef Text = Uses.File->getBuffer();
  if (!Text.ends_with(("\n" + LastLine + "\n").str()))
    return std::nullopt;
  while (Text.starts_with("<") || Text.starts_with("?")) {
    auto [Line, Rest] = Text.split('\n');
    (Line.front() == '<' ? Uses.Found : Uses.Missing)
        .insert(Line.drop_front().str());
    Text = Rest;
  }
  return Uses;
}

bool PrefixUses::mentions(StringRef Identifier) const {
  return File->getBuffer().contains(("\n" + Identifier + "\n").str());
}

bool PrefixUses::mayComeFrom(StringRef Dir, bool IsLast) const {
  // Most folders hold none of the names' first parts.
  StringMap<bool> Holds;
  auto HasName = [&](StringRef Name) {
    StringRef First = Name.take_until([](char C) { return C == '/'; });
    auto [Entry, IsNew] = Holds.try_emplace(First);
    if (IsNew)
      Entry->second = sys::fs::exists(Dir + "/" + First);
    return Entry->second && sys::fs::exists(Dir + "/" + Name) &&
           !sys::fs::is_directory(Dir + "/" + Name);
  };
  return any_of(Missing, HasName) || (!IsLast && any_of(Found, HasName));
}

} // namespace accel::migrate
