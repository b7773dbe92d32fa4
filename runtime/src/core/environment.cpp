#include "core/environment.h"
#include "core/plain_text.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>

namespace accel::detail {

std::optional<std::string> get_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  return std::string(value);
}

std::optional<bool> get_environment_flag(const char* name) {
  auto value = get_environment(name);
  if (!value) {
    return std::nullopt;
  }
  if (const auto flag = flag_in(*value)) {
    return flag;
  }
  TORCH_CHECK(
      false,
      "accel: the environment variable ",
      name,
      " is '",
      *value,
      "', which is neither yes nor no. Set it to 1 or 0, or unset it.");
}

std::optional<int64_t> get_environment_integer(
    const char* name,
    int64_t least,
    int64_t most) {
  auto value = get_environment(name);
  if (!value) {
    return std::nullopt;
  }
  int64_t number = 0;
  const char* end = value->data() + value->size();
  const auto parsed = std::from_chars(value->data(), end, number);
  TORCH_CHECK(
      parsed.ec == std::errc() && parsed.ptr == end && number >= least &&
          number <= most,
      "accel: the environment variable ",
      name,
      " is '",
      *value,
      "', but must be a whole number from ",
      least,
      " to ",
      most,
      ".");
  return number;
}

bool Environment::single_host() const {
  return local_world_size == world_size || master_addr == "localhost" ||
      master_addr == "::1" || master_addr.rfind("127.", 0) == 0;
}

Environment read_environment() {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  Environment environment;
  const auto rank = get_environment_integer("RANK", 0, kMost);
  const auto world_size = get_environment_integer("WORLD_SIZE", 1, kMost);
  if (!rank && !world_size) {
    return read_batch_system().value_or(environment);
  }
  if (!rank && *world_size == 1) {
    return environment;
  }
  TORCH_CHECK(
      rank && world_size,
      "accel: the environment variable ",
      rank ? "RANK" : "WORLD_SIZE",
      " is set (",
      rank ? *rank : *world_size,
      ") but ",
      rank ? "WORLD_SIZE" : "RANK",
      " is not. Start the program with `accel launch` or torchrun, which set "
      "both, or unset both to run one process.");
  TORCH_CHECK(
      *rank < *world_size,
      "accel: RANK is ",
      *rank,
      " but WORLD_SIZE is ",
      *world_size,
      "; ranks go from 0 to WORLD_SIZE - 1. Check how the program was "
      "started.");
  environment.rank = *rank;
  environment.world_size = *world_size;
  environment.local_world_size =
      get_environment_integer("LOCAL_WORLD_SIZE", 1, *world_size)
          .value_or(*world_size);
  // Without LOCAL_RANK all processes are taken to be on this machine.
  environment.local_rank =
      get_environment_integer("LOCAL_RANK", 0, kMost).value_or(*rank);
  TORCH_CHECK(
      environment.local_rank < environment.local_world_size,
      "accel: LOCAL_RANK is ",
      environment.local_rank,
      " but LOCAL_WORLD_SIZE is ",
      environment.local_world_size,
      "; local ranks go from 0 to LOCAL_WORLD_SIZE - 1. Check how the program "
      "was started.");
  if (!environment.distributed()) {
    return environment;
  }
  const auto address = get_environment("MASTER_ADDR");
  const auto port = get_environment_integer("MASTER_PORT", 1, 65535);
  TORCH_CHECK(
      address && port,
      "accel: this is process ",
      *rank,
      " of ",
      *world_size,
      " but the environment variable ",
      address ? "MASTER_PORT" : "MASTER_ADDR",
      " is not set, so the processes do not know where to meet. Start the "
      "program with `accel launch` or torchrun, or set it to the same value "
      "for all processes (for one machine MASTER_ADDR=127.0.0.1 and any free "
      "MASTER_PORT).");
  environment.master_addr = *address;
  environment.master_port = static_cast<uint16_t>(*port);
  environment.agent_store =
      get_environment_flag("TORCHELASTIC_USE_AGENT_STORE").value_or(false);
  return environment;
}

} // namespace accel::detail
