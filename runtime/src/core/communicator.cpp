#include <accel/detail/communicator.h>

#include <ATen/ATen.h>

namespace accel::detail {

std::vector<at::Tensor> Communicator::all_to_all(const Exchange& exchange) {
  const at::NoGradGuard no_grad;
  auto padded = at::zeros({exchange.longest}, exchange.message.options());
  padded.narrow(0, 0, exchange.message.numel()).copy_(exchange.message);
  auto received = all_gather(padded);
  for (size_t rank = 0; rank < received.size(); ++rank) {
    received[rank] =
        received[rank]
            .narrow(0, exchange.begins[rank], exchange.counts[rank])
            .clone();
  }
  return received;
}

} // namespace accel::detail
