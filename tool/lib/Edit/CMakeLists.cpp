//===- CMakeLists.cpp - The commands of a CMakeLists.txt ------------------===//

#include "CMakeLists.h"

#include "accel/migrate/Frontend.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/GlobPattern.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace accel::migrate {

namespace {

class Parser {
public:
  explicit Parser(StringRef Text) : Text(Text) {}

  std::vector<CMakeCommand> run() {
    std::vector<CMakeCommand> Commands;
    while (true) {
      skipBlank();
      CMakeCommand Command;
      Command.Begin = At;
      StringRef Name = Text.substr(At).take_while(
          [](char C) { return isAlnum(C) || C == '_'; });
      At += Name.size();
      while (At < Text.size() && (Text[At] == ' ' || Text[At] == '\t'))
        ++At;
      if (Name.empty() || At >= Text.size() || Text[At] != '(')
        return Commands;
      ++At;
      Command.Name = Name.lower();
      if (!parseArguments(Command))
        return Commands;
      Commands.push_back(std::move(Command));
    }
  }

private:
  /// The length of [[ or [=[ at `From`, or 0.
  size_t bracketAt(size_t From) const {
    size_t I = From;
    if (I >= Text.size() || Text[I] != '[')
      return 0;
    for (++I; I < Text.size() && Text[I] == '=';)
      ++I;
    return I < Text.size() && Text[I] == '[' ? I + 1 - From : 0;
  }

  /// The offset behind the bracket that opens at `From`.
  size_t endOfBracket(size_t From, size_t Length) const {
    std::string Closing = "]" + std::string(Length - 2, '=') + "]";
    size_t End = Text.find(Closing, From + Length);
    return End == StringRef::npos ? Text.size() : End + Closing.size();
  }

  /// Over blanks and comments.
  void skipBlank() {
    while (At < Text.size()) {
      if (isSpace(Text[At])) {
        ++At;
      } else if (Text[At] == '#') {
        if (size_t Length = bracketAt(At + 1))
          At = endOfBracket(At + 1, Length);
        else
          At = std::min(Text.find('\n', At), Text.size());
      } else {
        return;
      }
    }
  }

  bool parseArguments(CMakeCommand &Command) {
    // Parentheses of conditions are arguments, too; only the last one closes.
    unsigned Depth = 1;
    while (true) {
      skipBlank();
      if (At >= Text.size())
        return false;
      CMakeArgument Argument;
      Argument.Begin = At;
      if (Text[At] == '(' || Text[At] == ')') {
        Depth += Text[At] == '(' ? 1 : -1;
        if (Depth == 0) {
          Command.Close = At++;
          return true;
        }
        ++At;
        continue;
      }
      if (size_t Length = bracketAt(At)) {
        At = endOfBracket(At, Length);
        Argument.Text =
            Text.slice(Argument.Begin + Length, At - Length).str();
      } else if (Text[At] == '"') {
        for (++At; At < Text.size() && Text[At] != '"'; ++At) {
          if (Text[At] == '\\')
            ++At;
          if (At < Text.size())
            Argument.Text += Text[At];
        }
        At = std::min(At + 1, Text.size());
      } else {
        for (; At < Text.size() && !isSpace(Text[At]) && Text[At] != '(' &&
               Text[At] != ')' && Text[At] != '#' && Text[At] != '"';
             ++At)
          Argument.Text += Text[At];
        // A quote within a word belongs to it, as in -DX="y".
        if (At < Text.size() && Text[At] == '"' && At != Argument.Begin)
          At = std::min(Text.find('"', At + 1), Text.size() - 1) + 1;
      }
      Argument.End = At;
      Command.Arguments.push_back(std::move(Argument));
    }
  }

  StringRef Text;
  size_t At = 0;
};

} // namespace

