// Syntax that nobody parsed: what an encoding is tried with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torsor/base/random.h"
#include "torsor/encoding/encoding.h"

namespace torsor {

/// Drawn numbers for the per-token inputs of these names (sipe.h), (rows, tokens, ...) each: a part of the tokens
/// without any, sentences of a few tokens, arcs that lead back to at most five tokens before, of the same row.
NamedTensors sample_syntax(const std::vector<std::string>& names, std::int64_t rows, std::int64_t tokens,
                           Random& random);

}  // namespace torsor
