// A decoder whose positions are an encoding expression: grouped queries, optional QK-norm, tied or untied head, a
// window a layer, and blocks in the style of Llama (RMS norm, SwiGLU) or of others (BlockStyle). The model asks the
// encoding its questions and knows no names.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "torsor/attention/kv_cache.h"
#include "torsor/model/attention_layer.h"
#include "torsor/model/config.h"
#include "torsor/model/parameters.h"
#include "torsor/model/tag_heads.h"

namespace torsor {

/// What blocks with cross-attention read of an encoder's output: made once a text (Decoder::remember), read at every
/// step.
struct Memory {
  std::vector<at::Tensor> keys, values;  ///< one a layer, (B, K, S, D)
  at::Tensor documents;                  ///< (B, S) int64, -1 = padding; undefined = every token is there
};

/// The tokens of one call.
struct TokenBatch {
  at::Tensor tokens;     ///< (B, T) int64
  at::Tensor positions;  ///< (B, T, axes); undefined = 0, 1, 2 ..., or going on from the cache
  at::Tensor documents;  ///< (B, T) int64, -1 = padding; undefined = one document
  at::Tensor counts;     ///< (B) int64: tokens of each row that exist (with a cache only); undefined = all
  at::Tensor state;      ///< position state that enters the first layer (Question::state); undefined = of the positions
  NamedTensors named;    ///< (B, T, ...) each: the per-token inputs that the encoding declares (Encoding::inputs)
  const Memory* memory = nullptr;  ///< of the same rows, for a model with cross-attention
  /// Shown what each layer's encoding answered, before its attention runs; unset = nobody looks.
  std::function<void(std::int64_t layer, const CoreInput&)> look = {};
  /// Shown the residual stream (B, T, C) that enters each layer, and as layer number `layers` what the last one leaves,
  /// before the final norm; unset = nobody looks.
  std::function<void(std::int64_t layer, const at::Tensor& stream)> stream = {};
};

/// What the embedding is called among the parameters of a model and in its file.
inline constexpr const char* kEmbeddingName = "model.embed_tokens.weight";

class Decoder {
 public:
  /// Weights drawn from `seed`; each tensor has a stream of its own named after it, so tensors of the same name and
  /// shape start alike under every encoding. float32 on the CPU.
  Decoder(ModelConfig config, std::uint64_t seed);
  /// Weights by name, exactly those that the configuration needs. Throws Error naming the tensor that is missing, left
  /// over or of another shape; `source` names the file.
  /// With `draw_seed`, positional tensors that are missing are drawn as the other constructor draws them. The weights
  /// are shared where they are float32 and contiguous.
  Decoder(ModelConfig config, const std::map<std::string, at::Tensor>& weights, const std::string& source,
          std::optional<std::uint64_t> draw_seed = std::nullopt);

  const ModelConfig& config() const { return config_; }
  const Encoding& encoding() const { return *encoding_; }
  const std::shared_ptr<const Encoding>& shared_encoding() const { return encoding_; }
  const std::vector<ModelParameter>& parameters() const { return parameters_; }
  std::int64_t parameter_count() const;

  /// Hidden states after the last norm: (B, T, C) float32 (the weights' dtype). `dtype` is that of the matrix products.
  /// Throws Error naming a per-token input that the encoding declares and the batch lacks.
  at::Tensor hidden(const TokenBatch& batch, KvCache* cache = nullptr, at::ScalarType dtype = at::kFloat) const;
  /// Keys and values of an encoder's output (B, S, C) for cross-attention; `documents` as in Memory: 0, or -1 for
  /// padding. Throws Error for shapes that do not fit, other documents, and a model without cross-attention.
  Memory remember(const at::Tensor& output, const at::Tensor& documents, at::ScalarType dtype = at::kFloat) const;
  /// (B, T, vocabulary)
  at::Tensor logits(const at::Tensor& hidden, at::ScalarType dtype = at::kFloat) const;
  /// Cross entropy a target in nats, (B, T) float32, of windows (B, T + 1); `named` of their first T tokens.
  at::Tensor token_losses(const at::Tensor& windows, at::ScalarType dtype = at::kFloat,
                          const NamedTensors& named = {}) const;

