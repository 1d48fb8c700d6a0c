// tape: q and k turned by a state of their token, the states averaged, and what a layer makes of them.
#pragma once

#include <optional>
#include <vector>

#include "tests/oracle/gates.h"
#include "tests/oracle/rotary.h"

namespace oracle {

/// The tape of an expression in the case's layer, with the states that enter it.
class PositionState {
 public:
  /// `part` is of a `tape` term. `given` holds the states (B, Hs, Tk, W), or is null where they are those of the
  /// positions: cos and sin of the rotary inside, times its magnitude.
  PositionState(const Part& part, const Case& c, const Parameters& parameters, const VarTensor* given);

  const Part& part() const { return part_; }
  /// The rotary inside, as a part for the same heads.
  const Rotary& rotary() const { return rotary_; }
  /// Whether states were given; where not, q and k turn as the rotary inside says.
  bool given() const { return given_ != nullptr; }

  /// The product of q and every seen key of one head, each turned by its own token's state.
  std::vector<Var> products(const SeenTokens& tokens, const std::vector<Var>& q) const;

  /// Whether the layer averages the states, and whether it changes them.
  bool averages() const;
  bool updates() const;
  int width() const;

  /// Adds weight times the state of token j to `sum`, as the query head sees it.
  void add_average(const SeenTokens& tokens, double weight, int j, std::vector<double>& sum) const;

  /// The states (B, Hs, Tk, W) after the layer, from the averages (B, Hq, Tk, W) and the case's mlp_out; zeros for
  /// padding.
  Tensor after_layer(const Tensor& averages) const;

 private:
  int head_of(const SeenTokens& tokens) const;
  double value(int b, int head, int token, int entry) const;
  std::vector<double> initial(int b, int key_head, int token) const;
  std::vector<double> mixed(int b, int token, const std::vector<std::vector<double>>& z) const;
  double trained(const char* name, int a) const { return tensor(name).at(a).value; }
  double trained(const char* name, int a, int b) const { return tensor(name).at(a, b).value; }
  double trained(const char* name, int a, int b, int c) const { return tensor(name).at(a, b, c).value; }
  const VarTensor& tensor(const char* name) const { return parameter(parameters_, *part_.term, name); }

  Part part_;
  const Case& c_;
  const Parameters& parameters_;
  Rotary rotary_;
  const VarTensor* given_;
  std::string post_, control_;
  bool network_, shared_;
  int heads_, planes_, block_;  ///< Hs, F, R
};

}  // namespace oracle
