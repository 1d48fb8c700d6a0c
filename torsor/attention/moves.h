// Carries out an encoding's moves of q and k.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "torsor/encoding/encoding.h"

namespace torsor {

/// x (B, H, T, D) with H = Hq for Role::Query and Hk for Role::Key. `group` is Hq / Hk.
/// Precision::Exact computes in float32 at least and rounds once to the dtype of x; Precision::HuggingFace casts cos
/// and sin to the dtype of x and computes in it, in the order of Hugging Face's apply_rotary_pos_emb.
at::Tensor apply_moves(const at::Tensor& x, const std::vector<Move>& moves, Role role, std::int64_t group,
                       Precision precision);

/// x times exp(rate * turn) on the planes of each decay; `turn` (B, T) float64 is a distance to the tile's centre.
at::Tensor apply_decays(const at::Tensor& x, const std::vector<Decay>& decays, const at::Tensor& turn, Role role,
                        std::int64_t group);

}  // namespace torsor
