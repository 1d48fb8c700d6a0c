// Generation through the KV cache: prompts of any lengths together, in pieces, without an end where one is wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "torsor/model/decoder.h"
#include "torsor/model/sampling.h"

namespace torsor {

struct GenerateOptions {
  std::int64_t max_tokens = 100;  ///< new tokens a row
  Sampling sampling = {};         ///< the most probable token, unless said otherwise
  /// A row ends where it would write one of these, which is left out.
  std::vector<std::int64_t> end_tokens = {};

  /// Most tokens that a row's cache holds; 0 = all of them. When it is full, tokens behind the first `sinks` are
  /// dropped, an eighth of the window at a time, and those behind the gap move up to the sinks (KvCache::evict, close),
  /// so that positions stay below the window however long the text grows. Prompts longer than the window are read that
  /// way too. What is written then is not what the full pass writes: later layers hold what they made with the tokens
  /// that are gone (Xiao et al. 2023, arXiv 2309.17453).
  std::int64_t window = 0;
  std::int64_t sinks = 4;  ///< 0 for encodings that cannot drop tokens in the middle (CacheContract::evict)

  /// What the rows' cross-attention reads (Decoder::remember), for a model that has some; not owned.
  const Memory* memory = nullptr;

  std::int64_t chunk = 0;             ///< most tokens of a prompt that are read at once, a row; 0 = all
  at::ScalarType dtype = at::kFloat;  ///< of the matrix products
  at::ScalarType cache_dtype = at::kFloat;

  std::function<bool()> stop = {};  ///< asked after each step; true ends all rows
  /// Told every new token of a row, in order; true ends the row behind it.
  std::function<bool(std::int64_t row, std::int64_t token)> on_token = {};
  /// Shown the cache after each step.
  std::function<void(const KvCache&)> watch = {};
  /// Where the encoding declares per-token inputs: those of the tokens from first[b] on of every row so far, (B,
  /// longest rest, ...); what stands past a row's end is not read. Asked before each pass with all rows: for the
  /// prompts, and then for each row's newest token. A token's own numbers must stay as they were.
  std::function<NamedTensors(const std::vector<std::vector<std::int64_t>>& rows,
                             const std::vector<std::int64_t>& first)>
      inputs = {};
};

/// Why a row ended.
enum class Ending : std::uint8_t {
  Length,   ///< max_tokens were written
  End,      ///< one of end_tokens came
  Asked,    ///< on_token said so
  Stopped,  ///< stop said so
};
const char* ending_name(Ending ending);  ///< "length", "end token", "asked", "stopped"

struct Generated {
  std::vector<std::vector<std::int64_t>> tokens;  ///< the new tokens of each row
  std::vector<Ending> ended;
  double prompt_seconds = 0;  ///< of reading the prompts, the first new token included
  double seconds = 0;         ///< of the decode steps behind it
  std::int64_t decoded = 0;   ///< tokens of all rows that these steps brought
};

/// Continues prompts of any lengths (at least one token each), all rows at once. Where frequencies depend on the length
/// (dynamic, longrope), the cache is recomputed when a step changes them, so that every step equals the full pass.
/// Throws UsageError for prompts or options that do not fit, and a Refusal, before anything is written, where the
/// encoding cannot do with a window what is asked.
Generated generate(const Decoder& model, const std::vector<std::vector<std::int64_t>>& prompts,
                   const GenerateOptions& options = {});

}  // namespace torsor
