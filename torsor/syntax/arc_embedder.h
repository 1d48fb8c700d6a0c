// f_syn: the arc of a token as a vector of 64 numbers. It sees its own token's arc alone, so it is a structure embedder
// and no parser; trained once on a treebank (arc_training.h), then frozen.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "torsor/syntax/features.h"
#include "torsor/syntax/native.h"
#include "torsor/syntax/network.h"

namespace torsor::syntax {

/// Sizes of the network; the width of what comes out is part of the encodings' contract (`syntax.vectors`).
struct ArcEmbedderSizes {
  static constexpr std::int64_t kOut = 64;
  std::int64_t relation = 16;  ///< width of a relation's vector
  std::int64_t direction = 8;  ///< of a direction's
  std::int64_t distance = 8;   ///< of a distance's, and of each count of the incremental features
  std::int64_t hidden = 128;
  bool incremental = false;  ///< reads what a left-to-right parser knows at a word, beside the head
  bool exchange = false;     ///< one exchange along the arcs, for encoders: refused for incremental features
};

/// s = valid * LayerNorm(W2 GELU(W1 f)), f the vectors of relation, direction and distance beside each other; in
/// incremental mode also of the left dependents' number and mean relation and of the words that wait. With `exchange`,
/// W3 [s of the head; mean s of the dependents] is added. Exactly zero where the arc is not valid.
///
/// No feature tells which word the head is: in a decoder that would hand the model words ahead.
class ArcEmbedder {
 public:
  /// Throws UsageError for an exchange of incremental features.
  ArcEmbedder(const ArcEmbedderSizes& sizes, Weights weights);
  /// Of a model folder of kind "arcs". Throws Error, also where the folder's relations are not those of relations.h.
  explicit ArcEmbedder(const NativeModel& model);

  const ArcEmbedderSizes& sizes() const { return sizes_; }
  const Weights& weights() const { return weights_; }
  /// Of a folder; empty for a network that comes from none.
  const std::string& sha256() const { return sha256_; }
  NativeModel to_model() const;

  /// (..., T, 9) int64, the columns of ArcFeatures -> (..., T, 64) float32. `hidden` (..., T) bool: arcs that are not
  /// shown. `heads` (..., T) int64, read by the exchange alone: the head's place among the T, -1 = none. Throws Error
  /// for other shapes, numbers outside their tables, or heads that are missing.
  at::Tensor operator()(const at::Tensor& arcs, const at::Tensor& heads = {}, const at::Tensor& hidden = {}) const;

 private:
  ArcEmbedderSizes sizes_;
  Weights weights_;
  std::string sha256_;
  at::Tensor relation_, direction_, distance_, count_, waiting_;
  Affine first_, second_;
  at::Tensor gain_, bias_;
  at::Tensor exchange_;  // (64, 128)
};

/// Reads a model folder. Throws Error naming the file.
ArcEmbedder load_arc_embedder(const std::string& folder);

}  // namespace torsor::syntax
