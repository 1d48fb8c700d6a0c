# Compiler flags of everything that is ours, as the interface target torsor_options, and ccache where it is present.

add_library(torsor_options INTERFACE)
target_include_directories(torsor_options INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
target_compile_options(torsor_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow $<$<BOOL:${TORSOR_WERROR}>:-Werror>
  # Designated initialisers leave fields out on purpose; the compiler warns about them all the same.
  -Wno-missing-field-initializers
  # One rounding per written operation, whether or not the processor has fused multiply-add: the float64
  # definitions give the same numbers on every machine.
  -ffp-contract=off
  # The same code generation for libraries and programs, or a precompiled header made for one is refused by the other.
  -fPIC)

find_program(TORSOR_CCACHE ccache DOC "Compiler cache; leave empty to build without")
mark_as_advanced(TORSOR_CCACHE)
if(TORSOR_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers need the sloppiness; the base folder lets checkouts in different folders share entries.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
      "${TORSOR_CCACHE}")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 and 13 report these wrongly, of std::optional, of adding strings, and of references into what is passed in.
  target_compile_options(torsor_options INTERFACE -Wno-maybe-uninitialized -Wno-restrict
    $<$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>:-Wno-dangling-reference>)
  target_compile_options(torsor_options INTERFACE -fpch-preprocess)  # lets ccache see through precompiled headers
endif()
