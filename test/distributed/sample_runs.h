#pragma once

#include "compare.h"
#include "placing.h"
#include "sample_calls.h"

#include <cstdint>
#include <string>
#include <vector>

namespace accel::distributed::test {

/// All that a call leaves behind.
struct Left {
  Snapshot results;
  /// The arguments after the call.
  Snapshot arguments;
  /// Gradients of the results by all floating-point arguments, and theirs again.
  Snapshot gradients;
  Snapshot second;
  /// Of random operators: what the generator gives next.
  at::Tensor next_random;
};

/// How far a call can be differentiated.
enum class Depth { kNone, kOnce, kTwice };

/// The same, and by which of its floating-point tensors, in their order; by all of
/// them where that is empty.
struct Gradients {
  Depth depth = Depth::kNone;
  std::vector<bool> by;
};

/// What the call leaves behind on plain tensors, differentiated as often and by as
/// many of its tensors as they allow, which `gradients` then says.
Left run_plain(const SampleCall& sample, Gradients& gradients);

/// How many placements of a call to make where `asked` are asked for: forms and
/// other dtypes go the way of what they are made of, so a few.
int64_t placements_of(const SampleCall& sample, int64_t asked);

/// One call with its tensors in certain places.
struct PlacedCall {
  /// In the order of the arguments' tensors; empty for places at random on a mesh
  /// of any number of axes.
  std::vector<Way> ways;
  /// Of what is left open: odd cuts, parts, and the places of incoming gradients.
  uint64_t seed = 0;
};

/// The ways to place a sample's tensors on `world` ranks: all combinations where
/// there are at most `limit` of them, else `limit` of them at random. Without
/// the one in which all tensors are plain.
std::vector<PlacedCall> placed_calls(
    const SampleCall& sample,
    int64_t world,
    int64_t limit,
    uint64_t seed);

/// The call in these places. Throws `Difference` where it leaves anything else
/// behind than the plain one. Collective.
void run_placed(
    const DeviceMesh& mesh,
    const SampleCall& sample,
    const PlacedCall& placed,
    const Left& plain,
    const Gradients& gradients);

/// Whether the operator draws random numbers: to be run in processes.
bool draws(const SampleCall& sample);

} // namespace accel::distributed::test
