#include "core/early_seed.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace accel::detail {
namespace {

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Nothing outside of a launch of several processes, and where `accel verify` seeds.
std::optional<uint64_t> seed_of_launch() {
  const std::string processes = text_of("WORLD_SIZE");
  const std::string port = text_of("MASTER_PORT");
  if (processes.empty() || processes == "1" || port.empty() ||
      !text_of("ACCEL_TRACE_SEED").empty()) {
    return {};
  }
  const std::string launch = port + "/" + text_of("TORCHELASTIC_RUN_ID") + "/" +
      text_of("TORCHELASTIC_RESTART_COUNT");
  uint64_t seed = 0xcbf29ce484222325; // FNV-1a: the same in all standard libraries.
  for (const char c : launch) {
    seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return seed;
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
