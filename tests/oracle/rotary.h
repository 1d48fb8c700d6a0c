// Rotations of q and k: rope and its scalings, xpos.
#pragma once

#include <string>
#include <vector>

#include "tests/oracle/terms.h"

namespace oracle {

/// Two channels that turn together.
struct Plane {
  int a = 0, b = 0;    ///< channels of the head
  int axis = 0;        ///< the axis of the positions that drives it
  int index = 0;       ///< i of b^(-2i/d)
  int width = 0;       ///< d of b^(-2i/d)
  bool still = false;  ///< frequency zero (proportional frequencies)
};

bool is_scaling(const std::string& name);  ///< linear, ntk, ..., llama3: takes a rotary
bool is_rotary(const std::string& name);   ///< a rotation, scaled or not

/// The planes of a `rope` or `xpos` term in a head of width D, in the order of their frequencies.
std::vector<Plane> planes_of(const Term& term, int head_dim);

/// YaRN's ramp: 0 where a plane turns fast and stays, 1 where it is interpolated (encodings.md C6).
double yarn_ramp(double index, double d, double base, double length, double beta_fast, double beta_slow, bool truncate);

/// One rotary term with all that scales it.
class Rotary {
 public:
  Rotary(const Part& part, int head_dim, const Parameters& parameters);

  const std::vector<Plane>& planes() const { return planes_; }

  /// Frequency of each plane. `key_head` counts within the part; `total` is the T of C4 and C7, the largest key
  /// position of the query's document plus one.
  std::vector<Var> frequencies(int key_head, double total) const;

  /// Multiplies cos and sin, for q and for k.
  double magnitude() const;
  /// 1, or -1 where planes turn the other way.
  double direction() const;
  /// Multiplies 1/sqrt(D) when the case gives no scale.
  double softmax_factor() const;

  /// Adds what the planes contribute to the product of the moved q and k. Both turned by their own angles, the
  /// product depends only on the difference of the positions, and that is what is used: so it stays exact far away.
  Var product(const std::vector<Var>& q, const std::vector<Var>& k, const std::vector<Var>& frequencies,
              const std::vector<double>& position_q, const std::vector<double>& position_k) const;

 private:
  double base(int key_head) const;
  Var scaled(const Term& wrapper, const Var& theta, const Plane& plane, int key_head, double total) const;

  const Part part_;
  const Term* rope_ = nullptr;         // the innermost term
  std::vector<const Term*> wrappers_;  // from the inside out
  std::vector<Plane> planes_;
  const VarTensor* log_freq_ = nullptr;  // with learn=true
};

}  // namespace oracle
