// The laws of rotations over random generators, at their bounds, in both dtypes of the data; and gradients against
// libtorch's general matrix exponential and against the identities that a change of gauge implies.
#include <torch/csrc/autograd/autograd.h>

#include "tests/group/golden.h"
#include "torsor/base/error.h"
#include "torsor/group/basis.h"
#include "torsor/group/coefficients.h"
#include "torsor/group/laws.h"
#include "torsor/group/mixture.h"
#include "torsor/group/phase.h"
#include "torsor/group/planes.h"
#include "torsor/group/rank2.h"

namespace torsor::group {
namespace {

at::Tensor normal(std::vector<std::int64_t> shape) { return at::randn(shape, at::kDouble); }
at::Tensor numbers(std::vector<double> values) { return at::tensor(values, at::kDouble); }

/// A random one-parameter group: what turns vectors, and its generator written out.
struct Subject {
  std::string name;
  at::Tensor generator;                                                      ///< (D, D)
  double speed = 0;                                                          ///< largest eigenvalue
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& n)> turn;  ///< rows (T, D) at n (T)

  at::Tensor rows(const at::Tensor& x, const at::Tensor& n) const {
    return turn(x.view({1, 1, x.size(0), x.size(1)}), n.view({1, 1, -1})).view({x.size(0), x.size(1)});
  }
  /// G(n) in float64: column e is what becomes of the unit vector e.
  at::Tensor matrix(double n, at::ScalarType dtype = at::kDouble) const {
    const std::int64_t d = generator.size(0);
    return rows(at::eye(d, at::TensorOptions(dtype)), at::full({d}, n, at::kDouble)).t().to(at::kDouble);
  }
};

double speed_of(const at::Tensor& generator) { return at::linalg_eigvals(generator).abs().max().item<double>(); }

Subject one_plane(const std::string& name, const at::Tensor& a, const at::Tensor& b, double omega) {
  Subject subject;
  subject.name = name;
  subject.generator = omega * (at::outer(a, b) - at::outer(b, a));
  subject.turn = [=](const at::Tensor& x, const at::Tensor& n) {
    return turn_in_plane(x, a.unsqueeze(0), b.unsqueeze(0), n * omega);
  };
  return subject;
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  at::manual_seed(3);
  for (const std::int64_t d : {2, 3, 8, 64})
    for (int turn = 0; turn < 4; ++turn) {
      const at::Tensor a = normal({d}) / std::sqrt(static_cast<double>(d)),
                       b = normal({d}) / std::sqrt(static_cast<double>(d));
      all.push_back(one_plane("plane", a, b, 0.8));
      all.push_back(one_plane("nearly parallel", a, 1.5 * a + 1e-7 * b, 0.9));
      if (d % 2 == 0) all.push_back(one_plane("b = Ja", a, quarter_turn(a, turn % 2 == 0), 0.7));
      for (const std::int64_t r : {2, 4, 6}) {
        const at::Tensor mix = normal({1, d, r}) / std::sqrt(static_cast<double>(d)), theta = normal({1, r / 2});
        Subject mixture;
        mixture.name = "mixture of rank " + std::to_string(r);
        mixture.generator = at::zeros({d, d}, at::kDouble);
        for (std::int64_t i = 0; i < r / 2; ++i) {
          const at::Tensor p = mix[0].select(1, 2 * i), q = mix[0].select(1, 2 * i + 1);
          mixture.generator = mixture.generator + theta[0][i] * (at::outer(p, q) - at::outer(q, p));
        }
        mixture.turn = [=](const at::Tensor& x, const at::Tensor& n) { return turn_mixture(x, mix, theta, n); };
        all.push_back(mixture);
      }
      if (d % 2 != 0) continue;
      for (const Layout layout : {Layout::Half, Layout::Interleaved}) {
        const at::Tensor theta = normal({d / 2});
        Subject planes;
        planes.name = "planes";
        planes.generator = at::zeros({d, d}, at::kDouble);
        for (std::int64_t i = 0; i < d / 2; ++i) {
          const std::int64_t p = layout == Layout::Half ? i : 2 * i, q = layout == Layout::Half ? i + d / 2 : 2 * i + 1;
          planes.generator[q][p] = theta[i];
          planes.generator[p][q] = -theta[i];
        }
        planes.turn = [=](const at::Tensor& x, const at::Tensor& n) {
          return turn_planes(x, n.unsqueeze(-1) * theta, layout);
        };
        all.push_back(planes);
      }
    }
  for (Subject& subject : all) {
    subject.speed = speed_of(subject.generator);
    subject.name += ", width " + std::to_string(subject.generator.size(0));
  }
  return all;
}

TEST(Laws, Float64) {
  for (const Subject& subject : subjects()) {
    SCOPED_TRACE(subject.name);
    EXPECT_EQ(identity_error(subject.matrix(0)), 0);
    for (const auto& [n, m] : {std::pair(1.0, 2.0), {0.5, -3.25}, {17.0, 200.0}, {-90.0, 90.0}}) {
      const at::Tensor g = subject.matrix(n), back = subject.matrix(-n);
      EXPECT_LE(composition_error(g, subject.matrix(m), subject.matrix(n + m)),
                1e-14 * (1 + (std::fabs(n) + std::fabs(m)) * subject.speed));
      EXPECT_LE(transpose_error(g, back), 2e-15);
      EXPECT_LE(inverse_error(g, back), 1e-14);
      EXPECT_LE(determinant_error(g), 1e-13);
      EXPECT_LE(orthogonality_error(g), 1e-14);
      EXPECT_LE(largest_error(g, at::linalg_matrix_exp(subject.generator * n)), 1e-12);
    }
    const at::Tensor x = normal({50, subject.generator.size(0)}), n = normal({50}) * 300;
    EXPECT_LE(norm_error(x, subject.rows(x, n)), 1e-14);
    // Far turns keep to the exponential. The judge squares its answer ten times, which costs it a digit in wide heads;
    // of nearly parallel vectors its generator has lost digits before.
    if (subject.name.find("parallel") != std::string::npos) continue;
    const double far = 1e3 / std::max(subject.speed, 1e-3), judge = subject.generator.size(0) <= 3 ? 1 : 15;
    EXPECT_LE(largest_error(subject.matrix(far), at::linalg_matrix_exp(subject.generator * far)), 1e-12 * judge);
  }
}

TEST(Laws, Float32) {
  for (const Subject& subject : subjects()) {
    SCOPED_TRACE(subject.name);
    const auto matrix = [&](double n) { return subject.matrix(n, at::kFloat); };
    EXPECT_EQ(identity_error(matrix(0)), 0);
    for (const auto& [n, m] : {std::pair(1.0, 2.0), {0.5, -3.25}, {17.0, 200.0}}) {
      EXPECT_LE(composition_error(matrix(n), matrix(m), matrix(n + m)), 2e-6);
      EXPECT_LE(inverse_error(matrix(n), matrix(-n)), 1e-6);
      EXPECT_LE(largest_error(matrix(n), at::linalg_matrix_exp(subject.generator * n)), 2e-5);
    }
    const at::Tensor x = normal({50, subject.generator.size(0)}).to(at::kFloat), n = normal({50}) * 300;
    EXPECT_LE(norm_error(x, subject.rows(x, n)), 5e-7);
  }
}

TEST(Laws, ScoresKnowTheDifferenceOnly) {
  for (const Subject& subject : subjects()) {
    SCOPED_TRACE(subject.name);
    const std::int64_t d = subject.generator.size(0);
    const at::Tensor q = normal({1, d}), k = normal({1, d});
    const double size = (q.norm() * k.norm()).item<double>();
    for (const auto& [i, j] : {std::pair(3.0, 11.0), {0.5, 200.25}, {40.0, 1.0}})
      for (const double shift : {0.0, 1.0, -30.5, 1000.0})
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
          const auto at_place = [&](const at::Tensor& x, double n) {
            return subject.rows(x.to(dtype), numbers({n})).to(at::kDouble);
          };
          const double both = (at_place(q, i + shift) * at_place(k, j + shift)).sum().item<double>();
          const double one = (q * at_place(k, j - i)).sum().item<double>();
          EXPECT_NEAR(both, one, (dtype == at::kDouble ? 1e-12 : 5e-6) * std::max(1.0, size));
        }
  }
}

