# Installs the build into a folder of its own, builds examples/package against it as any user would, and runs it.
#   cmake -DSOURCE=... -DBUILD=... -DWORK=... -DEXPECT=regex -P package.cmake
cmake_minimum_required(VERSION 3.25)

function(step name)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${name} failed:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
step(install "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix")
step(configure "${CMAKE_COMMAND}" -S "${SOURCE}/examples/package" -B "${WORK}/build" -G Ninja
     -DCMAKE_BUILD_TYPE=Release "-DCMAKE_PREFIX_PATH=${WORK}/prefix")
step(build "${CMAKE_COMMAND}" --build "${WORK}/build")
step(run "${WORK}/build/example")
if(NOT output MATCHES "${EXPECT}")
  message(FATAL_ERROR "the example printed:\n${output}\nwhich does not match '${EXPECT}'")
endif()
if(EXISTS "${WORK}/prefix/bin/torsor")
  step(program "${WORK}/prefix/bin/torsor" --help)
endif()
file(REMOVE_RECURSE "${WORK}")