  /// Heads for the next token's tags; there() tells whether the model has them.
  const TagHeads& tag_heads() const { return tag_heads_; }
  /// What a model with tag heads pays for each target of windows (B, T + 1), with `named` of all T + 1 tokens: the
  /// token and its tags, (B, T) nats each. Their sum bounds the negative log probability of the tokens from above,
  /// whatever made the tags.
  struct JointLosses {
    at::Tensor tokens, tags;
  };
  JointLosses joint_losses(const at::Tensor& windows, const NamedTensors& named,
                           at::ScalarType dtype = at::kFloat) const;

  /// A cache for this model. With `shifts` its positions can be moved (KvCache::shift, evict) wherever the encoding
  /// can: keys that the model norms behind the rotation are then kept as they were before it.
  KvCache make_cache(std::int64_t batch, std::int64_t capacity, at::ScalarType dtype = at::kFloat,
                     bool shifts = false) const;

  /// Lets gradients flow into every parameter.
  void require_gradients();

  /// Brings all weights to float32 or float64, in place; for float64, hidden() and logits() must be asked with
  /// at::kDouble.
  void to(at::ScalarType dtype);

  /// For inference: keeps the matrices of attention, MLP, embedding and head in float16 or bfloat16 (or brings them to
  /// float32), in place. Products read them as they are and sum in float32; norms, biases and positional tensors stay.
  /// What float16 cannot hold is an Error naming the tensor, and nothing has changed then.
  void keep_matrices(at::ScalarType dtype);
  /// The smallest type that holds every number of these matrices: bfloat16 or float16, else float32. Checkpoints in
  /// half precision lose nothing when they are kept in it.
  at::ScalarType lossless_matrices() const;
  /// Whether `dtype` holds every number of these matrices.
  bool keeps_all(at::ScalarType dtype) const;

  /// Called with every position state that a layer has changed, before the next layer reads it; empty = nobody watches.
  using StateObserver = std::function<void(std::int64_t layer, const at::Tensor& state)>;
  void observe_states(StateObserver observer) { observer_ = std::move(observer); }

  /// Adds terms of low rank to the attention projections, one entry a layer, in place of earlier ones. They are no
  /// parameters of the model: merge them into the weights (lora.h) before it is saved. Throws Error when the number of
  /// layers is another.
  void attach(const std::vector<LayerLowRank>& terms);

 private:
  struct Norm {
    at::Tensor weight, bias;  ///< (C); no bias = none
  };
  struct Layer {
    Norm attention_norm, mlp_norm;  ///< the latter without a weight where the MLP reads the former's
    at::Tensor gate, up, down, gate_bias, up_bias, down_bias;
    AttentionWeights attention;
    Norm cross_norm;
    AttentionWeights cross;  ///< without positions; empty without cross-attention
  };

  Norm declare_norm(const Declare& tensor, const std::string& name) const;
  at::Tensor normalized(const at::Tensor& x, const Norm& norm) const;
  at::Tensor mlp(const at::Tensor& x, const Layer& layer, at::ScalarType dtype) const;

  void declare(const Declare& tensor, bool with_tag_heads);
  void resolve_layers();
  void check_named(const TokenBatch& batch) const;
  at::Tensor token_losses_of(const at::Tensor& hidden, const at::Tensor& windows, at::ScalarType dtype) const;
  /// One block: `h` and the position state in `options` become those that the next one reads. `beside`, where defined,
  /// joins the residual stream with the attention.
  void block(std::int64_t index, at::Tensor& h, AttendOptions& options, const at::Tensor& counts, KvCache* cache,
             at::ScalarType dtype, const at::Tensor& beside, const Memory* memory) const;
  void check_memory(const TokenBatch& batch) const;

  ModelConfig config_;
  std::shared_ptr<const Encoding> encoding_;
  std::shared_ptr<const Encoding> no_positions_;  ///< of cross-attention
  std::vector<std::shared_ptr<const Encoding>> by_layer_;
  std::vector<ModelParameter> parameters_;
  at::Tensor embedding_, head_, head_bias_;
  Norm embedding_norm_, final_norm_;
  TagHeads tag_heads_;
  NamedTensors model_position_;  ///< tensors that question 1 reads
  std::vector<Layer> layers_;
  bool carries_ = false;  ///< whether a position state goes from layer to layer
  StateObserver observer_;
};

}  // namespace torsor
