//===- FirstError.h - The first thing that a compiler rejects ---*- C++ -*-===//

#ifndef ACCEL_LIB_FRONTEND_FIRSTERROR_H
#define ACCEL_LIB_FRONTEND_FIRSTERROR_H

#include "UserScope.h"

#include "clang/Basic/Diagnostic.h"

namespace accel::migrate {

/// The first error of a unit; those behind it often only follow from it.
struct FirstError {
  std::string Message; ///< Clang's words; empty if there was no error.
  /// Where it is, or, for an error in a template of LibTorch's, the user's line
  /// that led there.
  TextRange Place;
  unsigned Line = 0, Column = 0;
  /// The precompiled header was rejected, not the file.
  bool IsPrefixProblem = false;
  /// The command line was rejected, not the file.
  bool IsCommandLine = false;
  /// About the grammar, or a header that is not there: true for every way to
  /// parse the file.
  bool IsPlain = false;
  /// The header that was not found.
  std::string MissingHeader;
  /// Every way to parse the file asks for it: no condition decides about that.
  bool IsAlwaysMissing = false;

  bool happened() const { return IsCommandLine || !Message.empty(); }
  bool missesHeaderOf(llvm::StringRef Folder) const {
    return llvm::StringRef(MissingHeader).starts_with(Folder);
  }
};

/// Fills in a FirstError and prints nothing.
class FirstErrorConsumer : public clang::DiagnosticConsumer {
public:
  FirstErrorConsumer(FirstError &Error, UserLocations &User)
      : Error(Error), User(User) {}

  void HandleDiagnostic(clang::DiagnosticsEngine::Level Level,
                        const clang::Diagnostic &Info) override;

private:
  void setPlace(const clang::Diagnostic &Info);

  FirstError &Error;
  UserLocations &User;
  /// The error is outside of the user's files; its notes may lead there.
  bool WantsUserPlace = false;
};

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_FIRSTERROR_H
