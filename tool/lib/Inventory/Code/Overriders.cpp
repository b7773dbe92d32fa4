//===- Overriders.cpp - What a call of a virtual function may run ---------===//

#include "ProgramIndex.h"

#include "Closures.h"

using namespace accel::migrate;
using namespace clang;

void ProgramIndex::addOverrider(const CXXMethodDecl *M) {
  std::vector<const CXXMethodDecl *> Bases = {M};
  std::set<const FunctionDecl *> Seen;
  while (!Bases.empty()) {
    const CXXMethodDecl *Last = Bases.back();
    Bases.pop_back();
    for (const CXXMethodDecl *Base : Last->overridden_methods())
      if (Seen.insert(Base->getCanonicalDecl()).second) {
        Overriders.insert({Base->getCanonicalDecl(), M});
        Bases.push_back(Base);
      }
  }
}

llvm::SmallVector<const FunctionDecl *, 2>
ProgramIndex::bodiesOf(const FunctionDecl *F) const {
  llvm::SmallVector<const FunctionDecl *, 2> Result;
  const FunctionDecl *Body = nullptr;
  if (isOfClosure(F))
    Result.push_back(operatorOf(cast<CXXMethodDecl>(F)->getParent()));
  else if (F->hasBody(Body))
    Result.push_back(Body);
  auto [From, To] = Overriders.equal_range(F->getCanonicalDecl());
  for (auto It = From; It != To; ++It)
    Result.push_back(It->second);
  return Result;
}

llvm::SmallVector<const FunctionDecl *, 2>
ProgramIndex::ownBodiesOf(const FunctionDecl *F) const {
  auto Result = bodiesOf(F);
  llvm::erase_if(Result,
                 [&](const FunctionDecl *Body) { return !isOwn(Body); });
  return Result;
}
