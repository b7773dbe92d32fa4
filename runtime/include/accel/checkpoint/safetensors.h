#pragma once

#include <accel/export.h>

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

/// Reading and writing of safetensors files (https://github.com/huggingface/
/// safetensors), the format of Accelerate's and of our model files. Nothing in
/// such a file is executed.
namespace accel::checkpoint {

/// Named tensors in a fixed order; inserting a name twice is an error.
using StateDict = torch::OrderedDict<std::string, at::Tensor>;

/// What a safetensors file says about one of its tensors.
struct TensorInfo {
  /// The key of the tensor in the file.
  std::string name;
  /// Its dtype.
  at::ScalarType dtype;
  /// Its sizes; none for a scalar.
  std::vector<int64_t> shape;
  /// First byte in the file.
  uint64_t offset;
  /// Number of bytes.
  uint64_t size;
};

/// A safetensors file that is open for reading.
///
/// The constructor reads the header and checks all of it before anything is
/// used: its length, that every tensor's bytes fit its shape and dtype, that
/// the tensors fill the file without holes or overlaps, and that no name comes
/// twice. After that every call below is within the file's bounds. All errors
/// are `c10::Error`s that name the file, the tensor and the value.
///
/// Dtypes: F64 F32 F16 BF16 F8_E4M3 F8_E5M2 F8_E8M0 C64 I64 I32 I16 I8 U64 U32
/// U16 U8 BOOL. Copies of this class share the open file. Thread-safe.
class ACCEL_API SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  /// The path that it was opened with.
  const std::string& path() const;
  /// The header's "__metadata__"; empty where there is none.
  const std::map<std::string, std::string>& metadata() const;
  /// In the order of their bytes in the file.
  const std::vector<TensorInfo>& tensors() const;
  /// Null where there is no such tensor.
  const TensorInfo* find(const std::string& name) const;

  /// A tensor on the CPU that shares the file's memory mapping and keeps it
  /// alive: nothing is read before it is looked at. Writing to it changes a
  /// private copy of the page, never the file. The file must not be made
  /// shorter meanwhile (replacing it by a rename is fine): the system answers
  /// with SIGBUS. Tensors that are not aligned for their dtype are copied.
  at::Tensor map(const std::string& name) const;

  /// The same as a tensor of its own memory.
  at::Tensor read(const std::string& name) const;

  /// Reads into `destination`, which has the tensor's shape and dtype, lives
  /// on any device and may be strided.
  void read_into(const std::string& name, at::Tensor& destination) const;

 private:
  class Impl;
  std::shared_ptr<const Impl> impl_;
};

/// All tensors of a file, in its order; with `copy` in their own memory, else
/// as `SafetensorsFile::map` makes them.
ACCEL_API StateDict
load_safetensors(const std::string& path, bool copy = false);

/// Writes `tensors` so that the file is there completely or not at all: into
/// a temporary file beside it, synced to the disk, renamed. Byte for byte what
/// Python's `safetensors.torch.save_file` writes: tensors sorted by dtype and
/// name, the header padded to 8 bytes.
///
/// Tensors on other devices are copied one by one, strided ones are written in
/// row-major order. Throws where two tensors share memory: the file could not
/// tell (see `without_shared` in state_dict.h), and for dtypes and layouts that
/// the format does not have.
ACCEL_API void save_safetensors(
    const StateDict& tensors,
    const std::string& path,
    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

} // namespace accel::checkpoint
