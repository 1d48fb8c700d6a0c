// Random calls of the rows of the case table, and the ways to run them: in one pass, by steps, by chunks.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/attention/case_table.h"
#include "torsor/attention/attend.h"
#include "torsor/attention/kv_cache.h"

namespace torsor::attention_test {

inline at::TensorOptions doubles() { return at::TensorOptions(at::kDouble); }

/// What a row of the case table is run with.
struct Setting {
  HeadCounts heads = {2, 2};
  at::ScalarType dtype = at::kDouble;
  std::optional<std::int64_t> window;
  bool transposed = false;     ///< q, k, v are views of (B, T, H, D)
  std::int64_t head_dim = 0;   ///< 0 = the row's
  std::int64_t value_dim = 0;  ///< Dv; 0 = head_dim
  std::int64_t layer = 0;
  Precision precision = Precision::Exact;
};

/// Contents without positions: (B, H, T, D) each, and the block's input (B, T, C) for encodings that read it.
struct Tokens {
  at::Tensor q, k, v;
  at::Tensor x = {};
  NamedTensors named = {};  ///< (B, T, ...) each, where the encoding declares inputs
  std::int64_t rows() const { return k.size(0); }
  std::int64_t count() const { return k.size(2); }
  Tokens slice(std::int64_t first, std::int64_t count) const;
  Tokens row(std::int64_t row) const;
  Tokens requires_grad() const;  ///< detached copies that gradients reach
};
Tokens join_tokens(const std::vector<Tokens>& parts);  ///< one after the other
Tokens stack_rows(const std::vector<Tokens>& rows);

/// Contents at positions: what a call reads.
struct Placed {
  Tokens tokens;
  at::Tensor positions;  ///< (B, T, axes) float64
  at::Tensor documents;  ///< (B, T) int64 or undefined
};

/// Drawn inputs of the names that `sipe` declares, of `rows` rows that begin with their first token.
NamedTensors draw_syntax(const std::vector<std::string>& names, std::int64_t rows, std::int64_t count);

/// One row of the case table made for a setting, with drawn trained tensors.
class Subject {
 public:
  /// Throws UsageError where the row does not fit the setting's head width.
  Subject(const EncodingCase& row, const Setting& setting, std::uint64_t seed = 1);

  const EncodingCase& row() const { return *row_; }
  const Setting& setting() const { return setting_; }
  const std::shared_ptr<const Encoding>& encoding() const { return encoding_; }
  const Encoding& of_layer() const { return *of_layer_; }
  std::int64_t head_dim() const { return encoding_->dimensions().head_dim; }
  std::int64_t value_dim() const { return setting_.value_dim ? setting_.value_dim : head_dim(); }
  NamedTensors& parameters() { return parameters_; }
  const NamedTensors& parameters() const { return parameters_; }

  Tokens draw(std::int64_t rows, std::int64_t count) const;
  /// (rows, count, axes): first, first + 1, ... on axis 0; the other axes in an order of their own (a grid).
  at::Tensor run_of_positions(std::int64_t rows, std::int64_t count, double first = 0) const;
  /// Lays q, k, v out as the setting says and adds what the encoding adds to the embedding, through fixed projections.
  Placed place(const Tokens& tokens, const at::Tensor& positions, const at::Tensor& documents = {}) const;

  AttendOptions options(const Placed& placed) const;
  at::Tensor full(const Placed& placed, Path path = Path::Auto) const;
  /// Through a cache, the given counts of tokens at a time (the last one repeats).
  at::Tensor cached(const Placed& placed, const std::vector<std::int64_t>& chunks) const;
  /// With a window, one that can be taken back by two tokens.
  KvCache cache(std::int64_t rows, std::int64_t capacity, std::int64_t window = 0) const;

  /// "rope, ..., heads 4:2, float32, window 4, ..." for messages.
  std::string name() const;

 private:
  const EncodingCase* row_;
  Setting setting_;
  std::shared_ptr<const Encoding> encoding_, of_layer_;
  NamedTensors parameters_;
  at::Tensor project_q_, project_k_, project_v_;  // (C, H * D), only where the encoding adds to the embedding
};

/// A few subjects of every row of the case table: one ratio of heads, no window, both dtypes, changing layers. Ends at
/// the first failure.
void each_row(const std::function<void(const Subject&)>& check);

/// The part of a placed call: tokens [first, first + count).
Placed slice(const Placed& placed, std::int64_t first, std::int64_t count);

/// The largest Euclidean error of a row, relative to the row or, where its values cancel, to the usual (root mean
/// square) row of the tensor.
double row_error(const at::Tensor& found, const at::Tensor& wanted);
/// Largest error relative to the largest value of `wanted`.
double tensor_error(const at::Tensor& found, const at::Tensor& wanted);
bool same_bits(const at::Tensor& a, const at::Tensor& b);

/// How far two ways to compute the same row may differ, relative to the row.
///
/// float64: 1e-10 (positions to 1e6 leave float64 phases 1e-10 of a radian). float32: each way keeps to the kernel's
/// bound of 2e-6 a row (kernel.md), so two ways differ by at most twice that.
double row_bound(at::ScalarType dtype);

}  // namespace torsor::attention_test
