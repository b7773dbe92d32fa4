#include "distributed/rules/common.h"

// Distances between all pairs of rows: (0, 1), (0, 2), …, (1, 2), … Each process
// does the pairs that begin with some of the rows, about as many as the others.

namespace accel::distributed::pair_rules {
namespace {

/// How many pairs begin with rows in front of `row`, of `n` rows.
int64_t pairs_before(int64_t row, int64_t n) {
  return row * (2 * n - row - 1) / 2;
}

/// The rows with which each process's pairs begin: the same on all processes.
std::vector<int64_t> rows_of_processes(int64_t n, int64_t processes) {
  const int64_t all = pairs_before(n - 1, n);
  std::vector<int64_t> points{0};
  for (int64_t rank = 1; rank < processes; ++rank) {
    int64_t row = points.back() + 1;
    while (row < n - 1 - (processes - rank) &&
           pairs_before(row, n) * processes < all * rank) {
      ++row;
    }
    points.push_back(row);
  }
  points.push_back(n - 1);
  return points;
}

struct Pairs {
  /// Rows of this process.
  int64_t begin = 0;
  int64_t end = 0;
  /// Of the pairs.
  int64_t count = 0;
  Placement place;
};

/// False where there are fewer rows than it takes.
bool share_pairs(const Call& call, const at::Tensor& self, Pairs& pairs) {
  const int64_t n = self.dim() == 2 ? self.size(0) : 0;
  const int64_t processes = call.axis().size();
  if (!call.info().writes.empty() || n - 1 < processes) {
    return false;
  }
  const auto rows = rows_of_processes(n, processes);
  std::vector<int64_t> points;
  for (const int64_t row : rows) {
    points.push_back(pairs_before(row, n));
  }
  pairs.begin = rows[call.axis().rank()];
  pairs.end = rows[call.axis().rank() + 1];
  pairs.count = points.back();
  pairs.place = Shard(0, call.axis().cut_at(std::move(points)));
  return true;
}

/// Which of all pairs of this process's rows with those from its first one on are
/// pairs: where the second row is behind the first.
at::Tensor behind(const at::Tensor& distances) {
  return at::ones_like(distances, at::dtype(at::kBool)).triu(1);
}

/// The distances of this process's rows to those from its first one on.
at::Tensor block_of(const at::Tensor& rows, const Pairs& pairs, double p) {
  const auto second = rows.narrow(0, pairs.begin, rows.size(0) - pairs.begin);
  // 2: never by a matrix product, which rounds otherwise.
  return at::_cdist_forward(
      second.narrow(0, 0, pairs.end - pairs.begin), second, p, 2);
}

/// self `[N, M]`, p.
bool pdist_forward(Call& call) {
  const at::Tensor self = call.tensor(0);
  Pairs pairs;
  if (!share_pairs(call, self, pairs)) {
    return false;
  }
  const auto block = block_of(
      call.local_as(self, Replicate()), pairs, call.at(1).toDouble());
  call.finish({block.masked_select(behind(block))});
  call.place_result(0, pairs.place, Sizes{pairs.count});
  return true;
}

/// grad, self, p, the distances. Each process gives the gradient that its pairs
/// have for all rows: a part of their sum.
bool pdist_backward(Call& call) {
  const at::Tensor self = call.tensor(1);
  Pairs pairs;
  if (!share_pairs(call, self, pairs) || call.tensor(0).dim() != 1) {
    return false;
  }
  const double p = call.at(2).toDouble();
  const auto rows = call.local_as(self, Replicate()).contiguous();
  const auto gradient = call.local_as(call.tensor(0), pairs.place);
  const auto distances = call.local_as(call.tensor(3), pairs.place);
  const auto second = rows.narrow(0, pairs.begin, rows.size(0) - pairs.begin);
  const auto first = second.narrow(0, 0, pairs.end - pairs.begin);
  const auto zeros =
      at::zeros({first.size(0), second.size(0)}, rows.options());
  const auto mask = behind(zeros);
  const auto of_pairs = zeros.masked_scatter(mask, gradient);
  const auto block = zeros.masked_scatter(mask, distances);
  auto sum = at::zeros_like(rows);
  sum.narrow(0, pairs.begin, second.size(0))
      .add_(at::_cdist_backward(
          of_pairs.t().contiguous(), second, first, p, block.t().contiguous()));
  sum.narrow(0, pairs.begin, first.size(0))
      .add_(at::_cdist_backward(of_pairs, first, second, p, block));
  call.finish({sum});
  call.place_result(0, Partial(), self.sizes());
  return true;
}

} // namespace

const Family& family() {
  static const Family rows{
      {"aten::_pdist_forward", pdist_forward,
       "any, of which the pairs are cut", "all-gather of the rows"},
      {"aten::_pdist_backward", pdist_backward,
       "any, of which P is left", "all-gather of the rows"},
  };
  return rows;
}

} // namespace accel::distributed::pair_rules
