// The per-token inputs of `sipe`: read from a call, checked, cleaned, kept in a cache.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "torsor/encoding/syntax/sipe.h"

namespace torsor {

/// The syntax of some tokens (B, T). Tokens that do not exist have none.
struct SyntaxTokens {
  at::Tensor tag;        ///< (B, T) int64: 6 tau + nu, 0 = none; with hexatags
  at::Tensor label;      ///< (B, T) int64, 0 = none; where needed
  at::Tensor vectors;    ///< (B, T, 64); with fsyn
  at::Tensor valid;      ///< (B, T) bool: has any
  at::Tensor sentences;  ///< (B, T) int64, -1 = none; where needed
  at::Tensor links;      ///< (B, T, kSyntaxArcs, 2) int32; where needed
};
inline constexpr std::int64_t kTagPairs = 18;

/// Which of them somebody needs; `name` says who, in messages.
struct SyntaxReader {
  std::string name;
  SipePrior prior = SipePrior::Hexatags;
  bool sentences = false, links = false;
  bool tags = true, labels = false;  ///< with hexatags: which of the two; a token has syntax where one is not 0

  std::vector<std::string> inputs() const;
  /// Of `tokens` tokens a row; those that are `absent` (B, T), undefined = none, have no syntax, whatever `named` holds
  /// there. Throws Error naming the input that is missing, of another shape or type, or out of range.
  SyntaxTokens read(const NamedTensors* named, std::int64_t rows, std::int64_t tokens, const at::Tensor& absent,
                    at::ScalarType type, at::Device device) const;
  /// Under `name` + ".tag" (B, 1, T) or ".vector" (B, 1, T, 64), ".sentence" (B, 1, T), ".links" (B, 1, T, arcs, 2).
  NamedTensors keep(const SyntaxTokens& tokens) const;
  std::vector<std::string> kept_names() const;
  bool is_kept(const NamedTensors* kept) const;
  SyntaxTokens kept(const NamedTensors& kept, at::ScalarType type) const;
};

/// Tokens of a side that do not exist, (B, T): padding, or past the row's length. Undefined = all do.
at::Tensor absent_tokens(const Side& side);
/// Queries without a token of their own, or whose token is padding, (B, Tq). Undefined = none.
at::Tensor absent_queries(const Question& question);

}  // namespace torsor
