#include "distributed/rules/attention_length.h"

#include "distributed/memory_order.h"
#include "distributed/result_order.h"
#include "distributed/rules/attention_ring.h"

#include <ATen/ATen.h>

namespace accel::distributed::attention_rules {
namespace {

/// Result `k`, wherever it was computed, in the places of `like`, an argument, where
/// that is cut along the sequence.
void move_result(Call& call, size_t k, const Placement& like, int8_t length) {
  const auto& result = call.result(k);
  if (!like.is_shard(length) || !result.isTensor() ||
      !result.toTensor().defined()) {
    return;
  }
  const at::Tensor tensor = result.toTensor();
  call.result(k) = make_tensor(
      call.axis(), call.local_as(tensor, like), like, tensor.sizes(),
      tensor.strides(), /*exact=*/true);
}

Places places_of(const Call& call) {
  return {
      call.place(static_cast<size_t>(call.index("query"))),
      call.place(static_cast<size_t>(call.index("key"))),
      call.place(static_cast<size_t>(call.index("value")))};
}

/// The attention lies as its queries do, and each gradient as what it is of.
void move_results(Call& call, const Places& places, int8_t length) {
  move_result(call, 0, places.query, length);
  if (call.index("grad_out") >= 0 || call.index("grad_out_") >= 0) {
    move_result(call, 1, places.key, length);
    move_result(call, 2, places.value, length);
  }
}

bool by_exchange(Call& call, const Strategy& by_heads, int8_t length) {
  const int64_t heads = length == 2 ? 1 : 2;
  Chosen chosen;
  chosen.strategy = &by_heads;
  chosen.n = call.tensor(static_cast<size_t>(call.index("query"))).size(heads);
  if (chosen.n < call.axis().size()) {
    return false;
  }
  const auto& tensors = call.info().tensors;
  for (size_t k = 0; k < tensors.size(); ++k) {
    const auto role = by_heads.arguments[k];
    if (role >= 0 && call.has(tensors[k]) &&
        call.tensor(tensors[k]).size(role) != chosen.n) {
      return false; // queries in groups for each key
    }
  }
  const auto places = places_of(call);
  run_strategy(call, chosen);
  move_results(call, places, length);
  return true;
}

Sizes sizes_of(const Call& call, const char* name) {
  const auto sizes = call.tensor(static_cast<size_t>(call.index(name))).sizes();
  return {sizes.begin(), sizes.end()};
}

/// Keys and values are gathered; leaves the results, the gradients of these as sums.
void by_rows(Call& call, const Places& places) {
  const auto argument = [&](const char* name) {
    return static_cast<size_t>(call.index(name));
  };
  const bool backward = call.index("grad_out") >= 0;
  const auto query = argument("query"), mask = argument("attn_mask"),
             causal = argument("is_causal");
  const int64_t queries = call.tensor(query).size(2);
  const int64_t keys = call.tensor(argument("key")).size(2);
  if (call.has(mask)) {
    const auto& given = call.tensor(mask);
    const int64_t dim = given.dim() - 2;
    call.use(
        mask, dim < 0 || given.size(dim) == 1
            ? Replicate()
            : Placement(Shard(dim, places.query.cut())));
  }
  call.use(query, places.query);
  call.use(argument("key"), Replicate());
  call.use(argument("value"), Replicate());
  if (backward) {
    call.use(argument("grad_out"), places.query);
    call.use(argument("out"), places.query);
    call.use(argument("logsumexp"), places.query);
  }
  const auto [begin, end] = call.axis().range(queries, places.query.cut());
  if (begin == end) {
    const auto local = call.tensor(query);
    if (backward) {
      call.finish(
          {at::zeros_like(local), at::zeros_like(call.tensor(argument("key"))),
           at::zeros_like(call.tensor(argument("value")))});
    } else {
      const auto [out, logsumexp] = attention_of_none(local);
      call.finish({out, logsumexp});
    }
    return;
  }
  if (call.boolean(causal)) {
    const auto& like = call.tensor(call.has(mask) ? mask : query);
    const auto order = causal_mask(like, begin, end - begin, 0, keys);
    call.set(mask, call.has(mask) ? call.tensor(mask) + order : order);
    call.set(causal, false);
  }
  call.run();
}

/// Of `_scaled_dot_product_flash_attention_for_cpu` and its backward.
bool by_keys(Call& call) {
  const bool backward = call.index("grad_out") >= 0;
  const auto places = places_of(call);
  const auto queries = sizes_of(call, "query");
  const auto order = call.tensor(static_cast<size_t>(call.index("query"))).strides();
  const Sizes as_query =
      strides_without_gaps(queries, Sizes(order.begin(), order.end()));
  const auto keys = sizes_of(call, "key");
  const auto values = sizes_of(call, "value");
  const bool ring = call.axis().passes_keys_on() && places.key.is_shard(2);
  if (ring) {
    attention_by_ring(call, places);
  } else {
    by_rows(call, places);
  }
  // The kernel's orders in memory, which a part of one row or none does not show.
  if (backward) {
    const auto grads = ring ? places.key : Placement(Partial());
    call.place_result(0, places.query, queries, positions_outside(queries));
    call.place_result(1, grads, keys, positions_outside(keys));
    call.place_result(2, grads, values, positions_outside(values));
  } else {
    call.place_result(0, places.query, queries, as_query);
    const Sizes sizes{queries[0], queries[1], queries[2]};
    call.place_result(1, places.query, sizes, positions_outside(sizes));
  }
  move_results(call, places, 2);
  return true;
}

} // namespace

bool attention_of_positions(Call& call, const Strategy& by_heads, int8_t length) {
  const int query = call.index("query");
  if (query < 0 || call.index("key") < 0 || call.index("value") < 0 ||
      !call.place(static_cast<size_t>(query)).is_shard(length)) {
    return false;
  }
  const bool takes_rows =
      call.name().rfind("aten::_scaled_dot_product_flash_attention_for_cpu", 0) == 0;
  if (takes_rows && call.axis().name() != "sp") {
    return by_keys(call);
  }
  return by_exchange(call, by_heads, length);
}

} // namespace accel::distributed::attention_rules
