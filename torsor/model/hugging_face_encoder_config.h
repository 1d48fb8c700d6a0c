// What the config.json of BERT and its kin says, read without libtorch.
#pragma once

#include <cstdint>
#include <string>

#include "torsor/base/json.h"
#include "torsor/model/encoder_config.h"

namespace torsor {

struct HuggingFaceEncoder {
  std::string model_type;
  EncoderConfig config;
  /// RoBERTa counts positions from behind its padding id: rows of the table that stand before position 0.
  std::int64_t first_row = 0;
  /// What its files call things where they differ; hugging_face_encoder.h fills it in.
  std::string root;        ///< what the names of tensors begin with; empty in a file of the bare model
  std::string token_bias;  ///< of the head for masked tokens
  std::string class_head;  ///< module of the class head's last layer; empty = there is none
};

/// Whether the type is roberta or one of the two that are built as it is.
bool is_roberta(const std::string& model_type);

/// Whether "model_type" is bert, roberta, xlm-roberta, camembert, distilbert or roformer.
bool is_hugging_face_encoder(const Json& config);

/// Reads their config.json: a learned table, or RoFormer's rotation of neighbouring channels. Throws Error naming
/// `source` and the key, as describe_hugging_face does.
HuggingFaceEncoder describe_hugging_face_encoder(const Json& config, const std::string& source);

}  // namespace torsor
