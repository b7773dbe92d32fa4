// The manifest of a checkpoint. What the input says is given a right checksum,
// so that the code behind the checksum is reached.

#include "fuzz.h"

#include "checkpoint/xxh64.h"

#include <accel/checkpoint/directory.h>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <cstdio>

namespace {

using Json = nlohmann::json;
using accel::fuzz::require;

std::string hexadecimal(uint64_t value) {
  char text[17];
  std::snprintf(
      text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// The input with the checksum that it would need (docs/checkpoints.md); the
/// input as it is where it is nothing like a manifest.
std::string with_checksum(std::string_view input) {
  try {
    Json json = Json::parse(input);
    Json summed;
    for (const char* key : {"format", "format_version", "world_size"}) {
      summed[key] = json.at(key);
    }
    summed["files"] = Json::array();
    for (const auto& file : json.at("files")) {
      Json entry;
      for (const char* key : {"name", "size", "xxh64"}) {
        entry[key] = file.at(key);
      }
      summed["files"].push_back(entry);
    }
    const std::string text = summed.dump();
    json["xxh64"] =
        hexadecimal(accel::checkpoint::xxh64(text.data(), text.size()));
    return json.dump();
  } catch (const Json::exception&) {
    return std::string(input);
  }
}

} // namespace

ACCEL_FUZZ_TARGET(manifest) {
  namespace fs = std::filesystem;
  const fs::path directory = accel::fuzz::scratch() / "checkpoint";
  fs::create_directories(directory / "inner");
  accel::fuzz::file_with("checkpoint/manifest.json", with_checksum(input));
  accel::fuzz::file_with("checkpoint/a", "abc");
  accel::fuzz::file_with("checkpoint/inner/b", "");
  accel::fuzz::refused<c10::Error>([&] {
    const auto manifest = accel::checkpoint::verify_checkpoint(directory);
    require(manifest.world_size >= 1, "somebody has written it");
    for (const auto& file : manifest.files) {
      const auto inside =
          fs::weakly_canonical(directory / file.name)
              .lexically_relative(fs::canonical(directory));
      require(
          !inside.empty() && *inside.begin() != "..",
          "files lie within the checkpoint");
      require(
          (file.name == "a" && file.size == 3) ||
              (file.name == "inner/b" && file.size == 0) ||
              file.name == "manifest.json",
          "what is listed is there");
    }
  });
}
