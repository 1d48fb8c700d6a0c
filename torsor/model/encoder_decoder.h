// A model of two stacks (Vaswani et al. 2017; T5, Raffel et al. 2020): one reads a text in both directions, the other
// writes one, token after token, and looks at the first through cross-attention. Each stack is a Decoder with an
// encoding of its own; the embedding of tokens is one.
//
//   source (B, S) -> encoder -> (B, S, C) -> keys and values of every layer (Memory)
//   target (B, T) -> decoder, which reads the memory -> logits (B, T, V)
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "torsor/data/tokenizer.h"
#include "torsor/model/decoder.h"
#include "torsor/model/encoder_decoder_config.h"
#include "torsor/model/generate.h"
#include "torsor/model/hugging_face_t5.h"

namespace torsor {

/// Throws UsageError for an encoder whose encoding has several axes or a state from layer to layer.
void check_encoder_encoding(const EncoderDecoderConfig& config);

class EncoderDecoder {
 public:
  /// Weights drawn from `seed`.
  EncoderDecoder(EncoderDecoderConfig config, std::uint64_t seed);
  /// Weights by name: those of the stacks' Decoders behind "encoder." and "decoder.", and once "embed_tokens.weight".
  /// Throws Error as Decoder does, UsageError as EncoderDecoderConfig::complete and check_encoder_encoding do.
  EncoderDecoder(EncoderDecoderConfig config, const std::map<std::string, at::Tensor>& weights,
                 const std::string& source);

  const EncoderDecoderConfig& config() const { return config_; }
  const Decoder& encoder() const { return encoder_; }
  const Decoder& decoder() const { return decoder_; }
  /// The tensors of both under the names of the constructor, each once.
  std::vector<ModelParameter> parameters() const;
  std::int64_t parameter_count() const { return count_parameters(parameters()); }
  void require_gradients();
  /// As Decoder's, of both.
  void keep_matrices(at::ScalarType dtype);
  at::ScalarType lossless_matrices() const;

  /// What the decoder reads of sources (B, S) int64; `documents` (B, S) int64 with -1 = padding, undefined = none.
  /// Throws Error for what does not fit.
  Memory read(const at::Tensor& sources, const at::Tensor& documents = {}, at::ScalarType dtype = at::kFloat) const;
  /// (B, T, V): what comes behind each token of targets (B, T).
  at::Tensor logits(const at::Tensor& targets, const Memory& memory, at::ScalarType dtype = at::kFloat) const;

  /// Writes a text for each source (token ids, at least one each), all at once; as generate() of a decoder, whose
  /// prompts are here the start token and, where given, what stands behind it.
  Generated generate(const std::vector<std::vector<std::int64_t>>& sources, const GenerateOptions& options = {},
                     const std::vector<std::vector<std::int64_t>>& prefixes = {}) const;

 private:
  static std::map<std::string, at::Tensor> stack(const std::map<std::string, at::Tensor>& weights, const char* prefix,
                                                 const std::string& source);

  EncoderDecoderConfig config_;
  Decoder encoder_, decoder_;
};

/// Whether the config.json of a folder describes such a model, of this project or of Hugging Face.
bool is_encoder_decoder(const std::string& folder);

/// Writes config.json ("kind": "encoder-decoder"), model.safetensors and the files of `reader` as save_checkpoint does.
void save_encoder_decoder(const std::string& folder, const EncoderDecoder& model, const std::string& tokenizer,
                          const std::shared_ptr<const Tokenizer>& reader = nullptr);

struct LoadedEncoderDecoder {
  EncoderDecoder model;
  std::string tokenizer;  ///< as LoadedModel
  std::shared_ptr<const Tokenizer> reader = {};
  std::string unread = {};
  std::optional<HuggingFaceT5Form> theirs = {};  ///< of a folder of transformers: how it is written again
};
/// Reads a folder of save_encoder_decoder, or of transformers (t5, mt5, umt5; hugging_face_t5.h). Throws Error naming
/// the file and what is wrong.
LoadedEncoderDecoder load_encoder_decoder(const std::string& folder);

}  // namespace torsor
