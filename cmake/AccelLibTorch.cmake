# Finds LibTorch without find_package(Torch), which wants a CUDA toolkit at
# configure time for a CUDA wheel even when the program only uses the CPU.
#
# ACCEL_LIBTORCH (a folder that holds include/ and lib/, or that holds torch/ with them) or else the
# environment variable of that name is taken at its word. Without them the first hit wins:
#   Torch_DIR, CMAKE_PREFIX_PATH, ACCEL_TORCH_FALLBACK (an installed accel: what it was built against),
#   .deps/libtorch.
#
# Sets ACCEL_TORCH_ROOT, ACCEL_TORCH_VERSION, ACCEL_TORCH_INCLUDE_DIRS,
# ACCEL_TORCH_LIBRARY_DIR and ACCEL_TORCH_CXX_STANDARD and defines the imported target accel::libtorch
# (torch_cpu and c10 only; with CUDA's, AccelCuda.cmake). Included from accelConfig.cmake it does not stop at a failure, but
# leaves ACCEL_TORCH_ROOT empty and says why in ACCEL_TORCH_NOT_FOUND.

set(ACCEL_TORCH_ROOT "")
set(ACCEL_TORCH_NOT_FOUND "")

# Expects to be followed by return().
macro(_accel_torch_fail)
  set(ACCEL_TORCH_ROOT "")
  string(CONCAT ACCEL_TORCH_NOT_FOUND ${ARGV})
  if(NOT CMAKE_FIND_PACKAGE_NAME STREQUAL "accel")
    message(FATAL_ERROR "${ACCEL_TORCH_NOT_FOUND}")
  endif()
endmacro()

set(_accel_torch_named "${ACCEL_LIBTORCH}")
if(NOT _accel_torch_named)
  set(_accel_torch_named "$ENV{ACCEL_LIBTORCH}")
endif()
if(_accel_torch_named)
  set(_accel_torch_candidates "${_accel_torch_named}")
else()
  set(_accel_torch_candidates "")
  if(Torch_DIR)
    list(APPEND _accel_torch_candidates "${Torch_DIR}/../../..")
  endif()
  list(APPEND _accel_torch_candidates
    ${CMAKE_PREFIX_PATH} "${ACCEL_TORCH_FALLBACK}" "${CMAKE_CURRENT_LIST_DIR}/../.deps/libtorch")
endif()

foreach(_dir IN LISTS _accel_torch_candidates)
  foreach(_sub "" "/torch" "/../..")
    if(_dir AND NOT ACCEL_TORCH_ROOT
       AND EXISTS "${_dir}${_sub}/include/torch/csrc/api/include/torch/torch.h"
       AND EXISTS "${_dir}${_sub}/lib/libtorch_cpu.so")
      get_filename_component(ACCEL_TORCH_ROOT "${_dir}${_sub}" REALPATH)
    endif()
  endforeach()
endforeach()
if(_accel_torch_named AND NOT ACCEL_TORCH_ROOT)
  _accel_torch_fail(
    "ACCEL_LIBTORCH is '${_accel_torch_named}', which holds no LibTorch "
    "(no include/torch/csrc/api/include/torch/torch.h with lib/libtorch_cpu.so beside it). "
    "Point it at the unpacked LibTorch, or leave it empty and run scripts/setup.")
  return()
endif()
if(NOT ACCEL_TORCH_ROOT)
  _accel_torch_fail(
    "LibTorch was not found. Run scripts/setup, which fetches it into .deps/libtorch, "
    "or name your own with -DACCEL_LIBTORCH=DIR or -DCMAKE_PREFIX_PATH=DIR.")
  return()
endif()

set(ACCEL_TORCH_INCLUDE_DIRS "${ACCEL_TORCH_ROOT}/include" "${ACCEL_TORCH_ROOT}/include/torch/csrc/api/include")
set(ACCEL_TORCH_LIBRARY_DIR "${ACCEL_TORCH_ROOT}/lib")

