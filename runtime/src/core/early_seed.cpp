#include "core/early_seed.h"

#include "core/environment.h"
#include "core/text_hash.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace accel::detail {
namespace {

/// Nothing outside of a launch of several processes, and where `accel verify` seeds.
std::optional<uint64_t> seed_of_launch() {
  const auto port = get_environment("MASTER_PORT");
  if (get_environment("WORLD_SIZE").value_or("1") == "1" || !port ||
      get_environment("ACCEL_TRACE_SEED")) {
    return {};
  }
  return text_hash(
      *port + "/" + get_environment("TORCHELASTIC_RUN_ID").value_or("") + "/" +
      get_environment("TORCHELASTIC_RESTART_COUNT").value_or(""));
}

/// When the library is loaded. Nothing is thrown: nobody could catch it.
const std::optional<uint64_t> early_seed = [] {
  const auto seed = seed_of_launch();
  if (seed) {
    auto generator = at::globalContext().defaultGenerator(at::kCPU);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(*seed);
  }
  return seed;
}();

} // namespace

void forget_early_seed() {
  if (early_seed) {
    auto generator = at::globalContext().defaultGenerator(at::kCPU);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    if (generator.current_seed() == *early_seed) {
      generator.seed();
    }
  }
}

} // namespace accel::detail
