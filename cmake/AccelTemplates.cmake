# Compiles the texts of templates/ into the tool: one C++ source with a table
# from file name (without .in) to content.

function(accel_embed_templates target dir)
  file(GLOB _files CONFIGURE_DEPENDS "${dir}/*.in")
  set(_out "${CMAKE_CURRENT_BINARY_DIR}/Templates.cpp")
  set(_content "// Made from templates/ by cmake/AccelTemplates.cmake.\n#include \"accel/migrate/Templates.h\"\n")
  string(APPEND _content "const accel::migrate::EmbeddedTemplate accel::migrate::EmbeddedTemplates[] = {\n")
  foreach(_file IN LISTS _files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_file}")
    get_filename_component(_name "${_file}" NAME)
    string(REGEX REPLACE "\\.in$" "" _name "${_name}")
    file(READ "${_file}" _text)
    string(APPEND _content "    {\"${_name}\", R\"accel_template(${_text})accel_template\"},\n")
  endforeach()
  string(APPEND _content "    {nullptr, nullptr}};\n")
  file(CONFIGURE OUTPUT "${_out}" CONTENT "${_content}" @ONLY)
  target_sources(${target} PRIVATE "${_out}")
endfunction()