set(_version_header "${ACCEL_TORCH_ROOT}/include/torch/headeronly/version.h")
if(NOT EXISTS "${_version_header}")
  set(_version_header "${ACCEL_TORCH_ROOT}/include/torch/csrc/api/include/torch/version.h")
endif()
file(STRINGS "${_version_header}" _version_lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
set(ACCEL_TORCH_VERSION "")
foreach(_part MAJOR MINOR PATCH)
  string(REGEX MATCH "TORCH_VERSION_${_part} ([0-9]+)" _ "${_version_lines}")
  list(APPEND ACCEL_TORCH_VERSION "${CMAKE_MATCH_1}")
endforeach()
list(JOIN ACCEL_TORCH_VERSION "." ACCEL_TORCH_VERSION)
if(ACCEL_TORCH_VERSION VERSION_LESS 2.7)
  _accel_torch_fail("LibTorch ${ACCEL_TORCH_VERSION} at ${ACCEL_TORCH_ROOT} is too old: accel needs 2.7 or newer (2.6 has the old C++ ABI).")
  return()
endif()
# A string of libstdc++'s new ABI (_GLIBCXX_USE_CXX11_ABI=1) is in what every
# function of c10 that takes one is called.
file(STRINGS "${ACCEL_TORCH_LIBRARY_DIR}/libc10.so" _new_abi REGEX "__cxx1112basic_string" LIMIT_COUNT 1)
if(NOT _new_abi)
  _accel_torch_fail("LibTorch ${ACCEL_TORCH_VERSION} at ${ACCEL_TORCH_ROOT} is built for another ABI than this compiler's: "
    "its libc10.so knows no std::__cxx11::string (it is one with the old C++ ABI, or with libc++). Name one with the new ABI "
    "with -DACCEL_LIBTORCH=DIR (or ACCEL_LIBTORCH=DIR scripts/demo), or unset it and run scripts/setup.")
  return()
endif()
# LibTorch 2.15's headers refuse C++17.
if(ACCEL_TORCH_VERSION VERSION_LESS 2.15)
  set(ACCEL_TORCH_CXX_STANDARD 17)
else()
  set(ACCEL_TORCH_CXX_STANDARD 20)
endif()
message(STATUS "LibTorch ${ACCEL_TORCH_VERSION}: ${ACCEL_TORCH_ROOT}")

include("${CMAKE_CURRENT_LIST_DIR}/AccelCuda.cmake")

if(NOT TARGET accel::libtorch)
  add_library(accel::libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(accel::libtorch SYSTEM INTERFACE ${ACCEL_TORCH_INCLUDE_DIRS})
  target_compile_features(accel::libtorch INTERFACE cxx_std_${ACCEL_TORCH_CXX_STANDARD})
  # LibTorch's own libraries (CUDA runtime, CUPTI) are found through its run
  # path at run time; the linker need not see them.
  target_link_libraries(accel::libtorch INTERFACE
    "${ACCEL_TORCH_LIBRARY_DIR}/libtorch_cpu.so" "${ACCEL_TORCH_LIBRARY_DIR}/libc10.so")
  target_link_options(accel::libtorch INTERFACE "LINKER:--allow-shlib-undefined")
  if(NOT ACCEL_RELOCATABLE)
    target_link_options(accel::libtorch INTERFACE "LINKER:-rpath,${ACCEL_TORCH_LIBRARY_DIR}")
  endif()
  if(ACCEL_TORCH_HAS_CUDA)
    # No program calls these by name: LibTorch's CUDA half makes itself known
    # when it is loaded.
    target_link_options(accel::libtorch INTERFACE
      "LINKER:--push-state,--no-as-needed,${ACCEL_TORCH_LIBRARY_DIR}/libtorch_cuda.so,${ACCEL_TORCH_LIBRARY_DIR}/libc10_cuda.so,--pop-state")
  endif()
endif()
