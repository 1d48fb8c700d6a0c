// Greedy generation through the KV cache.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "torsor/model/decoder.h"

namespace torsor {

struct GreedyOptions {
  std::int64_t max_tokens = 100;      ///< new tokens a row
  at::ScalarType dtype = at::kFloat;  ///< of the matrix products
  at::ScalarType cache_dtype = at::kFloat;
  std::function<bool()> stop;  ///< asked after each token; true ends
  /// Where the encoding declares per-token inputs: those of the tokens from first[b] on of every row so far, (B,
  /// longest rest, ...); what stands past a row's end is not read. Asked before each pass with all rows: for the
  /// prompts, and then for each row's newest token. A token's own numbers must stay as they were.
  std::function<NamedTensors(const std::vector<std::vector<std::int64_t>>& rows,
                             const std::vector<std::int64_t>& first)>
      inputs;
};

struct Generated {
  std::vector<std::vector<std::int64_t>> tokens;  ///< the new tokens of each row
  double seconds = 0;                             ///< of the decode steps, the prompts' pass left out
};

/// Continues prompts of any lengths (at least one token each), all rows at once. Where frequencies depend on the length
/// (dynamic, longrope), the cache is recomputed when a step changes them, so that every step equals the full pass.
Generated generate_greedy(const Decoder& model, const std::vector<std::vector<std::int64_t>>& prompts,
                          const GreedyOptions& options = {});

}  // namespace torsor
