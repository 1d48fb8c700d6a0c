// What sipe makes of the syntax of two tokens: s and its products, the factor of a pair.
#include <cmath>
#include <utility>

#include "torsor/encoding/bias/answer.h"
#include "torsor/encoding/syntax/hops.h"
#include "torsor/encoding/syntax/sipe_encoding.h"

namespace torsor {
namespace {

using Coupling = SipeOptions::Coupling;
using Factor = SipeOptions::Factor;

constexpr double kExpBound = 2;

}  // namespace

at::Tensor Sipe::table(const at::Tensor& tau, const at::Tensor& nu) const {
  const at::Tensor none = at::zeros({1, tau.size(1)}, tau.options());
  // Row 6 tau + nu.
  return (at::cat({none, tau}).unsqueeze(1) + at::cat({none, nu}).unsqueeze(0)).flatten(0, 1);
}

at::Tensor Sipe::table(const Question& question) const {
  return table(trained(question, name_of("tau")), trained(question, name_of("nu")));
}

at::Tensor Sipe::by_feature(const Question& question, const at::Tensor& weight) const {
  return options_.prior == SipePrior::Fsyn ? weight.t() : at::matmul(table(question), weight.t());
}

at::Tensor Sipe::project(const Question& question, const at::Tensor& weight, const SyntaxTokens& tokens) const {
  if (options_.prior == SipePrior::Fsyn) return at::matmul(tokens.vectors, weight.t());
  return by_feature(question, weight)
      .index_select(0, tokens.tag.flatten())
      .view({tokens.tag.size(0), tokens.tag.size(1), weight.size(0)});
}

at::Tensor Sipe::features(const SyntaxTokens& tokens, at::ScalarType type) const {
  if (options_.prior == SipePrior::Fsyn) return tokens.vectors.to(type).unsqueeze(1);
  const at::Tensor tags = at::arange(kTagPairs, tokens.tag.options());
  return tokens.tag.unsqueeze(-1).eq(tags).to(type).unsqueeze(1);
}

SyntaxTokens Sipe::tokens_of(const Question& question, Role role) const {
  const at::ScalarType type = answer_type(question);
  if (role == Role::Key && reader_.is_kept(question.kept)) return reader_.kept(*question.kept, type);
  const Side& side = role == Role::Key ? question.key : question.query;
  return reader_.read(question.named, side.positions.size(0), side.tokens(),
                      role == Role::Key ? absent_tokens(side) : absent_queries(question), type,
                      answer_device(question));
}

at::Tensor Sipe::beta(const Question& question) const {
  const at::Tensor given = trained(question, name_of("beta"));
  return options_.factor == Factor::Bounded ? kBoundedBeta * given.tanh() : given;
}

/// factor(z) - 1. Of bilinear couplings z is what stands inside the tanh.
at::Tensor Sipe::shaped(const Question& question, const at::Tensor& z) const {
  const bool aligned = options_.coupling == Coupling::TagAlign;
  const auto times_beta = [&](const at::Tensor& x) { return aligned ? x : beta(question) * x; };
  const bool bilinear = !aligned && options_.coupling != Coupling::Mlp;
  switch (options_.factor) {
    case Factor::Bounded:
      return aligned ? kBoundedBeta * z.tanh() : times_beta(z.tanh());
    case Factor::Exp:
      return times_beta(z).clamp(-kExpBound, kExpBound).expm1();
    case Factor::Clamp:
      return times_beta(bilinear ? z.tanh() : z).clamp_min(-1);
    case Factor::Linear:
      break;
  }
  return times_beta(bilinear ? z.tanh() : z);
}

at::Tensor Sipe::alignment(const Question& question) const {
  const at::ScalarType type = answer_type(question);
  at::Tensor q = question.q.to(type);
  if (!v_name_.empty()) q = q + trained(question, v_name_).unsqueeze(1);
  const at::Tensor w = trained(question, name_of("w_e"));  // (H, D, d)
  const at::Tensor by = options_.prior == SipePrior::Fsyn ? w : at::matmul(w, table(question).t());
  return at::matmul(q, by) / std::sqrt(static_cast<double>(dimensions_.head_dim));
}

at::Tensor Sipe::pair_table(const Question& question) const {
  const auto of = [&](const char* name) { return by_feature(question, trained(question, name_of(name))); };
  at::Tensor z;
  if (options_.coupling == Coupling::Mlp) {
    const at::Tensor hidden = of("a").unsqueeze(1) + of("b").unsqueeze(0) + trained(question, name_of("b1"));
    z = at::matmul(at::gelu(hidden), trained(question, name_of("w2"))) + trained(question, name_of("b2"));
  } else {
    z = at::matmul(of("u"), of("v").t()) / std::sqrt(static_cast<double>(options_.rank));
  }
  // Row and column 0 are tokens without syntax: their factor is 1 whatever the network says.
  const at::Tensor known = at::ones({kTagPairs - 1, kTagPairs - 1}, z.options());
  return at::where(at::constant_pad_nd(known, {1, 0, 1, 0}).ne(0), shaped(question, z), at::zeros({}, z.options()));
}

// --------------------------------------------------------------------------------------------------------------------
// Factors

void Sipe::set_groups(FactorForm& form, const SyntaxTokens& query, const SyntaxTokens& key) const {
  const auto group = [&](const SyntaxTokens& tokens) {
    const at::Tensor number = tokens.sentences.defined()
                                  ? tokens.sentences
                                  : at::zeros_like(tokens.valid, tokens.valid.options().dtype(at::kLong));
    return number.masked_fill(tokens.valid.logical_not(), -1);
  };
  const bool aligned = options_.coupling == Coupling::TagAlign;
  // Without syntax of one of the two, z is 0 by itself in an alignment and in a table of tags.
  if (!query.sentences.defined() && (aligned || form.kind == FactorForm::Kind::Tag)) return;
  // The query's own syntax plays no part in an alignment.
  form.group_query = aligned ? query.sentences : group(query);
  form.group_key = group(key);
}

void Sipe::list_pairs(const Question& question, const SyntaxTokens& query, const SyntaxTokens& key,
                      FactorForm& form) const {
  const std::int64_t rows = key.valid.size(0), keys = key.valid.size(1), queries = query.valid.size(1);
  const at::Tensor links = key.links.to(at::kCPU).contiguous();
  const auto whole = [](const at::Tensor& tensor) { return tensor.to(at::kCPU).contiguous(); };
  const at::Tensor lengths = question.key.lengths.defined() ? whole(question.key.lengths) : at::Tensor();
  const at::Tensor offsets = question.offsets.defined() ? whole(question.offsets) : at::Tensor();
  const bool revealed = options_.mode == SipeMode::Incremental || options_.mode == SipeMode::OracleRevealed ||
                        (options_.mode == SipeMode::Auto && question.causal);
  std::vector<std::int64_t> start, query_index, key_index, key_place;
  for (std::int64_t b = 0; b < rows; ++b) {
    const std::int64_t length = lengths.defined() ? lengths.const_data_ptr<std::int64_t>()[b] : keys;
    const std::int64_t first = offsets.defined() ? offsets.const_data_ptr<std::int64_t>()[b] : length - queries;
    std::vector<std::int64_t> own;
    for (std::int64_t i = 0; i < queries; ++i) own.push_back(first + i);
    const ArcTable arcs{links.const_data_ptr<std::int32_t>() + b * keys * kSyntaxArcs * 2, length, kSyntaxArcs};
    const HopPairs pairs = pairs_within(arcs, own, options_.hops, revealed, question.causal);
    const auto before = static_cast<std::int64_t>(key_index.size());
    for (std::int64_t i = 0; i < queries; ++i) {
      const auto at = static_cast<std::size_t>(i);
      start.push_back(before + pairs.start[at]);
      for (std::int64_t pair = pairs.start[at]; pair < pairs.start[at + 1]; ++pair)
        query_index.push_back(b * queries + i);
    }
    start.push_back(before + pairs.start.back());
    for (const std::int64_t one : pairs.key) key_index.push_back(one), key_place.push_back(b * keys + one);
  }
  const auto tensor = [&](const std::vector<std::int64_t>& values) {
    return at::tensor(values, at::TensorOptions(at::kLong)).to(answer_device(question));
  };
  form.pair_start = tensor(start).view({rows, queries + 1});
  form.pair_key = tensor(key_index);
  const at::Tensor i = tensor(query_index), j = tensor(key_place);
  const auto of = [](const at::Tensor& per_token, const at::Tensor& index) {
    return per_token.flatten(0, 1).index_select(0, index);
  };
  if (options_.prior == SipePrior::Hexatags) {
    form.pair_value = pair_table(question).flatten().index_select(0, of(query.tag, i) * kTagPairs + of(key.tag, j));
    return;
  }
  const auto side = [&](const char* name, const SyntaxTokens& tokens, const at::Tensor& index) {
    return of(project(question, trained(question, name_of(name)), tokens), index);
  };
  at::Tensor z;
  if (options_.coupling == Coupling::Mlp) {
    const at::Tensor hidden = side("a", query, i) + side("b", key, j) + trained(question, name_of("b1"));
    z = at::matmul(at::gelu(hidden), trained(question, name_of("w2"))) + trained(question, name_of("b2"));
  } else {
    z = (side("u", query, i) * side("v", key, j)).sum(-1) / std::sqrt(static_cast<double>(options_.rank));
  }
  const at::Tensor known = of(query.valid, i).logical_and(of(key.valid, j));
  form.pair_value = at::where(known, shaped(question, z), at::zeros({}, z.options()));
}

FactorForm Sipe::factor(const Question& question) const {
  using Kind = FactorForm::Kind;
  using Shape = FactorForm::Shape;
  const SyntaxTokens query = tokens_of(question, Role::Query), key = tokens_of(question, Role::Key);
  FactorForm form;
  if (options_.sparse) {
    form.kind = Kind::Pairs;
    list_pairs(question, query, key, form);
    return form;
  }
  const bool aligned = options_.coupling == Coupling::TagAlign;
  if (options_.prior == SipePrior::Hexatags) {
    // Whatever z is, it depends on the key through its tags alone: a number for each of 18 pairs of them.
    form.kind = Kind::Tag;
    form.left = aligned ? shaped(question, alignment(question))
                        : pair_table(question)
                              .index_select(0, query.tag.flatten())
                              .view({query.tag.size(0), 1, query.tag.size(1), kTagPairs});
    form.tag = key.tag.masked_fill(key.valid.logical_not(), -1);
    set_groups(form, query, key);
    return form;
  }
  form.bound = kExpBound;
  if (aligned) {
    form.left = alignment(question);
    form.right = features(key, form.left.scalar_type());
    form.kind = options_.factor == Factor::Bounded ? Kind::Tanh
                : options_.factor == Factor::Exp   ? Kind::Exp
                                                   : Kind::Product;
    form.shape = options_.factor == Factor::Clamp ? Shape::Clamp : Shape::Linear;
    if (options_.factor == Factor::Bounded)
      form.beta = at::full({dimensions_.heads}, kBoundedBeta, form.left.options());
    set_groups(form, query, key);
    return form;
  }
  const at::Tensor scale = beta(question).expand({dimensions_.heads});
  const auto side = [&](const char* name, const SyntaxTokens& tokens) {
    return project(question, trained(question, name_of(name)), tokens).unsqueeze(1);
  };
  if (options_.coupling == Coupling::Mlp) {
    form.kind = Kind::Network;
    form.left = side("a", query) + trained(question, name_of("b1"));
    form.right = side("b", key);
    form.weight = trained(question, name_of("w2"));
    form.level = trained(question, name_of("b2"));
    form.shape = options_.factor == Factor::Bounded ? Shape::Tanh
                 : options_.factor == Factor::Exp   ? Shape::Exp
                 : options_.factor == Factor::Clamp ? Shape::Clamp
                                                    : Shape::Linear;
    form.beta = scale;
  } else {
    form.left = side("u", query) / std::sqrt(static_cast<double>(options_.rank));
    form.right = side("v", key);
    form.kind = options_.factor == Factor::Exp     ? Kind::Exp
                : options_.factor == Factor::Clamp ? Kind::Product
                                                   : Kind::Tanh;
    form.shape = Shape::ClampedTanh;
    if (form.kind == Kind::Exp)
      form.left = form.left * beta(question);
    else
      form.beta = scale;
  }
  set_groups(form, query, key);
  return form;
}

bool Sipe::has_slow_factor() const {
  if (options_.sparse || options_.coupling == Coupling::Pair) return true;
  if (options_.prior == SipePrior::Hexatags) return false;
  const bool bent = options_.factor == Factor::Bounded || options_.factor == Factor::Exp;
  return options_.coupling == Coupling::Mlp || (options_.coupling == Coupling::TagAlign && !bent) ||
         (options_.coupling == Coupling::Bilinear && options_.factor == Factor::Clamp);
}

BiasForm Sipe::stretch(const Question& question) const {
  const at::Tensor& key = question.kept->at(name_of("key"));
  if (key.size(2) > kMostPairKeys)
    throw Refusal(str(prefix_, ": coupling=pair computes every pair and plane by itself, so it takes at most ",
                      kMostPairKeys, " keys; found ", key.size(2)));
  const RotationInfo rotation = *operand_->rotation(1, {});
  std::vector<at::Tensor> rows;
  for (const std::vector<double>& row : rotation.inv_freq) rows.push_back(at::tensor(row, at::kDouble));
  StretchForm form;
  form.query = question.q;
  form.key = key.to(question.q.scalar_type());
  form.frequency = at::stack(rows).to(answer_device(question));
  form.layout = planes_.layout;
  form.offset = planes_.offset;
  form.width = planes_.width;
  form.blocks = planes_.blocks;
  form.weight = question.scale * rotation.magnitude * rotation.magnitude;
  form.factor = std::make_shared<FactorForm>(factor(question));
  return {all_heads(), std::move(form)};
}

}  // namespace torsor
