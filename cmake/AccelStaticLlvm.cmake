# accel_link_static_llvm(target): LLVM and Clang from their archives, and what these
# need as archives, too: the executable then runs wherever there is a C library as
# new as this one.
#
# Must not be mixed with the shared libraries: both would register LLVM's
# command-line options.

# _accel_archive(variable name package)
function(_accel_archive variable name package)
  find_library(ACCEL_ARCHIVE_${name} "lib${name}.a")
  mark_as_advanced(ACCEL_ARCHIVE_${name})
  if(NOT ACCEL_ARCHIVE_${name})
    message(FATAL_ERROR "ACCEL_STATIC_LLVM needs lib${name}.a; as root: apt-get install ${package}")
  endif()
  set(${variable} "${ACCEL_ARCHIVE_${name}}" PARENT_SCOPE)
endfunction()

function(accel_link_static_llvm target)
  # As the compiler looks for it.
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-prog-name=ld.lld OUTPUT_VARIABLE lld OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${lld}")
    message(FATAL_ERROR "ACCEL_STATIC_LLVM needs the linker lld; as root: apt-get install lld-19")
  endif()
  _accel_archive(zlib z zlib1g-dev)
  _accel_archive(zstd zstd libzstd-dev)
  # Debian's LLVMSupport wants Z3, for the static analyzer, which is not linked.
  set_target_properties(LLVMSupport PROPERTIES
    INTERFACE_LINK_LIBRARIES "rt;dl;m;${zlib};${zstd};LLVMDemangle")
  # Debian's archives of Clang say that they want LLVM's shared library.
  llvm_map_components_to_libnames(llvm_archives
    option frontenddriver frontendhlsl frontendoffloading frontendopenmp windowsdriver
    profiledata bitstreamreader bitreader core mc mcparser targetparser binaryformat support)
  foreach(archive IN LISTS CLANG_EXPORTED_TARGETS)
    if(NOT TARGET ${archive})
      continue()
    endif()
    get_target_property(type ${archive} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      get_target_property(needs ${archive} INTERFACE_LINK_LIBRARIES)
      list(TRANSFORM needs REPLACE "^LLVM$" "${llvm_archives}")
      set_target_properties(${archive} PROPERTIES INTERFACE_LINK_LIBRARIES "${needs}")
    endif()
  endforeach()
  target_link_libraries(${target} PRIVATE
    clangTooling clangToolingCore clangToolingInclusions clangIndex clangFrontend clangDriver clangSerialization
    clangParse clangSema clangEdit clangRewrite clangASTMatchers clangAST clangLex clangBasic)
  target_link_options(${target} PRIVATE
    LINKER:--gc-sections LINKER:--as-needed -static-libstdc++ -static-libgcc -fuse-ld=lld)
endfunction()
