#pragma once

/// Folders and files of this clone that tests read and start. CMake gives each test
/// program those that it needs (accel_build_paths in cmake/AccelBuildPaths.cmake).
/// Not in namespace accel: the launcher's tests have a function of that name.
namespace build_paths {

/// The launcher.
extern const char* const kAccel;
/// The programs that the tests of the launcher and of its failures start.
extern const char* const kProbe;
extern const char* const kFaultsSubject;
/// The two programs that the tests of `accel verify` compare, and its recorder.
extern const char* const kVerifyOriginal;
extern const char* const kVerifyMigrated;
extern const char* const kTraceLibrary;
extern const char* const kVerifyChance;
/// The sources.
extern const char* const kSource;
/// Vectors recorded from Accelerate, and what of them is not followed.
extern const char* const kConformance;
/// Calls recorded from PyTorch's tests of operators, unpacked.
extern const char* const kGoldenAten;

} // namespace build_paths
