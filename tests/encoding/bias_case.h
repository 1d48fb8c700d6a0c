// A random call of a bias encoding, its answers evaluated as a dense (B, H, Tq, Tk) tensor, and the same from the
// definition in plain loops.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "torsor/encoding/bias/bucket.h"
#include "torsor/encoding/encoding.h"
#include "torsor/encoding/registry.h"

namespace torsor::bias_test {

/// A bias form in float64, from the documentation of forms.h. `logits` and `visible` (B, H, Tq, Tk) are read by
/// ContentForm only.
inline at::Tensor dense_bias(const BiasForm& bias, const at::Tensor& pq, const at::Tensor& pk,
                             const at::Tensor& logits = {}, const at::Tensor& visible = {}) {
  const at::Tensor n = (pq.unsqueeze(2) - pk.unsqueeze(1)).unsqueeze(1);  // (B, 1, Tq, Tk)
  const auto per_head = [](const at::Tensor& one) { return one.to(at::kDouble).view({-1, 1, 1}); };
  if (const auto* form = std::get_if<LinearForm>(&bias.form)) return -per_head(form->slope) * n.abs();
  if (const auto* form = std::get_if<TableForm>(&bias.form))
    return form->table.to(at::kDouble).index({bucket_of(form->rule, n.squeeze(1))}).permute({0, 3, 1, 2});
  if (const auto* form = std::get_if<LogForm>(&bias.form))
    return -per_head(form->r1) * at::log1p(per_head(form->r2) * n.abs());
  if (const auto* form = std::get_if<PowerForm>(&bias.form))
    return -per_head(form->r1) * at::pow(n.abs(), per_head(form->r2));
  if (const auto* form = std::get_if<CosineForm>(&bias.form))
    return per_head(form->weight) * at::cos(n.unsqueeze(4) * form->frequency).sum(4);
  if (const auto* form = std::get_if<PiecewiseForm>(&bias.form)) {
    const at::Tensor c = form->c.to(at::kDouble), mu = form->mu.to(at::kDouble);
    const at::Tensor longest = at::maximum(pq, (mu * form->length).abs());
    const at::Tensor below = at::log1p((c * longest).abs()) + form->epsilon;
    const at::Tensor z = at::log1p((c * n.squeeze(1)).abs()) / below.unsqueeze(2);
    const at::Tensor hidden = at::relu(z.unsqueeze(3) * form->w1.to(at::kDouble) + form->b1.to(at::kDouble));
    return (at::matmul(hidden, form->w2.to(at::kDouble).t()) + form->b2.to(at::kDouble)).permute({0, 3, 1, 2});
  }
  if (const auto* form = std::get_if<ProductForm>(&bias.form))
    return at::matmul(form->query.to(at::kDouble), form->key.to(at::kDouble).transpose(2, 3));
  const auto& form = std::get<ContentForm>(bias.form);
  const at::Tensor gates = at::sigmoid(logits) * visible;
  const at::Tensor count = gates.flip({3}).cumsum(3).flip({3}).clamp_max(static_cast<double>(form.table.size(0) - 1));
  const at::Tensor values =
      at::matmul(form.query.to(at::kDouble), form.table.to(at::kDouble).t());  // (B, H, Tq, length)
  const at::Tensor below = count.floor().to(at::kLong);
  const at::Tensor above = count.ceil().to(at::kLong);
  const at::Tensor part = count - count.floor();
  return (1 - part) * values.gather(3, below) + part * values.gather(3, above);
}

/// One call: 2 rows with positions of their own, 4 query heads on 2 key heads.
struct BiasCase {
  std::shared_ptr<const Encoding> encoding;
  NamedTensors parameters;
  at::Tensor q, k, pq, pk;
  Question question;
  std::int64_t rows = 2, heads = 4, key_heads = 2, queries = 3, keys = 5, head_dim = 6, width = 10;

