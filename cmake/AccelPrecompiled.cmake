# Precompiled headers, and sources that are compiled together.
#
# <torch/torch.h> takes longer to compile than anything of ours. With Clang it
# is compiled once for everything that includes it, libraries, tests and
# programs: its precompiled headers do not mind other definitions, levels of
# optimisation, sanitizers or -fPIE. GCC's do; with GCC there is one for each
# kind of target.
#
# What is made here does not depend on where the clone lies, so that ccache finds
# in one clone what it has kept of another: sources that are compiled together
# are included by relative paths, and of a precompiled header ccache looks at the
# checksum beside it, of what has gone into it (PrecompiledChecksum.cmake).

option(ACCEL_PRECOMPILE "Precompile LibTorch's and Clang's headers" ON)
option(ACCEL_UNITY_BUILD "Compile the sources of a folder together: a build from nothing takes half as long" OFF)

# With Clang of any release, and a generator that reads the compiler's lists of headers.
set(ACCEL_SHARED_HEADERS FALSE)
if(ACCEL_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_GENERATOR MATCHES "Ninja")
  set(ACCEL_SHARED_HEADERS TRUE)
endif()

# accel_precompiled_header(name HEADER file [BASE name] [FLAGS flag...])
#
# precompiled/NAME.pch of the build folder from `file`; with BASE on top of that
# one, which adds a tenth of the time. Only where ACCEL_SHARED_HEADERS is set.
function(accel_precompiled_header name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADER;BASE" "FLAGS")
  if(NOT ACCEL_SHARED_HEADERS)
    return()
  endif()
  set(output "${PROJECT_BINARY_DIR}/precompiled/${name}.pch")
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/precompiled")
  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
  separate_arguments(flags NATIVE_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}")
  list(APPEND flags -fPIC ${ACCEL_ABI_OPTIONS} ${arg_FLAGS})
  if(ACCEL_SANITIZE)
    list(APPEND flags "-fsanitize=${ACCEL_SANITIZE}")
  endif()
  set(base "")
  if(arg_BASE)
    set(base "${PROJECT_BINARY_DIR}/precompiled/${arg_BASE}.pch")
    list(APPEND flags -include-pch "${base}" -Xclang -fno-validate-pch)
  endif()
  # Who uses it is compiled in its language: another release of LibTorch has another.
  if("${arg_FLAGS}" MATCHES "-std=c\\+\\+([0-9]+)")
    set_property(GLOBAL PROPERTY accel_standard_of_${name} ${CMAKE_MATCH_1})
  endif()
  # A new compiler makes a new one.
  file(REAL_PATH "${CMAKE_CXX_COMPILER}" compiler)
  add_custom_command(
    OUTPUT "${output}" "${output}.sum"
    COMMAND "${CMAKE_CXX_COMPILER}" ${flags} -x c++-header "${arg_HEADER}" -fpch-instantiate-templates
      -Xclang -fno-pch-timestamp -MD -MF "${output}.d" -MT "${output}" -o "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${output}" "-DBASE=${base}" "-DFLAGS=${flags}"
      "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
      "-DFOLDERS=${PROJECT_BINARY_DIR};${ACCEL_TORCH_ROOT};${PROJECT_SOURCE_DIR}"
      -P "${PROJECT_SOURCE_DIR}/cmake/PrecompiledChecksum.cmake"
    DEPENDS "${arg_HEADER}" "${compiler}" "${PROJECT_SOURCE_DIR}/cmake/PrecompiledChecksum.cmake" ${base}
    DEPFILE "${output}.d"
    COMMENT "Precompiling ${name}.pch"
    VERBATIM)
  add_custom_target(accel_precompiled_${name} DEPENDS "${output}")
  if(arg_BASE)
    add_dependencies(accel_precompiled_${name} accel_precompiled_${arg_BASE})
  endif()
endfunction()

# accel_use_precompiled(target name [GCC arguments]): the sources that the target
# has by now are compiled on top of that header. Without ACCEL_SHARED_HEADERS:
# target_precompile_headers(target arguments), where there are any.
function(accel_use_precompiled target name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "GCC")
  if(NOT ACCEL_SHARED_HEADERS)
    if(ACCEL_PRECOMPILE AND arg_GCC)
      target_precompile_headers(${target} ${arg_GCC})
    endif()
    return()
  endif()
  get_property(standard GLOBAL PROPERTY accel_standard_of_${name})
  if(standard)
    set_target_properties(${target} PROPERTIES CXX_STANDARD ${standard})
  endif()
  set(file "${PROJECT_BINARY_DIR}/precompiled/${name}.pch")
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(source MATCHES "\\.cpp$")
      set_property(SOURCE "${source}" APPEND PROPERTY OBJECT_DEPENDS "${file}")
    endif()
  endforeach()
  # That the flags fit is known, and the build sees to it that the file is new.
  target_compile_options(${target} PRIVATE "SHELL:-include-pch \"${file}\"" "SHELL:-Xclang -fno-validate-pch")
  add_dependencies(${target} accel_precompiled_${name})
endfunction()

# accel_precompiled_torch_headers(): after AccelLibTorch. torch for programs as users
# write them, on top of it internal for the library and tests for the tests, and
# results for programs that train with accel, results of the rewriter among them:
# <accel/accel.h>. (That they include it is seen by the tool, which parses them
# without this header.)
function(accel_precompiled_torch_headers)
  set(flags -std=c++${ACCEL_TORCH_CXX_STANDARD})
  foreach(folder IN LISTS ACCEL_TORCH_INCLUDE_DIRS)
    list(APPEND flags -isystem "${folder}")
  endforeach()
  set(headers "${PROJECT_SOURCE_DIR}/cmake/precompiled")
  accel_precompiled_header(torch HEADER "${headers}/torch.h" FLAGS ${flags})
  accel_precompiled_header(internal HEADER "${headers}/internal.h" BASE torch FLAGS ${flags} -DUSE_C10D_GLOO)
  set(accel "${PROJECT_SOURCE_DIR}/runtime/include")
  accel_precompiled_header(tests HEADER "${headers}/tests.h" BASE internal FLAGS ${flags} -DUSE_C10D_GLOO "-I${accel}")
  accel_precompiled_header(results HEADER "${accel}/accel/accel.h" BASE torch FLAGS ${flags} "-I${accel}")
endfunction()

# accel_unity(target [KILOBYTES n] [ONE_LEVEL]): with ACCEL_UNITY_BUILD, sources of one folder are
# compiled together, up to n KB of them (64). Most of the time of a small source
# goes into headers and their templates, so that this halves a build from
# nothing; it makes a change of one source dearer, so that it is not the default.
# Sources of one folder may therefore have no two static names alike. Sources
# with the same COMPILE_OPTIONS of their own and the same ACCEL_UNITY_GROUP, a
# property with any value, are together; ONE_LEVEL leaves these options out.
function(accel_unity target)
  if(NOT ACCEL_UNITY_BUILD)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "ONE_LEVEL" "KILOBYTES" "")
  if(NOT arg_KILOBYTES)
    set(arg_KILOBYTES 64)
  endif()
  math(EXPR limit "${arg_KILOBYTES} * 1024")
  set(unity_dir "${CMAKE_CURRENT_BINARY_DIR}/unity/${target}")
  get_target_property(sources ${target} SOURCES)
  set(others "")
  set(groups "")
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "\\.cpp$")
      list(APPEND others "${source}")
      continue()
    endif()
    get_filename_component(path "${source}" ABSOLUTE)
    # What CMake or the build makes is not there yet.
    string(FIND "${path}" "${PROJECT_BINARY_DIR}/" in_build)
    if(in_build EQUAL 0)
      list(APPEND others "${source}")
      continue()
    endif()
    get_filename_component(folder "${path}" DIRECTORY)
    get_filename_component(folder "${folder}" NAME)
    set(options "")
    if(NOT arg_ONE_LEVEL)
      get_source_file_property(options "${source}" COMPILE_OPTIONS)
      if(NOT options)
        set(options "")
      endif()
    endif()
    get_source_file_property(group "${source}" ACCEL_UNITY_GROUP)
    if(NOT group)
      set(group "")
    endif()
    string(REPLACE ";" "" group "${folder}_${group}_${options}")
    string(MAKE_C_IDENTIFIER "${group}" group)
    if(NOT group IN_LIST groups)
      list(APPEND groups ${group})
      set(files_${group} "")
      set(options_${group} "${options}")
    endif()
    list(APPEND files_${group} "${path}")
  endforeach()
  # Of inline functions that several units have the linker takes the first: one
  # that is optimised.
  set(optimised "")
  set(plain "")
  foreach(group IN LISTS groups)
    if(options_${group})
      list(APPEND optimised ${group})
    else()
      list(APPEND plain ${group})
    endif()
  endforeach()
  set(groups ${optimised} ${plain})
  set(units "")
  foreach(group IN LISTS groups)
    set(part 0)
    set(size 0)
    set(text "")
    foreach(path IN LISTS files_${group} ITEMS "")
      set(bytes 0)
      if(path)
        file(SIZE "${path}" bytes)
      endif()
      math(EXPR with_this "${size} + ${bytes}")
      if(text AND (NOT path OR with_this GREATER limit))
        set(unit "${unity_dir}/${group}_${part}.cpp")
        file(CONFIGURE OUTPUT "${unit}" CONTENT "${text}" @ONLY)
        set_source_files_properties("${unit}" PROPERTIES COMPILE_OPTIONS "${options_${group}}")
        list(APPEND units "${unit}")
        math(EXPR part "${part} + 1")
        set(text "")
        set(with_this "${bytes}")
      endif()
      set(size "${with_this}")
      if(path)
        file(RELATIVE_PATH relative "${unity_dir}" "${path}")
        string(APPEND text "#include \"${relative}\"\n")
      endif()
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${units};${others}")
endfunction()
