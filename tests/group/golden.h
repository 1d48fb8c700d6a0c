// The shared golden values of GRAPE, where they are on this machine, and comparisons with them.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/golden_grape.h"

namespace torsor::group {

using Json = nlohmann::json;

inline at::Tensor tensor_of(const Json& json) {
  const NestedNumbers<Json> numbers(json);
  return at::tensor(numbers.values, at::kDouble).view(numbers.shape);
}

inline double largest_error(const at::Tensor& found, const at::Tensor& wanted) {
  if (found.sizes() != wanted.sizes()) return std::numeric_limits<double>::infinity();
  const double error = (found.detach().to(at::kDouble) - wanted).abs().max().item<double>();
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

class Golden : public GoldenGrapeFile<Json> {
 protected:
  const Json& at(const std::string& id) const { return at_id(id); }
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
