// Attention over dense float64 tensors, moved by an encoding's answers or computed from its definition.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "torsor/encoding/encoding.h"
#include "torsor/encoding/registry.h"

namespace torsor::rotary_test {

inline std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> channels(Layout layout, std::int64_t offset,
                                                                                std::int64_t width,
                                                                                std::int64_t blocks) {
  std::vector<std::int64_t> first, second;
  const std::int64_t each = width / blocks;
  for (std::int64_t begin = offset; begin < offset + width; begin += each)
    for (std::int64_t i = 0; i < each / 2; ++i) {
      first.push_back(layout == Layout::Half ? begin + i : begin + 2 * i);
      second.push_back(layout == Layout::Half ? begin + each / 2 + i : begin + 2 * i + 1);
    }
  return {first, second};
}

/// x (B, H, T, D) turned by planes given for G heads.
inline at::Tensor turned(const at::Tensor& x, const Planes& planes) {
  const auto [first, second] = channels(planes.layout, planes.offset, planes.width, planes.blocks);
  const at::Tensor a_index = at::tensor(first, at::kLong), b_index = at::tensor(second, at::kLong);
  const at::Tensor a = x.index_select(3, a_index), b = x.index_select(3, b_index);
  const std::int64_t times = planes.cosine.size(1) == 1 ? 1 : x.size(1) / planes.cosine.size(1);
  const at::Tensor cosine = planes.cosine.to(at::kDouble).repeat_interleave(times, 1);
  const at::Tensor sine = planes.sine.to(at::kDouble).repeat_interleave(times, 1);
  return x.index_copy(3, a_index, a * cosine - b * sine).index_copy(3, b_index, a * sine + b * cosine);
}

/// A call. Undefined tensors were not given.
struct Call {
  std::shared_ptr<const Encoding> encoding;
  NamedTensors parameters;
  at::Tensor q, k, v;
  Side query, key;
  bool causal = true;

  Question question() const {
    Question question;
    question.parameters = &parameters;
    question.q = q;
    question.k = k;
    question.v = v;
    question.query = query;
    question.key = key;
    question.causal = causal;
    return question;
  }

  at::Tensor moved(Role role) const {
    at::Tensor x = role == Role::Query ? q : k;
    for (const Move& move : encoding->moves(question(), role)) x = turned(x, std::get<Planes>(move));
    return x;
  }

  /// (B, H, Tq, Tk): the moved product times the query factors.
  at::Tensor product() const {
    const at::Tensor moved_q = moved(Role::Query);
    const at::Tensor moved_k = moved(Role::Key).repeat_interleave(q.size(1) / k.size(1), 1);
    at::Tensor sum = at::matmul(moved_q, moved_k.transpose(2, 3));
    for (const Decay& decay : encoding->decays()) {
      const auto [first, second] = channels(decay.layout, decay.offset, decay.width, decay.blocks);
      const at::Tensor n =
          (query.positions.select(2, 0).unsqueeze(2) - key.positions.select(2, 0).unsqueeze(1)).unsqueeze(1);
      for (std::size_t plane = 0; plane < first.size(); ++plane) {
        const at::Tensor index = at::tensor({first[plane], second[plane]}, at::kLong);
        const at::Tensor one =
            at::matmul(moved_q.index_select(3, index), moved_k.index_select(3, index).transpose(2, 3));
        sum = sum + one * ((n * decay.rate[static_cast<std::int64_t>(plane)]).exp() - 1);
      }
    }
    for (const LogitScale& scale : encoding->logit_scales(question()))
      sum = sum * scale.query.unsqueeze(1).unsqueeze(3);
    return sum;
  }

