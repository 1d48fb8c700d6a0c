// The shared golden values of GRAPE, where they are on this machine, and comparisons with them.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace torsor::group {

using Json = nlohmann::json;

inline std::string golden_file() {
  const char* shared = std::getenv("TORSOR_SHARED");
  return (shared ? std::string(shared) : std::string(TORSOR_SOURCE_DIR) + "/../shared") + "/golden/golden-grape.json";
}

/// Nested lists of numbers.
inline at::Tensor tensor_of(const Json& json) {
  std::vector<std::int64_t> shape;
  for (const Json* level = &json; level->is_array(); level = &level->at(0))
    shape.push_back(static_cast<std::int64_t>(level->size()));
  std::vector<double> values;
  const std::function<void(const Json&)> read = [&](const Json& level) {
    if (!level.is_array()) return values.push_back(level.get<double>());
    for (const Json& one : level) read(one);
  };
  read(json);
  return at::tensor(values, at::kDouble).view(shape);
}

inline double largest_error(const at::Tensor& found, const at::Tensor& wanted) {
  if (found.sizes() != wanted.sizes()) return std::numeric_limits<double>::infinity();
  const double error = (found.detach().to(at::kDouble) - wanted).abs().max().item<double>();
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

class Golden : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(golden_file())) GTEST_SKIP() << "no " << golden_file() << "; set TORSOR_SHARED";
    std::ifstream(golden_file()) >> file_;
  }
  const Json& at(const std::string& id) const {
    for (const Json& one : file_.at("cases"))
      if (one.at("id") == id) return one;
    throw std::runtime_error("no golden case " + id);
  }

 private:
  Json file_;
};

/// One case, in one dtype of the data.
struct Case {
  const Json& json;
  at::ScalarType dtype;

  at::Tensor in(const char* name) const { return tensor_of(json.at("inputs").at(name)); }
  double number(const char* name) const { return json.at("inputs").at(name).get<double>(); }
  at::Tensor out(const char* name) const { return tensor_of(json.at("outputs").at(name)); }
  bool wide() const { return dtype == at::kDouble; }
  double bound(bool gradient = false) const {
    const Json& tolerance = json.at("tol");
    if (wide()) return tolerance.at("f64_abs").get<double>();
    return tolerance.at(gradient && tolerance.contains("f32_abs_grad") ? "f32_abs_grad" : "f32_abs").get<double>();
  }
  void expect(const at::Tensor& found, const at::Tensor& wanted, const char* what, bool gradient = false) const {
    EXPECT_LE(largest_error(found, wanted), bound(gradient)) << what << ", " << dtype;
  }
};

/// A leaf of the given dtype.
inline at::Tensor leaf(const at::Tensor& tensor, at::ScalarType dtype = at::kDouble) {
  return tensor.detach().clone().to(dtype).requires_grad_(true);
}

/// exp(n L) for every n, by libtorch's general matrix exponential: the judge, never the fast path.
inline at::Tensor exponentials(const at::Tensor& generator, const at::Tensor& n) {
  return at::linalg_matrix_exp(generator.unsqueeze(0) * n.view({-1, 1, 1}));
}

}  // namespace torsor::group