// bfloat16 data: the answer is the float32 answer to the rounded inputs.
TEST(Laws, RoundedInputsChangeNothingElse) {
  const Subject subject = subjects()[3];
  const std::int64_t d = subject.generator.size(0);
  const at::Tensor x = normal({20, d}).to(at::kBFloat16), n = normal({20}) * 100;
  const at::Tensor found = subject.rows(x.to(at::kFloat), n).to(at::kBFloat16).to(at::kDouble);
  const at::Tensor wanted = subject.rows(x.to(at::kDouble), n);
  EXPECT_LE(((found - wanted).norm() / wanted.norm()).item<double>(), 1e-2);
}

/// Gradients by autograd through at::linalg_matrix_exp of generators that the test builds itself.
std::vector<at::Tensor> judged(const at::Tensor& x, const at::Tensor& mix, const at::Tensor& theta, const at::Tensor& n,
                               const at::Tensor& gradient) {
  const std::int64_t groups = mix.size(0), each = x.size(1) / groups;
  std::vector<at::Tensor> batches;
  for (std::int64_t b = 0; b < x.size(0); ++b) {
    std::vector<at::Tensor> heads;
    for (std::int64_t h = 0; h < x.size(1); ++h) {
      const std::int64_t g = h / each;
      at::Tensor L = at::zeros({x.size(3), x.size(3)}, at::kDouble);
      for (std::int64_t i = 0; i < theta.size(1); ++i) {
        const at::Tensor p = mix[g].select(1, 2 * i), q = mix[g].select(1, 2 * i + 1);
        L = L + theta[g][i] * (at::outer(p, q) - at::outer(q, p));
      }
      const at::Tensor clock = n[n.size(0) == 1 ? 0 : b][n.size(1) == 1 ? 0 : g];
      const at::Tensor each_token = at::linalg_matrix_exp(L.unsqueeze(0) * clock.view({-1, 1, 1}));
      heads.push_back(at::matmul(each_token, x[b][h].to(at::kDouble).unsqueeze(-1)).squeeze(-1));
    }
    batches.push_back(at::stack(heads));
  }
  const at::Tensor y = at::stack(batches);
  std::vector<at::Tensor> all = torch::autograd::grad({y}, {x, mix, theta, n}, {gradient.to(at::kDouble)});
  all.insert(all.begin(), y.detach());
  return all;
}

