#include "distributed/axis.h"

#include <accel/detail/alone.h>

#include <c10/core/AutogradState.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>

namespace accel::distributed {

Axis::Axis(
    accel::detail::Communicator* communicator,
    int64_t mesh,
    int64_t index,
    std::string name,
    int64_t further,
    int64_t line)
    : communicator_(communicator),
      mesh_(mesh),
      index_(index),
      further_(further),
      line_(line),
      name_(std::move(name)),
      rank_(communicator->rank()),
      size_(communicator->size()),
      thread_(&in_this_thread) {
  if (size_ > 1) {
    // Autograd is to remember how views were made. Else it goes back to the base of a
    // view that was written to by its place in memory (as_strided), which parts have not
    // in common with the whole tensor, so that the gradients there would be gathered:
    // InstanceNorm2d followed by ReLU(inplace), or `x.narrow(…).mul_(…)`.
    c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
  }
}

__thread char Axis::in_this_thread;

Cut Axis::cut_at(std::vector<int64_t> points, int64_t blocks) const {
  bool usual = blocks == 1;
  for (int64_t rank = 0; rank < size_; ++rank) {
    usual = usual && range(points.back(), {}, rank).first == points[rank];
  }
  return usual ? Cut() : c10::make_intrusive<CutPoints>(std::move(points), blocks);
}

accel::detail::Communicator& Axis::communicator(const char* operation) const {
  TORCH_CHECK(
      communicator_ != nullptr,
      "accel: ",
      operation,
      " of a distributed tensor needs the other processes, but the Accelerator "
      "has ended. Take what is needed later out of it before "
      "(accelerator.full(tensor)).");
  const char* const region = accel::detail::AloneGuard::region();
  TORCH_CHECK(
      region == nullptr,
      "accel: ",
      operation,
      " of a distributed tensor needs all processes at the same time, but this "
      "is inside of ",
      region,
      ". Compute it before, on all processes (accelerator.full(tensor)), and use "
      "the result here.");
  check_thread(operation);
  return *communicator_;
}

void Axis::check_foreign_thread(const char* operation) const {
  TORCH_CHECK(
      torch::autograd::get_current_node() != nullptr,
      "accel: ",
      operation,
      " was called with a distributed tensor on another thread than the one "
      "that made its mesh. Processes would communicate in different orders. "
      "Hand the thread accelerator.full(tensor).");
}

} // namespace accel::distributed
