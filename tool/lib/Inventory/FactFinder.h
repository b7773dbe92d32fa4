//===- FactFinder.h - One walk over a function's body -----------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_FACTFINDER_H
#define ACCEL_MIGRATE_LIB_INVENTORY_FACTFINDER_H

#include "Differs/Differs.h"
#include "Enters/Enters.h"
#include "Learns/Learns.h"
#include "Leaves/Leaves.h"

namespace accel::migrate {

/// What facts are found with, and what is put together over all functions.
struct UnitFacts {
  const Differing &Differs;
  const Cut &Cuts;
  const HeldOptimizers &Held;
  HostDraws Draws;
  std::vector<FileUse> Files;
};

/// Gives each node to all subjects.
class FactFinder : private Unit {
public:
  FactFinder(const Unit &U, UnitFacts &All);

  void run(const clang::FunctionDecl *F);
  /// A field that is initialised where it is declared; `Early`: objects of the
  /// class may be made before main.
  void field(const clang::FieldDecl *F, const clang::CXXRecordDecl *Owner,
             bool Early);
  /// What a global variable's initialiser does before main.
  void global(const clang::VarDecl *V);

private:
  friend class FactWalk;
  friend class InitialiserWalk;
  void call(const clang::CallExpr *E);
  void initialiser(const clang::ValueDecl *D, const clang::Expr *Init,
                   bool Early);

  UnitFacts &All;
  Walk At;
  DeviceFacts Devices;
  Decisions Decides;
  Randomness Random;
  LoaderFacts Loaders;
  OptimizerFacts Optimizers;
  PrintFacts Prints;
  InputFacts Inputs;
  FileFacts Files;
  OutputFacts Outputs;
  Hazards Dangers;
  Subject *const Subjects[10] = {&Devices,    &Decides, &Random, &Loaders,
                                 &Optimizers, &Prints,  &Inputs, &Files,
                                 &Outputs,    &Dangers};
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_FACTFINDER_H
