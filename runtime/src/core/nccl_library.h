#pragma once

#include "core/device_backend.h"

#include <string>

/// What libaccel asks libaccel_nccl for; both are built from this file.
namespace accel::detail {

/// The parameters' layout; another number is another version.
constexpr int kNcclLibraryVersion = 1;

/// `accel_nccl_version`: kNcclLibraryVersion as the library was built.
using NcclLibraryVersion = int (*)();
/// `accel_nccl_check`: why it does not fit the LibTorch that is loaded; empty
/// where it does.
using NcclLibraryCheck = void (*)(std::string& problem);
/// `accel_nccl_make`: throws.
using NcclMake = void (*)(
    const DeviceGroupRequest& request,
    c10::intrusive_ptr<c10d::Backend>& group);
/// `accel_nccl_identity`: throws.
using NcclIdentity = void (*)(c10::Device device, std::string& identity);

} // namespace accel::detail
