# cmake -DACCEL=accel -P: what `accel flags` prints in the
# build tree names folders that exist and hold what is meant.

execute_process(COMMAND "${ACCEL}" flags --compile --link OUTPUT_VARIABLE flags
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")

function(expect_in_one_of pattern file)
  foreach(flag IN LISTS flags)
    if(flag MATCHES "${pattern}")
      if(EXISTS "${CMAKE_MATCH_1}/${file}")
        return()
      endif()
    endif()
  endforeach()
  message(FATAL_ERROR "no flag like ${pattern} has ${file}: ${flags}")
endfunction()

expect_in_one_of("^-I(.*)" accel/accel.h)
expect_in_one_of("^(/.*)" torch/torch.h)
expect_in_one_of("^-L(.*)" libaccel.so)
expect_in_one_of("^-Wl,-rpath,(.*)" libaccel.so)
expect_in_one_of("^-L(.*)" libtorch_cpu.so)
expect_in_one_of("^-Wl,-rpath,(.*)" libtorch_cpu.so)

# A folder without LibTorch is refused, not passed on to the compiler.
execute_process(COMMAND "${CMAKE_COMMAND}" -E env ACCEL_LIBTORCH=/nonexistent "${ACCEL}" flags --compile
  RESULT_VARIABLE result OUTPUT_VARIABLE flags ERROR_VARIABLE message)
if(NOT result EQUAL 125 OR NOT message MATCHES "ACCEL_LIBTORCH holds no LibTorch: /nonexistent" OR flags)
  message(FATAL_ERROR "ACCEL_LIBTORCH=/nonexistent gave ${result}, '${flags}', '${message}'")
endif()
