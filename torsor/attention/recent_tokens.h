// What a model must still know of the newest tokens of each row: a ring of a fixed length.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "torsor/encoding/encoding.h"

namespace torsor {

/// Tensors of the newest tokens of each row, by name; every row has its own length. Older ones are forgotten, so that
/// memory does not grow with the text.
class RecentTokens {
 public:
  /// Tokens of a row that are remembered: how far a row can be taken back.
  static constexpr std::int64_t kLength = 64;

  /// Tensors (B, heads, n, ...) of n arriving tokens, of which the first counts[b] belong to row b. The names, extents
  /// and types are those of the first push.
  void push(const NamedTensors& arriving, const std::vector<std::int64_t>& counts);
  /// Of each row's newest token (B, heads, 1, ...); zeros for a row without any. Empty before the first push.
  NamedTensors newest() const;

  bool empty() const { return ring_.empty(); }
  /// Tokens that each row has had.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }
  /// Whether row `row` can go back to `length` tokens: the last of them is still remembered, or none is left.
  bool reaches(std::size_t row, std::int64_t length) const;
  /// Takes every row back; each must be within reach.
  void truncate(const std::vector<std::int64_t>& lengths);
  std::int64_t bytes() const;
  /// Of the rows `rows`, in that order.
  RecentTokens of_rows(const std::vector<std::int64_t>& rows) const;

  /// For files: what is remembered, and back.
  const NamedTensors& ring() const { return ring_; }
  const std::vector<std::int64_t>& oldest() const { return oldest_; }
  static RecentTokens of(NamedTensors ring, std::vector<std::int64_t> lengths, std::vector<std::int64_t> oldest);

 private:
  NamedTensors ring_;                           ///< (B, heads, kLength, ...), token t in slot t % kLength
  std::vector<std::int64_t> lengths_, oldest_;  ///< tokens of a row; the first token of a row that is in the ring
};

}  // namespace torsor
