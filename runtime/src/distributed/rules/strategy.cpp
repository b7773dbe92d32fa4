#include "distributed/rules/strategy.h"

#include "distributed/memory_order.h"

#include <ATen/ATen.h>

namespace accel::distributed {
namespace {

/// What a way would cost, or why it cannot be gone.
struct Cost {
  bool asked = false;
  bool possible = true;
  /// Elements that would have to be moved.
  int64_t moved = 0;
};

/// The largest argument that is cut as the way wants it says where.
Chosen driver(const Call& call, const Strategy& way) {
  Chosen chosen;
  int64_t largest = -1;
  const auto& tensors = call.info().tensors;
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (way.arguments[k] < 0 || !call.has(tensors[k])) {
      continue;
    }
    const auto& tensor = call.tensor(tensors[k]);
    const auto place = call.place(tensor);
    if (place.is_shard(way.arguments[k]) && call.weight(tensor) > largest) {
      chosen.strategy = &way;
      chosen.cut = place.cut();
      chosen.n = tensor.size(place.dim());
      largest = call.weight(tensor);
    }
  }
  return chosen;
}

Placement placement(const Chosen& chosen, int8_t role) {
  return role >= 0    ? Shard(role, chosen.cut)
      : role == kSum ? Partial()
                     : Replicate();
}

Cost cost(const Call& call, const Strategy& way, const Chosen& chosen) {
  Cost cost;
  cost.asked = chosen.strategy != nullptr;
  const auto& tensors = call.info().tensors;
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (!call.has(tensors[k])) {
      continue;
    }
    const auto& tensor = call.tensor(tensors[k]);
    const auto role = way.arguments[k];
    const auto place = call.place(tensor);
    if (role >= 0 &&
        (chosen.strategy == nullptr || role >= tensor.dim() ||
         tensor.size(role) != chosen.n)) {
      cost.possible = false;
    }
    cost.asked = cost.asked || (role == kSum && place.is_sum());
    if (role == kSum && place.is_sum() &&
        c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) {
      cost.possible = false; // averages of integers are rounded
    }
    if (!place.is_replicate() && place != placement(chosen, role)) {
      cost.moved += call.weight(tensor);
    }
  }
  return cost;
}

/// Some kernels read memory without looking at strides, because they are only
/// ever given tensors without gaps (the indices of fractional_max_pool): a part
/// of such a tensor must have none, either.
void use(Call& call, size_t i, const Placement& to) {
  if (!call.has(i)) {
    return;
  }
  const bool contiguous = call.tensor(i).is_contiguous();
  call.use(i, to);
  if (contiguous && !call.tensor(i).is_contiguous()) {
    call.set(i, call.tensor(i).contiguous());
  }
}

Sizes strides_with_innermost(c10::IntArrayRef sizes, int64_t innermost) {
  Sizes order;
  for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); ++d) {
    if (d != innermost) {
      order.push_back(d);
    }
  }
  order.push_back(innermost);
  Sizes strides;
  dense_strides(sizes, order, strides);
  return strides;
}

} // namespace

Chosen choose(const Call& call, c10::ArrayRef<Strategy> ways) {
  Chosen best;
  int64_t least = 0;
  for (const auto& way : ways) {
    auto chosen = driver(call, way);
    const auto of_way = cost(call, way, chosen);
    if (of_way.asked && of_way.possible &&
        (best.strategy == nullptr || of_way.moved < least)) {
      best = std::move(chosen);
      best.strategy = &way;
      least = of_way.moved;
    }
  }
  return best;
}

void run_strategy(Call& call, const Chosen& chosen) {
  const auto& tensors = call.info().tensors;
  for (size_t k = 0; k < tensors.size(); ++k) {
    use(call, tensors[k], placement(chosen, chosen.strategy->arguments[k]));
  }
  call.run();
  for (size_t k = 0; k < chosen.strategy->results.size(); ++k) {
    const auto role = chosen.strategy->results[k];
    const auto& result = call.result(k);
    if (result.isTensor() && result.toTensor().defined() &&
        result.toTensor().dim() > role) {
      const auto place = placement(chosen, role);
      Sizes sizes(
          call.local_result(k).sizes().begin(), call.local_result(k).sizes().end());
      if (place.is_shard()) {
        sizes[place.dim()] = chosen.n;
      }
      call.place_result(
          k, place, sizes,
          static_cast<int>(k) == chosen.strategy->transposed
              ? strides_with_innermost(sizes, chosen.strategy->innermost)
              : Sizes());
    }
  }
}

bool in_parts(Call& call, c10::ArrayRef<Strategy> ways) {
  if (!call.info().writes.empty()) {
    return false;
  }
  const auto chosen = choose(call, ways);
  if (!chosen) {
    return false;
  }
  run_strategy(call, chosen);
  return true;
}

} // namespace accel::distributed
