//===- UnseenCode.h - What the preprocessor leaves out ----------*- C++ -*-===//

#ifndef ACCEL_LIB_FRONTEND_UNSEENCODE_H
#define ACCEL_LIB_FRONTEND_UNSEENCODE_H

#include "UserScope.h"

#include "clang/Lex/PPCallbacks.h"

#include <map>

namespace accel::migrate {

/// Collects the parts of the user's files that conditions leave out each time
/// that the file is read: the guard of a header, met again, is none of them.
class UnseenCode {
public:
  std::unique_ptr<clang::PPCallbacks> watch(const clang::SourceManager &SM,
                                            UserLocations &User);
  std::vector<TextRange> ranges() const;

private:
  class Watch;

  std::map<std::string, unsigned> Entered; ///< How often, by real path.
  /// How often a part was left out: by file, offset and length.
  std::map<std::tuple<std::string, unsigned, unsigned>, unsigned> LeftOut;
};

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_UNSEENCODE_H
