#include "device/backend.h"

#include "core/environment.h"
#include "device/accelerator.h"
#include "device/backend_library.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <map>
#include <mutex>

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

/// The library's file; where there is none the reason goes to `problem`.
std::filesystem::path path_of(c10::DeviceType type, std::string& problem) {
  if (type != c10::kCUDA) {
    const auto named = get_environment("ACCEL_DEVICE_BACKEND");
    if (!named) {
      problem = "no library is known that carries tensors of the " +
          device_noun(type) +
          "s; name one with the environment variable ACCEL_DEVICE_BACKEND";
    } else if (!std::filesystem::exists(*named)) {
      problem = "ACCEL_DEVICE_BACKEND is '" + *named + "', which is not there";
    }
    return named.value_or("");
  }
  Dl_info own{};
  if (::dladdr(reinterpret_cast<const void*>(&path_of), &own) == 0) {
    problem = "the place of libaccel is unknown";
    return {};
  }
  auto path =
      std::filesystem::path(own.dli_fname).parent_path() / "libaccel_nccl.so";
  if (!std::filesystem::exists(path)) {
    problem = path.string() +
        " is not there; it is built with -DACCEL_CUDA=ON against a LibTorch "
        "with CUDA";
  }
  return path;
}

Library load(c10::DeviceType type) {
  Library library;
  const auto path = path_of(type, library.problem);
  if (!library.problem.empty()) {
    return library;
  }
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    library.problem = ::dlerror();
    return library;
  }
  const auto version =
      symbol<BackendLibraryVersion>(handle, "accel_backend_version");
  const auto check = symbol<BackendLibraryCheck>(handle, "accel_backend_check");
  const auto make = symbol<BackendMake>(handle, "accel_backend_make");
  const auto identity =
      symbol<BackendIdentity>(handle, "accel_backend_identity");
  if (version == nullptr || check == nullptr || make == nullptr ||
      identity == nullptr || version() != kBackendLibraryVersion) {
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
  library.backend.wait = wait_for_current_stream;
  library.backend.wait_for_all = wait_for_all_streams;
  if (type == c10::kCUDA) {
    library.backend.advice =
        " NCCL_DEBUG=INFO says more, and NCCL_SOCKET_IFNAME names the network "
        "interface to use.";
  }
  library.backend.takes = [type](const at::Tensor& tensor) {
    return tensor.device().type() == type;
  };
  return library;
}

const Library& library(c10::DeviceType type) {
  static std::mutex mutex;
  // Never destroyed: groups point into it.
  static auto* const loaded = new std::map<c10::DeviceType, Library>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = loaded->find(type);
  return found != loaded->end() ? found->second
                                : loaded->emplace(type, load(type)).first->second;
}

} // namespace

const std::string& why_no_backend(c10::DeviceType type) {
  return library(type).problem;
}

const DeviceBackend& backend_for(c10::DeviceType type) {
  TORCH_CHECK(
      why_no_backend(type).empty(),
      "accel: tensors of the ",
      device_noun(type),
      "s cannot be sent: ",
      why_no_backend(type));
  return library(type).backend;
}

} // namespace accel::detail
