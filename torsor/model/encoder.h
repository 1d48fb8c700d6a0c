// A bidirectional encoder in the BERT style whose positions are an encoding expression: absolute, relative or rotary.
// Layer norm before or after, GELU, tied masked-language head, heads that recover syntactic tags, a head for classes.
//
//   tokens -> embedding + segment [+ question 1 of the encoding] -> (norm) -> layers -> hidden (B, T, C)
//   hidden -> token_logits (B, T, V), tag_logits (B, T, 3) and (B, T, 6), class_logits (B, labels) of the first token
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "torsor/data/tokenizer.h"
#include "torsor/model/attention_layer.h"
#include "torsor/model/encoder_config.h"
#include "torsor/model/hugging_face_encoder.h"
#include "torsor/model/parameters.h"
#include "torsor/model/tag_heads.h"

namespace torsor {

/// The tokens of one call.
struct EncoderBatch {
  at::Tensor tokens;     ///< (B, T) int64
  at::Tensor segments;   ///< (B, T) int64 below segments; undefined = all 0
  at::Tensor documents;  ///< (B, T) int64, -1 = padding; texts see and count themselves alone; undefined = one
  NamedTensors named;    ///< (B, T, ...) each: the per-token inputs that the encoding declares
};

class Encoder {
 public:
  /// Weights drawn from `seed`, each tensor from a stream of its own name: encoders with the same sizes start alike
  /// under every encoding. float32 on the CPU.
  Encoder(EncoderConfig config, std::uint64_t seed);
  /// Weights by name, exactly those that the configuration needs. Throws Error naming the tensor that is missing, left
  /// over or of another shape; `source` names the file. With `draw_seed`, tensors of heads and of the encoding that are
  /// missing are drawn.
  Encoder(EncoderConfig config, const std::map<std::string, at::Tensor>& weights, const std::string& source,
          std::optional<std::uint64_t> draw_seed = std::nullopt);

  /// The same encoder with copies of its weights and a fresh class head of so many labels, drawn from `seed`.
  Encoder with_labels(std::int64_t labels, std::uint64_t seed) const;

  const EncoderConfig& config() const { return config_; }
  const Encoding& encoding() const { return *encoding_; }
  const std::shared_ptr<const Encoding>& shared_encoding() const { return encoding_; }
  const std::vector<ModelParameter>& parameters() const { return parameters_; }
  std::int64_t parameter_count() const { return count_parameters(parameters_); }
  void require_gradients();
  /// Brings all weights to float32 or float64, in place; for float64, hidden() must be asked with at::kDouble.
  void to(at::ScalarType dtype) { convert_parameters(parameters_, dtype); }

  /// (B, T, C). Dropout acts only where `training`, from libtorch's generator. Throws Error for tokens, segments or
  /// named inputs that do not fit, Refusal where the encoding needs causal order.
  at::Tensor hidden(const EncoderBatch& batch, bool training = false, at::ScalarType dtype = at::kFloat) const;

  /// (..., V) of hidden states (..., C): which token stands at a place. Throws Error without a head for tokens.
  at::Tensor token_logits(const at::Tensor& hidden, at::ScalarType dtype = at::kFloat) const;
  /// (..., kTauTags) and (..., kNuTags). Throws Error without tag heads.
  struct TagLogits {
    at::Tensor tau, nu;
  };
  TagLogits tag_logits(const at::Tensor& hidden, at::ScalarType dtype = at::kFloat) const;
  /// (B, labels), of what stands first in a row: padding belongs behind a text here. Throws Error without a class head.
  at::Tensor class_logits(const at::Tensor& hidden, bool training = false, at::ScalarType dtype = at::kFloat) const;

 private:
  struct Norm {
    at::Tensor weight, bias;
  };
  struct Linear {
    at::Tensor weight, bias;
  };
  struct Layer {
    AttentionWeights attention;
    Norm attention_norm, mlp_norm;
    Linear up, down;
  };

  void declare(const Declare& declare);
  void prepare();
  void check(const EncoderBatch& batch) const;
  at::Tensor normalized(const at::Tensor& x, const Norm& norm) const;
  at::Tensor dropped(const at::Tensor& x, bool training) const;

  EncoderConfig config_;
  std::shared_ptr<const Encoding> encoding_;
  std::vector<std::shared_ptr<const Encoding>> by_layer_;
  std::vector<ModelParameter> parameters_;
  at::Tensor embedding_, segment_embedding_, token_bias_;
  NamedTensors model_position_;
  Norm embedding_norm_, final_norm_, token_norm_;
  Linear token_head_, pooler_, class_head_, tau_head_, nu_head_;
  std::vector<Layer> layers_;
};

/// Writes config.json ("kind": "encoder") and model.safetensors as save_checkpoint does for a decoder; `about` (may be
/// null) stands under "task" and tells what a class head answers. `embedder` as there. `reader` is the tokenizer of an
/// encoder whose ids are not those of EncoderTokens, or nothing.
void save_encoder(const std::string& folder, const Encoder& encoder, const Json& about = nullptr,
                  const std::string& embedder = "", const std::shared_ptr<const Tokenizer>& reader = nullptr);

/// Whether a folder's config.json is that of an encoder, of this project or of transformers.
bool is_encoder_checkpoint(const std::string& folder);

struct LoadedEncoder {
  Encoder encoder;
  Json about;
  std::string embedder;                          ///< as LoadedModel::embedder
  std::shared_ptr<const Tokenizer> reader = {};  ///< of its own tokenizer; nothing for EncoderTokens, or ids of no text
  std::string unread = {};                       ///< why a tokenizer that is there was not read
  std::optional<HuggingFaceEncoderForm> theirs = {};  ///< of a folder of transformers: how it is written again
};
/// Reads a folder of save_encoder, or of transformers (hugging_face_encoder.h), whose ids are its own tokenizer's.
/// Throws Error naming the file and what is wrong, also where the folder holds a decoder.
LoadedEncoder load_encoder(const std::string& folder);

}  // namespace torsor
