# GPUs: what a LibTorch with CUDA adds. Included by AccelLibTorch.cmake.
#
# ACCEL_CUDA=AUTO (as given by the user, default), ON or OFF:
#   OFF   as a LibTorch without CUDA: nothing is added.
#   AUTO  where LibTorch has CUDA, programs are linked with it, so that they find the GPUs;
#         libaccel_nccl, for several processes with GPUs, is built where the headers of the CUDA runtime
#         and of NCCL are found, too.
#   ON    both, or a failure.
#
# Sets ACCEL_TORCH_HAS_CUDA; accel_find_nccl() sets ACCEL_BUILD_NCCL and defines accel::nccl_headers.

set(ACCEL_TORCH_HAS_CUDA FALSE)
if(NOT "${ACCEL_CUDA}" STREQUAL "OFF" AND EXISTS "${ACCEL_TORCH_LIBRARY_DIR}/libtorch_cuda.so"
   AND EXISTS "${ACCEL_TORCH_LIBRARY_DIR}/libc10_cuda.so")
  set(ACCEL_TORCH_HAS_CUDA TRUE)
endif()

# accel_find_nccl(): for the build of accel itself.
macro(accel_find_nccl)
  set(ACCEL_NCCL_INCLUDE "" CACHE PATH "Folder of the nccl.h of the NCCL that LibTorch was built with")
  set(ACCEL_CUDA_INCLUDE "" CACHE PATH "Folder of the cuda_runtime_api.h of LibTorch's CUDA")
  set(ACCEL_BUILD_NCCL FALSE)
  set(_accel_cuda_missing "")
  if(NOT ACCEL_TORCH_HAS_CUDA)
    set(_accel_cuda_missing
      "LibTorch at ${ACCEL_TORCH_ROOT} has no CUDA (no lib/libtorch_cuda.so with lib/libc10_cuda.so beside it)")
  else()
    # The wheels' headers first: they are of LibTorch's versions.
    file(GLOB _accel_wheel_includes
      "${ACCEL_TORCH_ROOT}/../nvidia/nccl/include" "${ACCEL_TORCH_ROOT}/../nvidia/cu1*/include")
    find_path(ACCEL_NCCL_H nccl.h HINTS "${ACCEL_NCCL_INCLUDE}" ${_accel_wheel_includes}
      PATHS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
    find_path(ACCEL_CUDA_RUNTIME_H cuda_runtime_api.h HINTS "${ACCEL_CUDA_INCLUDE}"
      PATHS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include ${_accel_wheel_includes})
    mark_as_advanced(ACCEL_NCCL_H ACCEL_CUDA_RUNTIME_H)
    if(NOT ACCEL_NCCL_H)
      set(_accel_cuda_missing "nccl.h was not found (-DACCEL_NCCL_INCLUDE=DIR)")
    elseif(NOT ACCEL_CUDA_RUNTIME_H)
      set(_accel_cuda_missing "cuda_runtime_api.h was not found (-DACCEL_CUDA_INCLUDE=DIR)")
    else()
      set(ACCEL_BUILD_NCCL TRUE)
      add_library(accel::nccl_headers INTERFACE IMPORTED GLOBAL)
      target_include_directories(accel::nccl_headers SYSTEM INTERFACE "${ACCEL_NCCL_H}" "${ACCEL_CUDA_RUNTIME_H}")
    endif()
  endif()
  if("${ACCEL_CUDA}" STREQUAL "ON" AND NOT ACCEL_BUILD_NCCL)
    message(FATAL_ERROR "ACCEL_CUDA is ON, but ${_accel_cuda_missing}.")
  elseif(ACCEL_BUILD_NCCL)
    message(STATUS "GPUs: yes, several with NCCL (${ACCEL_NCCL_H}/nccl.h)")
  elseif(ACCEL_TORCH_HAS_CUDA)
    message(STATUS "GPUs: one for each program, since ${_accel_cuda_missing}")
  else()
    message(STATUS "GPUs: no")
  endif()
endmacro()
