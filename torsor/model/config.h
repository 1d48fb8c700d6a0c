// The model's configuration: the JSON model file and the config.json of a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/encoding/dimensions.h"

namespace torsor {

enum class QkNorm { None, Before, After };

enum class NormKind { Rms, Layer };  ///< Zhang and Sennrich 2019; Ba, Kiros, Hinton 2016
/// Up, an activation, down: GELU, exact or by its tanh formula (Hendrycks and Gimpel 2016), or ReLU. Or gated, with two
/// projections up, one behind the activation times the other (Shazeer 2020, arXiv 2002.05202): SiLU or either GELU.
enum class MlpKind { SwiGlu, Gelu, GeluTanh, Relu, GeGlu, GeGluTanh };
bool is_gated(MlpKind kind);
const char* mlp_name(MlpKind kind);  ///< as in the model file
/// Throws UsageError through `object` for a name that is none, naming `key`.
MlpKind mlp_kind(JsonObject& object, const char* key, MlpKind fallback);
/// Whether the MLP reads what attention has added to the residual stream, or stands beside it: behind the attention's
/// norm (Falcon) or one of its own (GPT-NeoX).
enum class Parallel { None, OneNorm, TwoNorms };

/// What decoders do differently from Llama. The defaults are Llama's.
struct BlockStyle {
  NormKind norm = NormKind::Rms;
  bool norm_bias = true;  ///< of layer norms
  MlpKind mlp = MlpKind::SwiGlu;
  Parallel parallel = Parallel::None;
  bool qkv_bias = false, output_bias = false;  ///< of attention's projections
  bool mlp_bias = false;
  bool head_bias = false;       ///< of the output projection
  bool embedding_norm = false;  ///< a norm behind the token embedding (BLOOM)
  double attention_scale = 0;   ///< factor on q.k; 0 = that of the encoding, 1/sqrt(head_dim) for most
  double head_scale = 1;        ///< factor on what the output projection reads, above 0 (T5's tied head)

  bool operator==(const BlockStyle&) const = default;
};

/// Beyond any model there is, and small enough that no product of two sizes overflows and that the mistyped number of a
/// damaged file is refused before memory is asked for.
struct SizeLimits {
  static constexpr std::int64_t kSize = 1 << 20;  ///< widths and heads
  static constexpr std::int64_t kLayers = 1 << 14;
  static constexpr std::int64_t kVocabulary = std::int64_t{1} << 32;
  static constexpr std::int64_t kLength = std::int64_t{1} << 40;  ///< in tokens
};

/// A decoder in the Llama style, or in another (BlockStyle). Zeros and empty values mean "derived": see complete().
struct ModelConfig {
  std::int64_t width = 128;  ///< C
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;      ///< 0 = heads
  std::int64_t head_dim = 0;      ///< 0 = width / heads
  std::int64_t mlp_width = 0;     ///< 0 = 8/3 of the width, to the nearest multiple of 8
  bool tie_head = true;           ///< the output projection is the embedding
  QkNorm qk_norm = QkNorm::None;  ///< RMS norm of q and k a head, before or after rotation
  double norm_eps = 1e-5;
  std::vector<std::int64_t> window;  ///< keys that a token sees, one a layer or one for all; 0 or empty = all
  bool kv_shift = false;             ///< keys and values mixed with those of the token before (kv_shift.h)
  BlockStyle block;
  bool decay_positions = false;  ///< weight decay on positional scalars too
  /// Whether a decoder whose encoding reads tags predicts those of the next token too (tag_heads.h); empty = where
  /// they tell of later tokens, so that a joint bound can stand beside what is no perplexity.
  std::optional<bool> tag_heads;
  Precision precision = Precision::Exact;

  /// What the halves of an encoder-decoder model differ in (seq2seq.h); no keys of a model file.
  bool causal = true;            ///< whether a token sees those before it alone
  bool cross_attention = false;  ///< whether each block reads an encoder's output behind its own attention

  std::int64_t vocabulary_size = 256;
  std::int64_t train_length = 0;  ///< L
  std::string encoding = "none";  ///< the expression

  /// Fills in what is derived and checks the whole. Throws UsageError naming the key.
  void complete();
  Dimensions dimensions() const;
  std::int64_t window_of(std::int64_t layer) const;  ///< 0 = none
};

/// Reads a model file (doors.md): only the keys of the architecture, every one optional, an unknown one an error.
ModelConfig read_model_file(const std::string& path);
ModelConfig model_from_json(const Json& json, const std::string& source);
Json model_to_json(const ModelConfig& config);

}  // namespace torsor
