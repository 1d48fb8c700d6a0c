// Encodings that only the tests have: small versions of planned ones, to try what the contract offers beyond today's
// encodings (contextual phases, carried values, declared inputs). They follow docs/contract.md.
#pragma once

#include <memory>
#include <string>

#include "torsor/encoding/encoding.h"

namespace torsor::attention_test {

/// Carries per-token numbers along: a state given by the caller where there is one, else (position, position^2).
std::shared_ptr<const Encoding> make_test_carrier(const Dimensions& dimensions);

/// Turns k by a running phase of its own gate, as contextual phases do: the sum of sigmoid(x_0) up to the token.
std::shared_ptr<const Encoding> make_test_phase(const Dimensions& dimensions);

/// Multiplies q by a declared per-token input, to see which tokens' entries a question is given: adds named["strength"]
/// of the query (B, T) times that of the key.
std::shared_ptr<const Encoding> make_test_named(const Dimensions& dimensions);

}  // namespace torsor::attention_test
