# A user's ten lines, built against accel in three ways: find_package and a
# Makefile against an install tree, and add_subdirectory. CMake's have torch.h
# precompiled where Clang builds: that all headers are found is seen all the same.
# The Makefile's compiler is GCC where there is one: a library that
# Clang has built is good for its programs, and it takes every public header.

set(consumer_source "${CMAKE_CURRENT_SOURCE_DIR}/consumer")
set(consumer_build "${CMAKE_CURRENT_BINARY_DIR}/consumer")
set(consumer_prefix "${consumer_build}/install")
set(consumer_accel "${consumer_prefix}/${CMAKE_INSTALL_BINDIR}/accel")
file(MAKE_DIRECTORY "${consumer_build}/make")
set(consumer_settings "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}")
find_program(ACCEL_GCC g++ DOC "GCC, for the tests of a user's program")
set(consumer_cxx "$<IF:$<BOOL:${ACCEL_GCC}>,${ACCEL_GCC},${CMAKE_CXX_COMPILER}>")
file(GLOB_RECURSE public_headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/runtime/include"
  "${PROJECT_SOURCE_DIR}/runtime/include/accel/*.h")
set(all_headers "")
foreach(header IN LISTS public_headers)
  string(APPEND all_headers "#include <${header}>\n")
endforeach()
file(CONFIGURE OUTPUT "${consumer_build}/all_headers.h" CONTENT "${all_headers}" @ONLY)
if(ACCEL_CCACHE)
  list(APPEND consumer_settings "-DCMAKE_CXX_COMPILER_LAUNCHER=${ACCEL_CCACHE}")
endif()

if(ACCEL_SHARED_HEADERS)
  list(APPEND consumer_settings
    "-DCMAKE_CXX_FLAGS=-fPIC -include-pch ${PROJECT_BINARY_DIR}/precompiled/torch.pch -Xclang -fno-validate-pch")
endif()

# DESTDIR: without LibTorch precompiled for the tool, which the build has done, and
# which takes as long as all else here.
add_test(NAME launcher.consumer.install
  COMMAND "${CMAKE_COMMAND}" -E env DESTDIR=/ "${CMAKE_COMMAND}" --install "${PROJECT_BINARY_DIR}" --prefix "${consumer_prefix}")
set_tests_properties(launcher.consumer.install PROPERTIES FIXTURES_SETUP accel_installed)

add_test(NAME launcher.consumer.find_package
  COMMAND "${CMAKE_CTEST_COMMAND}" --build-and-test "${consumer_source}" "${consumer_build}/find_package"
    --build-generator "${CMAKE_GENERATOR}" --build-noclean
    --build-options ${consumer_settings} "-DCMAKE_PREFIX_PATH=${consumer_prefix}"
    --test-command "${CMAKE_COMMAND}" -DACCEL=${consumer_accel} -P "${consumer_source}/check_run.cmake")

add_test(NAME launcher.consumer.makefile
  COMMAND make -B -C "${consumer_build}/make" -f "${consumer_source}/Makefile"
    "VPATH=${consumer_source}" "ACCEL=${consumer_accel}" "CXX=${consumer_cxx} -include ${consumer_build}/all_headers.h" check)

set_tests_properties(launcher.consumer.find_package launcher.consumer.makefile
  PROPERTIES FIXTURES_REQUIRED accel_installed)

add_test(NAME launcher.consumer.build_tree
  COMMAND "${CMAKE_COMMAND}" -DACCEL=$<TARGET_FILE:accel> -P "${consumer_source}/check_build_tree.cmake")

# Building the runtime a second time would take minutes: the program is
# compiled, and what its link would do is looked at.
add_test(NAME launcher.consumer.add_subdirectory
  COMMAND "${CMAKE_COMMAND}" "-DSETTINGS=${consumer_settings};-DACCEL_LIBTORCH=${ACCEL_TORCH_ROOT};-DACCEL_PRECOMPILE=OFF"
    "-DSOURCE=${consumer_source}" "-DACCEL_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
    "-DBUILD=${consumer_build}/add_subdirectory" -P "${consumer_source}/check_add_subdirectory.cmake")

set_tests_properties(
  launcher.consumer.install launcher.consumer.find_package launcher.consumer.makefile
  launcher.consumer.build_tree launcher.consumer.add_subdirectory
  PROPERTIES LABELS launcher TIMEOUT 600 PROCESSORS 3 COST 90 ENVIRONMENT "OMP_NUM_THREADS=1")
