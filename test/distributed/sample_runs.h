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

/// What the call leaves behind on plain tensors, differentiated as often as they
/// allow, which `depth` then says.
Left run_plain(const SampleCall& sample, Depth& depth);

/// One call with its tensors in certain places.
struct PlacedCall {
  /// In the order of the arguments' tensors.
  std::vector<Way> ways;
  /// Of odd cuts, of parts and of the places of incoming gradients.
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
    Depth depth);

/// Whether the operator draws random numbers: to be run in processes.
bool draws(const SampleCall& sample);

} // namespace accel::distributed::test
