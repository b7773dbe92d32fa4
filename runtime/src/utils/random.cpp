#include <accel/utils/random.h>

#include <accel/detail/communicator.h>

#include <ATen/Context.h>
#include <torch/utils.h>

#include <cstdlib>

namespace accel {

void set_seed(uint64_t seed, const SetSeedOptions& options) {
  if (options.device_specific()) {
    seed += static_cast<uint64_t>(
        options.process_index() ? *options.process_index()
                                : detail::communicator().rank());
  }
  std::srand(static_cast<unsigned>(seed));
  torch::manual_seed(seed);
  if (options.deterministic()) {
    at::globalContext().setDeterministicAlgorithms(
        /*mode=*/true, /*warn_only=*/false);
  }
}

} // namespace accel
