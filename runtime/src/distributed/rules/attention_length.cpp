#include "distributed/rules/attention_length.h"

#include <ATen/ATen.h>

#include <limits>

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

/// Where query, key and value are; the results' places.
struct Places {
  Placement query;
  Placement key;
  Placement value;
};

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

/// The rows from `begin` on of the mask that lets position i see 0 … i.
at::Tensor causal_rows(
    const at::Tensor& query,
    int64_t begin,
    int64_t rows,
    int64_t keys) {
  return at::full(
             {rows, keys}, -std::numeric_limits<double>::infinity(),
             at::TensorOptions().dtype(query.scalar_type()).device(query.device()))
      .triu(begin + 1);
}

/// Of `_scaled_dot_product_flash_attention_for_cpu` and its backward.
bool by_rows(Call& call) {
  const auto argument = [&](const char* name) {
    return static_cast<size_t>(call.index(name));
  };
  const bool backward = call.index("grad_out") >= 0;
  const auto query = argument("query"), mask = argument("attn_mask"),
             causal = argument("is_causal");
  const auto places = places_of(call);
  const auto rows = Shard(2, places.query.cut());
  const Sizes queries(
      call.tensor(query).sizes().begin(), call.tensor(query).sizes().end());
  const Sizes keys(
      call.tensor(argument("key")).sizes().begin(),
      call.tensor(argument("key")).sizes().end());
  const Sizes values(
      call.tensor(argument("value")).sizes().begin(),
      call.tensor(argument("value")).sizes().end());
  if (call.has(mask)) {
    const auto& given = call.tensor(mask);
    const int64_t dim = given.dim() - 2;
    call.use(
        mask, dim < 0 || given.size(dim) == 1
            ? Replicate()
            : Placement(Shard(dim, rows.cut())));
  }
  call.use(query, rows);
  call.use(argument("key"), Replicate());
  call.use(argument("value"), Replicate());
  if (backward) {
    call.use(argument("grad_out"), rows);
    call.use(argument("out"), rows);
    call.use(argument("logsumexp"), rows);
  }
  if (call.boolean(causal)) {
    const auto [begin, end] = call.axis().range(queries[2], rows.cut());
    call.set(
        mask, causal_rows(call.tensor(query), begin, end - begin, keys[2]));
    call.set(causal, false);
  }
  call.run();
  if (backward) {
    call.place_result(0, rows, queries);
    call.place_result(1, Partial(), keys);
    call.place_result(2, Partial(), values);
  } else {
    Sizes out = queries;
    out[3] = values[3];
    call.place_result(0, rows, out);
    // Its heads are innermost.
    const Sizes sizes{queries[0], queries[1], queries[2]};
    call.place_result(
        1, rows, sizes, Sizes{queries[1] * queries[2], 1, queries[1]});
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
    return by_rows(call);
  }
  return by_exchange(call, by_heads, length);
}

} // namespace accel::distributed::attention_rules
