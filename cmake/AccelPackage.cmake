# What CPack makes (scripts/package): two Debian packages.
#
#   accel-migrate   the rewriter, with LLVM in it
#   libaccel-dev    headers, library, CMake package, and accel
#
# LibTorch is in neither, and Debian's is none that they could depend on: the user
# names it with ACCEL_LIBTORCH or -DCMAKE_PREFIX_PATH.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME accel)
set(CPACK_PACKAGE_VENDOR "The accel authors")
set(CPACK_PACKAGE_CONTACT "The accel authors <accel@localhost>")
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 2)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_COMPONENTS_ALL tool launcher runtime)
set(CPACK_COMPONENT_TOOL_GROUP migrate)
set(CPACK_COMPONENT_LAUNCHER_GROUP dev)
set(CPACK_COMPONENT_RUNTIME_GROUP dev)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_MIGRATE_PACKAGE_NAME accel-migrate)
set(CPACK_DEBIAN_MIGRATE_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_MIGRATE_DESCRIPTION "Rewriter of LibTorch training programs for several processes
 accel-migrate turns a training program that is written for one device with
 LibTorch, the C++ front end of PyTorch, into one that trains as several
 processes and computes the same. It needs the headers of a LibTorch.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libaccel-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_DESCRIPTION "Distributed training for LibTorch programs: library, headers, launcher
 What a program that accel-migrate has rewritten is compiled and linked with,
 a CMake package, and accel, which starts it as several processes and compares
 it with the original. It needs a LibTorch, which is not in the package.")
# dpkg-shlibdeps would look for LibTorch's package. scripts/check-packages compares
# with the symbols that are used.
set(CPACK_DEBIAN_MIGRATE_PACKAGE_DEPENDS "libc6 (>= 2.36)")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libc6 (>= 2.36), libgcc-s1, libstdc++6 (>= 12)")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "accel-migrate, cmake, g++")
set(CPACK_DEBIAN_MIGRATE_PACKAGE_SUGGESTS "libaccel-dev")

set(CPACK_OUTPUT_FILE_PREFIX "${PROJECT_BINARY_DIR}/cpack")
include(CPack)
