#include "checkpoint/manifest.h"

#include "checkpoint/files.h"
#include "checkpoint/json.h"

#include <c10/util/Exception.h>

#include <cstdio>
#include <filesystem>
#include <set>

namespace fs = std::filesystem;

namespace accel::checkpoint {

namespace {

constexpr int64_t kManifestFormatVersion = 1;
constexpr const char* kBlocks = "xxh64_of_32_MiB";

std::string hexadecimal(uint64_t value) {
  char text[17];
  std::snprintf(
      text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

uint64_t parse_hexadecimal(const std::string& text, const std::string& what) {
  TORCH_CHECK(
      text.size() == 16 &&
          text.find_first_not_of("0123456789abcdef") == std::string::npos,
      what,
      ": ",
      in_quotes(text),
      " is not a checksum of 16 hexadecimal digits");
  return std::stoull(text, nullptr, 16);
}

/// The checksums of a file's blocks; there is one for each.
std::vector<uint64_t> read_blocks(
    const Json& json, const FileRecord& file, const std::string& what) {
  const uint64_t expected =
      file.size / kChecksumBlock + (file.size % kChecksumBlock != 0);
  TORCH_CHECK(
      json.is_array() && expected > 1 && json.size() == expected,
      what,
      " has not one checksum for each 32 MiB of ",
      in_quotes(file.name));
  std::vector<uint64_t> blocks;
  for (const Json& block : json) {
    TORCH_CHECK(
        block.is_string(),
        what,
        ": a checksum of ",
        in_quotes(file.name),
        " is not a text");
    blocks.push_back(parse_hexadecimal(block.get<std::string>(), what));
  }
  return blocks;
}

Json without_checksum(const Manifest& manifest) {
  Json json;
  json["format"] = "accel checkpoint";
  json["format_version"] = kManifestFormatVersion;
  json["world_size"] = manifest.world_size;
  json["files"] = Json::array();
  for (const auto& file : manifest.files) {
    Json entry;
    entry["name"] = file.name;
    entry["size"] = file.size;
    entry["xxh64"] = hexadecimal(file.checksum);
    if (!file.blocks.empty()) {
      entry[kBlocks] = Json::array();
      for (const uint64_t block : file.blocks) {
        entry[kBlocks].push_back(hexadecimal(block));
      }
    }
    json["files"].push_back(std::move(entry));
  }
  return json;
}

/// Of everything that the manifest says, however its text is laid out.
std::string checksum_of(const Json& json) {
  const std::string text = json.dump();
  return hexadecimal(xxh64(text.data(), text.size()));
}

} // namespace

const FileRecord* Manifest::find(const std::string& name) const {
  for (const auto& file : files) {
    if (file.name == name) {
      return &file;
    }
  }
  return nullptr;
}

bool is_inner_path(const std::string& name) {
  const fs::path path(name);
  if (name.empty() || path.is_absolute() ||
      name.find('\0') != std::string::npos) {
    return false;
  }
  for (const auto& part : path) {
    if (part.empty() || part == "." || part == "..") {
      return false;
    }
  }
  return true;
}

std::string manifest_text(const Manifest& manifest) {
  Json json = without_checksum(manifest);
  const std::string checksum = checksum_of(json);
  json["xxh64"] = checksum;
  return dump_json(json);
}

Manifest read_manifest(const std::string& directory) {
  const std::string path = (fs::path(directory) / kManifest).string();
  const std::string what = "The manifest " + in_quotes(path);
  constexpr uint64_t kLargest = 64 << 20;
  const Json json = parse_json(read_text(path, kLargest), what);
  const std::string format = member_text(json, "format", what);
  TORCH_CHECK(
      format == "accel checkpoint",
      what,
      ": the format is ",
      in_quotes(format),
      ", not 'accel checkpoint'");
  const int64_t version = member_int(json, "format_version", what);
  TORCH_CHECK(
      version == kManifestFormatVersion,
      what,
      " has format version ",
      version,
      "; this library reads version ",
      kManifestFormatVersion);

  Manifest manifest;
  manifest.world_size = member_int(json, "world_size", what, 1);
  const Json& files = member(json, "files", what);
  TORCH_CHECK(files.is_array(), what, ": 'files' is not a list");
  std::set<std::string> names;
  for (const Json& entry : files) {
    FileRecord file;
    file.name = member_text(entry, "name", what);
    file.size =
        static_cast<uint64_t>(member_int(entry, "size", what, /*lowest=*/0));
    file.checksum = parse_hexadecimal(member_text(entry, "xxh64", what), what);
    if (file.size > kChecksumBlock || entry.contains(kBlocks)) {
      file.blocks = read_blocks(member(entry, kBlocks, what), file, what);
    }
    TORCH_CHECK(
        is_inner_path(file.name),
        what,
        " lists ",
        in_quotes(file.name),
        ", which is not a file in the checkpoint");
    TORCH_CHECK(
        names.insert(file.name).second,
        what,
        " lists ",
        in_quotes(file.name),
        " twice");
    manifest.files.push_back(std::move(file));
  }
  const std::string expected = checksum_of(without_checksum(manifest));
  const std::string found = member_text(json, "xxh64", what);
  TORCH_CHECK(
      found == expected,
      what,
      " is damaged: its checksum is ",
      in_quotes(found),
      " instead of ",
      expected);
  return manifest;
}

} // namespace accel::checkpoint
