// torsor eval of models that are no decoders alone.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "torsor/cli/common.h"
#include "torsor/data/corpus.h"

namespace torsor {

struct EncoderEvalArguments {
  std::string checkpoint, tokens, source_tokens;
  std::int64_t token_bytes = 2;
  std::int64_t length = 0;  ///< most tokens that are read; 0 = the training length where there is one, else all
  std::string dtype, dump;
};

/// The first tokens of a corpus, (1, T): all of its first document, or `most` of it where that is above 0.
at::Tensor first_tokens(const Corpus& corpus, std::int64_t most);

/// Writes what an encoder says of masked tokens at every place; `tokens` and `dump` must be given.
int run_encoder_eval(const EncoderEvalArguments& arguments, const CommonOptions& common);

/// Scores a target, given a source.
int run_encoder_decoder_eval(const EncoderEvalArguments& arguments, const CommonOptions& common);

}  // namespace torsor
