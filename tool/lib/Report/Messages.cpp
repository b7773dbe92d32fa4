//===- Messages.cpp - Findings as text ------------------------------------===//

#include "accel/migrate/Report.h"

#include "llvm/Support/FileSystem.h"

using namespace llvm;

namespace accel::migrate {

std::string displayPath(StringRef RealPath) {
  SmallString<256> Current, Real;
  if (sys::fs::current_path(Current) || sys::fs::real_path(Current, Real))
    return RealPath.str();
  StringRef Rest = RealPath;
  if (Rest.consume_front(Real) && Rest.consume_front("/"))
    return Rest.str();
  return RealPath.str();
}

void printFinding(raw_ostream &OS, const Finding &F, bool Colored) {
  if (Colored)
    OS.changeColor(raw_ostream::SAVEDCOLOR, /*Bold=*/true);
  if (!F.Range.File.empty())
    OS << displayPath(F.Range.File) << ':';
  if (F.Line)
    OS << F.Line << ':' << F.Column << ':';
  if (!F.Range.File.empty())
    OS << ' ';
  struct Style {
    StringRef Word;
    raw_ostream::Colors Color;
  };
  Style S = F.Level == Severity::Note      ? Style{"note", raw_ostream::CYAN}
            : F.Level == Severity::Warning ? Style{"warning", raw_ostream::MAGENTA}
                                           : Style{"refused", raw_ostream::RED};
  if (Colored)
    OS.changeColor(S.Color, /*Bold=*/true);
  OS << S.Word << ": ";
  if (Colored)
    OS.resetColor();
  OS << F.Message << " [" << F.Id << "]\n";
  if (!F.Remedy.empty())
    OS << "  " << F.Remedy << '\n';
}

} // namespace accel::migrate
