// Which tokens a masked language model must find out (Devlin, Chang, Lee, Toutanova, "BERT", NAACL 2019), chosen by
// whole words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "torsor/base/random.h"
#include "torsor/data/syntaxgym.h"

namespace torsor {

struct MaskingOptions {
  double rate = 0.15;   ///< share of the words that are chosen, above 0 and at most 1
  double masked = 0.8;  ///< of these, the share whose tokens become mask_token
  double random = 0.1;  ///< and the share whose tokens become others, each drawn evenly; the rest stays
  std::int64_t mask_token = 0;
  std::int64_t vocabulary = 256;  ///< drawn tokens lie in [0, vocabulary)
};

struct MaskedTokens {
  std::vector<std::int64_t> tokens;  ///< what the model reads
  std::vector<bool> chosen;          ///< (T) tokens that it must find out: all of a chosen word
};

/// The words of a row of bytes, as ranges of tokens: runs of letters, digits and bytes from 128 to 255, and every other
/// visible byte by itself. Tokens that are no bytes belong to no word.
std::vector<ByteRange> byte_words(std::span<const std::int64_t> tokens);

/// Chooses words of a row; at least one where there is any. What happens to a word happens to all of its tokens. Throws
/// UsageError for shares out of range, Error for a word outside the row.
MaskedTokens mask_words(std::span<const std::int64_t> tokens, std::span<const ByteRange> words,
                        const MaskingOptions& options, Random& random);

}  // namespace torsor
