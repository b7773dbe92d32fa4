#include "distributed/rules/selected.h"
#include "distributed/rules/common.h"

namespace accel::distributed {

Cut cut_of_selected(const Call& call, const at::Tensor& local_mask) {
  const auto counts =
      stacked(call, local_mask.count_nonzero()).to(at::kCPU, at::kLong);
  std::vector<int64_t> points{0};
  for (int64_t rank = 0; rank < call.axis().size(); ++rank) {
    const int64_t count = counts.const_data_ptr<int64_t>()[rank];
    if (count == 0) {
      return {};
    }
    points.push_back(points.back() + count);
  }
  return c10::make_intrusive<CutPoints>(std::move(points));
}

} // namespace accel::distributed
