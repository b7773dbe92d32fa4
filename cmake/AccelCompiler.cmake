# What all of the project's own targets have in common.
#
# Flags are set per target (accel_options), never globally: the tool is built
# as LLVM wants it, the runtime as LibTorch wants it.

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(ACCEL_CCACHE ccache)
  if(ACCEL_CCACHE)
    # The sloppiness is what lets ccache keep objects that use precompiled headers.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${ACCEL_CCACHE}")
  endif()
endif()

function(accel_options target)
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Without it ccache cannot see through precompiled headers.
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
  if(ACCEL_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${ACCEL_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${ACCEL_SANITIZE})
  endif()
endfunction()
