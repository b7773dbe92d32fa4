#pragma once

#include <memory>
#include <streambuf>

/// What LibTorch's releases have differently: all of it, so that a new release
/// is looked at in one place.

namespace c10d {
struct TCPStoreOptions;
} // namespace c10d

namespace accel::detail {

/// For a store whose server takes over a socket that listens already.
c10d::TCPStoreOptions store_options();

/// While one lives, what this thread writes to std::cout is not seen: the Gloo
/// of some releases says there that it has connected, in the middle of what the
/// program prints.
class SilentConnecting {
 public:
  SilentConnecting();
  ~SilentConnecting();
  SilentConnecting(const SilentConnecting&) = delete;
  SilentConnecting& operator=(const SilentConnecting&) = delete;

 private:
  std::unique_ptr<std::streambuf> filter_;
  std::streambuf* program_ = nullptr;
};

/// Whether a tensor's further metadata (`c10::ExtraMeta`) holds names, which
/// releases until 2.11 have, or makes the tensor a fake, which later ones have.
template <typename Meta>
auto has_names(const Meta& meta, int /*preferred*/)
    -> decltype(meta.named_tensor_meta_ != nullptr) {
  return meta.named_tensor_meta_ != nullptr;
}
template <typename Meta>
auto is_fake(const Meta& meta, int /*preferred*/)
    -> decltype(meta.fake_tensor_mode_ != nullptr) {
  return meta.fake_tensor_mode_ != nullptr;
}
template <typename Meta>
bool has_names(const Meta&, long) {
  return false;
}
template <typename Meta>
bool is_fake(const Meta&, long) {
  return false;
}

/// Whether quantiles are selected by reading the tensor's memory, and not by
/// operators alone.
bool quantile_reads_memory();

/// Gives the memory that device allocators keep for later back to the devices.
void empty_device_caches();

} // namespace accel::detail
