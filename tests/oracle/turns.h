// grape-m: q and k turned by exp(n L), n a position or a phase of the content.
#pragma once

#include <vector>

#include "tests/oracle/gates.h"

namespace oracle {

/// The product of q (its moves so far made) and every seen key, both turned.
std::vector<Var> turned_products(const Part& part, const Parameters& parameters, const SeenTokens& tokens,
                                 const std::vector<Var>& q);

}  // namespace oracle
