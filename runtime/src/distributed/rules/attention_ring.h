#pragma once

#include "distributed/call.h"

#include <utility>

namespace accel::distributed::attention_rules {

/// Where query, key and value are.
struct Places {
  Placement query;
  Placement key;
  Placement value;
};

/// The mask that lets position i see 0 … i, of so many positions from `query` on and
/// so many keys from `key` on, in the dtype and on the device of `like`.
at::Tensor causal_mask(
    const at::Tensor& like,
    int64_t query,
    int64_t queries,
    int64_t key,
    int64_t keys);

/// The attention and logsumexp of no queries, in the CPU's kernel's order of memory;
/// the kernel itself divides by their number.
std::pair<at::Tensor, at::Tensor> attention_of_none(const at::Tensor& query);

/// Leaves the results of `_scaled_dot_product_flash_attention_for_cpu` or its backward
/// where queries, keys and values are cut along the sequence: Ring Attention. Each
/// process keeps its queries, and all keys and values go around the axis (`PassedOn`).
/// The attention to each part is put together with what is there by their logsumexp;
/// in backward what keys and values get of a process is sent to whose they are.
void attention_by_ring(Call& call, const Places& places);

} // namespace accel::distributed::attention_rules
