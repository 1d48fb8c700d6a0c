// Unipotent lifts against the shared values of GRAPE and against the general matrix exponential.
#include "torsor/group/lifts.h"
#include "tests/group/golden.h"
#include "torsor/group/laws.h"
#include "torsor/group/rank2.h"

namespace torsor::group {
namespace {

double product_of(const at::Tensor& a, const at::Tensor& b) { return at::dot(a, b).item<double>(); }
double pairing(const at::Tensor& q, const at::Tensor& of_query, const at::Tensor& of_key, const at::Tensor& k) {
  return product_of(at::mv(of_query, q), at::mv(of_key, k));
}
at::Tensor normal(std::vector<std::int64_t> shape) { return at::randn(shape, at::kDouble); }

TEST_F(Golden, OneDimensionMore) {
  const Case c{at("a_lift_d1"), at::kDouble};
  const at::Tensor q = c.in("q"), k = c.in("k"), u = c.in("u");
  const double omega = c.number("omega"), i = c.number("i"), j = c.number("j");
  const at::Tensor A = once_generator(u);
  EXPECT_EQ(largest_error(A, c.out("A")), 0);
  c.expect(unipotent(A, i * omega), c.out("G_i"), "G_i");
  c.expect(unipotent_dual(A, j * omega), c.out("G_j_inv_T"), "G_j_inv_T");
  const double wanted = c.json.at("outputs").at("score").get<double>();
  EXPECT_NEAR(pairing(lift_once(q), unipotent(A, i * omega), unipotent_dual(A, j * omega), lift_once(k)), wanted,
              c.bound());
  EXPECT_NEAR(once_score(q, k, u, omega, i, j), wanted, c.bound());
}

TEST_F(Golden, TwoDimensionsMore) {
  const Case c{at("a_lift_d2"), at::kDouble};
  const at::Tensor q = c.in("q"), k = c.in("k");
  const double omega = c.number("omega"), rate = c.number("lam"), i = c.number("i"), j = c.number("j");
  const at::Tensor A = twice_generator(q.size(0), rate);
  EXPECT_EQ(largest_error(A, c.out("A")), 0);
  c.expect(unipotent_dual(A, (j - i) * omega), c.out("G_m_inv_T"), "G_m_inv_T");
  const double wanted = c.json.at("outputs").at("score").get<double>();
  EXPECT_NEAR(pairing(lift_query(q), unipotent(A, i * omega), unipotent_dual(A, j * omega), lift_key(k)), wanted,
              c.bound());
  EXPECT_NEAR(twice_score(q, k, omega, rate, i, j), wanted, c.bound());
  const auto [larger, smaller] = unipotent_singular_values(1.3);
  c.expect(at::tensor({larger, smaller}, at::kDouble), c.out("sigma_of_I_plus_1p3_E"), "sigma");
}

TEST_F(Golden, RotationAndSlopeInOne) {
  const Case c{at("joint_lift"), at::kDouble};
  const at::Tensor q = c.in("q"), k = c.in("k"), L = c.in("L");
  const double omega = c.number("omega"), rate = c.number("lam"), i = c.number("i"), j = c.number("j");
  const at::Tensor generator = joint_generator(L, omega, rate);
  c.expect(generator, c.out("generator"), "generator");
  const auto turned = [&](double n) { return at::linalg_matrix_exp(L * n); };
  c.expect(joint_exponential(turned(j - i), omega, rate, j - i), c.out("G_m"), "G_m");
  const auto of_key = [&](double n) { return at::linalg_inv(joint_exponential(turned(n), omega, rate, n)).t(); };
  EXPECT_NEAR(pairing(lift_query(q), joint_exponential(turned(i), omega, rate, i), of_key(j), lift_key(k)),
              c.json.at("outputs").at("score").get<double>(), c.bound());
}

// A^2 = 0 makes the first two terms of the exponential all of it, and sums of steps products.
TEST(Lifts, AreOneParameterGroups) {
  at::manual_seed(1);
  for (int turn = 0; turn < 20; ++turn) {
    const at::Tensor x = normal({5}), wild = normal({5}), y = wild - product_of(wild, x) / product_of(x, x) * x;
    const at::Tensor one = once_generator(normal({4})), two = twice_generator(4, 0.7), both = -at::outer(y, x);
    for (const at::Tensor& A : {one, two, both}) {
      const double n = 3.5, m = -7.25;
      EXPECT_LE(largest_error(unipotent(A, n), at::linalg_matrix_exp(A * n)), 1e-12);
      EXPECT_LE(composition_error(unipotent(A, n), unipotent(A, m), unipotent(A, n + m)), 1e-12);
      EXPECT_LE(determinant_error(unipotent(A, n)), 1e-12);
      EXPECT_LE(largest_error(at::matmul(unipotent_dual(A, n).t(), unipotent(A, n)), at::eye(A.size(0), at::kDouble)),
                1e-12);
      EXPECT_EQ(identity_error(unipotent(A, 0)), 0);
    }
    // The general rank-one form adds (j - i) (q.x) (y.k).
    const at::Tensor q = normal({5}), k = normal({5});
    const double i = 9, j = 4, omega = 0.3;
    EXPECT_NEAR(pairing(q, unipotent(both, i * omega), unipotent_dual(both, j * omega), k),
                product_of(q, k) + (j - i) * omega * product_of(q, x) * product_of(y, k), 1e-11);
  }
}

TEST(Lifts, PathsAdd) {
  at::manual_seed(2);
  const at::Tensor psi = -at::rand({6}, at::kDouble), q = normal({3}), k = normal({3});
  at::Tensor product = at::eye(5, at::kDouble);
  for (std::int64_t l = 0; l < 6; ++l) product = at::matmul(product, unipotent(lift_unit(3), -psi[l].item<double>()));
  EXPECT_LE(largest_error(path_product(3, psi), product), 1e-15);
  // A factor I - psi E on the path adds + psi.
  const at::Tensor of_key = at::linalg_inv(product).t();
  EXPECT_NEAR(product_of(lift_query(q), at::mv(of_key, lift_key(k))), product_of(q, k) + psi.sum().item<double>(),
              1e-14);

  const at::Tensor edges = -at::rand({2, 9}, at::kDouble);
  const at::Tensor b = edges.flip({1}).cumsum(1).flip({1}) - edges;  // sum over l > j
  EXPECT_LE(row_composition_error(edges, b), 1e-14);
  EXPECT_GT(row_composition_error(edges, edges.flip({1}).cumsum(1).flip({1})), 0.01);  // the edge itself counted too
}

TEST(Lifts, DictionariesCommute) {
  const at::Tensor E = lift_unit(3);
  EXPECT_TRUE(commuting_dictionary({E, E * -2.5, twice_generator(3, 0.3)}));
  EXPECT_FALSE(commuting_dictionary({E, E.t()}));
  EXPECT_FALSE(commuting_dictionary({plane_generator(at::tensor({1.0, 0.0}), at::tensor({0.0, 1.0}))}));
  // Their sum has the summed bias.
  const at::Tensor sum = 0.2 * twice_generator(3, 1) + 0.5 * twice_generator(3, 0.4);
  EXPECT_LE(largest_error(at::linalg_matrix_exp(sum * 7),
                          at::matmul(unipotent(twice_generator(3, 1), 1.4), unipotent(twice_generator(3, 0.4), 3.5))),
            1e-14);
}

TEST(Lifts, SingularValues) {
  for (const double s : {0.0, 1e-6, 0.5, -2.0, 40.0}) {
    const at::Tensor values = at::linalg_svdvals(unipotent(lift_unit(3), s));
    const auto [larger, smaller] = unipotent_singular_values(s);
    EXPECT_NEAR(values[0].item<double>(), larger, 1e-13 * larger);
    EXPECT_NEAR(values[4].item<double>(), smaller, 1e-13 * larger);
    EXPECT_NEAR(larger * smaller, 1, 1e-14);
    EXPECT_LE(larger, 1 + std::fabs(s) + 1e-15);
  }
}

}  // namespace
}  // namespace torsor::group
