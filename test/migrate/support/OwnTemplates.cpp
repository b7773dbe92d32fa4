// A plugin of the compiler that checks what accel-migrate writes. At the end of
// every unit Clang instantiates what LibTorch's precompiled headers themselves
// still need, the virtual functions of their class templates above all. That is
// a third of a check's time and the same in every unit, whatever the program is.
// It is left out; all that the program asks for is instantiated as ever, of
// LibTorch's templates, too.

#include <clang/AST/ASTConsumer.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/FrontendPluginRegistry.h>
#include <clang/Sema/ExternalSemaSource.h>
#include <clang/Sema/Sema.h>
#include <clang/Sema/SemaConsumer.h>

using namespace clang;

namespace {

class OwnTemplates : public SemaConsumer {
public:
  void InitializeSema(Sema &S) override { TheSema = &S; }
  void ForgetSema() override { TheSema = nullptr; }

  // Comes with the first declaration that is parsed: before it there are those
  // that the precompiled headers have for everybody. To read the lists is to take
  // them away.
  bool HandleTopLevelDecl(DeclGroupRef) override {
    ExternalSemaSource *Source = TheSema ? TheSema->getExternalSource() : nullptr;
    if (Source && !Done) {
      Done = true;
      llvm::SmallVector<std::pair<ValueDecl *, SourceLocation>, 0> Instantiations;
      Source->ReadPendingInstantiations(Instantiations);
      llvm::SmallVector<ExternalVTableUse, 0> VTables;
      Source->ReadUsedVTables(VTables);
    }
    return true;
  }

private:
  Sema *TheSema = nullptr;
  bool Done = false;
};

class Action : public PluginASTAction {
protected:
  std::unique_ptr<ASTConsumer> CreateASTConsumer(CompilerInstance &, llvm::StringRef) override {
    return std::make_unique<OwnTemplates>();
  }
  bool ParseArgs(const CompilerInstance &, const std::vector<std::string> &) override { return true; }
  ActionType getActionType() override { return AddBeforeMainAction; }
};

} // namespace

static FrontendPluginRegistry::Add<Action> Registration("own-templates", "Leaves out what precompiled headers need");
