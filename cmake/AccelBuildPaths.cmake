# Folders and files of this clone that programs know.
#
# They are in sources of their own. With a path among the flags of all sources a
# compiler cache would find none of them in another clone (test/scripts/two_clones.py).

# accel_constants(target name.cpp text): a source of its own with this text. After
# accel_unity, which must not take it into others.
function(accel_constants target name text)
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}")
  file(GENERATE OUTPUT "${source}" CONTENT "${text}")
  set_source_files_properties("${source}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  target_sources(${target} PRIVATE "${source}")
endfunction()

# accel_build_paths(target NAME=PATH ...): such constants for a test program
# (test/build_paths.h declares them).
function(accel_build_paths target)
  set(text "// Made by accel_build_paths (cmake/AccelBuildPaths.cmake).\n#include \"build_paths.h\"\n\nnamespace build_paths {\n\n")
  foreach(constant IN LISTS ARGN)
    string(REGEX MATCH "^([^=]+)=(.*)$" _ "${constant}")
    string(APPEND text "const char* const ${CMAKE_MATCH_1} = R\"(${CMAKE_MATCH_2})\";\n")
  endforeach()
  string(APPEND text "\n} // namespace build_paths\n")
  accel_constants(${target} ${target}_paths.cpp "${text}")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/test")
endfunction()
