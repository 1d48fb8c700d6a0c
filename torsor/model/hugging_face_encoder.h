// BERT and its kin in the form of Hugging Face transformers.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "torsor/base/json.h"
#include "torsor/model/encoder.h"
#include "torsor/model/hugging_face_encoder_config.h"

namespace torsor {

/// What describe_hugging_face_encoder reads, its encoding checked as read_hugging_face does.
HuggingFaceEncoder read_hugging_face_encoder(const Json& config, const std::string& source);

/// The tensors of a folder under the names of Encoder, in float32. Which heads there are is told to `model`: that for
/// masked tokens, and one for classes on top of a dense layer and tanh (BERT's pooler; alone it is left out, since
/// nothing reads it). Throws Error naming the tensor and `source`, also for a class head of another form.
std::map<std::string, at::Tensor> hugging_face_encoder_weights(HuggingFaceEncoder& model,
                                                               const std::map<std::string, at::Tensor>& tensors,
                                                               const std::string& source);

}  // namespace torsor
