// T5 and its kin in the form of Hugging Face transformers.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "torsor/base/json.h"
#include "torsor/model/foreign_tensors.h"
#include "torsor/model/hugging_face_t5_config.h"

namespace torsor {

/// What describe_hugging_face_t5 reads, its encodings checked as read_hugging_face does.
HuggingFaceT5 read_hugging_face_t5(const Json& config, const std::string& source);

/// The tensors of a folder under the names of EncoderDecoder, in float32. Copies of the embedding are left out where
/// they hold the same numbers; whether the head is one of them is told to `model`. These, and a table of older files
/// that nothing reads, go to `passed_over` where it is given. Throws Error naming the tensor and `source`.
std::map<std::string, at::Tensor> hugging_face_t5_weights(HuggingFaceT5& model,
                                                          const std::map<std::string, at::Tensor>& tensors,
                                                          const std::string& source, PassedOver* passed_over = nullptr);

/// A folder as it was read, or as it is to be written.
struct HuggingFaceT5Form {
  HuggingFaceT5 model;
  Json config;  ///< config.json
  PassedOver passed_over;
};

/// The inverse of hugging_face_t5_weights: the weights of an EncoderDecoder under the folder's names, and what was
/// passed over. Throws Error naming a tensor that the family has no place for, or that is missing.
std::map<std::string, at::Tensor> hugging_face_t5_tensors(const HuggingFaceT5Form& form,
                                                          std::map<std::string, at::Tensor> weights);

}  // namespace torsor