CMakeLists::CMakeLists(std::string F, std::string T, StringRef TopDir)
    : File(std::move(F)), Text(std::move(T)), Commands(Parser(Text).run()) {
  for (StringRef Name : {"CMAKE_CURRENT_SOURCE_DIR", "CMAKE_CURRENT_LIST_DIR"})
    Lists[Name] = {dir().str()};
  for (StringRef Name : {"CMAKE_SOURCE_DIR", "PROJECT_SOURCE_DIR"})
    Lists[Name] = {TopDir.str()};
  for (const CMakeCommand &Command : Commands) {
    if (Command.Name == "project" && !Command.Arguments.empty()) {
      Lists["PROJECT_NAME"] = {Command.argument(0).str()};
      Lists["CMAKE_PROJECT_NAME"] = {Command.argument(0).str()};
      Lists["PROJECT_SOURCE_DIR"] = {dir().str()};
    } else if (Command.Name == "set" && Command.Arguments.size() > 1) {
      std::vector<std::string> &Values = Lists[Command.argument(0)];
      std::vector<std::string> New;
      for (const CMakeArgument &A : drop_begin(Command.Arguments))
        New.push_back(expand(A.Text));
      Values = std::move(New);
    } else if (Command.Name == "list" && Command.argument(0) == "APPEND" &&
               Command.Arguments.size() > 2) {
      for (const CMakeArgument &A : drop_begin(Command.Arguments, 2))
        Lists[Command.argument(1)].push_back(expand(A.Text));
    } else if (Command.Name == "file" &&
               Command.argument(0).starts_with("GLOB") &&
               Command.Arguments.size() > 2) {
      for (const CMakeArgument &A : drop_begin(Command.Arguments, 2))
        Globs[Command.argument(1)].push_back(
            {expand(A.Text), Command.argument(0) == "GLOB_RECURSE"});
    } else if (Command.Name == "aux_source_directory") {
      Globs[Command.argument(1)].push_back(
          {expand(Command.argument(0)) + "/*", false});
    }
  }
}

StringRef CMakeLists::dir() const { return sys::path::parent_path(File); }

std::string CMakeLists::expand(StringRef Raw) const {
  std::string Result;
  while (true) {
    auto [Before, Rest] = Raw.split("${");
    Result += Before;
    if (Before.size() == Raw.size())
      return Result;
    auto [Name, Behind] = Rest.split('}');
    auto Known = Lists.find(Name);
    if (Known != Lists.end())
      Result += join(Known->second, ";");
    else
      Result += ("${" + Name + "}").str();
    Raw = Behind;
  }
}

/// `Word` relative to the file's folder, without . and .. in it.
static std::string inFolder(StringRef Dir, StringRef Word) {
  SmallString<256> Path(Word);
  sys::fs::make_absolute(Dir, Path);
  sys::path::remove_dots(Path, /*remove_dot_dot=*/true);
  return std::string(Path);
}

bool CMakeLists::nameIs(StringRef Word, StringRef RealPath) const {
  SmallVector<StringRef> Parts;
  Word.split(Parts, ';', -1, /*KeepEmpty=*/false);
  return any_of(Parts, [&](StringRef Part) {
    return realPath(inFolder(dir(), Part)) == RealPath;
  });
}

bool CMakeLists::names(ArrayRef<CMakeArgument> Arguments,
                       StringRef RealPath) const {
  for (const CMakeArgument &A : Arguments) {
    if (nameIs(expand(A.Text), RealPath))
      return true;
    StringRef Variable = A.Text;
    if (!Variable.consume_front("${") || !Variable.consume_back("}"))
      continue;
    auto Known = Globs.find(Variable);
    if (Known == Globs.end())
      continue;
    for (const Pattern &P : Known->second) {
      std::string Full = inFolder(dir(), P.Text);
      auto Glob = GlobPattern::create(sys::path::filename(Full));
      if (!Glob) {
        consumeError(Glob.takeError());
        continue;
      }
      StringRef Folder = sys::path::parent_path(Full);
      StringRef Own = sys::path::parent_path(RealPath);
      auto FolderGlob = GlobPattern::create(Folder);
      bool IsThere = Own == Folder;
      if (FolderGlob)
        IsThere |= FolderGlob->match(Own);
      else
        consumeError(FolderGlob.takeError());
      if (P.IsRecursive)
        IsThere |= Own.starts_with((Folder + "/").str());
      if (IsThere && Glob->match(sys::path::filename(RealPath)))
        return true;
    }
  }
  return false;
}

} // namespace accel::migrate
