// The shared golden values of TAPE, where they are on this machine.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "torsor/base/json.h"

namespace torsor {

/// {"shape", "data"} in float64.
inline at::Tensor golden_tensor(const Json& json) {
  return at::tensor(json.at("data").get<std::vector<double>>(), at::kDouble)
      .view(json.at("shape").get<std::vector<std::int64_t>>());
}

/// A state (..., F, 2) of the file as the library keeps it: (..., 2F), cosines before sines.
inline at::Tensor planar(const at::Tensor& state) { return at::cat({state.select(-1, 0), state.select(-1, 1)}, -1); }

/// Skips its tests where the file is absent.
class GoldenTape : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* shared = std::getenv("TORSOR_SHARED");
    const std::string file =
        (shared ? std::string(shared) : std::string(TORSOR_SOURCE_DIR) + "/../shared") + "/golden/golden-tape.json";
    if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file << "; set TORSOR_SHARED";
    std::ifstream(file) >> file_;
  }
  Json file_;
};

/// Largest difference of two tensors of one number of entries, in float64.
inline double golden_error(const at::Tensor& ours, const at::Tensor& golden) {
  return (ours.detach().to(at::kDouble).reshape(golden.sizes()) - golden).abs().max().item<double>();
}

}  // namespace torsor