// Every gradient of batched calls with groups of heads and clocks a row and a group equals that of the judge.
TEST(Gradients, EqualTheMatrixExponential) {
  at::manual_seed(5);
  for (const std::int64_t r : {2, 4, 6})
    for (const bool own_clock : {false, true})
      for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
        const std::int64_t d = 5, groups = 2, tokens = 7;  // r = 6 is wider than the head
        const at::Tensor x = leaf(normal({2, 4, tokens, d}).to(dtype), dtype), mix = leaf(normal({groups, d, r}) * 0.6),
                         theta = leaf(normal({groups, r / 2})),
                         n = leaf(normal({own_clock ? 2 : 1, own_clock ? groups : 1, tokens}) * 4),
                         gradient = normal({2, 4, tokens, d}).to(dtype);
        const std::vector<at::Tensor> wanted = judged(x, mix, theta, n, gradient);
        const auto check = [&](const std::string& what, const at::Tensor& y) {
          SCOPED_TRACE(what + ", rank " + std::to_string(r));
          std::vector<at::Tensor> found = torch::autograd::grad({y}, {x, mix, theta, n}, {gradient});
          found.insert(found.begin(), y);
          for (std::size_t i = 0; i < wanted.size(); ++i) {
            const double size = wanted[i].abs().max().item<double>();
            EXPECT_LE(largest_error(found[i], wanted[i].to(at::kDouble)), (dtype == at::kDouble ? 2e-12 : 1e-5) * size)
                << "output " << i;
          }
        };
        check("mixture", turn_mixture(x, mix, theta, n));
        if (r == 2)
          check("plane", turn_in_plane(x, mix.select(2, 0), mix.select(2, 1), n * theta.select(1, 0).view({1, -1, 1})));
      }
}

