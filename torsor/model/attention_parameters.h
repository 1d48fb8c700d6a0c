// The trained tensors of attention, for every model that has some.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "torsor/model/attention_layer.h"
#include "torsor/model/parameters.h"

namespace torsor {

/// Deviations of first weights (evaluation.md): 0.5 / sqrt(fan in), and for projections onto the residual stream that
/// over sqrt(2 layers).
Initial inner_initial(std::int64_t fan_in);
Initial outer_initial(std::int64_t fan_in, std::int64_t layers);

/// Declares the tensors of the attention of every layer of one model, those that layers share once.
class AttentionParameters {
 public:
  AttentionParameters(const ModelConfig& config, std::shared_ptr<const Encoding> encoding, Declare declare);

  /// Tensors that question 1 (what is added to the embedding) reads; none for encodings that add nothing.
  NamedTensors embedding();
  /// Those of layer `index`, whose encoding is `encoding`, under "model.layers.INDEX.self_attn.".
  AttentionWeights layer(std::int64_t index, const Encoding& encoding);
  /// Those of its cross-attention, under "model.layers.INDEX.cross_attn.".
  AttentionWeights cross(std::int64_t index);

 private:
  at::Tensor shared(const ParameterInfo& info);
  AttentionWeights projections(const std::string& prefix);

  const ModelConfig& config_;
  std::shared_ptr<const Encoding> encoding_;
  Declare declare_;
  std::map<std::string, at::Tensor> shared_;
};

}  // namespace torsor
