#include <algorithm>
#include <limits>
#include <utility>

#include "torsor/encoding/syntax/sipe.h"
#include "torsor/lab/law_measures.h"

namespace torsor::law {

namespace {

/// A part of each output: tokens [first, first + n) of row `row`, or of all rows when it is negative.
NamedTensors part(const NamedTensors& outputs, std::int64_t row, std::int64_t first, std::int64_t n) {
  NamedTensors parts;
  for (const auto& [name, tensor] : outputs) {
    const std::int64_t axis = name == "embedding" ? 1 : 2;
    const at::Tensor rows = row < 0 ? tensor : tensor.narrow(0, row, 1);
    parts[name] = rows.narrow(axis, first, n);
  }
  return parts;
}

/// Inputs of tokens: for each, how(tensor of one, tensor of the other).
template <class How>
NamedTensors of_both(const NamedTensors& one, const NamedTensors& other, How how) {
  NamedTensors all;
  for (const auto& [name, tensor] : one) all[name] = how(tensor, other.at(name));
  return all;
}

/// A tensor that is there.
template <class Change>
void change(at::Tensor& tensor, Change how) {
  if (tensor.defined()) tensor = how(tensor);
}

/// What a layer answers; where a state goes from layer to layer, what it and a `second` one after it answer, the first
/// with the states of the positions. States themselves turn with the positions, so they are left out.
NamedTensors from_positions(const Tester& t, ConformanceCase c, ConformanceCase second) {
  if (!t.layer->traits().carries) return t.full(c);
  c.state = at::Tensor();
  NamedTensors answers = t.full(c);
  second.positions_k = second.positions_q = c.positions_k;
  second.state = answers.count("state") ? answers.at("state") : at::Tensor();
  for (const char* name : {"state", "carried"}) answers.erase(name);
  const NamedTensors after = t.full(second);
  for (const char* name : {"out", "lse"}) answers[std::string("second ") + name] = after.at(name);
  return answers;
}

}  // namespace

double relative_error(Tester& t) {
  double worst = 0;
  for (const double stretch : {1.0, 0.5}) {  // whole and half positions
    ConformanceCase c = t.attention_case(1, kTokens);
    const ConformanceCase second = t.layer->traits().carries ? t.attention_case(1, kTokens) : c;
    const at::Tensor positions = c.positions_k * stretch;
    c.positions_k = c.positions_q = positions;
    const NamedTensors here = from_positions(t, c, second);
    for (const double shift : {1.0, 0.5, -7.0, 1000.5, kFar, -kFar}) {
      c.positions_k = c.positions_q = positions + shift;
      worst = std::max(worst, distance(here, from_positions(t, c, second)));
    }
  }
  return worst;
}

double cache_error(Tester& t, std::int64_t tokens) {
  const ConformanceCase c = t.attention_case(2, kTokens);
  return distance(t.cached(c, tokens), t.full(c));
}

/// One row whose first tokens are padding that holds large numbers.
double padded_error(Tester& t) {
  double worst = 0;
  for (const std::int64_t pad : {1, 5}) {
    const ConformanceCase plain = t.attention_case(1, kTokens - pad);
    ConformanceCase padded = t.attention_case(1, kTokens);
    const auto filled = [&](const at::Tensor& tensor, const at::Tensor& with, std::int64_t axis) {
      return at::cat({tensor.narrow(axis, 0, pad) * 50, with}, axis);
    };
    padded.q = filled(padded.q, plain.q, 2);
    padded.k = filled(padded.k, plain.k, 2);
    padded.v = filled(padded.v, plain.v, 2);
    padded.x = filled(padded.x, plain.x, 1);
    padded.named = of_both(padded.named, plain.named, [&](const at::Tensor& before, const at::Tensor& rest) {
      return at::cat({before.narrow(1, 0, pad), rest}, 1);
    });
    change(padded.state, [&](const at::Tensor& state) { return filled(state, plain.state, 2); });
    change(padded.mlp_out, [&](const at::Tensor& answer) { return filled(answer, plain.mlp_out, 1); });
    padded.positions_k = padded.positions_q =
        at::cat({at::zeros_like(padded.positions_k.narrow(1, 0, pad)), plain.positions_k}, 1);
    padded.documents_k = padded.documents_q =
        at::cat({at::full({1, pad}, -1, at::kLong), at::zeros({1, kTokens - pad}, at::kLong)}, 1);
    worst = std::max(worst, distance(t.full(plain), part(t.full(padded), -1, pad, kTokens - pad)));
  }
  return worst;
}

double packed_error(Tester& t) {
  const std::int64_t first = 6, second = kTokens - first;
  const ConformanceCase a = t.attention_case(1, first), b = t.attention_case(1, second);
  ConformanceCase packed = a;
  const auto joined = [](const at::Tensor& one, const at::Tensor& two, std::int64_t axis) {
    return at::cat({one, two}, axis);
  };
  packed.q = joined(a.q, b.q, 2);
  packed.k = joined(a.k, b.k, 2);
  packed.v = joined(a.v, b.v, 2);
  packed.x = joined(a.x, b.x, 1);
  packed.named =
      of_both(a.named, b.named, [&](const at::Tensor& one, const at::Tensor& two) { return joined(one, two, 1); });
  change(packed.state, [&](const at::Tensor& state) { return joined(state, b.state, 2); });
  change(packed.mlp_out, [&](const at::Tensor& answer) { return joined(answer, b.mlp_out, 1); });
  packed.positions_k = packed.positions_q = joined(a.positions_k, b.positions_k, 1);
  packed.documents_k = packed.documents_q =
      joined(at::zeros({1, first}, at::kLong), at::ones({1, second}, at::kLong), 1);
  const NamedTensors both = t.full(packed);
  return std::max(distance(t.full(a), part(both, -1, 0, first)), distance(t.full(b), part(both, -1, first, second)));
}

double causality_error(Tester& t) {
  const ConformanceCase c = t.attention_case(1, kTokens);
  const std::int64_t kept = 5;
  const auto changed = [&](const at::Tensor& tensor, std::int64_t axis) {
    const at::Tensor fresh = t.normal(tensor.sizes().vec());
    return at::cat({tensor.narrow(axis, 0, kept), fresh.narrow(axis, kept, kTokens - kept)}, axis);
  };
  ConformanceCase other = c;
  other.q = changed(c.q, 2);
  other.k = changed(c.k, 2);
  other.v = changed(c.v, 2);
  other.x = changed(c.x, 1);
  other.named = of_both(c.named, t.drawn_inputs(1, kTokens), [&](const at::Tensor& before, const at::Tensor& fresh) {
    return at::cat({before.narrow(1, 0, kept), fresh.narrow(1, kept, kTokens - kept)}, 1);
  });
  change(other.state, [&](const at::Tensor& state) { return changed(state, 2); });
  change(other.mlp_out, [&](const at::Tensor& answer) { return changed(answer, 1); });
  return distance(part(t.full(c), -1, 0, kept), part(t.full(other), -1, 0, kept));
}

/// Rows and tokens that see nothing: zero out, lse of minus infinity, no gradient.
double nothing_error(Tester& t) {
  ConformanceCase c = t.attention_case(2, kTokens);
  const std::int64_t padding = 4;
  at::Tensor documents = at::zeros({2, kTokens}, at::kLong);
  documents.narrow(1, 0, padding).fill_(-1);
  documents[1].fill_(-1);
  c.documents_k = c.documents_q = documents;
  c.grad_out = t.normal(c.q.sizes().vec());
  const NamedTensors outputs = t.full(c);
  double worst = 0;
  const auto empty = [&](const at::Tensor& tensor) {
    worst = std::max(
        {worst, tensor[1].abs().max().item<double>(), tensor[0].narrow(1, 0, padding).abs().max().item<double>()});
  };
  for (const char* name : {"out", "carried", "grad.q", "grad.k", "grad.v", "grad.state"})
    if (outputs.count(name)) empty(outputs.at(name));
  const at::Tensor lse = outputs.at("lse");
  const bool minus_infinity =
      at::isneginf(lse[1]).all().item<bool>() && at::isneginf(lse[0].narrow(1, 0, padding)).all().item<bool>();
  return minus_infinity ? worst : std::numeric_limits<double>::infinity();
}

namespace {

/// What is added to the logits of a case of one row, (1, H, T, T), -inf where hidden: a scale of 0 leaves nothing else,
/// and values that end in unit vectors make the weights the end of the output.
at::Tensor added_to_logits(const Tester& t, ConformanceCase c) {
  const std::int64_t width = c.v.size(3);
  c.scale = 0;
  c.v = at::cat({c.v, at::eye(kTokens, at::kDouble).expand({1, c.v.size(1), kTokens, kTokens})}, 3);
  const NamedTensors outputs = t.full(c);
  return outputs.at("out").narrow(3, width, kTokens).log() + outputs.at("lse").unsqueeze(3);
}

/// Biases are read from weights, which are rounded: errors count in units of the largest bias or of 1.
double unit_of(const at::Tensor& bias) {
  return std::max(bias.masked_fill(bias.isinf(), 0).abs().max().item<double>(), 1.0);
}

}  // namespace

double penalty_error(Tester& t) {
  const at::Tensor bias = added_to_logits(t, t.attention_case(1, kTokens));
  const double above = bias.max().item<double>(), own = bias.diagonal(0, 2, 3).abs().max().item<double>();
  return std::max({above, own, 0.0}) / unit_of(bias);
}

/// How much a farther token gets beyond the nearer one beside it.
namespace {

double falling_error_of(const Tester& t, const ConformanceCase& c) {
  const at::Tensor bias = added_to_logits(t, c);
  const at::Tensor seen = at::ones({kTokens, kTokens}, at::kBool).tril().narrow(0, 1, kTokens - 1);
  const at::Tensor rise = bias.narrow(3, 0, kTokens - 1) - bias.narrow(3, 1, kTokens - 1);  // keys j over j + 1
  const at::Tensor both = rise.narrow(2, 1, kTokens - 1).masked_fill(seen.narrow(1, 1, kTokens - 1).logical_not(), 0);
  return std::max(both.max().item<double>(), 0.0) / unit_of(bias);
}

}  // namespace

double falling_error(Tester& t) { return falling_error_of(t, t.attention_case(1, kTokens)); }

double falling_alike_error(Tester& t) {
  ConformanceCase c = t.attention_case(1, kTokens);
  for (auto& [name, tensor] : c.named) tensor = tensor.narrow(1, kTokens - 1, 1).expand_as(tensor).contiguous();
  if (const auto sentences = c.named.find(kSyntaxSentences); sentences != c.named.end()) sentences->second.zero_();
  return falling_error_of(t, c);
}

namespace {

/// What the encoding without inputs answers, against what `t` does with `parameters`.
double error_against_inner(const Tester& t, ConformanceCase c, const NamedTensors& parameters) {
  c.parameters = parameters;
  ConformanceCase plain = c;
  plain.named.clear();
  plain.parameters.clear();
  const std::shared_ptr<const Encoding> inner = t.whole->without_inputs();
  for (const ParameterInfo& info : layer_encoding(inner, t.number)->parameters(t.number))
    plain.parameters[info.name] = parameters.at(info.name);
  Tester other(inner, t.number, 0, QkNorm::None);
  other.norm = t.norm, other.query_gains = t.query_gains, other.key_gains = t.key_gains;
  NamedTensors found = t.full(c), wanted = other.full(plain);
  for (const char* name : {"carried", "embedding"}) found.erase(name), wanted.erase(name);
  return distance(found, wanted);
}

}  // namespace

double no_inputs_error(Tester& t) {
  ConformanceCase c = t.attention_case(2, kTokens);
  for (auto& [name, tensor] : c.named)
    tensor = at::full_like(tensor, name == kSyntaxTags || name == kSyntaxLabels || name == kSyntaxVectors ? 0 : -1);
  return error_against_inner(t, c, t.parameters);
}

double first_values_error(Tester& t) {
  NamedTensors first;
  for (const ParameterInfo& info : t.layer->parameters(t.number)) first[info.name] = t.first_value(info);
  return error_against_inner(t, t.attention_case(2, kTokens), first);
}

// A path is known by its ends alone, so its edges are not read off but asked for twice: with all other tokens replaced.
double row_composition_error(Tester& t) {
  const ConformanceCase c = t.attention_case(1, kTokens);
  const at::Tensor bias = added_to_logits(t, c);
  const std::int64_t i = kTokens - 1;
  const auto between = [&](const at::Tensor& b, std::int64_t j, std::int64_t m) {
    const at::Tensor row = b.select(2, i);
    return row.select(2, j) - row.select(2, m);
  };
  double worst = 0;
  for (const auto& [j, m] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 1}, {2, 7}, {0, i - 1}, {4, i}}) {
    const at::Tensor tokens = at::arange(kTokens, at::kLong);
    const at::Tensor stays = tokens.gt(j).logical_and(tokens.le(m)).logical_or(tokens.eq(i));
    const auto replaced = [&](const at::Tensor& tensor) {  // tokens on the axis before the last
      return at::where(stays.unsqueeze(1), tensor, t.normal(tensor.sizes().vec()));
    };
    ConformanceCase other = c;
    other.q = replaced(c.q);
    other.k = replaced(c.k);
    other.v = replaced(c.v);
    other.x = replaced(c.x);
    const at::Tensor error = between(bias, j, m) - between(added_to_logits(t, other), j, m);
    worst = std::max(worst, error.abs().max().item<double>() / unit_of(bias));
  }
  return worst;
}

