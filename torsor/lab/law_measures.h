// What the laws are measured with: random cases of one layer, and the largest error of each law. Part of laws.cpp, for
// it alone.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "torsor/base/random.h"
#include "torsor/lab/conformance_check.h"
#include "torsor/model/config.h"

namespace torsor::law {

inline constexpr std::int64_t kTokens = 14;  // long enough for whole chunks and a rest
inline constexpr double kFar = 1e6;          // largest shift of all positions

/// One layer of an encoding with drawn trained tensors, and cases for it. Where a state goes from layer to layer it is
/// a middle one, to which others have handed a state and which hands one on.
struct Tester {
  Tester(std::shared_ptr<const Encoding> encoding, std::int64_t layer_number, std::uint64_t seed, QkNorm qk_norm);

  at::Tensor normal(const std::vector<std::int64_t>& shape);
  /// Positions 0, 1, 2 ... on every axis; on further axes in other orders.
  at::Tensor counted(std::int64_t batch, std::int64_t tokens) const;
  /// Drawn q, k, v and x of `batch` rows at counted positions; where a state goes from layer to layer, drawn states and
  /// what the layer's MLP answers, too.
  ConformanceCase attention_case(std::int64_t batch, std::int64_t tokens);
  /// What the encoding's inputs() ask for.
  NamedTensors drawn_inputs(std::int64_t batch, std::int64_t tokens);

  /// q or k (B, heads, T, D) over the root mean square of a head, times that side's gains.
  at::Tensor normalised(const at::Tensor& x, Role role) const;
  /// What stands behind the moves of q and k; empty without a norm there.
  AfterMoves after_moves() const;
  /// A trained tensor as a model's first weights have it.
  at::Tensor first_value(const ParameterInfo& info);
  NamedTensors full(const ConformanceCase& c) const;
  NamedTensors cached(const ConformanceCase& c, std::int64_t tokens) const;

  std::shared_ptr<const Encoding> whole, layer;
  std::int64_t number, layers;
  QkNorm norm;
  Random random;
  NamedTensors parameters;
  at::Tensor query_gains, key_gains;  ///< (D) of the norm, where there is one

 private:
  std::int64_t state_heads = 0, state_width = 0;  ///< Hs and W of a given state; 0 = there is none
  at::Tensor draw(const ParameterInfo& info);
  ConformanceCase before_moves(const ConformanceCase& c) const;
};

/// Largest difference in units of the largest value; -inf must stand in the same places.
double distance(const at::Tensor& a, const at::Tensor& b);
double distance(const NamedTensors& a, const NamedTensors& b);

// --------------------------------------------------------------------------------------------------------------------
// Rotations (laws_rotation.cpp)

/// What the moves of a layer are: every plane of a token is one complex number; what turns no fixed planes is a matrix.
struct Turns {
  std::vector<at::Tensor> planes;  ///< complex (G, T, planes), one for each answer
  at::Tensor matrices;             ///< (T, heads, D, D) of the turns without fixed planes; undefined = none
  bool adds = false;               ///< a vector is added as well
  bool any() const { return !planes.empty() || matrices.defined(); }
};

/// What queries at these positions are multiplied with, in a document that always reaches the same length. Throws
/// Refusal where the content decides.
Turns turns_at(const Tester& t, const std::vector<double>& positions);

/// A law of turns by a, b, a + b and -a: its largest error, of complex numbers with their magnitude and of matrices.
struct GroupLaw {
  std::function<at::Tensor(const at::Tensor& a, const at::Tensor& b, const at::Tensor& both, const at::Tensor& minus_a,
                           const at::Tensor& magnitude)>
      planes;
  std::function<double(const at::Tensor& a, const at::Tensor& b, const at::Tensor& both, const at::Tensor& minus_a)>
      matrices;
};

double identity_error(Tester& t);
double group_error(Tester& t, const GroupLaw& law);

// --------------------------------------------------------------------------------------------------------------------
// Attention (laws_attention.cpp)

double relative_error(Tester& t);
double cache_error(Tester& t, std::int64_t tokens);
double padded_error(Tester& t);
double packed_error(Tester& t);
double causality_error(Tester& t);
double nothing_error(Tester& t);
double batch_error(Tester& t);

// Of encodings with per-token inputs, against what they are without any.

/// Where no token brings an input.
double no_inputs_error(Tester& t);
/// With the first values of all trained tensors.
double first_values_error(Tester& t);

// Of what is added to the logits, b(i, j), in units of the largest |b| or of 1.

double penalty_error(Tester& t);
double falling_error(Tester& t);
/// The same where all tokens bring the same inputs.
double falling_alike_error(Tester& t);
/// How far b(i, j) - b(i, m) depends on other tokens than i and those after j up to m.
double row_composition_error(Tester& t);
/// b(i, j) - b(i, m) - b(m, j), m from j to i.
double chaining_error(Tester& t);

// --------------------------------------------------------------------------------------------------------------------
// States that go from layer to layer (laws_state.cpp)

/// Why queries may not see what comes after them; empty where they may.
std::string order_is_needed(Tester& t);
/// Tokens in another order, where all see each other.
double permutation_error(Tester& t);
/// All states of a plane turned, each plane by its own angle (a block by its own matrix of determinant 1).
double phase_error(Tester& t);
/// All states as blocks, each plane reflected.
double reflection_error(Tester& t);
/// How much longer than the longest state an average is, and a next state than max_t |1 + M_t| (1 + max_h |w_h|)
/// allows, M_t the map over the heads of token t and w the trained numbers of the averages.
double bound_error(Tester& t);

}  // namespace torsor::law
