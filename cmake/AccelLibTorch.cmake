# Finds LibTorch without find_package(Torch), which wants a CUDA toolkit at
# configure time for a CUDA wheel even when the program only uses the CPU.
#
# Looked for in this order, the first hit wins:
#   ACCEL_LIBTORCH (a folder that holds include/ and lib/, or that holds torch/ with them),
#   the environment variable ACCEL_LIBTORCH, Torch_DIR, CMAKE_PREFIX_PATH, .deps/libtorch.
#
# Sets ACCEL_TORCH_ROOT, ACCEL_TORCH_VERSION, ACCEL_TORCH_INCLUDE_DIRS,
# ACCEL_TORCH_LIBRARY_DIR and ACCEL_TORCH_CXX_STANDARD and defines the imported target accel::libtorch
# (torch_cpu and c10 only).

set(_accel_torch_candidates "${ACCEL_LIBTORCH}" "$ENV{ACCEL_LIBTORCH}")
if(Torch_DIR)
  list(APPEND _accel_torch_candidates "${Torch_DIR}/../../..")
endif()
list(APPEND _accel_torch_candidates ${CMAKE_PREFIX_PATH} "${CMAKE_CURRENT_LIST_DIR}/../.deps/libtorch")

set(ACCEL_TORCH_ROOT "")
foreach(_dir IN LISTS _accel_torch_candidates)
  foreach(_sub "" "/torch" "/../..")
    if(_dir AND NOT ACCEL_TORCH_ROOT
       AND EXISTS "${_dir}${_sub}/include/torch/csrc/api/include/torch/torch.h"
       AND EXISTS "${_dir}${_sub}/lib/libtorch_cpu.so")
      get_filename_component(ACCEL_TORCH_ROOT "${_dir}${_sub}" REALPATH)
    endif()
  endforeach()
endforeach()
if((ACCEL_LIBTORCH OR DEFINED ENV{ACCEL_LIBTORCH}) AND NOT ACCEL_TORCH_ROOT)
  message(FATAL_ERROR
    "ACCEL_LIBTORCH is '${ACCEL_LIBTORCH}$ENV{ACCEL_LIBTORCH}', which holds no LibTorch "
    "(no include/torch/csrc/api/include/torch/torch.h with lib/libtorch_cpu.so beside it). "
    "Point it at the unpacked LibTorch, or leave it empty and run scripts/setup.")
endif()
if(NOT ACCEL_TORCH_ROOT)
  message(FATAL_ERROR
    "LibTorch was not found. Run scripts/setup, which fetches it into .deps/libtorch, "
    "or name your own with -DACCEL_LIBTORCH=DIR or -DCMAKE_PREFIX_PATH=DIR.")
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
  message(FATAL_ERROR "LibTorch ${ACCEL_TORCH_VERSION} at ${ACCEL_TORCH_ROOT} is too old: accel needs 2.7 or newer (2.6 has the old C++ ABI).")
endif()
# LibTorch 2.15's headers refuse C++17.
if(ACCEL_TORCH_VERSION VERSION_LESS 2.15)
  set(ACCEL_TORCH_CXX_STANDARD 17)
else()
  set(ACCEL_TORCH_CXX_STANDARD 20)
endif()
message(STATUS "LibTorch ${ACCEL_TORCH_VERSION}: ${ACCEL_TORCH_ROOT}")

if(NOT TARGET accel::libtorch)
  add_library(accel::libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(accel::libtorch SYSTEM INTERFACE ${ACCEL_TORCH_INCLUDE_DIRS})
  target_compile_features(accel::libtorch INTERFACE cxx_std_${ACCEL_TORCH_CXX_STANDARD})
  # LibTorch's own libraries (CUDA runtime, CUPTI) are found through its run
  # path at run time; the linker need not see them.
  target_link_libraries(accel::libtorch INTERFACE
    "${ACCEL_TORCH_LIBRARY_DIR}/libtorch_cpu.so" "${ACCEL_TORCH_LIBRARY_DIR}/libc10.so")
  target_link_options(accel::libtorch INTERFACE
    "LINKER:--allow-shlib-undefined" "LINKER:-rpath,${ACCEL_TORCH_LIBRARY_DIR}")
endif()
