#pragma once

// Where things are. The values are made at configure time, from layout.cpp.in:
// the only source in which folders of this machine stand, so that the others
// compile to the same in every clone.

namespace accel::launcher {

extern const char* const kVersion;

/// The build tree, in which the executable lies at kBuildBinDir.
extern const char* const kBuildDir;
extern const char* const kBuildBinDir;
extern const char* const kBuildIncludeDir;
extern const char* const kBuildLibDir;

/// An install tree, relative to the folder of the executable.
extern const char* const kInstalledIncludeDir;
extern const char* const kInstalledLibDir;

/// The LibTorch that the runtime library was built against.
extern const char* const kTorchRoot;
extern const char* const kTorchVersion;
/// Whether programs are linked with its CUDA half (ACCEL_CUDA).
extern const bool kTorchHasCuda;

} // namespace accel::launcher
