#include "torsor/model/encoder_decoder_config.h"

#include "torsor/base/error.h"

namespace torsor {

void EncoderDecoderConfig::complete() {
  encoder.causal = false;
  decoder.cross_attention = true;
  encoder.tie_head = true;  // it has none
  encoder.complete();
  decoder.complete();
  if (encoder.width != decoder.width)
    throw UsageError(str("model: width of the encoder is ", encoder.width, ", of the decoder ", decoder.width));
  if (encoder.vocabulary_size != decoder.vocabulary_size)
    throw UsageError(str("model: the encoder reads ", encoder.vocabulary_size, " tokens, the decoder writes ",
                         decoder.vocabulary_size));
  for (const std::int64_t one : encoder.window)
    if (one != 0) throw UsageError(str("model: window is for decoders, found ", one, " in the encoder"));
  const std::int64_t vocabulary = decoder.vocabulary_size;
  const auto in_vocabulary = [&](const char* what, std::int64_t token) {
    if (token < 0 || token >= vocabulary)
      throw UsageError(str("model: ", what, " must lie in [0, ", vocabulary, "), found ", token));
  };
  in_vocabulary("start_token", start_token);
  for (const std::int64_t token : end_tokens) in_vocabulary("end_tokens", token);
}

}  // namespace torsor
