# accel_pages(target component): the man pages and completions of the command
# `target`, made from its own option table and installed with it. Needs Python
# where it is built; without it, or where the command cannot be run here, there
# are none.

function(accel_pages target component)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(NOT Python3_Interpreter_FOUND OR CMAKE_CROSSCOMPILING)
    message(STATUS "${target}: no man pages and completions (they need Python)")
    return()
  endif()
  set(script "${PROJECT_SOURCE_DIR}/packaging/pages/make_pages.py")
  set(share "${PROJECT_BINARY_DIR}/pages/${target}")
  set(stamp "${share}.stamp")
  add_custom_command(
    OUTPUT "${stamp}"
    COMMAND "${CMAKE_COMMAND}" -E rm -rf "${share}"
    COMMAND Python3::Interpreter "${script}" --out "${share}" --version "${PROJECT_VERSION}"
      "--${target}" "$<TARGET_FILE:${target}>"
    COMMAND "${CMAKE_COMMAND}" -E touch "${stamp}"
    DEPENDS ${target} "${script}"
    COMMENT "Making the man pages and completions of ${target}"
    VERBATIM)
  add_custom_target(${target}_pages ALL DEPENDS "${stamp}")
  install(DIRECTORY "${share}/" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}" COMPONENT ${component})
endfunction()