// Equal and zero angles, dependent columns: no quotient of a difference of eigenvalues appears.
TEST(Gradients, EqualAnglesAreNoSingularity) {
  at::manual_seed(6);
  for (const int kind : {0, 1, 2, 3}) {
    at::Tensor mix = std::get<0>(at::linalg_qr(normal({6, 4}))).unsqueeze(0).contiguous();  // orthonormal columns
    at::Tensor theta = numbers({0.7, 0.7}).view({1, 2});
    if (kind == 1) theta = numbers({0.7, 0.0}).view({1, 2});
    if (kind == 2) mix = at::cat({mix.narrow(2, 0, 2), mix.narrow(2, 0, 2)}, 2);  // twice the same plane
    if (kind == 3) mix = at::zeros_like(mix);
    const at::Tensor x = leaf(normal({1, 1, 5, 6})), wide = leaf(mix), rate = leaf(theta),
                     n = leaf(normal({1, 1, 5}) * 9), gradient = normal({1, 1, 5, 6});
    const at::Tensor y = turn_mixture(x, wide, rate, n);
    std::vector<at::Tensor> found = torch::autograd::grad({y}, {x, wide, rate, n}, {gradient});
    found.insert(found.begin(), y);
    const std::vector<at::Tensor> wanted = judged(x, wide, rate, n, gradient);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_LE(largest_error(found[i], wanted[i]), 2e-12 * std::max(1.0, wanted[i].abs().max().item<double>()))
          << "kind " << kind << ", output " << i;
  }
}

// The product of the single exponentials of planes that do not commute is no group; the mixture is.
TEST(Gradients, ProductsOfExponentialsAreNoGroup) {
  at::manual_seed(7);
  const at::Tensor mix = normal({1, 6, 4}) * 0.6, theta = numbers({0.9, 0.35}).view({1, 2});
  const auto factors = [&](double n) {
    at::Tensor product = at::eye(6, at::kDouble);
    for (std::int64_t i = 0; i < 2; ++i)
      product = at::matmul(
          product, at::linalg_matrix_exp(n * theta[0][i] *
                                         plane_generator(mix[0].select(1, 2 * i), mix[0].select(1, 2 * i + 1))));
    return product;
  };
  EXPECT_GT(composition_error(factors(2), factors(5), factors(7)), 0.05);
}

// L does not change under (a, b) -> (a, b) M with det M = 1: three directions in which no gradient may point.
TEST(Gradients, GaugeDirectionsAreFlat) {
  at::manual_seed(8);
  for (int turn = 0; turn < 10; ++turn) {
    const at::Tensor a = leaf(normal({1, 6})),
                     b = leaf(turn < 5 ? normal({1, 6}) : 1.5 * a.detach() + 1e-6 * normal({1, 6}));
    const at::Tensor y = turn_in_plane(normal({1, 1, 9, 6}), a, b, normal({1, 1, 9}) * 3);
    const auto g = torch::autograd::grad({y}, {a, b}, {normal({1, 1, 9, 6})});
    const auto along = [](const at::Tensor& one, const at::Tensor& other) {
      return (one * other).sum().item<double>();
    };
    const double size = std::max(1.0, (a.norm() * g[1].norm() + b.norm() * g[0].norm()).item<double>());
    EXPECT_LE(std::fabs(along(a, g[1])), 1e-13 * size);
    EXPECT_LE(std::fabs(along(b, g[0])), 1e-13 * size);
    EXPECT_LE(std::fabs(along(a, g[0]) - along(b, g[1])), 1e-13 * size);
  }
}

// A plane of a vector of zeros, and of parallel vectors, is no plane: nothing turns, nothing is NaN.
TEST(Gradients, PlanesThatAreNone) {
  at::manual_seed(9);
  for (const double share : {0.0, 1.5}) {
    const at::Tensor b = leaf(normal({1, 4})), a = leaf(share * b.detach()), x = leaf(normal({1, 1, 3, 4}));
    const at::Tensor eta = leaf(numbers({0, 2, 1e6}).view({1, 1, 3}));
    const at::Tensor y = turn_in_plane(x, a, b, eta);
    EXPECT_LE(largest_error(y, x.detach()), 1e-9);
    for (const at::Tensor& g : torch::autograd::grad({y}, {a, b, x, eta}, {normal({1, 1, 3, 4})}))
      EXPECT_TRUE(at::isfinite(g).all().item<bool>());
  }
}

