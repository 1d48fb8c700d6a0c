// T5 and its kin in the form of Hugging Face transformers.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "torsor/base/json.h"
#include "torsor/model/encoder_decoder.h"
#include "torsor/model/hugging_face_t5_config.h"

namespace torsor {

/// What describe_hugging_face_t5 reads, its encodings checked as read_hugging_face does.
HuggingFaceT5 read_hugging_face_t5(const Json& config, const std::string& source);

/// The tensors of a folder under the names of EncoderDecoder, in float32. Copies of the embedding are left out where
/// they hold the same numbers; whether the head is one of them is told to `model`. Throws Error naming the tensor and
/// `source`.
std::map<std::string, at::Tensor> hugging_face_t5_weights(HuggingFaceT5& model,
                                                          const std::map<std::string, at::Tensor>& tensors,
                                                          const std::string& source);

}  // namespace torsor
