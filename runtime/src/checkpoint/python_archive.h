#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace accel::checkpoint {

/// A file that Python's `torch.save` has written: plain data and tensors.
/// Nothing in it is executed; what would have to be is refused by LibTorch's
/// reader, which is used without a resolver for classes.
///
/// That reader believes what a file says about its sizes. Here they are
/// compared with what is there: lengths in the pickle and sizes of the zip
/// archive's members before they are used, and each tensor before anyone reads
/// it. All errors begin with `what`.
class PythonArchive {
 public:
  PythonArchive(const std::string& path, std::string what);

  const c10::IValue& value() const {
    return value_;
  }

  /// The tensor in a value of this archive; throws where it reaches beyond the
  /// bytes that the file has for it.
  at::Tensor tensor(const c10::IValue& value) const;

 private:
  std::string what_;
  /// Where the members with tensors' bytes are in memory, and their sizes.
  std::map<const void*, size_t> members_;
  c10::IValue value_;
};

} // namespace accel::checkpoint
