#include "core/introduction.h"

#include "checkpoint/xxh64.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <thread>
#include <vector>

namespace accel::detail {
namespace {

/// The key of why a process does not take part.
constexpr const char* kRefused = "refused";

/// Of the program's file; a different build trains differently, or not at all.
std::string program_checksum() {
  std::ifstream program("/proc/self/exe", std::ios::binary);
  checkpoint::Xxh64 hash;
  std::vector<char> buffer(size_t{1} << 20);
  while (program) {
    program.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    hash.update(buffer.data(), static_cast<size_t>(program.gcount()));
  }
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, hash.digest());
  return text.data();
}

/// The LibTorch that this process has loaded, whatever it was compiled with.
std::string libtorch() {
  Dl_info info{};
  struct stat file {};
  if (::dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) == 0 ||
      ::stat(info.dli_fname, &file) != 0) {
    return "unknown";
  }
  return std::to_string(file.st_size) + " bytes";
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

struct Card {
  std::string host;
  /// What must be equal, with the names that messages have for it.
  std::vector<std::pair<std::string, std::string>> facts;
};

Card own_card(const Environment& environment) {
  Card card;
  card.host = host_name();
  card.facts = {
      {"number of processes (WORLD_SIZE)",
       std::to_string(environment.world_size)},
      {"version of accel", ACCEL_VERSION},
      {"number of hosts (more than one?)",
       environment.single_host() ? "one" : "several"}};
  if (!environment.single_host()) {
    card.facts.emplace_back("LibTorch", libtorch());
    card.facts.emplace_back("program (checksum)", program_checksum());
  }
  return card;
}

std::vector<uint8_t> packed(const Card& card) {
  const std::string text =
      nlohmann::json{{"host", card.host}, {"facts", card.facts}}.dump(
          -1, ' ', false, nlohmann::json::error_handler_t::replace);
  return {text.begin(), text.end()};
}

Card unpacked(const std::vector<uint8_t>& bytes) {
  Card card;
  const auto json = nlohmann::json::parse(bytes.begin(), bytes.end());
  json.at("host").get_to(card.host);
  json.at("facts").get_to(card.facts);
  return card;
}

void compare(
    const Environment& environment,
    const Card& mine,
    int64_t rank,
    const Card& other) {
  for (const auto& [name, value] : mine.facts) {
    for (const auto& [other_name, other_value] : other.facts) {
      TORCH_CHECK(
          name != other_name || value == other_value,
          "accel: process ",
          environment.rank,
          " on ",
          mine.host,
          " was started with another ",
          name,
          " than process ",
          rank,
          " on ",
          other.host,
          ": ",
          value,
          " and ",
          other_value,
          ". Start the same program in the same way on all hosts.");
    }
  }
}

/// The card of process `rank`. Throws where a process has refused meanwhile:
/// then not all will come.
Card card_of(c10d::Store& store, int64_t rank) {
  const std::string key = "card/" + std::to_string(rank);
  const auto deadline = std::chrono::steady_clock::now() + store.getTimeout();
  auto pause = std::chrono::milliseconds(1);
  while (!store.check({key})) {
    if (store.check({kRefused})) {
      const auto why = store.get(kRefused);
      TORCH_CHECK(false, std::string(why.begin(), why.end()));
    }
    TORCH_CHECK(
        std::chrono::steady_clock::now() < deadline,
        "accel: process ",
        rank,
        " has not come. Has it been started? Look at its output.");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
  return unpacked(store.get(key));
}

} // namespace

void introduce(c10d::Store& store, const Environment& environment) {
  const std::string own = std::to_string(environment.rank);
  const Card mine = own_card(environment);
  TORCH_CHECK(
      store.add("here/" + own, 1) == 1,
      "accel: there are two processes with the rank ",
      environment.rank,
      " of ",
      environment.world_size,
      "; this is the later one, on ",
      mine.host,
      ". Give each its own RANK (accel launch: each host its own "
      "--machine-rank), and see that no earlier run is left.");
  store.set("card/" + own, packed(mine));
  // Process 0 looks at all, the others at process 0.
  const int64_t first = environment.rank == 0 ? 1 : 0;
  const int64_t end = environment.rank == 0 ? environment.world_size : 1;
  for (int64_t rank = first; rank < end; ++rank) {
    const Card other = card_of(store, rank);
    try {
      compare(environment, mine, rank, other);
    } catch (const c10::Error& error) {
      const std::string why = error.what_without_backtrace();
      store.set(kRefused, std::vector<uint8_t>(why.begin(), why.end()));
      throw;
    }
  }
}

} // namespace accel::detail
