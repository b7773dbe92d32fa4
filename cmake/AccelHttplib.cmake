# cpp-httplib, optional: the MLflow tracker speaks HTTP with it. Defines the
# target accel::httplib where it is found: Debian's libcpp-httplib-dev (by
# pkg-config), or the header alone.
#
# ACCEL_WITH_MLFLOW=OFF does without it.

option(ACCEL_WITH_MLFLOW "Build the MLflow tracker where cpp-httplib is found" ON)

if(ACCEL_WITH_MLFLOW AND NOT TARGET accel::httplib)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(ACCEL_HTTPLIB_PC QUIET IMPORTED_TARGET GLOBAL cpp-httplib)
  endif()
  find_path(ACCEL_HTTPLIB_INCLUDE_DIR httplib.h)
  mark_as_advanced(ACCEL_HTTPLIB_INCLUDE_DIR)
  find_package(Threads REQUIRED)
  if(TARGET PkgConfig::ACCEL_HTTPLIB_PC)
    add_library(accel::httplib INTERFACE IMPORTED GLOBAL)
    target_link_libraries(accel::httplib INTERFACE PkgConfig::ACCEL_HTTPLIB_PC Threads::Threads)
  elseif(ACCEL_HTTPLIB_INCLUDE_DIR)
    add_library(accel::httplib INTERFACE IMPORTED GLOBAL)
    target_include_directories(accel::httplib SYSTEM INTERFACE "${ACCEL_HTTPLIB_INCLUDE_DIR}")
    target_link_libraries(accel::httplib INTERFACE Threads::Threads)
  endif()
endif()
if(TARGET accel::httplib)
  message(STATUS "MLflow tracker: yes")
else()
  message(STATUS "MLflow tracker: no (cpp-httplib was not found or ACCEL_WITH_MLFLOW is off)")
endif()
