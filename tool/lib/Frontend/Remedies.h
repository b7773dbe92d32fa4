//===- Remedies.h - What to do about a file that does not compile ---------===//

#ifndef ACCEL_LIB_FRONTEND_REMEDIES_H
#define ACCEL_LIB_FRONTEND_REMEDIES_H

#include "CompileCommands.h"
#include "FirstError.h"

namespace accel::migrate {

/// What is said of a file that could not be read.
Finding problemOf(const FirstError &Error, llvm::StringRef File,
                  const Surroundings &Found);

/// What lets Clang read GCC's omp.h, where the attribute has arguments. What
/// Clang has read without it has none, so that it makes no difference there.
inline constexpr llvm::StringLiteral OpenMPMacro = "-D__malloc__(f)=";

/// A flag that a command lacks and that nobody could mean otherwise: C++20 for
/// what only C++20 has, the folder into which Debian's package puts the header
/// that was not found. Returns the command with it and says what was added;
/// nothing if there is no such flag.
struct Repair {
  UnitCommand Command;
  std::string What; ///< "-std=c++20, because …"
};
std::optional<Repair> repairFor(const FirstError &Error,
                                const UnitCommand &Command);

/// The command with a folder of the project that has the missing header.
std::optional<Repair> repairWithFolder(const FirstError &Error,
                                       const UnitCommand &Command,
                                       llvm::StringRef Folder);

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_REMEDIES_H
