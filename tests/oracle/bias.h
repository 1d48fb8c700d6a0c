// What is added to a logit: the classic biases, and the factors on a query.
#pragma once

#include <vector>

#include "tests/oracle/terms.h"

namespace oracle {

/// ALiBi's slopes for `heads` heads (encodings.md B1).
std::vector<double> alibi_slopes(int heads, double max_exponent);

/// T5's bucket; `n` is the key's position minus the query's, real (B2).
int t5_bucket(const Term& term, double n);

/// Sandwich before its ratio (B4).
double sandwich_sum(double distance, int width);

/// alibi, t5, kerple, sandwich, fire.
bool is_plain_bias(const std::string& name);

/// Their value for head `head` (counted within the part) of a query and a key at these positions.
Var plain_bias(const Part& part, const Parameters& parameters, int head, double position_q, double position_k);

/// logn, llama4-scale: the factor on a query at `position`; 1 for any other term (C12).
double query_factor(const Term& term, double position);

/// The sinusoid of `p`, width C: sines and cosines in turn, or halves.
std::vector<double> sinusoid(double p, int channels, double base, bool halves);

}  // namespace oracle
