// The configuration of a model of two stacks (encoder_decoder.h).
#pragma once

#include <cstdint>
#include <vector>

#include "torsor/model/config.h"

namespace torsor {

struct EncoderDecoderConfig {
  ModelConfig encoder, decoder;          ///< of one width and vocabulary
  std::int64_t start_token = 0;          ///< what every target begins with
  std::vector<std::int64_t> end_tokens;  ///< that end a text; a source ends with the first one

  /// Checks and fills in what is derived, `causal` and `cross_attention` included. Throws UsageError naming the key:
  /// what ModelConfig::complete refuses, sizes that part, tokens outside the vocabulary.
  void complete();
};

}  // namespace torsor
