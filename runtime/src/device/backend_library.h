#pragma once

#include "device/backend.h"

#include <string>

/// What libaccel asks a library for that carries the collectives of a kind of
/// devices: four functions. libaccel_nccl is the one for CUDA; the one for
/// another kind is named by ACCEL_DEVICE_BACKEND.
namespace accel::detail {

/// The parameters' layout; another number is another version.
constexpr int kBackendLibraryVersion = 2;

/// `accel_backend_version`: kBackendLibraryVersion as the library was built.
using BackendLibraryVersion = int (*)();
/// `accel_backend_check`: why it does not fit the LibTorch that is loaded; empty
/// where it does.
using BackendLibraryCheck = void (*)(std::string& problem);
/// `accel_backend_make`: throws.
using BackendMake = void (*)(
    const DeviceGroupRequest& request,
    c10::intrusive_ptr<c10d::Backend>& group);
/// `accel_backend_identity`: throws.
using BackendIdentity = void (*)(c10::Device device, std::string& identity);

} // namespace accel::detail
