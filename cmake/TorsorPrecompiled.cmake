# One precompiled header of libtorch for every target that uses it. Reading <ATen/ATen.h> costs about seven seconds a
# file; <torch/torch.h> twice that, so it is not in here and files include it only where nothing smaller serves.
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/precompiled.cpp" CONTENT "// Carries the shared precompiled header.\n")
add_library(torsor_precompiled OBJECT "${PROJECT_BINARY_DIR}/precompiled.cpp")
target_link_libraries(torsor_precompiled PRIVATE torsor_options Torsor::torch)
target_precompile_headers(torsor_precompiled PRIVATE
  <ATen/ATen.h>
  <torch/csrc/autograd/custom_function.h>
  <torch/csrc/autograd/grad_mode.h>
  <torch/csrc/autograd/autograd.h>)
