#include "dispatch/share.h"

#include <accel/data/whole_batch.h>
#include <accel/detail/communicator.h>
#include <accel/gradient_state.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

namespace accel::detail {
namespace {

thread_local int dropout_guards = 0;

/// What tensors of one shape, but for the dimensions that may count the samples,
/// have been.
struct Seen {
  /// Rows of the batch, in this dimension.
  std::optional<int64_t> dim;
  /// Something else, or rows in different dimensions.
  bool fixed = false;
  bool mixed = false;

  void rows(int64_t in) {
    mixed = mixed || (dim && *dim != in);
    dim = in;
  }
  bool only_fixed() const {
    return fixed && !dim;
  }
  bool only_rows() const {
    return dim && !fixed && !mixed;
  }
};

/// All processes see the same draws in the same order, and the dimensions that
/// may count the samples are the same everywhere, so they remember the same.
class Memory {
 public:
  Seen& operator()(Draw draw, at::IntArrayRef sizes, at::IntArrayRef dims) {
    // Shapes that change all the time must not fill the memory.
    if (seen_.size() > 4096) {
      seen_.clear();
    }
    auto key = sizes.vec();
    for (const int64_t dim : dims) {
      key[dim] = -1;
    }
    key.push_back(static_cast<int64_t>(draw));
    return seen_[key];
  }

 private:
  std::map<std::vector<int64_t>, Seen> seen_;
};

/// Rows of each process's tensors.
std::vector<int64_t> rows_of_processes(const BatchShare& share) {
  std::vector<int64_t> rows(communicator().size());
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    rows[rank] = BatchShare::of(
                     share.global,
                     static_cast<int64_t>(rank),
                     static_cast<int64_t>(rows.size()))
                     .rows();
  }
  return rows;
}

/// The dimensions that may count the samples, the likeliest first: those that
/// are as large as some process's part, then multiples.
std::vector<int64_t> candidates(
    at::IntArrayRef sizes,
    int64_t least,
    int64_t most) {
  std::vector<int64_t> dims;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == least || sizes[dim] == most) {
      dims.push_back(static_cast<int64_t>(dim));
    }
  }
  if (least == most && dims.size() > 1 && dims.front() != 0) {
    dims.clear(); // nothing tells them apart
  }
  const bool leads = !dims.empty() && dims.front() == 0;
  if (dropout_guards > 0 && !leads && sizes[0] > 0 &&
      (sizes[0] % least == 0 || sizes[0] % most == 0)) {
    dims.push_back(0);
  }
  return dims;
}

/// How many rows of the tensor belong to one sample; 0 where they do not.
int64_t rows_per_sample(int64_t size, int64_t rows) {
  if (size == rows) {
    return 1;
  }
  return dropout_guards > 0 && size % rows == 0 ? size / rows : 0;
}

/// Whether every process has the rows of its samples in dimension `dim`.
bool processes_have_rows(
    const std::vector<at::Tensor>& sizes,
    const std::vector<int64_t>& rows,
    int64_t dim) {
  const auto size_of = [&](size_t rank) {
    return sizes[rank][dim].item<int64_t>();
  };
  const int64_t per_sample = rows_per_sample(size_of(0), rows[0]);
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    if (per_sample == 0 || size_of(rank) != per_sample * rows[rank]) {
      return false;
    }
  }
  return true;
}

} // namespace

std::optional<BatchShare> active_share() {
  if (!distributed() || !match_single_device() || WholeBatchGuard::active()) {
    return std::nullopt;
  }
  return GradientState::get().share();
}

DropoutGuard::DropoutGuard() {
  ++dropout_guards;
}

DropoutGuard::~DropoutGuard() {
  --dropout_guards;
}

std::optional<RowsOfDraw> rows_of_draw(Draw draw, at::IntArrayRef sizes) {
  const auto share = active_share();
  if (!share || sizes.empty() || share->global == 0) {
    return std::nullopt;
  }
  static Memory memory;
  const auto rows = rows_of_processes(*share);
  const int64_t most = rows.front();
  const int64_t least = rows.back();
  const auto dims = candidates(sizes, least, most);
  if (dims.empty()) {
    memory(draw, sizes, {0}).fixed = true;
    return std::nullopt;
  }

  auto& seen = memory(draw, sizes, dims);
  if (seen.only_fixed()) {
    return std::nullopt;
  }
  int64_t dim = seen.only_rows() ? *seen.dim : dims.front();
  if (!seen.only_rows() && least == most) {
    seen.rows(dim);
  } else if (!seen.only_rows()) {
    const auto all = communicator(Channel::kStatistics)
                         .all_gather(at::tensor(sizes, at::kLong));
    const auto found =
        std::find_if(dims.begin(), dims.end(), [&](int64_t candidate) {
          return processes_have_rows(all, rows, candidate);
        });
    if (found == dims.end()) {
      seen.fixed = true;
      return std::nullopt;
    }
    dim = *found;
    seen.rows(dim);
  }
  const int64_t per_sample = rows_per_sample(sizes[dim], share->rows());
  if (per_sample == 0) {
    return std::nullopt;
  }
  return RowsOfDraw{
      dim, per_sample * share->global, per_sample * share->offset};
}

} // namespace accel::detail
