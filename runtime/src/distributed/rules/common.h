#pragma once

#include "distributed/rules/table.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <initializer_list>

// What rules of several families need.

namespace accel::distributed {

/// The placement of the first of these arguments that is cut; Replicate where
/// none is.
inline Placement first_cut(
    const Call& call,
    std::initializer_list<size_t> arguments) {
  for (const size_t i : arguments) {
    auto place = call.place(i);
    if (place.is_shard()) {
      return place;
    }
  }
  return Replicate();
}

/// `call.use`, for kernels that take an argument's memory to be contiguous
/// without looking: it is so on one device, but a slice may not be.
inline void use_contiguous(Call& call, size_t i, const Placement& place) {
  if (call.has(i)) {
    call.use(i, place);
    call.set(i, call.tensor(i).contiguous());
  }
}

/// What a reduction over some dimensions leaves of a tensor.
struct Reduced {
  Sizes sizes;
  /// Where a dimension that is kept has gone; -1 for one that is reduced.
  Sizes dim_of;
};

/// No dimensions: all of them.
inline Reduced reduced(const at::Tensor& tensor, Sizes dims, bool keepdim) {
  Reduced out;
  for (auto& dim : dims) {
    dim = dim < 0 ? dim + tensor.dim() : dim;
  }
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const bool gone =
        dims.empty() || std::find(dims.begin(), dims.end(), d) != dims.end();
    out.dim_of.push_back(gone ? -1 : static_cast<int64_t>(out.sizes.size()));
    if (!gone) {
      out.sizes.push_back(tensor.size(d));
    } else if (keepdim) {
      out.sizes.push_back(1);
    }
  }
  return out;
}

/// The same, of argument 0 and the operator's own `dim` and `keepdim`.
inline Reduced reduced(const Call& call) {
  const int dim = call.info().dim;
  const int keepdim = call.info().keepdim;
  return reduced(
      call.tensor(0),
      dim < 0 ? Sizes() : call.integers(dim),
      keepdim >= 0 && call.boolean(keepdim));
}

/// The processes' tensors, which have the same sizes, stacked by rank in a new
/// dimension 0; replicated. Collective.
inline at::Tensor stacked(const Call& call, const at::Tensor& local) {
  Sizes sizes{call.axis().size()};
  sizes.append(local.sizes().begin(), local.sizes().end());
  return gather(
      call.axis(), local.unsqueeze(0), Shard(0), sizes, call.name().c_str());
}

/// The sum over the processes; replicated. Collective.
inline at::Tensor summed(const Call& call, const at::Tensor& local) {
  return reduce(call.axis(), local, ReduceOp::kSum, call.name().c_str());
}

/// What to compute in: float for the 16-bit types.
inline at::ScalarType wide(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

/// Few numbers of each process, as exact as they are put together.
inline at::Tensor wider(const at::Tensor& few) {
  return few.to(few.is_complex() ? at::kComplexDouble : at::kDouble);
}

/// Mean and squared deviations of `n` rows out of those of each process's rows.
struct Moments {
  at::Tensor mean;
  at::Tensor squares; ///< sum of squared deviations from the mean
  at::Tensor means; ///< of each process's rows, stacked
};

/// `mean` and `var` (biased) are those of this process's part of `n` rows, cut as
/// `place` says; `others` is how many elements each row has. In double precision,
/// as accurate as Welford's algorithm, which plain kernels use. Collective.
inline Moments combined_moments(
    const Call& call,
    const at::Tensor& mean,
    const at::Tensor& var,
    int64_t n,
    int64_t others,
    const Placement& place) {
  at::Tensor means;
  at::Tensor vars;
  if (mean.is_complex()) {
    means = stacked(call, wider(mean));
    vars = stacked(call, wider(var));
  } else {
    const auto both = stacked(call, at::stack({wider(mean), wider(var)}));
    means = both.select(1, 0);
    vars = both.select(1, 1);
  }
  Sizes sizes(means.dim(), 1);
  sizes[0] = call.axis().size();
  auto counts = at::empty({call.axis().size()}, at::kDouble);
  for (int64_t rank = 0; rank < call.axis().size(); ++rank) {
    const auto [begin, end] = call.axis().range(n, place.cut(), rank);
    counts.data_ptr<double>()[rank] =
        static_cast<double>(end - begin) * static_cast<double>(others);
  }
  counts = counts.to(var.device()).view(sizes);
  const double total = static_cast<double>(n) * static_cast<double>(others);
  Moments all;
  all.means = means;
  all.mean = (means * (counts / total)).sum(0);
  const auto away = means - all.mean;
  const auto away2 = away.is_complex() ? at::real(away * away.conj())
                                       : at::mul(away, away);
  all.squares = (counts * (vars + away2)).sum(0);
  return all;
}

inline Sizes sizes_of(const at::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

/// A dimension counted from the front.
inline int64_t wrapped(int64_t dim, int64_t dims) {
  return dim < 0 ? dim + dims : dim;
}

/// `out=` overloads: the whole tensors do them.
inline bool has_out(const Call& call) {
  return !call.info().writes.empty() && !call.info().is_in_place;
}

/// Whether argument i is cut in another dimension than `dim` (a dimension of
/// this argument).
inline bool cut_beside(const Call& call, size_t i, int64_t dim) {
  const auto place = call.place(i);
  return place.is_shard() && place.dim() != dim;
}

/// The whole sizes of a result whose cut dimension has `n` rows, as a list that
/// LibTorch takes, with this process's rows there.
inline std::vector<int64_t> local_sizes(
    const Call& call,
    c10::IntArrayRef sizes,
    const Placement& place) {
  auto local = sizes.vec();
  if (place.is_shard()) {
    local[place.dim()] = call.rows(sizes[place.dim()], place);
  }
  return local;
}

/// Whether argument i's local tensor is cut in dimension `dim` along a further
/// axis, too, on any process: its rows are not as many on all of them then, and
/// nothing may be decided by them. Collective where the mesh has further axes;
/// all processes get the same answer.
inline bool cut_further(const Call& call, size_t i, int64_t dim) {
  return any_cut_further(
      call.axis(), call.local(i), dim, call.name().c_str());
}

/// Whether converting the parts of a sum and converting the sum are the same:
/// where nothing is rounded.
inline bool keeps_sum(at::ScalarType from, at::ScalarType to) {
  if (from == to) {
    return true;
  }
  return (at::isFloatingType(from) && to == at::kDouble) ||
      ((from == at::kHalf || from == at::kBFloat16) && to == at::kFloat);
}

/// The same for argument 0 and the operator's own `dtype`, if it has one.
inline bool keeps_sum(const Call& call) {
  const int dtype = call.index("dtype");
  return dtype < 0 || call.at(dtype).isNone() ||
      keeps_sum(call.tensor(0).scalar_type(), call.at(dtype).toScalarType());
}

/// An overload for `out=` of an operator that writes other arguments, too, which
/// its schema does not tell (running statistics).
inline bool is_out_form(const Call& call) {
  return call.op().schema().arguments().back().is_out();
}

/// The result of an operator on argument 0, which may be in place.
inline void leave_self(Call& call, const at::Tensor& self, const Placement& place) {
  if (call.info().is_in_place) {
    call.return_self(self);
  } else {
    call.place_result(0, place, self.sizes());
  }
}

/// Replaces the list of tensors at argument i.
inline void use_list(Call& call, size_t i, const Placement& to) {
  auto list = call.tensors(i);
  for (auto& tensor : list) {
    tensor = call.local_as(tensor, to);
  }
  call.set(i, std::move(list));
}

} // namespace accel::distributed
