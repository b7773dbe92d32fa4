# ACCEL_RELOCATABLE: what is built holds no folder of the machine that built it. An
# install tree finds its own parts beside its executables and LibTorch where the
# user names it; two machines build the same bytes.
#
# Sets what is compiled in or installed as a fall-back, empty where ACCEL_RELOCATABLE is set:
#   ACCEL_FALLBACK_TORCH_ROOT    the LibTorch of this build
#   ACCEL_FALLBACK_SOURCE_DIR    the sources
#   ACCEL_FALLBACK_BUILD_DIR     the build folder

if(ACCEL_RELOCATABLE)
  set(ACCEL_FALLBACK_TORCH_ROOT "")
  set(ACCEL_FALLBACK_SOURCE_DIR "")
  set(ACCEL_FALLBACK_BUILD_DIR "")
  # A run path that is replaced when a file is installed leaves room as long as the
  # build folder's name behind.
  set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
  # Of several maps that fit the compiler takes the last.
  foreach(_flags CMAKE_C_FLAGS CMAKE_CXX_FLAGS)
    string(APPEND ${_flags} " -ffile-prefix-map=${PROJECT_SOURCE_DIR}=accel -ffile-prefix-map=${PROJECT_BINARY_DIR}=build")
    if(ACCEL_TORCH_ROOT)
      string(APPEND ${_flags} " -ffile-prefix-map=${ACCEL_TORCH_ROOT}=libtorch")
    endif()
  endforeach()
else()
  set(ACCEL_FALLBACK_TORCH_ROOT "${ACCEL_TORCH_ROOT}")
  set(ACCEL_FALLBACK_SOURCE_DIR "${PROJECT_SOURCE_DIR}")
  set(ACCEL_FALLBACK_BUILD_DIR "${PROJECT_BINARY_DIR}")
endif()
