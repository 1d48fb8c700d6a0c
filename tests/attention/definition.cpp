#include "tests/attention/definition.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace torsor::attention_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<std::int64_t> plain_integers(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

std::int64_t length_of(const PlainCall& call, std::int64_t b) {
  return call.lengths.empty() ? call.keys : call.lengths[static_cast<std::size_t>(b)];
}

/// The token of row b that query i stands at; may lie outside of what the row has.
std::int64_t own_token(const PlainCall& call, std::int64_t b, std::int64_t i) {
  return i + (call.offsets.empty() ? length_of(call, b) - call.queries : call.offsets[static_cast<std::size_t>(b)]);
}

/// What definitions that run over tokens are given of token j.
PlainTokens::Token token_of(const PlainCall& call, std::int64_t b, std::int64_t h, std::int64_t j) {
  PlainTokens::Token token;
  const std::int64_t key = (b * call.key_heads + h / (call.heads / call.key_heads)) * call.keys + j;
  token.k = call.k.data() + key * call.head_dim;
  token.v = call.v.data() + key * call.value_dim;
  if (!call.x.empty()) token.x = call.x.data() + (b * call.keys + j) * call.width;
  const std::int64_t query = j - own_token(call, b, 0);
  if (query >= 0 && query < call.queries)
    token.q = call.q.data() + ((b * call.heads + h) * call.queries + query) * call.head_dim;
  token.position = call.key_positions[static_cast<std::size_t>((b * call.keys + j) * call.axes)];
  return token;
}

/// T of the query's document: its largest key position plus 1.
double document_length(const PlainCall& call, std::int64_t b, std::int64_t i) {
  double length = -kInfinity;
  for (std::int64_t j = 0; j < length_of(call, b); ++j) {
    if (!call.key_documents.empty()) {
      const std::int64_t document = call.key_documents[static_cast<std::size_t>(b * call.keys + j)];
      if (document == -1 || document != call.query_documents[static_cast<std::size_t>(b * call.queries + i)]) continue;
    }
    for (std::int64_t axis = 0; axis < call.axes; ++axis)
      length =
          std::max(length, call.key_positions[static_cast<std::size_t>((b * call.keys + j) * call.axes + axis)] + 1);
  }
  return length;
}

}  // namespace

std::vector<double> plain_values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

PlainCall plain_call(const Encoding& of_layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttendOptions& options) {
  PlainCall call;
  call.encoding = &of_layer;
  call.layer = options.layer;
  call.rows = q.size(0), call.heads = q.size(1), call.queries = q.size(2), call.head_dim = q.size(3);
  call.key_heads = k.size(1), call.keys = k.size(2), call.value_dim = v.size(3);
  call.axes = options.positions.size(2);
  call.q = plain_values(q), call.k = plain_values(k), call.v = plain_values(v);
  call.query_positions = plain_values(options.query_positions);
  call.key_positions = plain_values(options.positions);
  if (options.x.defined()) call.x = plain_values(options.x), call.width = options.x.size(2);
  call.query_documents = plain_integers(options.query_documents);
  call.key_documents = plain_integers(options.documents);
  call.lengths = plain_integers(options.key_lengths);
  call.offsets = plain_integers(options.query_offsets);
  call.causal = options.causal;
  call.window = options.window;
  for (const double factor : of_layer.softmax_factors())
    call.scale.push_back(options.scale.value_or(factor / std::sqrt(static_cast<double>(call.head_dim))));
  for (const auto& [name, tensor] : options.parameters) call.parameters[name] = plain_values(tensor);
  for (std::int64_t b = 0; b < call.rows && !of_layer.inputs().empty(); ++b) {
    PlainInputs& row = call.inputs.emplace_back();
    row.tokens = call.keys;
    for (std::int64_t j = 0; j < call.keys; ++j)
      row.exists.push_back(
          j < length_of(call, b) &&
          (call.key_documents.empty() || call.key_documents[static_cast<std::size_t>(b * call.keys + j)] != -1));
    for (const std::string& name : of_layer.inputs()) row.values[name] = plain_values(options.named.at(name)[b]);
  }
  return call;
}

bool plain_visible(const PlainCall& call, std::int64_t b, std::int64_t i, std::int64_t j) {
  if (j >= length_of(call, b)) return false;
  const std::int64_t own = own_token(call, b, i);
  if (call.causal && j > own) return false;
  if (call.window && std::abs(own - j) >= *call.window) return false;
  if (call.key_documents.empty()) return true;
  const std::int64_t document = call.query_documents[static_cast<std::size_t>(b * call.queries + i)];
  return document != -1 && document == call.key_documents[static_cast<std::size_t>(b * call.keys + j)];
}

