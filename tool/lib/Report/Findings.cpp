//===- Findings.cpp - The table of findings -------------------------------===//

#include "accel/migrate/Findings.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>
#include <tuple>

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

const EmbeddedPage *findPage(StringRef Name) {
  for (const EmbeddedPage *Page = EmbeddedPages; Page->Name; ++Page)
    if (Name.equals_insensitive(Page->Name))
      return Page;
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

void addOnce(std::vector<Finding> &Findings, Finding New) {
  const bool IsKnown = any_of(Findings, [&](const Finding &Known) {
    return Known.Id == New.Id && Known.Range.File == New.Range.File &&
           Known.Range.Offset == New.Range.Offset &&
           Known.Message == New.Message;
  });
  if (!IsKnown)
    Findings.push_back(std::move(New));
}

void sortByPlace(std::vector<Finding> &Findings) {
  stable_sort(Findings, [](const Finding &A, const Finding &B) {
    return std::tie(A.Range.File, A.Range.Offset) <
           std::tie(B.Range.File, B.Range.Offset);
  });
}

} // namespace accel::migrate
