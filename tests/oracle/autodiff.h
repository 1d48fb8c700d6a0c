// Reverse-mode differentiation of scalars: every operation leaves its partial derivatives on a tape, and the tape is
// walked backwards once. Slow and plain on purpose: the gradients of the conformance files come from here, so nothing
// but the chain rule itself should be able to be wrong.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace oracle {

/// The record of one computation. Only one is active at a time.
class Tape {
 public:
  static Tape& active() {
    static Tape tape;
    return tape;
  }

  void clear() { nodes_.clear(); }

  int leaf() { return push(-1, 0.0, -1, 0.0); }

  int push(int first, double d_first, int second, double d_second) {
    nodes_.push_back({first, second, d_first, d_second});
    return static_cast<int>(nodes_.size()) - 1;
  }

  /// What `backward` returns, one entry a node.
  struct Adjoints {
    std::vector<double> sum;        ///< derivative of the objective by the node
    std::vector<double> magnitude;  ///< sum of the magnitudes of the terms of `sum`: large beside it = cancellation
  };

  /// `seeds[n]` is the derivative of the objective by node n, where the objective names it directly.
  Adjoints backward(const std::vector<double>& seeds) const {
    Adjoints adjoints;
    adjoints.sum = seeds;
    adjoints.sum.resize(nodes_.size(), 0.0);
    adjoints.magnitude.assign(nodes_.size(), 0.0);
    for (std::size_t n = nodes_.size(); n-- > 0;) {
      const double adjoint = adjoints.sum[n];
      if (adjoint == 0.0) continue;
      const Node& node = nodes_[n];
      if (node.first >= 0) give(adjoints, node.first, adjoint * node.d_first);
      if (node.second >= 0) give(adjoints, node.second, adjoint * node.d_second);
    }
    return adjoints;
  }

  std::size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    int first, second;
    double d_first, d_second;
  };

  static void give(Adjoints& adjoints, int node, double amount) {
    adjoints.sum[static_cast<std::size_t>(node)] += amount;
    adjoints.magnitude[static_cast<std::size_t>(node)] += std::abs(amount);
  }

  std::vector<Node> nodes_;
};

/// A number, and its node on the tape; node -1 is a constant.
struct Var {
  double value = 0.0;
  int node = -1;

  Var() = default;
  Var(double constant) : value(constant) {}  // NOLINT: numbers mix freely with variables
  Var(double v, int n) : value(v), node(n) {}
};

inline Var variable(double value) { return {value, Tape::active().leaf()}; }

inline Var unary(const Var& x, double value, double derivative) {
  return x.node < 0 ? Var(value) : Var(value, Tape::active().push(x.node, derivative, -1, 0.0));
}

inline Var binary(const Var& x, const Var& y, double value, double d_x, double d_y) {
  if (x.node < 0 && y.node < 0) return Var(value);
  return Var(value, Tape::active().push(x.node, d_x, y.node, d_y));
}

inline Var operator+(const Var& x, const Var& y) { return binary(x, y, x.value + y.value, 1.0, 1.0); }
inline Var operator-(const Var& x, const Var& y) { return binary(x, y, x.value - y.value, 1.0, -1.0); }
inline Var operator*(const Var& x, const Var& y) { return binary(x, y, x.value * y.value, y.value, x.value); }
inline Var operator/(const Var& x, const Var& y) {
  return binary(x, y, x.value / y.value, 1.0 / y.value, -x.value / (y.value * y.value));
}
inline Var operator-(const Var& x) { return unary(x, -x.value, -1.0); }
inline Var& operator+=(Var& x, const Var& y) { return x = x + y; }

inline Var exp(const Var& x) {
  const double e = std::exp(x.value);
  return unary(x, e, e);
}
inline Var log(const Var& x) { return unary(x, std::log(x.value), 1.0 / x.value); }
inline Var cos(const Var& x) { return unary(x, std::cos(x.value), -std::sin(x.value)); }
inline Var sin(const Var& x) { return unary(x, std::sin(x.value), std::cos(x.value)); }
inline Var abs(const Var& x) { return unary(x, std::abs(x.value), x.value > 0.0 ? 1.0 : (x.value < 0.0 ? -1.0 : 0.0)); }
inline Var sigmoid(const Var& x) {
  const double s = 1.0 / (1.0 + std::exp(-x.value));
  return unary(x, s, s * (1.0 - s));
}
inline Var tanh(const Var& x) {
  const double t = std::tanh(x.value);
  return unary(x, t, 1.0 - t * t);
}
/// x times the normal distribution function of x.
inline Var gelu(const Var& x) {
  const double below = 0.5 * std::erfc(-x.value * 0.70710678118654752440);
  const double density = std::exp(-0.5 * x.value * x.value) * 0.39894228040143267794;
  return unary(x, x.value * below, below + x.value * density);
}
inline Var sqrt(const Var& x) {
  const double root = std::sqrt(x.value);
  return unary(x, root, 0.5 / root);
}
/// ln(1 + e^x) and ln(1 / (1 + e^-x)), for any x.
inline Var softplus(const Var& x) {
  const double value = std::fmax(x.value, 0.0) + std::log1p(std::exp(-std::abs(x.value)));
  return unary(x, value, 1.0 / (1.0 + std::exp(-x.value)));
}
inline Var log_sigmoid(const Var& x) { return -softplus(-x); }
inline Var relu(const Var& x) { return x.value > 0.0 ? x : Var(0.0); }

/// The larger, the smaller; beyond a bound the bound counts, and it is a constant if it was given as one. At a tie
/// each side has half of the gradient.
inline Var max(const Var& x, const Var& y) {
  if (x.value == y.value) return x * 0.5 + y * 0.5;
  return x.value > y.value ? x : y;
}
inline Var min(const Var& x, const Var& y) {
  if (x.value == y.value) return x * 0.5 + y * 0.5;
  return x.value < y.value ? x : y;
}

/// base^exponent for a constant base >= 0; 0^exponent is 0 with no derivative.
inline Var power_of(double base, const Var& exponent) {
  if (base == 0.0) return Var(0.0);
  const double p = std::pow(base, exponent.value);
  return unary(exponent, p, p * std::log(base));
}

}  // namespace oracle
