#pragma once

#include "distributed/rules/strategy.h"

namespace accel::distributed::attention_rules {

/// Fused attention whose queries are cut along the sequence, dimension `length`;
/// false where they are not, or where neither way below can be gone.
///
/// - Along an axis named "sp", and where a kernel takes no mask beside a causal
///   order: positions are exchanged for heads (all-to-all), each process computes
///   its heads over the whole sequence, and the results are exchanged back: DeepSpeed's
///   Ulysses. `by_heads` is the way to do it, of one head or more for each process.
/// - Else, of the CPU's kernel: each process computes the rows of its queries. Keys and
///   values are gathered, and causality is a mask of these rows; or they are passed on
///   (attention_ring.h), where the axis does so and they are cut along the sequence.
bool attention_of_positions(Call& call, const Strategy& by_heads, int8_t length);

} // namespace accel::distributed::attention_rules