  explicit BiasCase(const std::string& expression, at::ScalarType type = at::kDouble, int seed = 1) {
    at::manual_seed(static_cast<std::uint64_t>(seed));
    encoding = make_encoding(expression, {.heads = heads, .kv_heads = key_heads, .head_dim = head_dim, .width = width});
    const auto options = at::TensorOptions().dtype(at::kDouble);
    for (const ParameterInfo& info : encoding->parameters(0)) {
      at::Tensor value = at::randn(info.shape, options);
      if (info.initial.kind == Initial::Kind::Uniform && info.initial.a == 0)
        value = at::rand(info.shape, options) * info.initial.b;
      if (info.initial.kind == Initial::Kind::Constant && info.initial.a != 0)
        value = at::full(info.shape, 0.7, options);
      parameters[info.name] = value.to(type).requires_grad_(true);
    }
    q = at::randn({rows, heads, queries, head_dim}, options).to(type);
    k = at::randn({rows, key_heads, keys, head_dim}, options).to(type);
    // Rows differ; distances are whole, halves and far, of both signs.
    pk = at::tensor({0.0, 3.0, 4.0, 90.0, 91.5, 1000.0, 1001.0, 1002.5, 1400.0, 1407.25}, options).view({rows, keys});
    pq = at::tensor({4.0, 90.0, 91.5, 1002.5, 1400.0, 1407.25}, options).view({rows, queries});
    refresh();
  }

  BiasCase(const BiasCase&) = delete;

  void refresh() {
    question.parameters = &parameters;
    question.q = q;
    question.k = k;
    question.query.positions = pq.unsqueeze(2);
    question.key.positions = pk.unsqueeze(2);
    question.scale = 0.4;
  }

  PlainParameters plain() const {
    PlainParameters all;
    for (const auto& [name, tensor] : parameters) {
      const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous().flatten();
      all[name].assign(flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
    }
    return all;
  }

  /// The sum of the bias forms, in float64.
  at::Tensor answered() const {
    at::Tensor sum = at::zeros({rows, heads, queries, keys}, at::kDouble);
    for (const BiasForm& bias : encoding->biases(question)) sum = sum + dense_bias(bias, pq, pk);
    return sum;
  }

  /// define_bias for every pair.
  at::Tensor defined(const PlainParameters& values) const {
    at::Tensor all = at::zeros({rows, heads, queries, keys}, at::kDouble);
    auto out = all.accessor<double, 4>();
    each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, const PlainPair& pair) {
      out[b][h][i][j] = encoding->define_bias(pair, values);
    });
    return all;
  }

  /// define_product for every pair.
  at::Tensor defined_product(const PlainParameters& values) const {
    at::Tensor all = at::zeros({rows, heads, queries, keys}, at::kDouble);
    auto out = all.accessor<double, 4>();
    each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, const PlainPair& pair) {
      out[b][h][i][j] = encoding->define_product(pair, values);
    });
    return all;
  }

 private:
  template <class Visit>
  void each_pair(Visit visit) const {
    const at::Tensor q64 = q.detach().to(at::kDouble).contiguous(), k64 = k.detach().to(at::kDouble).contiguous();
    const at::Tensor pq64 = pq.contiguous(), pk64 = pk.contiguous();
    for (std::int64_t b = 0; b < rows; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < queries; ++i)
          for (std::int64_t j = 0; j < keys; ++j) {
            PlainPair pair;
            pair.q = q64.const_data_ptr<double>() + ((b * heads + h) * queries + i) * head_dim;
            pair.k = k64.const_data_ptr<double>() + ((b * key_heads + h / (heads / key_heads)) * keys + j) * head_dim;
            pair.pq = pq64.const_data_ptr<double>() + b * queries + i;
            pair.pk = pk64.const_data_ptr<double>() + b * keys + j;
            pair.head = h;
            pair.scale = question.scale;
            visit(b, h, i, j, pair);
          }
  }
};

/// The largest difference, as a part of the largest value of `right`.
inline double relative_error(const at::Tensor& left, const at::Tensor& right) {
  const double size = right.abs().max().item<double>();
  return (left.detach() - right).abs().max().item<double>() / std::max(size, 1e-300);
}

}  // namespace torsor::bias_test