// A phase that all tokens share is invisible: over queries and keys together the gradients of a plane's angles sum to
// 0, and so do those of the phases.
TEST(Gradients, SharedPhasesAreFlat) {
  at::manual_seed(10);
  const at::Tensor q = normal({2, 2, 6, 8}), k = normal({2, 2, 6, 8}), angle = leaf(normal({1, 1, 6, 4}) * 5);
  for (const Layout layout : {Layout::Half, Layout::Interleaved}) {
    const at::Tensor scores = at::matmul(turn_planes(q, angle, layout), turn_planes(k, angle, layout).transpose(2, 3));
    const at::Tensor g = torch::autograd::grad({scores}, {angle}, {normal({2, 2, 6, 6})})[0];
    EXPECT_LE(g.sum({0, 1, 2}).abs().max().item<double>(), 1e-12 * g.abs().max().item<double>() * 6);
  }
  const at::Tensor rate = leaf(at::rand({2, 1, 6}, at::kDouble));
  const RunningSums phases = running_sums(rate, at::zeros({1, 1}, at::kDouble));
  phases.before.retain_grad();
  const at::Tensor theta = numbers({1, 0.1, 0.01, 0.001});
  const at::Tensor of_phase = phases.before.unsqueeze(-1) * theta;
  const at::Tensor scores =
      at::matmul(turn_planes(q, of_phase, Layout::Half), turn_planes(k, of_phase, Layout::Half).transpose(2, 3));
  const at::Tensor go = normal({2, 2, 6, 6});
  const auto g = torch::autograd::grad({scores}, {phases.before, rate}, {go});
  EXPECT_LE(g[0].sum(2).abs().max().item<double>(), 1e-12);
  // A rate moves all later tokens and not its own.
  at::Tensor later = at::zeros({2, 1}, at::kDouble);
  for (std::int64_t t = 5; t >= 0; --t) {
    EXPECT_LE(largest_error(g[1].select(2, t), later), 1e-12);
    later = later + g[0].select(2, t);
  }
}

// What a backward pass written by hand needs of a plane and of a gate: angles from the turned output alone, rates from
// sums over later phases.
TEST(Gradients, OfAnAngleAndOfAGate) {
  at::manual_seed(13);
  const at::Tensor x = normal({1, 1, 6, 8}), gy = normal({1, 1, 6, 8}), angle = leaf(normal({1, 1, 6, 4}) * 5);
  for (const Layout layout : {Layout::Half, Layout::Interleaved}) {
    const at::Tensor y = turn_planes(x, angle, layout);
    const at::Tensor found = torch::autograd::grad({y}, {angle}, {gy})[0];
    for (std::int64_t p = 0; p < 4; ++p) {
      const std::int64_t first = layout == Layout::Half ? p : 2 * p,
                         second = layout == Layout::Half ? p + 4 : 2 * p + 1;
      const at::Tensor wanted = gy.select(3, second) * y.select(3, first) - gy.select(3, first) * y.select(3, second);
      EXPECT_LE(largest_error(found.select(3, p), wanted.detach()), 1e-13);
    }
  }
  const at::Tensor gate = leaf(normal({1, 1, 6}) * 20), of_phase = normal({1, 1, 6});
  for (const PhaseLink link : {PhaseLink::Released, PhaseLink::Softplus}) {
    const at::Tensor phase = running_sums(phase_rate(gate, link), at::zeros({1, 1}, at::kDouble)).before;
    const at::Tensor found = torch::autograd::grad({phase}, {gate}, {of_phase})[0];
    double later = 0;
    for (std::int64_t t = 5; t >= 0; --t) {
      const double a = gate[0][0][t].item<double>(), rate = 1 / (1 + std::exp(-a / 16));
      const double slope = link == PhaseLink::Released ? rate * (1 - rate) / 16 : 1 / (1 + std::exp(-a));
      EXPECT_NEAR(found[0][0][t].item<double>(), later * slope, 1e-13);
      later += of_phase[0][0][t].item<double>();
    }
  }
}

