# Precompiled headers for every target that uses libtorch: one for the library, one with GoogleTest for the tests. Reading
# <ATen/ATen.h> costs about seven seconds a file, json.hpp one or two. What is in here costs every file as well, since GCC
# makes the templates that a header leaves pending in each of them: the headers of autograd's functions and
# <torch/torch.h> would double that, so the few files that need them include them.
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/precompiled.cpp" CONTENT "// Carries a shared precompiled header.\n")

# torsor_precompile(NAME LIBRARIES HEADERS): an object library NAME that carries the precompiled HEADERS.
function(torsor_precompile name libraries)
  add_library(${name} OBJECT "${PROJECT_BINARY_DIR}/precompiled.cpp")
  target_link_libraries(${name} PRIVATE torsor_options Torsor::torch nlohmann_json::nlohmann_json ${libraries})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

torsor_precompile(torsor_precompiled "" <ATen/ATen.h> <nlohmann/json.hpp>)
