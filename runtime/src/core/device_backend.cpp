#include "core/device_backend.h"

#include "core/nccl_library.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <filesystem>

#include <dlfcn.h>

namespace accel::detail {
namespace {

struct Library {
  DeviceBackend backend;
  std::string problem;
};

template <typename Function>
Function symbol(void* handle, const char* name) {
  return reinterpret_cast<Function>(::dlsym(handle, name));
}

Library load() {
  Library library;
  Dl_info own{};
  if (::dladdr(reinterpret_cast<const void*>(&load), &own) == 0) {
    library.problem = "the place of libaccel is unknown";
    return library;
  }
  const auto path =
      std::filesystem::path(own.dli_fname).parent_path() / "libaccel_nccl.so";
  if (!std::filesystem::exists(path)) {
    library.problem =
        path.string() +
        " is not there; it is built with -DACCEL_CUDA=ON against a LibTorch "
        "with CUDA";
    return library;
  }
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    library.problem = ::dlerror();
    return library;
  }
  const auto version = symbol<NcclLibraryVersion>(handle, "accel_nccl_version");
  const auto check = symbol<NcclLibraryCheck>(handle, "accel_nccl_check");
  const auto make = symbol<NcclMake>(handle, "accel_nccl_make");
  const auto identity = symbol<NcclIdentity>(handle, "accel_nccl_identity");
  if (version == nullptr || check == nullptr || make == nullptr ||
      identity == nullptr || version() != kNcclLibraryVersion) {
    library.problem = path.string() + " is of another version of accel";
    return library;
  }
  check(library.problem);
  library.backend.make = [make](const DeviceGroupRequest& request) {
    c10::intrusive_ptr<c10d::Backend> group;
    make(request, group);
    return group;
  };
  library.backend.identity = [identity](c10::Device device) {
    std::string text;
    identity(device, text);
    return text;
  };
  library.backend.wait = wait_for_device;
  library.backend.takes = [](const at::Tensor& tensor) {
    return tensor.is_cuda();
  };
  return library;
}

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

} // namespace

void use_device(c10::Device device) {
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  }
}

void wait_for_device(c10::Device device) {
  if (!device.is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeStream(guard.getStream(device));
  }
}

const std::string& why_not_nccl() {
  return library().problem;
}

const DeviceBackend& nccl_backend() {
  TORCH_CHECK(
      why_not_nccl().empty(), "accel: NCCL cannot be used: ", why_not_nccl());
  return library().backend;
}

} // namespace accel::detail