// The derivatives lose all their digits below w = 1 where the formulas are used there, and a guard at 1e-4 is too late.
TEST(Gradients, CoefficientsKeepTheirDigitsAtEveryAngle) {
  std::vector<double> w = {0, 1e-30, 1e-12, 1e-8, 1e-4, 0.01, 0.3, 0.999, 1, 1.001, 2, 5, 9.87, 20, 30};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const at::Tensor given = numbers(w).to(dtype);
    const Coefficients found = coefficients(given, true);
    for (std::int64_t i = 0; i < given.numel(); ++i) {
      // Sums of the series in extended precision: w^k / (2k + 1)! and so on, with the sign of k.
      const long double value = given[i].item<double>();
      long double g1 = 0, g2 = 0, slope1 = 0, slope2 = 0, term = 1;  // term: (-w)^k / (2k + 1)!
      for (int k = 0; k < 40; ++k) {
        const long double n = 2 * k;
        g1 += term;
        g2 += term / (n + 2);
        slope1 -= static_cast<long double>(k + 1) * term / ((n + 2) * (n + 3));
        slope2 -= static_cast<long double>(k + 1) * term / ((n + 2) * (n + 3) * (n + 4));
        term *= -value / ((n + 2) * (n + 3));
      }
      for (const auto& [tensor, wanted] :
           {std::pair{found.g1, g1}, {found.g2, g2}, {found.slope1, slope1}, {found.slope2, slope2}}) {
        const double size = std::max(std::fabs(static_cast<double>(wanted)), value <= 1 ? 0 : 0.1);
        EXPECT_NEAR(tensor[i].item<double>(), static_cast<double>(wanted), (dtype == at::kDouble ? 1e-14 : 2e-6) * size)
            << "w " << w[static_cast<std::size_t>(i)];
      }
    }
  }
}

// (a.a)(b.b) - (a.b)^2 is negative in float64 for such vectors; the gauge never is, and keeps to what they span.
TEST(Gradients, NearlyParallelVectorsSpanAPositiveArea) {
  at::manual_seed(14);
  int negative = 0;
  for (int turn = 0; turn < 20; ++turn) {
    const at::Tensor a = normal({1, 8}), p = normal({1, 8}), b = 1.5 * a + 1e-9 * p;
    const double aa = a.square().sum().item<double>(), ab = (a * b).sum().item<double>();
    negative += aa * b.square().sum().item<double>() - ab * ab < 0;
    const PlaneGauge gauge = fix_gauge(a, b);
    const double area = (gauge.alpha * gauge.beta).item<double>(), along = (a * p).sum().item<double>();
    const double wanted = 1e-18 * (aa * p.square().sum().item<double>() - along * along);
    EXPECT_NEAR(area / wanted, 1, 1e-5);  // what b itself has left of 1e-9
  }
  EXPECT_GT(negative, 0);
}

// Chunks go on where the last one stopped, to the same bits; sums of a million rates stay exact to float64.
TEST(Phases, RunOn) {
  const at::Tensor rate = at::rand({2, 3, 40}, at::kDouble);
  const RunningSums whole = running_sums(rate, at::zeros({2, 3}, at::kDouble));
  EXPECT_EQ(whole.before.select(2, 0).count_nonzero().item<std::int64_t>(), 0);
  at::Tensor before = at::zeros({2, 3}, at::kDouble);
  for (std::int64_t first = 0; first < 40;) {
    const std::int64_t count = std::min<std::int64_t>(first == 0 ? 7 : 3, 40 - first);
    const RunningSums part = running_sums(rate.narrow(2, first, count), before);
    EXPECT_TRUE(part.before.equal(whole.before.narrow(2, first, count)));
    EXPECT_TRUE(part.through.equal(whole.through.narrow(2, first, count)));
    before = part.through.select(2, count - 1);
    first += count;
  }
  const at::Tensor same = at::full({1, 1, 1000000}, 0.39371964f, at::kFloat);
  const double last = running_sums(same, at::zeros({1, 1}, at::kDouble)).before.flatten()[-1].item<double>();
  EXPECT_NEAR(last, 999999 * static_cast<double>(0.39371964f), 1e-4);
}

