#include "gathering_communicator.h"

#include <ATen/ATen.h>

namespace accel::distributed::test {

void GatheringCommunicator::all_reduce(at::Tensor& tensor) {
  const auto all = all_gather(tensor);
  auto sum = all[0];
  for (size_t i = 1; i < all.size(); ++i) {
    sum = sum + all[i];
  }
  tensor.copy_(sum);
}

accel::detail::Communicator::Waiter GatheringCommunicator::all_reduce_async(
    at::Tensor& tensor) {
  all_reduce(tensor);
  return [] {};
}

void GatheringCommunicator::broadcast(at::Tensor& tensor, int64_t source) {
  tensor.copy_(all_gather(tensor)[source]);
}

} // namespace accel::distributed::test
