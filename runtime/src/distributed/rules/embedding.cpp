#include "distributed/rules/common.h"
#include "distributed/rules/table.h"

#include <ATen/ATen.h>

// Embeddings: every process looks up its own indices, or its own columns.

namespace accel::distributed::embedding_rules {
namespace {

bool embedding(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const at::Tensor weight = call.tensor(0);
  const auto place = call.place(0);
  const auto of_indices = call.place(1);
  Sizes sizes = sizes_of(call.tensor(1));
  sizes.push_back(weight.size(1));
  if (of_indices.is_shard()) {
    call.use_whole(0);
    call.use_local(1);
    call.run();
    call.place_result(0, of_indices, sizes);
    return true;
  }
  if (place.is_shard(1) || place.is_sum()) {
    call.use_local(0);
    call.use_whole(1);
    call.run();
    call.place_result(
        0,
        place.is_shard()
            ? place.with_dim(static_cast<int64_t>(sizes.size()) - 1)
            : place,
        sizes);
    return true;
  }
  return false;
}

/// The weight's gradient: each process adds the rows of its indices.
bool embedding_dense_backward(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const at::Tensor gradient = call.tensor(0);
  const auto place = call.place(0);
  const auto of_indices = call.place(1);
  const Sizes sizes{call.integer(2), gradient.size(-1)};
  const int64_t last = gradient.dim() - 1;
  if (place.is_shard(last) || place.is_sum()) {
    call.use_local(0);
    call.use_whole(1);
    call.run();
    call.place_result(0, place.is_shard() ? place.with_dim(1) : place, sizes);
    return true;
  }
  // By frequency: the frequencies of all indices.
  const auto cut = place.is_shard() ? place : of_indices;
  if (!cut.is_shard() || call.boolean(4)) {
    return false;
  }
  call.use(0, cut);
  call.use(1, cut);
  call.run();
  call.place_result(0, Partial(), sizes);
  return true;
}

} // namespace

const Family& family() {
  static const char* const none = "nothing";
  static const char* const gathers_table =
      "for a cut index: all-gather of what it looks into, where that is cut";
  static const Family rows{
      {"aten::embedding", embedding, "indices; columns of the weight; P", gathers_table},
      {"aten::embedding_dense_backward", embedding_dense_backward, "indices, of which P is left; columns; P", none},
  };
  return rows;
}

} // namespace accel::distributed::embedding_rules
