#include "distributed/rules/common.h"

// Sorting and scanning along a dimension that is not cut works row by row. Sums
// and products along the cut dimension are scanned locally and continued with
// what the processes before have.

namespace accel::distributed::ordering_rules {
namespace {

/// One tensor, results along `dim` of the same number of dimensions, or without
/// it where `keepdim` says so: only beside the cut.
bool beside(Call& call) {
  const auto place = call.place(0);
  const at::Tensor self = call.tensor(0);
  if (!call.info().writes.empty() || !place.is_shard() ||
      call.overload().find("name") != std::string::npos) {
    return false;
  }
  const int64_t dim = call.dim(call.info().dim, self.dim());
  if (place.is_shard(dim)) {
    return false;
  }
  const int keepdim = call.info().keepdim;
  const bool drops = keepdim >= 0 && !call.boolean(keepdim);
  const auto result = drops && place.dim() > dim
      ? place.with_dim(place.dim() - 1)
      : place;
  const int64_t n = self.size(place.dim());
  call.use_local(0);
  call.run();
  for (size_t k = 0; k < call.info().results; ++k) {
    call.place_result(k, result, n);
  }
  return true;
}

/// What the processes before this one have, put together; undefined on the
/// first. `total` is this process's. Collective.
at::Tensor total_before(const Call& call, const at::Tensor& total) {
  const auto totals = stacked(call, total);
  const int64_t rank = call.axis().rank();
  if (rank == 0) {
    return {};
  }
  const auto before = totals.narrow(0, 0, rank);
  if (call.name() == "aten::cumprod") {
    return before.prod(0);
  }
  return call.name() == "aten::cumsum" ? before.sum(0)
                                       : before.logsumexp(at::IntArrayRef{0});
}

/// cumsum, cumprod, logcumsumexp.
bool scan(Call& call) {
  const auto place = call.place(0);
  const at::Tensor self = call.tensor(0);
  if (!call.info().writes.empty() ||
      call.overload().find("name") != std::string::npos) {
    return false;
  }
  if (place.is_sum() && call.name() == "aten::cumsum" && keeps_sum(call)) {
    call.use_local(0);
    call.run();
    call.place_result(0, Partial(), self.sizes());
    return true;
  }
  if (!place.is_shard()) {
    return false;
  }
  const int64_t dim = call.dim(1, self.dim());
  call.use_local(0);
  call.run();
  if (place.is_shard(dim)) {
    const auto local = call.local_result();
    const auto before = total_before(call, local.narrow(dim, local.size(dim) - 1, 1));
    if (before.defined()) {
      call.result() = call.name() == "aten::cumprod" ? local * before
          : call.name() == "aten::cumsum"            ? local + before
                                                     : at::logaddexp(local, before);
    }
  }
  call.place_result(0, place, self.sizes());
  return true;
}

/// cumsum_, cumprod_.
bool scan_in_place(Call& call) {
  const auto place = call.place(0);
  const at::Tensor self = call.tensor(0);
  if (!place.is_shard() || place.dim() == call.dim(1, self.dim()) ||
      call.overload().find("name") != std::string::npos) {
    return false;
  }
  call.use_local(0);
  call.run();
  call.return_self(self);
  return true;
}

/// sorted_sequence, self, …, sorter: each value's place among sorted ones. Rows
/// of both belong together, unless there is one sequence for all.
bool searchsorted(Call& call) {
  if (!call.info().writes.empty() || call.overload() != "Tensor") {
    return false;
  }
  const at::Tensor sorted = call.tensor(0);
  const at::Tensor self = call.tensor(1);
  const bool rows = sorted.dim() > 1;
  auto place = call.place(1);
  if (!place.is_shard()) {
    place = call.place(0);
    if (!rows || !place.is_shard() || place.dim() == sorted.dim() - 1) {
      return false;
    }
  }
  const bool same_rows = rows && place.dim() < sorted.dim() - 1;
  if (same_rows && (self.dim() != sorted.dim() ||
       self.size(place.dim()) != sorted.size(place.dim()))) {
    return false; // an error, which the whole tensors give
  }
  const int sorter = call.index("sorter");
  call.use(0, same_rows ? place : Replicate());
  call.use(1, place);
  call.use(sorter, same_rows ? place : Replicate());
  call.run();
  call.place_result(0, place, self.sizes());
  return true;
}

/// Each element by itself, against all of argument 1: bucketize, isin.
bool each_element(Call& call) {
  if (!call.info().writes.empty() || !call.at(0).isTensor()) {
    return false;
  }
  const auto place = call.place(0);
  if (!place.is_shard()) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  call.use_local(0);
  call.use_whole(1);
  call.run();
  call.place_result(0, place, self.sizes());
  return true;
}

/// self, bins, min, max: counts. Without bounds they are the tensor's own.
bool histc(Call& call) {
  const auto place = call.place(0);
  if (!call.info().writes.empty() || !place.is_shard() ||
      call.at(2).toScalar().toDouble() == call.at(3).toScalar().toDouble()) {
    return false;
  }
  call.use_local(0);
  call.run();
  call.place_result(0, Partial());
  return true;
}

/// self, weights, minlength: counts up to the greatest value of all processes.
bool bincount(Call& call) {
  const auto place = call.has(1) ? first_cut(call, {0, 1}) : call.place(0);
  const at::Tensor self = call.tensor(0);
  if (!call.info().writes.empty() || !place.is_shard(0) || self.dim() != 1 ||
      !at::isIntegralType(self.scalar_type(), /*includeBool=*/false) ||
      (call.has(1) && call.tensor(1).sizes() != self.sizes())) {
    return false;
  }
  const auto local = call.local_as(self, place).to(at::kLong);
  const auto bounds = reduce(
      call.axis(), at::stack({local.max(), local.min().neg()}), ReduceOp::kMax,
      call.name().c_str());
  if (bounds[1].item<int64_t>() > 0) {
    return false; // an error, which the whole tensors give
  }
  const int64_t bins =
      std::max(call.integer(2), bounds[0].item<int64_t>() + 1);
  call.use(0, place);
  call.use(1, place);
  call.set(2, bins);
  call.run();
  call.place_result(0, Partial());
  return true;
}

} // namespace

const Family& family() {
  static const char* const others = "other dimensions";
  static const char* const totals =
      "along the cut dimension the last row of each process";
  static const Family rows{
      {"aten::sort", beside, others, "nothing"},
      {"aten::argsort", beside, others, "nothing"},
      {"aten::topk", beside, others, "nothing"},
      {"aten::kthvalue", beside, others, "nothing"},
      {"aten::cummax", beside, others, "nothing"},
      {"aten::cummin", beside, others, "nothing"},
      {"aten::cumsum", scan, "S, P", totals},
      {"aten::cumprod", scan, "S", totals},
      {"aten::logcumsumexp", scan, "S", totals},
      {"aten::_logcumsumexp", beside, others, "nothing"},
      {"aten::cumsum_", scan_in_place, others, "nothing"},
      {"aten::cumprod_", scan_in_place, others, "nothing"},
      {"aten::searchsorted", searchsorted, "S", "a sequence that all values need"},
      {"aten::bucketize", each_element, "S", "boundaries that are cut"},
      {"aten::isin", each_element, "S of the elements", "test elements that are cut"},
      {"aten::histc", histc, "S, with bounds", "nothing; the result is P"},
      {"aten::bincount", bincount, "S", "the greatest value; the result is P"},
  };
  return rows;
}

} // namespace accel::distributed::ordering_rules
