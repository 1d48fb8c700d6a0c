// What the positions and the mask of a call say about the distances of its visible pairs, found without looking at the
// pairs one by one.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

#include "torsor/attention/core.h"

namespace torsor {

/// Distances p_q - p_k of a call on the CPU. Each answer is found once, when it is first asked for.
class Distances {
 public:
  explicit Distances(const CoreInput& input);

  const at::Tensor& query_positions() const { return query_positions_; }  ///< (B, Tq) float64, contiguous
  const at::Tensor& key_positions() const { return key_positions_; }      ///< (B, Tk) float64, contiguous

  /// The distance of every row's first query to its first key, (B) int64, where every visible pair's distance follows
  /// from it: first + i - j. Undefined where positions do not step by one, are not whole, or lie so far apart that a
  /// table of all distances would be larger than the sequences. Tokens that do not exist, and queries that see
  /// nothing, do not count: their positions may be anything.
  const at::Tensor& whole();

  /// Bounds of the distances between tokens that exist, whether they see each other or not; both 0 where there are
  /// none.
  struct Range {
    double least = 0, most = 0;
  };
  Range range() const;

  /// True when a query sees a key with a larger position. In O(T), with documents O(T log documents).
  bool any_negative() const;

 private:
  std::int64_t length(std::int64_t row) const;
  std::int64_t offset(std::int64_t row) const;
  std::int64_t key_document(std::int64_t row, std::int64_t j) const;
  std::int64_t query_document(std::int64_t row, std::int64_t i) const;
  /// Keys [begin, end) of a row that query i may see as far as order, window and the row's length go.
  struct Keys {
    std::int64_t begin = 0, end = 0;
  };
  Keys keys_of(std::int64_t row, std::int64_t i) const;

  struct Steps {
    bool found = true;               ///< false where there is no such number
    std::optional<double> distance;  ///< of the first query to the first key; none where nobody sees anything
  };
  Steps steps(std::int64_t row) const;
  at::Tensor find_whole() const;
  bool any_negative(std::int64_t row) const;

  std::int64_t batch_, queries_, keys_;
  bool causal_;
  std::optional<std::int64_t> window_;
  at::Tensor query_positions_, key_positions_;                              // (B, T) float64
  at::Tensor lengths_, offsets_, query_documents_, key_documents_, whole_;  // int64, or undefined
  bool asked_whole_ = false;
};

}  // namespace torsor