PlainRow plain_row(const PlainCall& call, std::int64_t b, std::int64_t h, std::int64_t i) {
  const std::int64_t key_head = h / (call.heads / call.key_heads);
  PlainPair pair;
  pair.q = call.q.data() + ((b * call.heads + h) * call.queries + i) * call.head_dim;
  pair.pq = call.query_positions.data() + (b * call.queries + i) * call.axes;
  pair.head = h;
  pair.layer = call.layer;
  pair.length = document_length(call, b, i);
  pair.scale = call.scale[static_cast<std::size_t>(h)];
  pair.causal = call.causal;
  if (!call.inputs.empty()) pair.inputs = &call.inputs[static_cast<std::size_t>(b)];
  pair.query_token = own_token(call, b, i);
  const double factor = call.encoding->define_query_factor(pair.pq, h, call.layer);
  std::vector<std::int64_t> seen;
  std::vector<double> logits;
  for (std::int64_t j = 0; j < call.keys; ++j) {
    if (!plain_visible(call, b, i, j)) continue;
    pair.k = call.k.data() + ((b * call.key_heads + key_head) * call.keys + j) * call.head_dim;
    pair.pk = call.key_positions.data() + (b * call.keys + j) * call.axes;
    pair.key_token = j;
    seen.push_back(j);
    logits.push_back(pair.scale * factor * call.encoding->define_product(pair, call.parameters) +
                     call.encoding->define_bias(pair, call.parameters) + (call.extra ? call.extra(b, h, i, j) : 0));
  }
  PlainTokens tokens;
  tokens.value_dim = call.value_dim;
  tokens.head = h;
  tokens.layer = call.layer;
  tokens.scale = pair.scale * factor;
  if (!seen.empty()) {
    tokens.own = token_of(call, b, h, std::clamp<std::int64_t>(own_token(call, b, i), 0, call.keys - 1));
    tokens.own.position = pair.pq[0];
  }
  for (const std::int64_t j : seen) tokens.seen.push_back(token_of(call, b, h, j));
  call.encoding->define_path(logits, tokens, call.parameters);
  call.encoding->define_row(logits, pair.q, h, call.layer, call.parameters);

  PlainRow row;
  row.out.assign(static_cast<std::size_t>(call.value_dim), 0.0);
  row.weights.assign(static_cast<std::size_t>(call.keys), 0.0);
  row.lse = -kInfinity;
  if (seen.empty()) return row;
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  row.lse = largest + std::log(sum);
  for (std::size_t s = 0; s < seen.size(); ++s) {
    const double weight = std::exp(logits[s] - row.lse);
    row.weights[static_cast<std::size_t>(seen[s])] = weight;
    const double* value = call.v.data() + ((b * call.key_heads + key_head) * call.keys + seen[s]) * call.value_dim;
    for (std::size_t c = 0; c < row.out.size(); ++c) row.out[c] += weight * value[c];
    if (!call.encoding->traits().averages) continue;
    pair.key_token = seen[s];
    for (std::size_t c = 0; c < row.out.size(); ++c)
      row.out[c] += weight * call.encoding->define_value(pair, static_cast<std::int64_t>(c), call.parameters);
  }
  return row;
}

PlainResult plain_attention_of(const PlainCall& call) {
  PlainResult result;
  result.out = at::zeros({call.rows, call.heads, call.queries, call.value_dim}, at::kDouble);
  result.lse = at::zeros({call.rows, call.heads, call.queries}, at::kDouble);
  double* out = result.out.data_ptr<double>();
  double* lse = result.lse.data_ptr<double>();
  for (std::int64_t b = 0; b < call.rows; ++b)
    for (std::int64_t h = 0; h < call.heads; ++h)
      for (std::int64_t i = 0; i < call.queries; ++i) {
        const PlainRow row = plain_row(call, b, h, i);
        out = std::copy(row.out.begin(), row.out.end(), out);
        *lse++ = row.lse;
      }
  return result;
}

Extent everything(const PlainCall& call) { return {0, call.rows, 0, call.heads, 0, call.queries}; }

double plain_loss(const PlainCall& call, const std::vector<double>& grad_out, const Extent& extent) {
  double loss = 0;
  for (std::int64_t b = extent.b0; b < extent.b1; ++b)
    for (std::int64_t h = extent.h0; h < extent.h1; ++h)
      for (std::int64_t i = extent.i0; i < extent.i1; ++i) {
        const PlainRow row = plain_row(call, b, h, i);
        const std::size_t at = static_cast<std::size_t>(((b * call.heads + h) * call.queries + i) * call.value_dim);
        for (std::size_t c = 0; c < row.out.size(); ++c) loss += grad_out[at + c] * row.out[c];
      }
  return loss;
}

}  // namespace torsor::attention_test
