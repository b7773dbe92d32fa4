#pragma once

#include <accel/checkpoint/directory.h>

#include <string>

namespace accel::checkpoint {

constexpr const char* kManifest = "manifest.json";

/// The text of a manifest; a checksum of its own is part of it.
std::string manifest_text(const Manifest& manifest);

/// Reads and checks `directory`'s manifest (not the files that it lists).
Manifest read_manifest(const std::string& directory);

/// Where the checkpoint of that name is: `directory` itself, or the one that
/// was moved aside when replacing it was interrupted (see `write_checkpoint`).
std::string locate_checkpoint(const std::string& directory);

/// Whether `name` is relative and stays within its directory.
bool is_inner_path(const std::string& name);

/// As `verify_checkpoint` with checksums, but of the contents only every `count`th
/// part, from number `index` on: for processes that share the work.
Manifest verify_share(
    const std::string& directory, int64_t index, int64_t count);

} // namespace accel::checkpoint
