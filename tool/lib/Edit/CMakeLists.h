//===- CMakeLists.h - The commands of a CMakeLists.txt ----------*- C++ -*-===//

#ifndef ACCEL_LIB_EDIT_CMAKELISTS_H
#define ACCEL_LIB_EDIT_CMAKELISTS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace accel::migrate {

struct CMakeArgument {
  std::string Text; ///< Without quotes.
  unsigned Begin = 0, End = 0; ///< Offsets, quotes included.
};

struct CMakeCommand {
  std::string Name; ///< In lower case.
  std::vector<CMakeArgument> Arguments;
  unsigned Begin = 0; ///< Where the name begins.
  unsigned Close = 0; ///< Where the closing parenthesis is.

  llvm::StringRef argument(size_t I) const {
    return I < Arguments.size() ? llvm::StringRef(Arguments[I].Text) : "";
  }
};

/// One CMakeLists.txt and the variables that it sets in plain sight.
class CMakeLists {
public:
  CMakeLists(std::string File, std::string Text, llvm::StringRef TopDir);

  llvm::StringRef file() const { return File; }
  llvm::StringRef dir() const;
  llvm::StringRef text() const { return Text; }
  llvm::ArrayRef<CMakeCommand> commands() const { return Commands; }

  /// The text with the variables replaced that are known.
  std::string expand(llvm::StringRef Text) const;
  /// Whether one of the arguments names the file, as a path, as a list in a
  /// variable or as a pattern that the variable was globbed with.
  bool names(llvm::ArrayRef<CMakeArgument> Arguments,
             llvm::StringRef RealPath) const;

private:
  bool nameIs(llvm::StringRef Word, llvm::StringRef RealPath) const;

  std::string File, Text;
  std::vector<CMakeCommand> Commands;
  llvm::StringMap<std::vector<std::string>> Lists;
  struct Pattern {
    std::string Text;
    bool IsRecursive;
  };
  llvm::StringMap<std::vector<Pattern>> Globs;
};

} // namespace accel::migrate

#endif // ACCEL_LIB_EDIT_CMAKELISTS_H
