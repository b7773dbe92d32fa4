#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace accel::verify {

/// The numbers of one tensor, or of one storage, in a file.
struct StoredTensor {
  std::string dtype;
  std::vector<int64_t> sizes;
  std::vector<double> values;
};

using StoredTensors = std::map<std::string, StoredTensor>;

/// Reads a safetensors file. Nothing where `bytes` is none; offsets and sizes
/// are checked before they are used.
std::optional<StoredTensors> read_safetensors(const std::string& bytes);

/// Reads the storages of what `torch::save` has written: a zip file that holds
/// a pickle, and one file per storage. Storages have the numbers that the file
/// gives them for names. Nothing is executed: of the pickle only the list of
/// storages is looked at.
///
/// `others` gets the remaining entries, as they are stored (module code is
/// compressed). Nothing where `bytes` is
/// no such file.
std::optional<StoredTensors> read_torch_archive(
    const std::string& bytes, std::map<std::string, std::string>& others);

/// `count` numbers of `dtype` ("F32", "I64", …, as in safetensors). Nothing
/// where the dtype is not known or the sizes do not fit.
std::optional<std::vector<double>> decode_numbers(
    const std::string& dtype, const char* bytes, size_t size);

} // namespace accel::verify
