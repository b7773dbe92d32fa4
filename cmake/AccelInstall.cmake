# What find_package(accel) needs in an install tree. Included last by the
# project, where accel::accel exists.

include(CMakePackageConfigHelpers)

set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/accel")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/accelConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/cmake/accelConfig.cmake" INSTALL_DESTINATION "${_package}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/cmake/accelConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)

install(EXPORT accelTargets NAMESPACE accel:: DESTINATION "${_package}" COMPONENT runtime)
install(FILES
  "${PROJECT_BINARY_DIR}/cmake/accelConfig.cmake"
  "${PROJECT_BINARY_DIR}/cmake/accelConfigVersion.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/AccelCuda.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/AccelLibTorch.cmake"
  DESTINATION "${_package}" COMPONENT runtime)
