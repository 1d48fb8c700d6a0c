// What the config.json of T5 and its kin says, read without libtorch.
#pragma once

#include <string>

#include "torsor/base/json.h"
#include "torsor/model/encoder_decoder_config.h"

namespace torsor {

struct HuggingFaceT5 {
  std::string model_type;
  EncoderDecoderConfig config;
  std::string embedding = "shared.weight";  ///< what its files call the embedding
};

/// Whether "model_type" is t5, mt5 or umt5.
bool is_hugging_face_t5(const Json& config);

/// Reads their config.json: the relative bias is `t5`, in both directions and shared by the layers (umt5: one a layer);
/// logits are not divided by the root of the head's width; what the head reads is scaled where transformers does (not
/// with "tie_word_embeddings": false, and never in mt5). Throws Error naming `source` and the key, as
/// describe_hugging_face does.
HuggingFaceT5 describe_hugging_face_t5(const Json& config, const std::string& source);

}  // namespace torsor
