#include "distributed/rules/common.h"

#include <algorithm>

// Bags of embeddings: each process does its columns of the weight, or its bags,
// where the indices are cut between bags. Where a bag ends the offsets say, whose
// values all processes know.

namespace accel::distributed::embedding_bag_rules {
namespace {

constexpr int64_t kMaxMode = 2;

/// The bags of each process and their indices.
struct Bags {
  Placement of_bags;
  Placement of_indices;
  /// Of this process.
  int64_t first = 0;
  int64_t end = 0;
};

/// The numbers of a tensor that all processes have; false where it is
/// distributed along a further axis.
bool read(const at::Tensor& tensor, std::vector<int64_t>& numbers) {
  if (part_of(tensor) != nullptr) {
    return false;
  }
  const auto own = tensor.to(at::kCPU, at::kLong).contiguous();
  const auto* data = own.const_data_ptr<int64_t>();
  numbers.assign(data, data + own.numel());
  return true;
}

/// Bags that begin where `starts` says, `count` indices in all. `bags` says how the
/// bags are cut; else `indices` says how these are, as far as that is between bags,
/// and the bags are dealt out evenly where it is not. False where a process would
/// have none of either.
bool cut_bags(
    const Call& call,
    const std::vector<int64_t>& starts,
    int64_t count,
    const Placement& bags,
    const Placement& indices,
    Bags& out) {
  const auto& axis = call.axis();
  const auto n = static_cast<int64_t>(starts.size());
  const int64_t size = axis.size();
  const auto start = [&](int64_t bag) { return bag < n ? starts[bag] : count; };
  if (n < size || !std::is_sorted(starts.begin(), starts.end())) {
    return false;
  }
  std::vector<int64_t> of_bags;
  if (!bags.is_shard() && indices.is_shard()) {
    for (int64_t rank = 0; rank <= size; ++rank) {
      const int64_t at = rank == size
          ? count
          : axis.range(count, indices.cut(), rank).first;
      const auto found = std::lower_bound(starts.begin(), starts.end(), at);
      const auto bag = rank == size ? n : found - starts.begin();
      if (start(bag) != at || (rank > 0 && bag <= of_bags.back())) {
        of_bags.clear();
        break;
      }
      of_bags.push_back(bag);
    }
  }
  if (of_bags.empty()) {
    const auto cut = bags.is_shard() ? bags.cut() : Cut();
    for (int64_t rank = 0; rank < size; ++rank) {
      of_bags.push_back(axis.range(n, cut, rank).first);
    }
    of_bags.push_back(n);
  }
  std::vector<int64_t> of_indices;
  for (const int64_t bag : of_bags) {
    of_indices.push_back(start(bag));
  }
  for (int64_t rank = 0; rank < size; ++rank) {
    if (of_indices[rank] >= of_indices[rank + 1]) {
      return false;
    }
  }
  out.first = of_bags[axis.rank()];
  out.end = of_bags[axis.rank() + 1];
  out.of_bags = Shard(0, axis.cut_at(std::move(of_bags)));
  out.of_indices = Shard(0, axis.cut_at(std::move(of_indices)));
  return true;
}

/// weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
/// include_last_offset, padding_idx. Results: the bags; the bag of each index; how
/// many indices each bag has; which one was the greatest. Some are empty.
bool columns_of_weight(Call& call) {
  const auto place = call.place(0);
  for (const size_t i : {1, 2, 6}) {
    call.use_whole(i);
  }
  const int64_t columns = call.tensor(0).size(1);
  call.use(0, place);
  call.run();
  call.place_result(0, place, columns);
  if (call.local_result(3).dim() == 2) {
    call.place_result(3, place, columns);
  }
  return true;
}

bool embedding_bag(Call& call) {
  const auto& indices = call.tensor(1);
  if (!call.info().writes.empty() || indices.dim() != 1 ||
      call.tensor(2).dim() != 1 || call.boolean(7)) {
    return false;
  }
  if (call.place(0).is_shard(1)) {
    return columns_of_weight(call);
  }
  const auto of_indices = call.place(1);
  const auto of_offsets = call.place(2);
  if (!of_indices.is_shard() && !of_offsets.is_shard() &&
      !(call.has(6) && call.place(6).is_shard())) {
    return false;
  }
  const int64_t count = indices.numel();
  const auto cut = of_indices.is_shard() || !call.has(6) ? of_indices : call.place(6);
  const auto offsets = call.local_as(call.tensor(2), Replicate());
  std::vector<int64_t> starts;
  Bags bags;
  if (!read(offsets, starts) || starts.empty() || starts[0] != 0 ||
      !cut_bags(call, starts, count, of_offsets, cut, bags)) {
    return false;
  }
  const auto n = static_cast<int64_t>(starts.size());
  call.use_whole(0);
  call.use(1, bags.of_indices);
  call.set(
      2, offsets.narrow(0, bags.first, bags.end - bags.first)
             .sub(starts[bags.first]));
  call.use(6, bags.of_indices);
  call.run();
  if (call.local_result(1).numel() != 0) {
    call.result(1) = call.local_result(1).add(bags.first);
    call.place_result(1, bags.of_indices, Sizes{count});
  }
  for (const size_t k : {0, 2, 3}) {
    if (call.local_result(k).numel() != 0) {
      call.place_result(k, bags.of_bags, n);
    }
  }
  return true;
}

/// How the bags of a gradient are cut, by the bag of each index. False where that is
/// not known.
bool cut_gradient(
    const Call& call,
    const at::Tensor& bag_of_index,
    const Placement& of_gradient,
    const Placement& of_indices,
    int64_t n,
    Bags& bags) {
  std::vector<int64_t> bag_of;
  if (!read(bag_of_index, bag_of) ||
      !std::is_sorted(bag_of.begin(), bag_of.end())) {
    return false;
  }
  std::vector<int64_t> starts;
  for (int64_t bag = 0; bag < n; ++bag) {
    starts.push_back(
        std::lower_bound(bag_of.begin(), bag_of.end(), bag) - bag_of.begin());
  }
  return cut_bags(
      call, starts, static_cast<int64_t>(bag_of.size()), of_gradient, of_indices,
      bags);
}

/// Where the arguments of the weight's gradient are; the first is grad.
struct OfWeight {
  size_t indices;
  /// -1 where there are none.
  int offsets;
  size_t bag_of_index;
  size_t bag_size;
  size_t maximum_indices;
  size_t num_weights;
  size_t by_frequency;
  size_t mode;
  size_t per_sample_weights;
};

bool gradient_of_columns(Call& call, const OfWeight& at, const Sizes& sizes) {
  const auto place = call.place(0);
  for (const size_t i :
       {at.indices, at.bag_of_index, at.bag_size, at.per_sample_weights}) {
    call.use_whole(i);
  }
  if (at.offsets >= 0) {
    call.use_whole(at.offsets);
  }
  const bool maximum = call.integer(at.mode) == kMaxMode;
  call.use(
      at.maximum_indices, maximum && place.is_shard() ? place : Replicate());
  use_contiguous(call, 0, place);
  call.run();
  call.place_result(0, place, sizes);
  return true;
}

bool gradient_of_weight(Call& call, const OfWeight& at) {
  const at::Tensor gradient = call.tensor(0);
  const auto place = call.place(0);
  const bool by_frequency = call.boolean(at.by_frequency);
  if (!call.info().writes.empty() || gradient.dim() != 2) {
    return false;
  }
  const Sizes sizes{call.integer(at.num_weights), gradient.size(1)};
  if (place.is_shard(1) ||
      (place.is_sum() && call.integer(at.mode) != kMaxMode && !by_frequency)) {
    return gradient_of_columns(call, at, sizes);
  }
  // By frequency: the frequencies of all indices.
  const int64_t count = call.tensor(at.indices).numel();
  if (!(place.is_shard(0) || call.place(at.indices).is_shard()) || by_frequency ||
      (call.tensor(at.bag_of_index).numel() != count && at.offsets < 0)) {
    return false;
  }
  const int64_t n = gradient.size(0);
  const auto bag_of_index =
      call.local_as(call.tensor(at.bag_of_index), Replicate());
  at::Tensor offsets;
  Bags bags;
  if (at.offsets >= 0) {
    offsets = call.local_as(call.tensor(at.offsets), Replicate());
    std::vector<int64_t> starts;
    if (!read(offsets, starts) || static_cast<int64_t>(starts.size()) < n) {
      return false;
    }
    starts.resize(n);
    if (!cut_bags(call, starts, count, place, call.place(at.indices), bags)) {
      return false;
    }
    call.set(
        at.offsets, offsets.narrow(0, bags.first, bags.end - bags.first)
                        .sub(starts[bags.first]));
  } else if (!cut_gradient(
                 call, bag_of_index, place, call.place(at.indices), n, bags)) {
    return false;
  }
  use_contiguous(call, 0, bags.of_bags);
  use_contiguous(call, at.indices, bags.of_indices);
  call.set(
      at.bag_of_index,
      bag_of_index.numel() == count
          ? own_rows(call.axis(), bag_of_index, bags.of_indices).sub(bags.first)
          : bag_of_index);
  for (const size_t i : {at.bag_size, at.maximum_indices}) {
    const bool of_bags = call.tensor(i).dim() > 0 && call.tensor(i).size(0) == n;
    use_contiguous(call, i, of_bags ? bags.of_bags : Placement());
  }
  use_contiguous(call, at.per_sample_weights, bags.of_indices);
  call.run();
  call.place_result(0, Partial(), sizes);
  return true;
}

/// grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
/// scale_grad_by_freq, mode, per_sample_weights, padding_idx.
bool embedding_bag_dense_backward(Call& call) {
  return gradient_of_weight(call, {1, -1, 2, 3, 4, 5, 6, 7, 8});
}

/// grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights,
/// scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx.
bool embedding_bag_backward(Call& call) {
  return !call.boolean(9) &&
      gradient_of_weight(call, {1, 2, 3, 4, 5, 6, 7, 8, 10});
}

/// grad, weight, indices, offsets, offset2bag, mode, padding_idx: the gradient of
/// what each index counts.
bool embedding_bag_weights_backward(Call& call) {
  const auto place = call.place(0);
  const int64_t count = call.tensor(2).numel();
  if (!call.info().writes.empty() || call.tensor(0).dim() != 2) {
    return false;
  }
  const auto of_weight = call.place(1);
  if (place.is_shard(1) || (of_weight.is_shard(1) && !place.is_shard())) {
    const auto cut = place.is_shard(1) ? place : of_weight;
    for (const size_t i : {2, 3, 4}) {
      call.use_whole(i);
    }
    use_contiguous(call, 0, cut);
    use_contiguous(call, 1, cut);
    call.run();
    call.place_result(0, Partial(), Sizes{count});
    return true;
  }
  if (!(place.is_shard(0) || call.place(2).is_shard()) ||
      call.tensor(4).numel() != count) {
    return false;
  }
  const auto bag_of_index = call.local_as(call.tensor(4), Replicate());
  Bags bags;
  if (!cut_gradient(
          call, bag_of_index, place, call.place(2), call.tensor(0).size(0), bags)) {
    return false;
  }
  use_contiguous(call, 0, bags.of_bags);
  call.use_whole(1);
  use_contiguous(call, 2, bags.of_indices);
  call.use_whole(3);
  call.set(4, own_rows(call.axis(), bag_of_index, bags.of_indices).sub(bags.first));
  call.run();
  call.place_result(0, bags.of_indices, Sizes{count});
  return true;
}

} // namespace

const Family& family() {
  static const char* const bags =
      "bags, where a cut of the indices lies between them; columns of the weight";
  static const char* const offsets =
      "for bags: all-gather of the offsets, and of the weight where that is cut";
  static const char* const offsets_of_backward =
      "for bags: all-gather of the offsets, and of the bag of each index";
  static const char* const bag_of_index =
      "for bags: all-gather of the bag of each index";
  static const Family rows{
      {"aten::_embedding_bag", embedding_bag, bags, offsets},
      {"aten::_embedding_bag_forward_only", embedding_bag, bags, offsets},
      {"aten::_embedding_bag_backward", embedding_bag_backward,
       "bags, of which P is left; columns; P", offsets_of_backward},
      {"aten::_embedding_bag_dense_backward", embedding_bag_dense_backward,
       "bags, of which P is left; columns; P", bag_of_index},
      {"aten::_embedding_bag_per_sample_weights_backward",
       embedding_bag_weights_backward, "bags; columns, of which P is left",
       bag_of_index},
  };
  return rows;
}

} // namespace accel::distributed::embedding_bag_rules
