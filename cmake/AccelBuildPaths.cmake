# accel_build_paths(target NAME=PATH ...): constants with folders and files of this
# clone, for a test program (test/build_paths.h declares them). After accel_unity,
# which must not take this source into others.
#
# They are in a source of their own. With a path among the flags of all sources a
# compiler cache would find none of them in another clone (test/scripts/two_clones.py).
function(accel_build_paths target)
  set(text "// Made by accel_build_paths (cmake/AccelBuildPaths.cmake).\n#include \"build_paths.h\"\n\nnamespace build_paths {\n\n")
  foreach(constant IN LISTS ARGN)
    string(REGEX MATCH "^([^=]+)=(.*)$" _ "${constant}")
    string(APPEND text "const char* const ${CMAKE_MATCH_1} = R\"(${CMAKE_MATCH_2})\";\n")
  endforeach()
  string(APPEND text "\n} // namespace build_paths\n")
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${target}_paths.cpp")
  file(GENERATE OUTPUT "${source}" CONTENT "${text}")
  set_source_files_properties("${source}" PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
  target_sources(${target} PRIVATE "${source}")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/test")
endfunction()
