// BERT and its kin in the form of Hugging Face transformers.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "torsor/base/json.h"
#include "torsor/model/foreign_tensors.h"
#include "torsor/model/hugging_face_encoder_config.h"

namespace torsor {

/// What describe_hugging_face_encoder reads, its encoding checked as read_hugging_face does.
HuggingFaceEncoder read_hugging_face_encoder(const Json& config, const std::string& source);

/// The tensors of a folder under the names of Encoder, in float32. Which heads there are is told to `model`, as are the
/// names that files part in: that for masked tokens, and one for classes on top of a dense layer and tanh (BERT's
/// pooler; alone nothing reads it). What the model has no place for goes to `passed_over`, where it is given: such a
/// pooler, the rows of RoBERTa's table before its first position (under the table's name), buffers that repeat the
/// configuration, second names. Throws Error naming the tensor and `source`, also for a class head of another form.
std::map<std::string, at::Tensor> hugging_face_encoder_weights(HuggingFaceEncoder& model,
                                                               const std::map<std::string, at::Tensor>& tensors,
                                                               const std::string& source,
                                                               PassedOver* passed_over = nullptr);

/// A folder as it was read, or as it is to be written.
struct HuggingFaceEncoderForm {
  HuggingFaceEncoder model;
  Json config;  ///< config.json
  PassedOver passed_over;
};

/// The names that transformers itself writes for the heads that model.config has.
void set_usual_names(HuggingFaceEncoder& model);

/// The inverse of hugging_face_encoder_weights: the weights of an Encoder under the folder's names, and what was passed
/// over. Throws Error naming a tensor that the family has no place for, or that is missing.
std::map<std::string, at::Tensor> hugging_face_encoder_tensors(const HuggingFaceEncoderForm& form,
                                                               std::map<std::string, at::Tensor> weights);

}  // namespace torsor
