// LoRA: a frozen projection with a trained term of low rank beside it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "torsor/model/config.h"

namespace torsor {

/// What a projection adds to x W^T: scale * (x A^T) B^T (Hu et al. 2021, arXiv:2106.09685). With `a` undefined nothing
/// is added.
struct LowRank {
  at::Tensor a;      ///< (r, inputs)
  at::Tensor b;      ///< (outputs, r)
  double scale = 1;  ///< alpha / r
};

/// The terms of one layer's attention.
struct LayerLowRank {
  LowRank q, k, v, o;
};

struct LoraOptions {
  std::int64_t rank = 8;
  double alpha = 16;
  std::vector<std::string> modules = {"q", "k", "v", "o"};  ///< projections that get a term, each of these at most once
};

/// Throws UsageError naming the option: rank outside [1, 65536], alpha not finite or not above 0, no module, one that
/// does not exist or is given twice.
void check_lora(const LoraOptions& options);

/// The projections of every layer that get a term, in order.
struct LoraPlace {
  std::string projection;  ///< "model.layers.N.self_attn.q_proj"
  std::string module;      ///< "q"
  std::int64_t layer = 0;
  std::int64_t inputs = 0, outputs = 0;

  std::string weight_name() const { return projection + ".weight"; }
  std::string a_name() const { return projection + ".lora_A.weight"; }
  std::string b_name() const { return projection + ".lora_B.weight"; }
};
std::vector<LoraPlace> lora_places(const ModelConfig& config, const LoraOptions& options);

/// The term's tensors at the start: `a` normal with deviation 1/sqrt(inputs), drawn from `seed` in a stream of its own
/// name, so that x A^T spreads like x; `b` zero, so that nothing has changed yet.
LowRank initial_low_rank(const LoraPlace& place, const LoraOptions& options, std::uint64_t seed);

/// The term of a module in a layer. Throws UsageError for another name than q, k, v and o.
LowRank& low_rank_of(LayerLowRank& layer, const std::string& module);

/// W + scale * B A, computed in float64 and rounded once to the type of W.
at::Tensor merged(const at::Tensor& weight, const LowRank& low_rank);

/// `full`, which is x W^T, with the term, in `dtype`; exactly `full` where there is none.
at::Tensor with_low_rank(const at::Tensor& full, const at::Tensor& x, const LowRank& low_rank, at::ScalarType dtype);

}  // namespace torsor
