//===- TrainingProgram.cpp - Facts as text --------------------------------===//

#include "accel/migrate/TrainingProgram.h"

using namespace accel::migrate;
using llvm::raw_ostream;

static raw_ostream &operator<<(raw_ostream &OS, const TextRange &R) {
  return OS << R.File << ':' << R.Offset << '+' << R.Length;
}

static raw_ostream &operator<<(raw_ostream &OS,
                               const std::vector<std::string> &Names) {
  for (const std::string &Name : Names)
    OS << ' ' << Name;
  return OS;
}

void accel::migrate::printFacts(const TrainingProgram &Program,
                                raw_ostream &OS) {
  for (const OptimizerFact &F : Program.Optimizers) {
    OS << "optimizer " << F.Object << " of " << F.Model << " set up at "
       << F.SetUp.At;
    for (const TextRange &R : F.TypeNames)
      OS << " type " << R;
    OS << '\n';
  }
  for (const OptimizerTypeFact &F : Program.OptimizerTypes)
    OS << "optimizer's type " << F.Range << ' ' << F.Class << '\n';
  for (const SchedulerFact &F : Program.Schedulers)
    for (const TextRange &R : F.TypeNames)
      OS << "scheduler " << R << '\n';
  for (const Spelled &F : Program.Loaders)
    OS << "loader " << F.Range << '\n';
  for (const DeviceFact &F : Program.Devices)
    OS << "device " << F.Kind << ' ' << F.Range << '\n';
  for (const TrainingLoopFact &F : Program.TrainingLoops)
    OS << "training loop " << F.BodyTop.At << " of" << F.Models
       << (F.HasLoader ? "" : " without loader") << '\n';
  for (const LeftLoopFact &F : Program.LeftLoops)
    OS << "loop that is left early " << F.BodyTop.At << '\n';
  for (const BackwardFact &F : Program.Backwards)
    OS << "backward " << F.Object << ' ' << placementName(F.Loss) << ' '
       << F.RetainGraph << '\n';
  for (const WholeLoopFact &F : Program.WholeLoops)
    OS << "whole loop " << F.Note.Range << (F.InParts ? " in parts" : "")
       << '\n';
  for (const ParallelCallFact &F : Program.Parallel)
    OS << "call in parts " << F.Head << ' ' << F.Model << '\n';
  for (const MetricReadFact &F : Program.MetricReads)
    OS << "metric read " << F.Object << ' ' << placementName(F.Value)
       << (F.LastBatch ? " of the last batch" : "") << '\n';
  for (const BatchVariablesFact &F : Program.Gathers)
    OS << "gather" << F.Variables << " at " << F.At.At << '\n';
  for (const BatchVariablesFact &F : Program.Shards)
    OS << "shard" << F.Variables << " at " << F.At.At << '\n';
  for (const BatchPartsFact &F : Program.Parts) {
    OS << "parts" << F.Variables << " at " << F.At.At;
    for (const auto &[Variable, Use] : F.Uses)
      OS << ' ' << Variable << ' ' << Use;
    OS << '\n';
  }
  for (const Spelled &F : Program.InlineShards)
    OS << "shard in place " << F.Range << '\n';
  for (const StateFact &F : Program.States)
    OS << "state " << F.Variable << " dimension " << F.Dim << " at "
       << F.At.At << '\n';
  for (const Spelled &F : Program.LocalSizes)
    OS << "local size " << F.Range << '\n';
  for (const Spelled &F : Program.Replicated)
    OS << "replicated " << F.Range << '\n';
  for (const Spelled &F : Program.Scripted)
    OS << "scripted " << F.Range << '\n';
  for (const BatchSizeFact &F : Program.Squeezes)
    OS << "squeeze " << F.Object << ' ' << F.Tail << '\n';
  for (const BatchSizeFact &F : Program.BatchSizes)
    OS << "batch size " << F.Object << ' ' << F.Tail << '\n';
  for (const Spelled &F : Program.NormClips)
    OS << "clip norm " << F.Range << '\n';
  for (const Spelled &F : Program.ValueClips)
    OS << "clip value " << F.Range << '\n';
  for (const PrintFact &F : Program.Prints)
    OS << "print " << F.Kind << ' ' << F.Range << '\n';
  for (const SaveFact &F : Program.Saves)
    OS << "save " << F.Callee << (F.ReadLater ? " read later" : "") << '\n';
  for (const BroadcastFact &F : Program.Broadcasts)
    OS << "broadcast " << F.Kind << ' ' << F.Range << '\n';
  for (const Spelled &F : Program.Paths)
    OS << "path " << F.Range << '\n';
  for (const Spelled &F : Program.ReadPaths)
    OS << "read path " << F.Range << '\n';
  for (const Spelled &F : Program.Commands)
    OS << "command " << F.Range << '\n';
  for (const GuardFact &F : Program.Guards)
    OS << "guard " << F.Range << '\n';
  for (const Finding &F : Program.Findings)
    OS << "finding " << F.Id << ' ' << F.Range << ' ' << F.Message << '\n';
}
