//===- CompileCommands.h - How a file is compiled ---------------*- C++ -*-===//

#ifndef ACCEL_LIB_FRONTEND_COMPILECOMMANDS_H
#define ACCEL_LIB_FRONTEND_COMPILECOMMANDS_H

#include "Surroundings.h"

#include "clang/Tooling/CompilationDatabase.h"
#include "llvm/ADT/StringMap.h"

namespace accel::migrate {

/// A command for the parser: what decides the meaning of the text, without
/// what decides the output.
struct UnitCommand {
  std::string Directory;
  std::string Compiler;
  /// Without compiler and file.
  std::vector<std::string> Arguments;
  /// Include folders that hold parts of LibTorch (real paths).
  std::vector<std::string> TorchDirs;
  /// Name of the file that the command was written for, when it is another.
  std::string InferredFrom;
  /// The build folder whose compile_commands.json was met on the way up (real
  /// path); empty if that lies among the sources, or none was met.
  std::string DatabaseDir;

  /// The driver's arguments to check `File` as `Language` (as for -x).
  std::vector<std::string> forFile(llvm::StringRef File,
                                   llvm::StringRef Language) const;
};

/// Finds the commands of files.
class CompileCommands {
public:
  /// Fails if `Options.BuildDir` has no usable compile_commands.json.
  static llvm::Expected<std::unique_ptr<CompileCommands>>
  create(const FrontendOptions &Options, const Surroundings &Found);

  /// The command for a file, given by its absolute path. Fails when the
  /// compilation database that -p names has nothing to offer.
  llvm::Expected<UnitCommand> find(llvm::StringRef File);

private:
  CompileCommands(const FrontendOptions &Options, const Surroundings &Found)
      : Options(Options), Found(Found) {}

  /// A compilation database, and the build folder that it was found in.
  struct Database {
    std::unique_ptr<clang::tooling::CompilationDatabase> Commands;
    std::string BuildDir;
  };
  const Database &databaseAbove(llvm::StringRef Dir);

  const FrontendOptions &Options;
  const Surroundings &Found;
  std::unique_ptr<clang::tooling::CompilationDatabase> Named;
  /// By folder; null where there is none.
  llvm::StringMap<Database> Above;
};

/// Whether a word of a command names an include folder by the word behind it.
bool takesFolder(llvm::StringRef Word);

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_COMPILECOMMANDS_H
