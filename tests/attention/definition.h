// Attention from the encodings' definitions, in plain double loops over plain arrays. It shares nothing with the
// library's paths but the define_* functions: no table, bucket, cosine, mask or softmax.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "torsor/attention/attend.h"
#include "torsor/encoding/encoding.h"

namespace torsor::attention_test {

struct PlainCall {
  const Encoding* encoding = nullptr;  ///< of the layer
  std::int64_t layer = 0;
  std::int64_t rows = 0, heads = 0, key_heads = 0, queries = 0, keys = 0, head_dim = 0, value_dim = 0, axes = 1;
  std::int64_t width = 0;                                    ///< of x
  std::vector<double> q, k, v;                               ///< (B, Hq, Tq, D), (B, Hk, Tk, D), (B, Hk, Tk, Dv)
  std::vector<double> x;                                     ///< (B, Tk, C), empty = not given
  std::vector<double> query_positions, key_positions;        ///< (B, T, axes)
  std::vector<std::int64_t> query_documents, key_documents;  ///< (B, T); empty = none
  std::vector<std::int64_t> lengths, offsets;                ///< (B); empty = none
  bool causal = true;
  std::optional<std::int64_t> window;
  std::vector<double> scale;  ///< (Hq)
  PlainParameters parameters;
  std::vector<PlainInputs> inputs;  ///< (B); empty = the encoding declares none
  /// Added to the logit of (row, head, query, key) where it is set: bias forms that belong to no encoding.
  std::function<double(std::int64_t, std::int64_t, std::int64_t, std::int64_t)> extra;
};

/// Reads the tensors of a call; positions and documents of both sides and the offsets must be given in `options`.
PlainCall plain_call(const Encoding& of_layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttendOptions& options);

bool plain_visible(const PlainCall& call, std::int64_t b, std::int64_t i, std::int64_t j);

struct PlainRow {
  std::vector<double> out, weights;  ///< (Dv); (Tk), 0 where a key is not seen
  double lse = 0;
};
/// One query. Zeros and -inf where it sees nothing.
PlainRow plain_row(const PlainCall& call, std::int64_t b, std::int64_t h, std::int64_t i);

struct PlainResult {
  at::Tensor out, lse;  ///< (B, Hq, Tq, Dv), (B, Hq, Tq) float64
};
PlainResult plain_attention_of(const PlainCall& call);

/// Part of sum(grad_out * out): rows [b0, b1), heads [h0, h1), queries [i0, i1).
struct Extent {
  std::int64_t b0 = 0, b1 = 0, h0 = 0, h1 = 0, i0 = 0, i1 = 0;
};
Extent everything(const PlainCall& call);
double plain_loss(const PlainCall& call, const std::vector<double>& grad_out, const Extent& extent);

/// d/d(value) of `loss` by central differences of fourth order; `value` is restored.
template <class Loss>
double finite_difference(double& value, double step, const Loss& loss) {
  const double at = value;
  const auto sample = [&](double shift) {
    value = at + shift;
    return loss();
  };
  const double near = sample(step) - sample(-step), far = sample(2 * step) - sample(-2 * step);
  value = at;
  return (8 * near - far) / (12 * step);
}

std::vector<double> plain_values(const at::Tensor& tensor);

}  // namespace torsor::attention_test
