# cmake -DTOOL=accel-migrate -DFOLDER=dir -DPROGRAM=file.cpp -P PrecompileForTool.cmake
#
# Precompiles LibTorch's and accel's headers into `FOLDER` for the flags that are
# most common: those that the tool takes where nothing names any, and CMake's. The
# tool looks for them there before it makes its own (tool/lib/Frontend/PrefixCache.h).
# What is there and still good stays. That it cannot be done is no error: then the
# first run of the tool does it.

# With the rights that installed folders have: the tool's caches are a person's own.
file(MAKE_DIRECTORY "${FOLDER}")
foreach(language c++ gnu++)
  # The first run makes LibTorch's, the second accel's on top.
  foreach(run 1 2)
    execute_process(
      COMMAND "${TOOL}" "--cache-dir=${FOLDER}" --quiet "${PROGRAM}" -- "-std=${language}${STANDARD}"
      OUTPUT_QUIET ERROR_VARIABLE said RESULT_VARIABLE result)
    if(NOT result MATCHES "^[01]$")
      message(STATUS "LibTorch's headers are not precompiled for accel-migrate (${result}): ${said}")
      return()
    endif()
  endforeach()
endforeach()
