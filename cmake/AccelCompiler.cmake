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

# Since 18 Clang names templates that std::enable_if constrains otherwise than
# GCC, which LibTorch is built with, does.
set(ACCEL_ABI_OPTIONS "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18)
  set(ACCEL_ABI_OPTIONS -fclang-abi-compat=17)
endif()

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(ACCEL_CCACHE ccache)
  if(ACCEL_CCACHE)
    # The sloppiness is what lets ccache keep objects that use precompiled
    # headers; the rest lets it find them again from another clone. For that it
    # makes paths relative, which -ffile-prefix-map would not know again: what is
    # to be the same bytes with and without a cache keeps its paths.
    set(_base "${PROJECT_SOURCE_DIR}")
    if(ACCEL_RELOCATABLE)
      set(_base "")
    endif()
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        "CCACHE_BASEDIR=${_base}" CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1 "${ACCEL_CCACHE}")
  endif()
endif()

# What is run in every step of a training, and what goes through every byte of a
# checkpoint: these options in addition to the build type's (presets).
set(ACCEL_HOT_OPTIONS "" CACHE STRING "Compile options for the sources that cost a training time, e.g. -O2")

# accel_hot(source...): see ACCEL_HOT_OPTIONS.
function(accel_hot)
  if(ACCEL_HOT_OPTIONS)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS ${ACCEL_HOT_OPTIONS})
  endif()
endfunction()

# accel_options(target [NO_SANITIZERS])
function(accel_options target)
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Without it ccache cannot see through precompiled headers.
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
  target_compile_options(${target} PRIVATE ${ACCEL_ABI_OPTIONS})
  if(ACCEL_SANITIZE AND NOT "NO_SANITIZERS" IN_LIST ARGN)
    target_compile_options(${target} PRIVATE -fsanitize=${ACCEL_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${ACCEL_SANITIZE})
  endif()
  if(ACCEL_BUILD_FUZZERS AND NOT "NO_SANITIZERS" IN_LIST ARGN)
    # Counts where the code goes, in libraries, too. Without optimisation
    # instrumented code is too slow to fuzz.
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link -O1 -g1)
  endif()
endfunction()

# accel_sanitize_cheaply(target): AddressSanitizer, and of
# UndefinedBehaviorSanitizer what costs next to nothing to compile. Its checks of
# every pointer that is followed (null, alignment, vptr) take as long to compile
# as all of the rest, and find little that AddressSanitizer does not find.
#
# Without GCC's macro, which LibTorch's headers look at, and without debug
# information GCC takes a precompiled header that was made without sanitizers.
function(accel_sanitize_cheaply target)
  set(checks address shift signed-integer-overflow integer-divide-by-zero float-cast-overflow bounds
    pointer-overflow bool enum unreachable return vla-bound)
  list(JOIN checks "," checks)
  target_compile_options(${target} PRIVATE
    -fsanitize=${checks} -fno-omit-frame-pointer -U__SANITIZE_ADDRESS__)
  target_link_options(${target} PRIVATE -fsanitize=${checks})
endfunction()