TEST(Bases, StayOrthogonal) {
  at::manual_seed(11);
  for (const std::int64_t n : {2, 3, 8, 33}) {
    const at::Tensor basis = cayley(skew_matrix(normal({n * (n - 1) / 2})));
    EXPECT_LE(orthogonality_error(basis), 1e-13);
    EXPECT_LE(determinant_error(basis), 1e-12);
    const at::Tensor reflectors = normal({4, n}), reflected = householder(reflectors);
    EXPECT_LE(orthogonality_error(reflected), 1e-13);
    EXPECT_LE(determinant_error(reflected), 1e-12);
    // In the listed order, and on vectors without the matrix.
    at::Tensor product = at::eye(n, at::kDouble);
    for (std::int64_t i = 0; i < 4; ++i) {
      const at::Tensor v = reflectors[i];
      product = at::matmul(product, at::eye(n, at::kDouble) - 2 * at::outer(v, v) / v.dot(v));
    }
    EXPECT_LE(largest_error(reflected, product), 1e-13);
    const at::Tensor x = normal({5, n});
    EXPECT_LE(largest_error(reflect(x, reflectors), at::matmul(x, product)), 1e-13 * n);
  }
  EXPECT_EQ(largest_error(cayley(skew_matrix(at::zeros({6}, at::kDouble))), at::eye(4, at::kDouble)), 0);
  EXPECT_EQ(largest_error(householder(at::zeros({2, 4}, at::kDouble)), at::eye(4, at::kDouble)), 0);
}

TEST(Bases, GradientsOfCayleyAndReflections) {
  at::manual_seed(12);
  const at::Tensor upper = leaf(normal({10})), weight = normal({5, 5});
  const at::Tensor found = torch::autograd::grad({cayley(skew_matrix(upper))}, {upper}, {weight})[0];
  const at::Tensor reflectors = leaf(normal({4, 5}));
  const at::Tensor of_reflectors = torch::autograd::grad({householder(reflectors)}, {reflectors}, {weight})[0];
  const double step = 1e-5;
  const auto difference = [&](const at::Tensor& point, std::int64_t entry,
                              const std::function<at::Tensor(const at::Tensor&)>& f) {
    const auto at_step = [&](double by) {
      at::Tensor moved = point.detach().clone();
      moved.view({-1})[entry] += by;
      return (f(moved) * weight).sum().item<double>();
    };
    return (at_step(step) - at_step(-step)) / (2 * step);
  };
  for (std::int64_t i = 0; i < 10; ++i)
    EXPECT_NEAR(found[i].item<double>(),
                difference(upper, i, [](const at::Tensor& s) { return cayley(skew_matrix(s)); }), 1e-8);
  for (std::int64_t i = 0; i < 20; ++i)
    EXPECT_NEAR(of_reflectors.flatten()[i].item<double>(), difference(reflectors, i, householder), 1e-8);
}

TEST(Shapes, AreChecked) {
  const at::Tensor x = normal({2, 4, 3, 6}), n = normal({1, 1, 3});
  EXPECT_THROW(turn_in_plane(x, normal({3, 6}), normal({3, 6}), n), Error);  // 3 does not divide 4
  EXPECT_THROW(turn_in_plane(x, normal({2, 5}), normal({2, 5}), n), Error);  // another width
  EXPECT_THROW(turn_in_plane(x, normal({2, 6}), normal({1, 6}), n), Error);  // a and b differ
  EXPECT_THROW(turn_in_plane(x, normal({2, 6}), normal({2, 6}), normal({1, 1, 4})), Error);
  EXPECT_THROW(turn_in_plane(x.to(at::kBFloat16), normal({2, 6}), normal({2, 6}), n), Error);
  EXPECT_THROW(turn_mixture(x, normal({2, 6, 3}), normal({2, 1}), n), Error);  // odd rank
  EXPECT_THROW(turn_mixture(x, normal({2, 6, 4}), normal({2, 1}), n), Error);
  EXPECT_THROW(turn_planes(x, normal({1, 1, 3, 2}), Layout::Half), Error);
  EXPECT_THROW(turn_planes(x, normal({1, 1, 3, 3}), Layout::Half, 2), Error);  // blocks of pairs
  EXPECT_THROW(skew_matrix(normal({4})), Error);
  EXPECT_THROW(fold_basis(normal({10, 3}), normal({4, 4})), Error);
  EXPECT_THROW(quarter_turn(normal({5}), true), Error);
  EXPECT_THROW(running_sums(normal({2, 3, 4}), normal({2, 2})), Error);
}

}  // namespace
}  // namespace torsor::group
