// The configuration of an encoder (encoder.h): the JSON model file and the "model" of a checkpoint's config.json.
#pragma once

#include <cstdint>
#include <string>

#include "torsor/base/json.h"
#include "torsor/model/config.h"

namespace torsor {

/// Token ids of an encoder of bytes: 0 to 255 are bytes, these stand behind.
struct EncoderTokens {
  static constexpr std::int64_t kFirst = 256;      ///< before everything, like BERT's [CLS]: classes are read off it
  static constexpr std::int64_t kSeparator = 257;  ///< behind every sentence
  static constexpr std::int64_t kMask = 258;       ///< in place of what is to be found out
  static constexpr std::int64_t kPadding = 259;    ///< with document -1
  static constexpr std::int64_t kCount = 260;
  static constexpr const char* kName = "bytes-encoder-1";  ///< what a checkpoint calls them
};

struct EncoderConfig {
  ModelConfig model;          ///< sizes and encoding; vocabulary EncoderTokens::kCount unless it says otherwise
  bool norm_first = false;    ///< layer norms before attention and MLP (and one at the end) instead of behind each
  double dropout = 0;         ///< behind the embedding, attention and MLP, in training; 0 to below 1
  std::int64_t segments = 2;  ///< kinds of sentences in one row
  std::int64_t labels = 0;    ///< of the class head: 0 = there is none, 1 = a number
  bool tag_heads = false;     ///< whether there are heads that recover tags
  bool token_head = true;     ///< whether there is a head for masked tokens
  /// Whether ids are those of EncoderTokens. Encoders of other libraries have their own, any number of them.
  bool byte_tokens = true;
  MlpKind activation = MlpKind::Gelu;  ///< of the MLP; none of the gated kinds

  /// Checks and fills in what is derived. Throws UsageError naming the key: what ModelConfig::complete refuses, a
  /// window, kv_shift (tokens know no direction here), an encoding of several axes, or one with a state.
  void complete();
};

/// Whether a model file or a checkpoint's "model" describes an encoder ("kind": "encoder").
bool is_encoder(const Json& json);

/// A model file with "kind": "encoder": the keys of a decoder's but tie_head, kv_shift and window, and "norm": "post"
/// or "pre", "dropout", "segments", "tag_heads", "token_head", "activation" (gelu, gelu_tanh, relu), "byte_tokens".
EncoderConfig encoder_from_json(const Json& json, const std::string& source);
Json encoder_to_json(const EncoderConfig& config);

}  // namespace torsor
