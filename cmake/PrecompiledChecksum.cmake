# cmake -DOUTPUT=X.pch -DBASE=Y.pch -DFLAGS=… -DCOMPILER=… -DFOLDERS=… -P: writes
# X.pch.sum, which is alike where compiler, flags and the headers' texts are, in
# whatever folder they lie: ccache takes it for the precompiled header itself.

function(without_folders text result)
  foreach(folder IN LISTS FOLDERS)
    string(REPLACE "${folder}" "." text "${text}")
  endforeach()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

without_folders("${COMPILER};${FLAGS}" text)
if(BASE)
  file(READ "${BASE}.sum" sum)
  string(APPEND text ";${sum}")
endif()

# What the compiler has read, as it says to make.
file(READ "${OUTPUT}.d" headers)
string(REGEX REPLACE "^[^:]*:" "" headers "${headers}")
string(REPLACE "\\\n" " " headers "${headers}")
separate_arguments(headers UNIX_COMMAND "${headers}")
foreach(header IN LISTS headers)
  if(NOT header MATCHES "\\.pch$")
    file(SHA256 "${header}" sum)
    without_folders("${header}" name)
    string(APPEND text ";${name} ${sum}")
  endif()
endforeach()
string(SHA256 sum "${text}")
file(WRITE "${OUTPUT}.sum" "${sum}\n")
