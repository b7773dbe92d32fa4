# cmake -DSOURCE=… -DBUILD=… -DACCEL_SOURCE_DIR=… -DSETTINGS=… -P

execute_process(
  COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${BUILD}" -G Ninja ${SETTINGS} "-DACCEL_SOURCE_DIR=${ACCEL_SOURCE_DIR}"
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${BUILD}" --target CMakeFiles/consumer.dir/consumer.cpp.o
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${BUILD}" -- -t commands consumer
  OUTPUT_VARIABLE commands COMMAND_ERROR_IS_FATAL ANY)
if(NOT commands MATCHES "consumer.cpp.o +-o consumer [^\n]*libaccel.so[^\n]*libtorch_cpu.so")
  message(FATAL_ERROR "the link of the program lacks a library:\n${commands}")
endif()
# The parts that the parent project did not ask for stay out of it.
if(commands MATCHES "runtime/launcher|accel-migrate|gtest")
  message(FATAL_ERROR "more is built than the program needs:\n${commands}")
endif()
