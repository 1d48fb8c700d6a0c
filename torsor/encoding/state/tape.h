// tape: positions that evolve from layer to layer with the content.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `tape(E)`, E one rotary encoding: contextualised equivariant position encoding (Zhu et al. 2025, arXiv:2501.00712,
/// in the form of its released code, which calls it adape). Every token carries a position state a head h: one complex
/// number z a plane of E, which starts as E's cosine and sine and by which q and k turn. Attention averages the states
/// with its own weights; after the block's MLP, whose output is m,
///
///   Y_i = sum_j A_ij z_j                                 z1 = z + post(Y)
///   z' = z1 + Dn (silu(Xp m) * (Up z1))                  over the heads, alike for every plane, cosine and sine
///
/// and z' is the state of the next layer. In the last layer nobody reads z', so neither Y nor z' is computed; its
/// tensors are there all the same. post is one number a head times Y for `rowsum` (the sum of a row of Wp: what the
/// released code computes) and `scalar`, a matrix over the heads for `headmix`, and nothing for `none`.
///
/// The state (Question::state) is (B, Hs, T, 2F), F planes: cosines, then sines. Hs = query heads with gqa=expand,
/// where every query head turns its own copy of the key; key heads with gqa=shared, where a group's averages are
/// averaged. With block=R, R > 2, or a state of width 4F the state is a (2, R) block a plane, (F, 2, R) row by row
/// (forms.h, PairBlocks): the method's general form, on plain operations.
///
/// Trained tensors a layer (C model width, I = width or 4 H): `up_proj` (I, Hs), starting at 0; `x_proj` (I, C) and
/// `down_proj` (Hs, I), normal with deviation 0.02; `post_attention` (Hs, Hs), with post=scalar (Hs), starting at 0: at
/// the start tape(E) is E. Layers before from_layer have none and hand the state on.
/// `control=mixing` lets the network mix planes: `up_proj` (I, Hs F), `down_proj` (Hs F, I), and a shift of all
/// positions is no longer without effect; `control=frame` gives cosines and sines maps of their own, `up_proj` (2, I,
/// Hs), `down_proj` (2, Hs, I), and no rotation is. Throws UsageError where keys have no meaning together or the
/// operand cannot be carried.
NameInfo tape_name();

}  // namespace torsor
