# Finds libtorch and defines Torsor::torch. Used by the build and, installed, by find_package(torsor).
#
# Where libtorch comes from, first match wins:
#   TORSOR_TORCH_DIR   (environment or cache) a folder with include/ and lib/: an unpacked libtorch or site-packages/torch
#   TORSOR_PYTHON      (environment or cache) a Python in whose packages torch lies
#   TORSOR_TORCH_BUILT_WITH  (set by the installed package) the folder that the library was built with
#   the environment that scripts/setup.sh made
# torch is never imported: the lean environment holds only what C++ needs, and importing wants more.
# The CMake package inside the wheel is not used: it fails where the wheel's CUDA is newer than CMake knows, or absent.

set(TORSOR_TORCH_OLDEST 2.13.0)
set(TORSOR_TORCH_BEYOND 2.16.0)
set(TORSOR_TORCH_DIR "" CACHE PATH "Folder of libtorch, with include/ and lib/ in it")
set(TORSOR_PYTHON "" CACHE FILEPATH "A Python whose torch is used")
foreach(name TORSOR_TORCH_DIR TORSOR_PYTHON)  # kept in the cache, so that a later run without the variable stays with it
  if(NOT "$ENV{${name}}" STREQUAL "")
    set_property(CACHE ${name} PROPERTY VALUE "$ENV{${name}}")
  endif()
endforeach()
mark_as_advanced(TORSOR_TORCH_DIR TORSOR_PYTHON)