double chaining_error(Tester& t) {
  const at::Tensor bias = added_to_logits(t, t.attention_case(1, kTokens));
  const at::Tensor b = bias.masked_fill(bias.isinf(), 0);
  const at::Tensor seen = at::ones({kTokens, kTokens}, at::kBool).tril();
  const at::Tensor error = b.unsqueeze(3) - b.unsqueeze(4) - b.unsqueeze(2);  // (1, H, i, m, j)
  const at::Tensor ordered = seen.unsqueeze(2).logical_and(seen.unsqueeze(0));
  return error.masked_fill(ordered.logical_not(), 0).abs().max().item<double>() / unit_of(bias);
}

double batch_error(Tester& t) {
  const ConformanceCase c = t.attention_case(3, kTokens);
  const at::Tensor order = at::tensor(std::vector<std::int64_t>{2, 0, 1}, at::kLong);
  ConformanceCase other = c;
  for (at::Tensor* tensor :
       {&other.q, &other.k, &other.v, &other.x, &other.state, &other.mlp_out, &other.positions_q, &other.positions_k})
    change(*tensor, [&](const at::Tensor& rows) { return rows.index_select(0, order); });
  for (auto& [name, tensor] : other.named) tensor = tensor.index_select(0, order);
  NamedTensors expected = t.full(c);
  for (auto& [name, tensor] : expected) tensor = tensor.index_select(0, order);
  return distance(expected, t.full(other));
}

}  // namespace torsor::law
