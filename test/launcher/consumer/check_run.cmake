# cmake -DACCEL=accel -P, in the folder of the program.

foreach(count 1 2)
  execute_process(COMMAND "${ACCEL}" launch -n ${count} --output main -- ./consumer
    OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  if(NOT output STREQUAL "processes: ${count}\n")
    message(FATAL_ERROR "${count} processes printed '${output}'")
  endif()
endforeach()
