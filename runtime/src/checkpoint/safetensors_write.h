#pragma once

#include "checkpoint/files.h"

#include <accel/checkpoint/pieces.h>
#include <accel/checkpoint/safetensors.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel::checkpoint {

/// Writes the file in place (with `sync` to the disk) and returns its checksum;
/// the caller has to see to it that a half-written file is not taken for a
/// whole one. With `put_together` tensors may be divided: each is put together when
/// it is its turn (`file_order`), and dropped when it is written.
Digest write_safetensors(
    const StateDict& tensors,
    const std::string& path,
    const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
    bool sync = true,
    const PutTogether& put_together = nullptr);

/// The order in which a file has its tensors: large element types first, then by
/// name.
std::vector<const StateDict::Item*> file_order(const StateDict& tensors);

/// Throws for a tensor, and for a name, that the format does not have.
void check_writable(const std::string& name, const at::Tensor& tensor);

/// Whether two tensors are the same elements of the same memory.
bool same_tensor(const at::Tensor& a, const at::Tensor& b);

/// The names of two tensors that have bytes in common, where there are such.
/// Of a strided tensor everything between its first and its last byte counts.
std::optional<std::pair<std::string, std::string>> find_overlap(
    const StateDict& tensors);

} // namespace accel::checkpoint