# Sets OUT to the folder of the torch package of PYTHON, or to nothing.
function(torsor_torch_of_python python out)
  execute_process(
    COMMAND "${python}" -c
            "import importlib.util as u; s = u.find_spec('torch'); print(list(s.submodule_search_locations)[0] if s else '')"
    OUTPUT_VARIABLE folder ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(failed)
    set(folder "")
  endif()
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

# Sets OUT to the version of the libtorch in FOLDER, as text like 2.15.0+cpu, or to nothing.
function(torsor_torch_version folder out)
  set(version "")
  if(EXISTS "${folder}/version.py")
    file(STRINGS "${folder}/version.py" lines REGEX "^__version__")
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+[^'\"]*" version "${lines}")
  elseif(EXISTS "${folder}/build-version")
    file(STRINGS "${folder}/build-version" version LIMIT_COUNT 1)
  elseif(EXISTS "${folder}/include/torch/headeronly/version.h")
    set(parts "")
    foreach(part MAJOR MINOR PATCH)
      file(STRINGS "${folder}/include/torch/headeronly/version.h" line REGEX "define TORCH_VERSION_${part} ")
      string(REGEX MATCH "[0-9]+$" number "${line}")
      list(APPEND parts "${number}")
    endforeach()
    list(JOIN parts "." version)
  endif()
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# Sets OUT to the folders that hold the shared libraries which LIBRARY needs and which lie neither beside it nor in the
# system's folders. The wheel built for CUDA links two of CUDA's libraries even from its CPU part; the packages that
# bring them have other folder names in every release, so they are looked for by file name.
function(torsor_torch_companions library out)
  set(found "")
  get_filename_component(lib "${library}" DIRECTORY)
  get_filename_component(packages "${lib}/../.." ABSOLUTE)
  if(CMAKE_READELF)
    execute_process(COMMAND "${CMAKE_READELF}" -d "${library}" OUTPUT_VARIABLE dynamic ERROR_QUIET)
    string(REGEX MATCHALL "\\[lib(cu[^]]*|nv[^]]*)\\.so[^]]*\\]" needed "${dynamic}")
  else()
    set(needed "")
  endif()
  foreach(name IN LISTS needed)
    string(REGEX REPLACE "[][]" "" name "${name}")
    if(EXISTS "${lib}/${name}")
      continue()
    endif()
    file(GLOB candidates "${packages}/nvidia/*/lib/${name}" "${packages}/nvidia/*/lib64/${name}")
    if(candidates)
      list(GET candidates 0 candidate)
      get_filename_component(folder "${candidate}" DIRECTORY)
      list(APPEND found "${folder}")
      continue()
    endif()
    unset(TORSOR_COMPANION)
    find_library(TORSOR_COMPANION NAMES "${name}" PATHS /usr/local/cuda/lib64 ENV LD_LIBRARY_PATH NO_CACHE)
    if(TORSOR_COMPANION)
      get_filename_component(folder "${TORSOR_COMPANION}" DIRECTORY)
      list(APPEND found "${folder}")
    else()
      message(FATAL_ERROR " torsor: ${library} needs ${name}, which was not found under ${packages}/nvidia nor in the "
                          "system's folders; scripts/setup.sh installs it, or give TORSOR_PYTHON a complete torch")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

function(torsor_find_torch)
  if(TARGET Torsor::torch)
    return()
  endif()
  set(folder "${TORSOR_TORCH_DIR}")
  set(source "TORSOR_TORCH_DIR")
  if(NOT folder AND NOT TORSOR_PYTHON)
    set(folder "${TORSOR_TORCH_BUILT_WITH}")
    set(source "the folder that torsor was built with, ${folder}")
  endif()
  if(NOT folder)
    set(python "${TORSOR_PYTHON}")
    set(source "TORSOR_PYTHON=${python}")
    set(setup "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../scripts/setup.sh")
    if(NOT python AND EXISTS "${setup}")
      execute_process(COMMAND bash "${setup}" --print-python OUTPUT_VARIABLE python OUTPUT_STRIP_TRAILING_WHITESPACE)
      set(source "${python} (made by scripts/setup.sh)")
    endif()
    if(NOT python)
      set(python python3)
      set(source "python3")
    endif()
    torsor_torch_of_python("${python}" folder)
  endif()
  if(NOT folder OR NOT EXISTS "${folder}/include/ATen/ATen.h")
    message(FATAL_ERROR " torsor: no libtorch found through ${source}; run scripts/setup.sh, or set TORSOR_PYTHON to a "
                        "Python that has torch, or TORSOR_TORCH_DIR to an unpacked libtorch")
  endif()

  torsor_torch_version("${folder}" full)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+\\.[0-9]+" version "${full}")
  if(NOT version OR version VERSION_LESS TORSOR_TORCH_OLDEST OR version VERSION_GREATER_EQUAL TORSOR_TORCH_BEYOND)
    message(FATAL_ERROR " torsor: libtorch from ${TORSOR_TORCH_OLDEST} up to, not including, ${TORSOR_TORCH_BEYOND} is supported, found '${full}' in ${folder}")
  endif()

  foreach(name torch_cpu c10)
    find_library(TORSOR_LIB_${name} NAMES ${name} PATHS "${folder}/lib" NO_DEFAULT_PATH NO_CACHE)
    if(NOT TORSOR_LIB_${name})
      message(FATAL_ERROR " torsor: ${folder}/lib has no ${name} library")
    endif()
  endforeach()
  torsor_torch_companions("${TORSOR_LIB_torch_cpu}" companions)

  add_library(Torsor::torch INTERFACE IMPORTED GLOBAL)
  set_target_properties(Torsor::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${folder}/include;${folder}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${TORSOR_LIB_torch_cpu};${TORSOR_LIB_c10}")
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set_property(TARGET Torsor::torch PROPERTY INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=1)
    # The old kind of run path is also searched for the libraries that libtorch itself needs. A program that happens to
    # use nothing of libtorch does not load it, which would cost a third of a second at every start.
    set_property(TARGET Torsor::torch PROPERTY INTERFACE_LINK_OPTIONS LINKER:--disable-new-dtags LINKER:--as-needed)
  endif()
  foreach(path "${folder}/lib" ${companions})
    set_property(TARGET Torsor::torch APPEND PROPERTY INTERFACE_LINK_OPTIONS "LINKER:-rpath,${path}")
  endforeach()
  # at::parallel_for is a template: what calls it runs in one thread unless it is compiled for the threads that this
  # libtorch uses. The OpenMP library is found along the run path, where libtorch's own lies.
  file(STRINGS "${folder}/include/ATen/Config.h" openmp REGEX "^#define AT_PARALLEL_OPENMP 1")
  if(openmp)
    set_property(TARGET Torsor::torch PROPERTY INTERFACE_COMPILE_OPTIONS -fopenmp)
    set_property(TARGET Torsor::torch APPEND PROPERTY INTERFACE_LINK_OPTIONS -fopenmp)
  endif()
  set(TORSOR_TORCH_FOLDER "${folder}" PARENT_SCOPE)
  message(STATUS "libtorch ${full}: ${folder}")
endfunction()

torsor_find_torch()
