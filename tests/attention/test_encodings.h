// Encodings that only the tests have: small versions of planned ones, to try what the contract offers beyond today's
// encodings (running sums, kept tensors, x, carried values). They follow docs/contract.md.
#pragma once

#include <memory>
#include <string>

#include "torsor/encoding/encoding.h"

namespace torsor::attention_test {

/// Forget gates: log f = logsigmoid(w.x + b) per query head, bias U_i - U_j with U the running sum of log f, which
/// restarts with each document and passes over padding. Trained: weight (H, C), bias (H).
std::shared_ptr<const Encoding> make_test_fox(const Dimensions& dimensions);

/// Slopes with gates softplus(<u, k>/sqrt(D)) of the key, softplus(<v, q>/sqrt(D)) of the query, or both.
/// Trained: u (K, D), v (H, D), rho (H); `paper` takes u and v as they are and omega = softplus(rho).
std::shared_ptr<const Encoding> make_test_grape_a(const Dimensions& dimensions, bool key_gate, bool query_gate,
                                                  bool paper);

/// A path integral over probes p = W x: the key's are normalised and turned by their position. Trained: weight (H, P,
/// C).
enum class TestPath { Released, Paper, Relative };
std::shared_ptr<const Encoding> make_test_grape_ap(const Dimensions& dimensions, std::int64_t width, TestPath variant);

/// Carries per-token numbers along: a state given by the caller where there is one, else (position, position^2).
std::shared_ptr<const Encoding> make_test_carrier(const Dimensions& dimensions);

/// Turns k by a running phase of its own gate, as contextual phases do: the sum of sigmoid(x_0) up to the token.
std::shared_ptr<const Encoding> make_test_phase(const Dimensions& dimensions);

/// Multiplies q by a declared per-token input, to see which tokens' entries a question is given: adds named["strength"]
/// of the query (B, T) times that of the key.
std::shared_ptr<const Encoding> make_test_named(const Dimensions& dimensions);

}  // namespace torsor::attention_test
