# UDPipe's library, as the object library torsor_udpipe, where TORSOR_WITH_UDPIPE is on. Its source (MPL 2.0) is no part
# of this project: it comes from the source package on the Python index into the user's cache folder, or from
# TORSOR_UDPIPE_DIR, a folder with udpipe.cpp and udpipe.h. Nothing is fetched without the option.
set(TORSOR_UDPIPE_VERSION 1.4.0.1)
set(TORSOR_UDPIPE_DIR "" CACHE PATH "Folder with udpipe.cpp and udpipe.h; empty = fetched into the cache folder")
mark_as_advanced(TORSOR_UDPIPE_DIR)

function(torsor_fetch_udpipe out)
  set(cache "$ENV{XDG_CACHE_HOME}")
  if(NOT cache)
    set(cache "$ENV{HOME}/.cache")
  endif()
  set(folder "${cache}/torsor/udpipe-${TORSOR_UDPIPE_VERSION}")
  set(source "${folder}/ufal_udpipe-${TORSOR_UDPIPE_VERSION}/ufal/udpipe")
  if(NOT EXISTS "${source}/udpipe.cpp")
    message(STATUS "fetching the source of UDPipe ${TORSOR_UDPIPE_VERSION} into ${folder}")
    file(MAKE_DIRECTORY "${folder}")
    set(python "${TORSOR_PYTHON}")
    if(NOT python)
      set(python python3)
    endif()
    execute_process(
      COMMAND "${python}" -m pip download --quiet --no-deps --no-binary :all: --dest "${folder}"
              "ufal.udpipe==${TORSOR_UDPIPE_VERSION}"
      RESULT_VARIABLE failed ERROR_VARIABLE message OUTPUT_VARIABLE message)
    file(GLOB archives "${folder}/*.tar.gz")
    if(failed OR NOT archives)
      message(FATAL_ERROR " torsor: UDPipe's source could not be fetched: ${message}; set TORSOR_UDPIPE_DIR to a folder "
                          "with udpipe.cpp and udpipe.h")
    endif()
    file(ARCHIVE_EXTRACT INPUT "${archives}" DESTINATION "${folder}")
  endif()
  set(${out} "${source}" PARENT_SCOPE)
endfunction()

set(folder "${TORSOR_UDPIPE_DIR}")
if(NOT folder)
  torsor_fetch_udpipe(folder)
endif()
foreach(name udpipe.cpp udpipe.h)
  if(NOT EXISTS "${folder}/${name}")
    message(FATAL_ERROR " torsor: expected UDPipe's source in ${folder}, found no ${name}")
  endif()
endforeach()
add_library(torsor_udpipe OBJECT "${folder}/udpipe.cpp")
# Code of others: its warnings are theirs, and our options are left out.
target_compile_options(torsor_udpipe PRIVATE -w -O2 -fPIC)
# Only the file that speaks to it sees it, so that the option changes nothing else.
set(TORSOR_UDPIPE_OPTIONS -isystem "${folder}" -DTORSOR_WITH_UDPIPE=1)
