// T5 and its kin in the form of Hugging Face transformers.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "torsor/base/json.h"
#include "torsor/model/encoder_decoder.h"

namespace torsor {

struct HuggingFaceT5 {
  std::string model_type;
  EncoderDecoderConfig config;
};

/// Whether "model_type" is t5, mt5 or umt5.
bool is_hugging_face_t5(const Json& config);

/// Reads their config.json: the relative bias is `t5`, in both directions and shared by the layers (umt5: one a layer);
/// logits are not divided by the root of the head's width; what the head reads is scaled where transformers does (not
/// with "tie_word_embeddings": false, and never in mt5). Throws Error naming `source` and the key, as
/// read_hugging_face does.
HuggingFaceT5 read_hugging_face_t5(const Json& config, const std::string& source);

/// The tensors of a folder under the names of EncoderDecoder, in float32. Copies of the embedding are left out where
/// they hold the same numbers; whether the head is one of them is told to `model`. Throws Error naming the tensor and
/// `source`.
std::map<std::string, at::Tensor> hugging_face_t5_weights(HuggingFaceT5& model,
                                                          const std::map<std::string, at::Tensor>& tensors,
                                                          const std::string& source);

}  // namespace torsor
