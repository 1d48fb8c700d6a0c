// What grape-m means, in plain numbers: its settings, and its definition, which shares nothing with the answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torsor/encoding/encoding.h"
#include "torsor/group/phase.h"
#include "torsor/group/planes.h"

namespace torsor {

/// The keys of grape-m, checked by whoever makes it.
struct GrapeMSpec {
  enum class Planes { Canonical, General, QuarterTurn } planes = Planes::Canonical;
  enum class Basis { None, Cayley, Householder } basis = Basis::None;
  std::int64_t rank = 0;  ///< of a mixture; 0 = none
  double base = 10000;
  std::int64_t reflectors = 2;
  bool context = false;
  group::PhaseLink link = group::PhaseLink::Released;
  std::int64_t axes = 1;
  bool per_head = false;
  Layout layout = Layout::Half;
  bool minus = false;  ///< canonical planes turn by minus the angle
};

/// q and k (head_dim values each, before any move) of a query head.
struct PlainVectors {
  const double* q = nullptr;
  const double* k = nullptr;
  std::int64_t head = 0;
};

/// The product of q and k after both have turned; `distance` is the query's clock minus the key's, one value an axis.
/// Planes of trained vectors: k turned by a matrix exponential of minus the distance, by scaling and squaring of a
/// Taylor series in long double.
double define_grape_m(const Encoding& encoding, const GrapeMSpec& spec, const std::string& prefix,
                      const PlainVectors& vectors, const std::vector<double>& distance,
                      const PlainParameters& parameters);

/// With context: puts the turned product in the place of the plain one in the logits of tokens.seen.
void define_grape_m_path(const Encoding& encoding, const GrapeMSpec& spec, const std::string& prefix,
                         std::vector<double>& logits, const PlainTokens& tokens, const PlainParameters& parameters);

}  // namespace torsor