  /// The same from define_product and define_query_factor.
  at::Tensor defined_product() const {
    PlainParameters plain;
    for (const auto& [name, tensor] : parameters) {
      const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous().flatten();
      plain[name].assign(flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
    }
    const at::Tensor q64 = q.detach().contiguous(), k64 = k.detach().contiguous();
    const at::Tensor pq = query.positions.contiguous(), pk = key.positions.contiguous();
    at::Tensor all = at::zeros({q.size(0), q.size(1), q.size(2), k.size(2)}, at::kDouble);
    auto out = all.accessor<double, 4>();
    for (std::int64_t b = 0; b < q.size(0); ++b)
      for (std::int64_t i = 0; i < q.size(2); ++i) {
        const double length = document_length(b, i);
        for (std::int64_t h = 0; h < q.size(1); ++h)
          for (std::int64_t j = 0; j < k.size(2); ++j) {
            PlainPair pair;
            pair.q = q64[b][h][i].const_data_ptr<double>();
            pair.k = k64[b][h / encoding->group()][j].const_data_ptr<double>();
            pair.pq = pq[b][i].const_data_ptr<double>();
            pair.pk = pk[b][j].const_data_ptr<double>();
            pair.head = h;
            pair.length = length;
            out[b][h][i][j] = encoding->define_product(pair, plain) * encoding->define_query_factor(pair.pq, h, 0);
          }
      }
    return all;
  }

  bool exists(std::int64_t b, std::int64_t j) const {
    return !key.lengths.defined() || j < key.lengths[b].item<std::int64_t>();
  }

  double document_length(std::int64_t b, std::int64_t i) const {
    double length = -1;
    for (std::int64_t j = 0; j < k.size(2); ++j) {
      if (!exists(b, j)) continue;
      if (key.documents.defined() &&
          key.documents[b][j].item<std::int64_t>() != query.documents[b][i].item<std::int64_t>())
        continue;
      length = std::max(length, key.positions[b][j].max().item<double>() + 1);
    }
    return length;
  }

  /// (B, 1, Tq, Tk)
  at::Tensor visible() const {
    at::Tensor all = at::zeros({q.size(0), 1, q.size(2), k.size(2)}, at::kBool);
    auto out = all.accessor<bool, 4>();
    for (std::int64_t b = 0; b < q.size(0); ++b) {
      const std::int64_t keys = key.lengths.defined() ? key.lengths[b].item<std::int64_t>() : k.size(2);
      for (std::int64_t i = 0; i < q.size(2); ++i)
        for (std::int64_t j = 0; j < keys; ++j) {
          bool seen = !causal || j <= i + keys - q.size(2);
          if (key.documents.defined()) {
            const std::int64_t mine = query.documents[b][i].item<std::int64_t>();
            seen = seen && mine != -1 && mine == key.documents[b][j].item<std::int64_t>();
          }
          out[b][0][i][j] = seen;
        }
    }
    return all;
  }

  /// Softmax attention over a product; rows that see nothing give 0.
  at::Tensor attended(const at::Tensor& product, std::optional<double> given_scale) const {
    const double scale = given_scale.value_or(encoding->softmax_factor() / std::sqrt(static_cast<double>(q.size(3))));
    const at::Tensor seen = visible();
    const at::Tensor logits = (product * scale).masked_fill(seen.logical_not(), -1e300);
    const at::Tensor weights = logits.softmax(3).masked_fill(seen.logical_not(), 0);
    return at::matmul(weights, v.repeat_interleave(q.size(1) / v.size(1), 1));
  }
};

/// A random call: 2 rows with positions of their own (halves, negative and far ones too), 4 query heads on 2 key heads.
inline Call random_call(const std::string& expression, std::int64_t head_dim, std::int64_t axes = 1,
                        std::uint64_t seed = 1, double far = 1000, Precision precision = Precision::Exact) {
  at::manual_seed(seed);
  Call call;
  call.encoding = make_encoding(
      expression, {.heads = 4, .kv_heads = 2, .head_dim = head_dim, .train_length = 64, .precision = precision});
  const auto options = at::TensorOptions().dtype(at::kDouble);
  call.q = at::randn({2, 4, 3, head_dim}, options);
  call.k = at::randn({2, 2, 5, head_dim}, options);
  call.v = at::randn({2, 2, 5, head_dim}, options);
  call.key.positions = (at::rand({2, 5, axes}, options) * 2 * far).floor() / 2 - 3;
  call.query.positions = call.key.positions.narrow(1, 2, 3).clone();
  for (const ParameterInfo& info : call.encoding->parameters(0))
    call.parameters[info.name] =
        (at::tensor(info.initial.values, at::kDouble).view(info.shape) + 0.1 * at::randn(info.shape, options))
            .requires_grad_(true);
  return call;
}

/// The largest difference, as a part of the largest value of `right`.
inline double error_of(const at::Tensor& left, const at::Tensor& right) {
  if (left.sizes() != right.sizes()) return 1e300;
  const double size = right.abs().max().item<double>();
  return (left.detach() - right.detach()).abs().max().item<double>() / std::max(size, 1e-300);
}

}  // namespace torsor::rotary_test
