//===- Findings.cpp - The table of findings -------------------------------===//

#include "accel/migrate/Findings.h"

#include <cassert>

using namespace llvm;

namespace accel::migrate {

static const FindingKind Kinds[] = {
#define ACCEL_FINDING(Id, Level, Title) {#Id, Severity::Level, Title},
#include "accel/migrate/Findings.def"
};

const FindingKind *findFindingKind(StringRef Id) {
  for (const FindingKind &Kind : Kinds)
    if (Kind.Id == Id)
      return &Kind;
  return nullptr;
}

Finding makeFinding(StringRef Id, TextRange Range, std::string Message,
                    std::string Remedy) {
  const FindingKind *Kind = findFindingKind(Id);
  assert(Kind && "finding is not in Findings.def");
  Finding F;
  F.Id = Id.str();
  F.Level = Kind->Level;
  F.Range = std::move(Range);
  F.Message = std::move(Message);
  F.Remedy = std::move(Remedy);
  return F;
}

} // namespace accel::migrate
