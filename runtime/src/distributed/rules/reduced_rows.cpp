#include "distributed/rules/reduced_rows.h"

#include "distributed/rules/common.h"

#include <ATen/ATen.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>

// Rows that meet in an entry of the result lie on several processes: messages along
// the edges of a graph. Each process reduces its own, beginning with what changes
// nothing, so that entries without rows of its own stay out.

namespace accel::distributed::reduced_rows_rules {
namespace {

struct Reduction {
  /// What a process does with its rows, in the words of LibTorch.
  const char* own;
  /// What is done with the results of the processes.
  ReduceOp over;
  bool is_mean = false;
};

std::optional<Reduction> reduction(std::string_view name) {
  if (name == "sum") {
    return Reduction{"sum", ReduceOp::kSum};
  }
  if (name == "mean") {
    return Reduction{"sum", ReduceOp::kSum, true};
  }
  if (name == "amax") {
    return Reduction{"amax", ReduceOp::kMax};
  }
  if (name == "amin") {
    return Reduction{"amin", ReduceOp::kMin};
  }
  if (name == "prod") {
    return Reduction{"prod", ReduceOp::kProduct};
  }
  return std::nullopt;
}

/// What changes nothing.
double neutral(ReduceOp op) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return op == ReduceOp::kMax      ? -infinity
      : op == ReduceOp::kMin       ? infinity
      : op == ReduceOp::kProduct ? 1
                                   : 0;
}

/// The operator itself, of either kind.
at::Tensor reduced(
    bool by_scatter,
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Tensor& source,
    const char* by) {
  // index_reduce has no sum.
  if (!by_scatter && std::string_view(by) == "sum") {
    return self.index_add(dim, index, source);
  }
  return by_scatter ? self.scatter_reduce(dim, index, source, by)
                    : self.index_reduce(dim, index, source, by);
}

/// Where the rows are cut.
Placement cut_of_rows(const Call& call, int64_t dim, int64_t in_index) {
  const auto of_source = call.place(3);
  const auto of_index = call.place(2);
  return of_source.is_shard(dim)      ? of_source
      : of_index.is_shard(in_index) ? of_index.with_dim(dim)
                                      : Replicate();
}

/// Whether each entry of the source belongs to one of the index.
bool fit(const Call& call, int64_t dim, int64_t in_index) {
  const auto& self = call.tensor(0);
  const auto& index = call.tensor(2);
  const auto& source = call.tensor(3);
  return self.dim() > 0 && source.dim() == self.dim() &&
      (index.dim() == self.dim() ? index.sizes() == source.sizes()
                                 : index.dim() == 1 && in_index == 0 &&
               index.size(0) == source.size(dim));
}

} // namespace

bool reduce_cut_rows(Call& call, int64_t dim, int64_t in_index) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const auto how = reduction(call.at(4).toStringView());
  const auto type = self.scalar_type();
  if (!how || !fit(call, dim, in_index) || !(place.is_replicate() || place.is_shard(dim)) ||
      (type != at::kFloat && type != at::kDouble) ||
      call.tensor(3).scalar_type() != type) {
    return false;
  }
  const auto rows = cut_of_rows(call, dim, in_index);
  if (!rows.is_shard()) {
    return false;
  }
  const bool by_scatter = call.name().rfind("aten::scatter", 0) == 0;
  const bool include_self = call.boolean(5);
  const auto index = call.local_as(call.tensor(2), rows.with_dim(in_index));
  const auto source = call.local_as(call.tensor(3), rows);
  const auto options = source.options();
  const char* const name = call.name().c_str();
  const auto begun = [&](double value) {
    return at::full(self.sizes(), value, options);
  };
  auto all = reduced(by_scatter, begun(neutral(how->over)), dim, index, source, how->own);
  at::Tensor counts;
  if (how->is_mean || !include_self) {
    counts = reduced(by_scatter, begun(0), dim, index, at::ones_like(source), "sum");
  }
  if (counts.defined() && how->over == ReduceOp::kSum) {
    const auto both = summed(call, at::stack({all, counts}));
    all = both.select(0, 0);
    counts = both.select(0, 1);
  } else {
    all = reduce(call.axis(), all, how->over, name);
    counts = counts.defined() ? summed(call, counts) : counts;
  }
  // The entries that this process has of the result.
  const auto own = [&](const at::Tensor& whole) {
    return place.is_shard() && whole.defined() ? own_rows(call.axis(), whole, place)
                                               : whole;
  };
  all = own(all);
  counts = own(counts);
  const at::Tensor before = call.local(0);
  at::Tensor result;
  if (include_self) {
    result = how->over == ReduceOp::kMax    ? at::maximum(before, all)
        : how->over == ReduceOp::kMin       ? at::minimum(before, all)
        : how->over == ReduceOp::kProduct ? before * all
                                            : before + all;
    result = how->is_mean ? result / (counts + 1) : result;
  } else {
    all = how->is_mean ? all / counts.clamp_min(1) : all;
    result = at::where(counts > 0, all, before);
  }
  if (call.info().is_in_place) {
    at::Tensor(before).copy_(result);
    result = before;
  } else {
    result = result.contiguous(); // whatever the order of `self` is
  }
  call.finish({result});
  leave_self(call, self, place);
  return true;
}

bool set_named_entries(Call& call, int64_t dim) {
  const at::Tensor self = call.tensor(0);
  const at::Tensor index = call.tensor(2);
  const auto place = call.place(0);
  const auto of_index = call.place(2);
  if (self.dim() == 0 || index.dim() != self.dim() ||
      !(place.is_replicate() || place.is_shard(dim)) ||
      !(of_index.is_replicate() || of_index.is_shard(dim)) ||
      index.size(dim) < call.axis().size()) {
    return false;
  }
  const auto own_index = call.local_as(
      index, of_index.is_shard() ? of_index : Shard(dim));
  auto named = at::zeros(self.sizes(), own_index.options().dtype(at::kFloat))
                   .scatter(dim, own_index, 1);
  named = reduce(call.axis(), named, ReduceOp::kMax, call.name().c_str());
  named = place.is_shard() ? own_rows(call.axis(), named, place) : named;
  call.finish({at::Tensor(call.local(0))
                   .masked_fill(named > 0, call.at(3).toScalar())
                   .contiguous()});
  call.place_result(0, place, self.sizes());
  return true;
}

} // namespace accel::distributed::reduced_rows_rules
