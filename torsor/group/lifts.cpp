#include "torsor/group/lifts.h"

#include <cmath>
#include <vector>

namespace torsor::group {
namespace {

at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kDouble); }

at::Tensor appended(const at::Tensor& x, const std::vector<double>& more) {
  return at::cat({wide(x), at::tensor(more, at::kDouble)});
}

double product_of(const at::Tensor& a, const at::Tensor& b) { return at::dot(wide(a), wide(b)).item<double>(); }

}  // namespace

at::Tensor lift_unit(std::int64_t width) {
  at::Tensor unit = at::zeros({width + 2, width + 2}, at::kDouble);
  unit[width + 1][width] = 1;
  return unit;
}

at::Tensor unipotent(const at::Tensor& nilpotent, double s) {
  return at::eye(nilpotent.size(0), at::kDouble) + s * wide(nilpotent);
}

at::Tensor unipotent_dual(const at::Tensor& nilpotent, double s) { return unipotent(nilpotent.t(), -s); }

bool commuting_dictionary(const std::vector<at::Tensor>& generators) {
  for (const at::Tensor& a : generators)
    for (const at::Tensor& b : generators)
      if (at::matmul(wide(a), wide(b)).count_nonzero().item<std::int64_t>() != 0) return false;
  return true;
}

at::Tensor lift_once(const at::Tensor& x) { return appended(x, {1}); }

at::Tensor once_generator(const at::Tensor& direction) {
  const std::int64_t d = direction.size(0);
  at::Tensor generator = at::zeros({d + 1, d + 1}, at::kDouble);
  generator.narrow(0, 0, d).select(1, d).copy_(direction);
  return generator;
}

double once_score(const at::Tensor& q, const at::Tensor& k, const at::Tensor& direction, double omega, double i,
                  double j) {
  return product_of(q, k) + 1 - (j - i) * omega * product_of(direction, k);
}

at::Tensor lift_query(const at::Tensor& q) { return appended(q, {1, 0}); }
at::Tensor lift_key(const at::Tensor& k) { return appended(k, {0, 1}); }
at::Tensor twice_generator(std::int64_t width, double rate) { return -rate * lift_unit(width); }

double twice_score(const at::Tensor& q, const at::Tensor& k, double omega, double rate, double i, double j) {
  return product_of(q, k) + (j - i) * omega * rate;
}

at::Tensor path_product(std::int64_t width, const at::Tensor& psi) {
  return unipotent(lift_unit(width), -wide(psi).sum().item<double>());
}

at::Tensor joint_generator(const at::Tensor& rotation, double omega, double rate) {
  const std::int64_t d = rotation.size(0);
  at::Tensor generator = twice_generator(d, omega * rate);
  generator.narrow(0, 0, d).narrow(1, 0, d).copy_(rotation);
  return generator;
}

at::Tensor joint_exponential(const at::Tensor& turned, double omega, double rate, double m) {
  const std::int64_t d = turned.size(0);
  at::Tensor exponential = unipotent(lift_unit(d), -m * omega * rate);
  exponential.narrow(0, 0, d).narrow(1, 0, d).copy_(turned);
  return exponential;
}

std::pair<double, double> unipotent_singular_values(double s) {
  const double size = std::fabs(s), larger = size / 2 + std::sqrt(1 + s * s / 4);
  return {larger, 1 / larger};
}

}  // namespace torsor::group
