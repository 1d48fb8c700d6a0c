// sipe: an encoding that knows the syntax of its tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torsor/encoding/registry.h"

namespace torsor {

/// Per-token inputs (Question::named). Every one holds a token's own numbers and none of a later token's, so that rows
/// can be cut, packed and fed through a cache.
///
///   syntax.tags       (B, T, 2) int64       tau in 0 ... 2 and nu in 0 ... 5, 0 = none
///   syntax.labels     (B, T) int64          relation of the word's arc, 1 to 37 (syntax/relations.h), 0 = none
///   syntax.vectors    (B, T, 64) float32    s of a structure embedder, zeros where the token has none
///   syntax.sentences  (B, T) int64          number of the sentence, -1 = none
///   syntax.links      (B, T, M, 2) int64    arcs that become known with the token: how many tokens back either end
///                                           lies, -1 -1 = none. M is at most kSyntaxArcs; an end before the row's
///                                           first token is not there, and neither is its arc
inline constexpr const char* kSyntaxTags = "syntax.tags";
inline constexpr const char* kSyntaxLabels = "syntax.labels";
inline constexpr const char* kSyntaxVectors = "syntax.vectors";
inline constexpr const char* kSyntaxSentences = "syntax.sentences";
inline constexpr const char* kSyntaxLinks = "syntax.links";
inline constexpr std::int64_t kSyntaxLabelCount = 37;
inline constexpr std::int64_t kSyntaxVectorWidth = 64;
inline constexpr std::int64_t kSyntaxArcs = 32;

enum class SipePrior { Hexatags, Fsyn };
/// Where the inputs come from: nowhere; a parse of whole sentences; the same with an arc used only once both ends are
/// there; a parser that has read no further than the token. Auto is Incremental for causal models, else Oracle.
enum class SipeMode { Auto, None, Oracle, OracleRevealed, Incremental };
/// Which pieces of a word carry its syntax: the first; all; or the first one that comes after the word. Auto depends on
/// the mode and the coupling.
enum class SipeSubword { Auto, First, All, Delayed };

/// What an expression asks of who makes its inputs.
struct SipeSettings {
  SipePrior prior = SipePrior::Hexatags;
  SipeMode mode = SipeMode::Auto;
  SipeSubword subword = SipeSubword::Auto;
  bool rotary = false;    ///< the encoding inside turns q and k
  std::string operand;    ///< name of the encoding inside
  std::string coupling;   ///< as it is used, `auto` resolved; empty with inject=input
  std::string inject;     ///< as it is used
  std::int64_t hops = 3;  ///< of the sparse couplings

  /// The mode in a model that is causal, or is not.
  SipeMode mode_in(bool causal) const;
  /// The rule in such a model; never Auto.
  SipeSubword subword_in(bool causal) const;
  /// Whether a perplexity under this mode is one of a language model that knew the parse (a conditional one).
  bool leaks(bool causal) const;
};
/// Of every `sipe` of an expression, from left to right.
std::vector<SipeSettings> sipe_settings(const Expression& expression);

/// `sipe(E)`: syntax-informed positional embeddings (Riaz, Kim, Surdeanu 2026, arXiv:2608.06111). Every token has a
/// vector s, which is 0 where it has no syntax: E^tau[tau] + E^nu[nu] of its two tags (prior=hexatags, the paper's), or
/// what an embedder of the tree gave (prior=fsyn). s changes E by `coupling`; with s = 0 everywhere sipe(E) is E, bit
/// for bit.
///
///   E adds a term P_ij to the logit (alibi, t5, kerple, sandwich, fire; txl: its second one), which is multiplied by
///     F_ij = factor(z_ij), 1 where one of the two tokens has no s or, but for tag_align, where their sentences differ:
///     tag_align  z = <q_i + v, W_E s_j> / sqrt(D) a head, v that of txl, else 0. Depends on the key's s alone
///     bilinear   z = <U s_i, V s_j> / sqrt(rank)
///     mlp        z = <w2, gelu(A s_i + B s_j + b1)> + b2
///     sparse, sparse_mlp   bilinear or mlp for tokens that at most `hops` arcs lie between, else F = 1
///     additive   not multiplied: z of tag_align is added to the logit
///     factor:   linear   bounded            exp                   clamp
///               1 + z    1 + 0.9 tanh z     exp(clamp(z, -2, 2))  max(1 + z, 0)      tag_align
///               1 + b z  1 + b' tanh z      exp(clamp(b z, ..))   max(1 + b z, 0)    mlp, and bilinear with tanh z in
///                                                                                   place of z in the first and last
///     b is the trained beta, b' = 0.9 tanh(beta)
///   E turns planes (rope and what scales it, xpos, grape-m with canonical planes):
///     rotation   every plane turns once more, by beta phi, phi = W_phi s; with bound=warp by beta * 4 w tanh(W_phi s),
///                w the plane's unscaled frequency: by at most 4 beta positions
///     pair       the angle n w of each plane becomes n w F_ij, F of bilinear; at most 256 keys
///     prerot     W_q s_i and W_k s_j are added to q and k before they turn
///   any E:
///     bias       logit += scale <q_i, W_key s_j>; output += alpha sum_j a_ij W_value s_j (Shaw et al. 2018)
///
/// inject=input adds s (with fsyn W_input s) to the token embedding in place of all this; joint does both; combined is
/// bias beside another coupling. Layers before inject_from (counted from 1) are E.
///
/// Trained tensors (d = C or 64, the width of s; D head width, H and K query and key heads; a layer each unless said):
/// `tau` (2, C), `nu` (5, C) for all layers; `w_e` (H, D, d); `u`, `v` (rank, d); `a`, `b` (64, d), `b1`, `w2` (64),
/// `b2` (1); `w_phi` (planes, d); `w_q` (H, D, d), `w_k` (K, D, d); `w_key`, `w_value` (K, D, d), `alpha` (1); `beta`
/// (1); `w_input` (C, 64) for all layers; with fuse=concat `w_x` (C, C), `w_s` (C, d), with fuse=mix `mix` (1), for all
/// layers.
NameInfo sipe_name();

}  // namespace torsor
