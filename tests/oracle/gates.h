// Biases that depend on the content of the tokens: fox, grape-a, grape-ap.
#pragma once

#include <vector>

#include "tests/oracle/terms.h"

namespace oracle {

/// fox, grape-a, grape-ap.
bool is_content_bias(const std::string& name);

/// Whether the term reads the hidden states x.
bool reads_hidden_states(const Term& term);

/// A query and the keys that it sees, in the order of the tokens.
struct SeenTokens {
  const Case* c = nullptr;
  const VarTensor *q = nullptr, *k = nullptr, *v = nullptr, *x = nullptr;
  int row = 0, head = 0, key_head = 0, query = 0;  ///< heads of the case
  int own = 0;                                     ///< the token that the query stands at
  std::vector<int> seen;
};

/// The bias of every seen key.
std::vector<Var> content_bias(const Part& part, const Parameters& parameters, const SeenTokens& tokens);

}  // namespace oracle
