#include "distributed/passing.h"

#include "core/operation_log.h"
#include "distributed/collectives.h"
#include "distributed/part.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <utility>

// Messages go by all_to_all, in which each process has one that it sends to: through
// shared memory between processes of one host, by Gloo between hosts, compared and
// watched as all collectives are.

namespace accel::distributed {
namespace {

/// In the same places along further axes on all processes, which have other rows.
std::vector<at::Tensor> ready(
    Axis& axis,
    std::vector<at::Tensor> tensors,
    int64_t dim,
    const char* operation) {
  for (auto& tensor : tensors) {
    tensor = without_cut(agreed(axis, tensor, operation), dim);
  }
  return tensors;
}

const at::Tensor& innermost(const at::Tensor& tensor) {
  Part* part = part_of(tensor);
  return part == nullptr ? tensor : innermost(part->local);
}

/// `plain` in the places that `like` has along further axes.
at::Tensor placed_like(const at::Tensor& like, const at::Tensor& plain, int64_t dim) {
  Part* part = part_of(like);
  if (part == nullptr) {
    return plain;
  }
  auto sizes = part->sizes;
  sizes[static_cast<size_t>(dim)] = plain.size(dim);
  return make_tensor(
      *part->axis, placed_like(part->local, plain, dim), part->placement, sizes);
}

at::Tensor packed(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const auto& tensor : tensors) {
    flat.push_back(
        innermost(tensor).resolve_conj().resolve_neg().reshape({-1}));
  }
  return at::cat(flat);
}

/// Views of a message of `rows` rows, in the other sizes and the places of `like`.
std::vector<at::Tensor> unpacked(
    const at::Tensor& message,
    const std::vector<at::Tensor>& like,
    int64_t dim,
    int64_t rows) {
  std::vector<at::Tensor> tensors;
  int64_t at = 0;
  for (const auto& one : like) {
    auto sizes = innermost(one).sizes().vec();
    sizes[static_cast<size_t>(dim)] = rows;
    const int64_t count = c10::multiply_integers(sizes);
    tensors.push_back(
        placed_like(one, message.narrow(0, at, count).view(sizes), dim));
    at += count;
  }
  return tensors;
}

/// The tensors' elements in one entry of dimension `dim`.
int64_t row_of(const std::vector<at::Tensor>& tensors, int64_t dim) {
  int64_t elements = 0;
  for (const auto& tensor : tensors) {
    auto sizes = innermost(tensor).sizes().vec();
    sizes[static_cast<size_t>(dim)] = 1;
    elements += c10::multiply_integers(sizes);
  }
  return elements;
}

/// By how many places; the message of the process that stands so far back.
at::Tensor shifted(
    Axis& axis,
    const at::Tensor& message,
    int64_t row,
    const std::vector<int64_t>& rows,
    int64_t distance,
    const char* operation) {
  const int64_t n = axis.size();
  const auto to = static_cast<size_t>((axis.rank() + distance) % n);
  const auto from = static_cast<size_t>((axis.rank() + n - distance) % n);
  accel::detail::Exchange parts;
  parts.message = message;
  parts.sends.assign(static_cast<size_t>(n), 0);
  parts.begins.assign(static_cast<size_t>(n), 0);
  parts.counts.assign(static_cast<size_t>(n), 0);
  parts.sends[to] = message.numel();
  parts.counts[from] = rows[from] * row;
  parts.longest = *std::max_element(rows.begin(), rows.end()) * row;
  ++traffic().exchanges;
  traffic().bytes += static_cast<int64_t>(message.nbytes());
  auto detail = static_cast<uint64_t>(distance);
  for (const int64_t count : rows) {
    detail = detail * 1099511628211ULL + static_cast<uint64_t>(count);
  }
  const std::vector<int64_t> sizes{n, row};
  const accel::detail::PurposeGuard purpose(operation, sizes, detail);
  return axis.communicator(operation).all_to_all(parts)[from];
}

} // namespace

PassedOn::PassedOn(
    Axis& axis,
    std::vector<at::Tensor> tensors,
    int64_t dim,
    std::vector<int64_t> rows,
    const char* operation)
    : axis_(axis),
      own_(ready(axis, std::move(tensors), dim, operation)),
      dim_(dim),
      rows_(std::move(rows)),
      operation_(operation) {}

std::vector<at::Tensor> PassedOn::next() {
  if (!message_.defined()) {
    message_ = packed(own_);
  }
  message_ = shifted(axis_, message_, row_of(own_, dim_), rows_, 1, operation_);
  std::rotate(rows_.begin(), rows_.end() - 1, rows_.end());
  return unpacked(
      message_, own_, dim_, rows_[static_cast<size_t>(axis_.rank())]);
}

std::vector<at::Tensor> sent_along(
    Axis& axis,
    std::vector<at::Tensor> tensors,
    int64_t dim,
    const std::vector<int64_t>& rows,
    int64_t distance,
    const char* operation) {
  const auto own = ready(axis, std::move(tensors), dim, operation);
  const int64_t n = axis.size();
  const auto from = static_cast<size_t>((axis.rank() + n - distance) % n);
  const bool any = std::any_of(
      rows.begin(), rows.end(), [](int64_t count) { return count > 0; });
  const auto message = packed(own);
  return unpacked(
      any ? shifted(axis, message, row_of(own, dim), rows, distance, operation)
          : message,
      own, dim, rows[from]);
}

} // namespace accel::distributed
