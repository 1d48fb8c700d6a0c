// sipe: what the syntax of the tokens changes in the encoding inside it.
#pragma once

#include <vector>

#include "tests/oracle/gates.h"
#include "tests/oracle/rotary.h"

namespace oracle {

/// The trained tensors of a `sipe` term around `inner`: names and shapes. `channels` is the model width C.
std::vector<std::pair<std::string, std::vector<int>>> syntax_tensors(const Term& sipe, const Part& part, const Case& c,
                                                                     int channels);

/// The per-token inputs that a `sipe` term reads.
std::vector<std::string> syntax_inputs(const Term& sipe);

/// A `sipe` term as a query and its keys see it.
class Syntax {
 public:
  /// `part` is of the encoding inside; `channels` the model width.
  Syntax(const Part& part, const Case& c, const Parameters& parameters);

  const Part& part() const { return part_; }
  const std::string& coupling() const { return coupling_; }
  bool has_bias() const { return bias_; }
  bool has_input() const { return input_; }
  bool leaves_attention() const { return coupling_.empty(); }
  bool multiplies() const;
  bool moves() const { return coupling_ == "rotation" || coupling_ == "prerot"; }

  /// F of the query's token and token j; `q` unmoved.
  Var factor(const SeenTokens& tokens, int j, const std::vector<Var>& q) const;
  /// <q + v, W_E s_j> / sqrt(D).
  Var alignment(const SeenTokens& tokens, int j, const std::vector<Var>& q) const;
  /// <q, W_key s_j>, before the scale, and what goes on channel d of the value of token j.
  Var key_product(const SeenTokens& tokens, int j, const std::vector<Var>& q) const;
  Var value_part(const SeenTokens& tokens, int j, int d) const;
  /// q (of the query's token) or k (of token j) before the encoding inside moves it.
  std::vector<Var> moved(const SeenTokens& tokens, int token, bool query, const std::vector<Var>& x) const;
  /// What goes on channel c of the embedding of a token.
  double embedding(int b, int token, int channel) const;

 private:
  bool exists(int b, int token) const;
  double named(const char* name, int b, int token, int entry, int entries) const;
  std::vector<Var> s(int b, int token) const;  ///< empty = none
  Var times(const char* name, int row, const std::vector<Var>& s) const;
  bool near(const SeenTokens& tokens, int j) const;
  bool same_sentence(const SeenTokens& tokens, int j) const;
  Var beta() const;
  const VarTensor& tensor(const char* name) const { return parameter(parameters_, *part_.syntax, name); }

  Part part_;
  const Case& c_;
  const Parameters& parameters_;
  std::string coupling_, form_, factor_, labels_;
  bool bias_ = false, input_ = false, sparse_ = false, tags_ = true;
};

}  // namespace oracle
