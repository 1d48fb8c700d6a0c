// The definition of `sipe` in plain numbers. It shares no table, product or search with the answers.
#include <algorithm>
#include <cmath>

#include "torsor/encoding/bias/answer.h"
#include "torsor/encoding/syntax/sipe_encoding.h"

namespace torsor {
namespace {

using Coupling = SipeOptions::Coupling;
using Factor = SipeOptions::Factor;

std::size_t at_place(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Numbers of one token, as many as each token has.
std::vector<double> of_token(const PlainInputs& inputs, const char* name, std::int64_t token) {
  const auto found = inputs.values.find(name);
  if (found == inputs.values.end()) throw Error(str("the per-token input '", name, "' was not given"));
  const std::size_t width = found->second.size() / at_place(inputs.tokens);
  const auto first = found->second.begin() + static_cast<std::ptrdiff_t>(at_place(token) * width);
  return {first, first + static_cast<std::ptrdiff_t>(width)};
}

bool exists(const PlainInputs& inputs, std::int64_t token) {
  return token >= 0 && token < inputs.tokens && inputs.exists[at_place(token)];
}

/// Row `row` of a matrix with rows as long as x, times x.
double row_times(const std::vector<double>& matrix, std::int64_t row, const std::vector<double>& x) {
  double sum = 0;
  for (std::size_t c = 0; c < x.size(); ++c) sum += matrix.at(at_place(row) * x.size() + c) * x[c];
  return sum;
}

bool any(const std::vector<double>& s) {
  return std::any_of(s.begin(), s.end(), [](double one) { return one != 0; });
}

}  // namespace

/// Empty where the token has no syntax.
std::vector<double> Sipe::define_s(const PlainInputs& inputs, std::int64_t token,
                                   const PlainParameters& parameters) const {
  if (!exists(inputs, token)) return {};
  if (options_.prior == SipePrior::Fsyn) {
    std::vector<double> s = of_token(inputs, kSyntaxVectors, token);
    return any(s) ? s : std::vector<double>();
  }
  std::int64_t tau = 0, nu = 0, label = 0;
  if (options_.labels != SipeOptions::Labels::Only) {
    const std::vector<double> tags = of_token(inputs, kSyntaxTags, token);
    tau = static_cast<std::int64_t>(tags.at(0)), nu = static_cast<std::int64_t>(tags.at(1));
  }
  if (options_.labels != SipeOptions::Labels::Off)
    label = static_cast<std::int64_t>(of_token(inputs, kSyntaxLabels, token).at(0));
  if (tau == 0 && nu == 0 && label == 0) return {};
  std::vector<double> s(at_place(dimensions_.width), 0.0);
  for (std::int64_t c = 0; c < dimensions_.width; ++c) {
    if (tau > 0) s[at_place(c)] += plain(parameters, name_of("tau")).at(at_place((tau - 1) * dimensions_.width + c));
    if (nu > 0) s[at_place(c)] += plain(parameters, name_of("nu")).at(at_place((nu - 1) * dimensions_.width + c));
    if (label > 0)
      s[at_place(c)] += plain(parameters, name_of("labels")).at(at_place((label - 1) * dimensions_.width + c));
  }
  return s;
}

double Sipe::define_beta(const PlainParameters& parameters) const {
  const double given = plain(parameters, name_of("beta")).at(0);
  return options_.factor == Factor::Bounded ? kBoundedBeta * std::tanh(given) : given;
}

double Sipe::define_alignment(const PlainPair& pair, const PlainParameters& parameters) const {
  const std::vector<double> s = define_s(*pair.inputs, pair.key_token, parameters);
  double sum = 0;
  for (std::int64_t d = 0; d < dimensions_.head_dim && !s.empty(); ++d) {
    const std::int64_t row = pair.head * dimensions_.head_dim + d;
    const double v = v_name_.empty() ? 0 : plain(parameters, v_name_).at(at_place(row));
    sum += (pair.q[d] + v) * row_times(plain(parameters, name_of("w_e")), row, s);
  }
  return sum / std::sqrt(static_cast<double>(dimensions_.head_dim));
}

/// Whether at most `hops` arcs lead from the query's token to the key, among those that it may know.
bool Sipe::define_near(const PlainPair& pair) const {
  const PlainInputs& inputs = *pair.inputs;
  const bool revealed = options_.mode == SipeMode::Incremental || options_.mode == SipeMode::OracleRevealed ||
                        (options_.mode == SipeMode::Auto && pair.causal);
  std::vector<bool> reached(at_place(inputs.tokens), false);
  if (pair.query_token < 0 || pair.query_token >= inputs.tokens) return false;
  reached[at_place(pair.query_token)] = true;
  for (std::int64_t hop = 0; hop < options_.hops; ++hop) {
    std::vector<bool> next = reached;
    for (std::int64_t token = 0; token < inputs.tokens; ++token) {
      if (!exists(inputs, token) || (revealed && token > pair.query_token)) continue;
      const std::vector<double> arcs = of_token(inputs, kSyntaxLinks, token);
      for (std::size_t n = 0; n + 1 < arcs.size(); n += 2) {
        if (arcs[n] < 0 || arcs[n + 1] < 0) continue;
        const std::int64_t one = token - static_cast<std::int64_t>(arcs[n]);
        const std::int64_t other = token - static_cast<std::int64_t>(arcs[n + 1]);
        if (one < 0 || other < 0) continue;
        if (reached[at_place(one)]) next[at_place(other)] = true;
        if (reached[at_place(other)]) next[at_place(one)] = true;
      }
    }
    reached = next;
  }
  return reached[at_place(pair.key_token)];
}

double Sipe::define_factor(const PlainPair& pair, const PlainParameters& parameters) const {
  const auto sentence = [&](std::int64_t token) {
    return exists(*pair.inputs, token) ? of_token(*pair.inputs, kSyntaxSentences, token).at(0) : -1;
  };
  if (options_.needs_sentences()) {
    const double mine = sentence(pair.query_token);
    if (mine < 0 || mine != sentence(pair.key_token)) return 1;
  }
  double z = 0, beta = 1;
  if (options_.coupling == Coupling::TagAlign) {
    z = define_alignment(pair, parameters);
    if (options_.factor == Factor::Bounded) return 1 + kBoundedBeta * std::tanh(z);
  } else {
    const std::vector<double> own = define_s(*pair.inputs, pair.query_token, parameters),
                              other = define_s(*pair.inputs, pair.key_token, parameters);
    if (own.empty() || other.empty()) return 1;
    if (options_.sparse && !define_near(pair)) return 1;
    beta = define_beta(parameters);
    if (options_.coupling == Coupling::Mlp) {
      z = plain(parameters, name_of("b2")).at(0);
      for (std::int64_t n = 0; n < kSipeHidden; ++n) {
        const double x = row_times(plain(parameters, name_of("a")), n, own) +
                         row_times(plain(parameters, name_of("b")), n, other) +
                         plain(parameters, name_of("b1")).at(at_place(n));
        z += plain(parameters, name_of("w2")).at(at_place(n)) * x * 0.5 * std::erfc(-x / std::sqrt(2.0));
      }
      if (options_.factor == Factor::Bounded) return 1 + beta * std::tanh(z);
    } else {
      for (std::int64_t n = 0; n < options_.rank; ++n)
        z += row_times(plain(parameters, name_of("u")), n, own) * row_times(plain(parameters, name_of("v")), n, other);
      z /= std::sqrt(static_cast<double>(options_.rank));
      if (options_.factor != Factor::Exp) z = std::tanh(z);
    }
  }
  if (options_.factor == Factor::Exp) return std::exp(std::max(-2.0, std::min(2.0, beta * z)));
  const double factor = 1 + beta * z;
  return options_.factor == Factor::Clamp ? std::max(factor, 0.0) : factor;
}

double Sipe::define_product(const PlainPair& pair, const PlainParameters& parameters) const {
  const bool moves = options_.coupling == Coupling::Rotation || options_.coupling == Coupling::Prerot;
  if (!acts_in(pair.layer) || (!moves && options_.coupling != Coupling::Pair))
    return operand_->define_product(pair, parameters);
  if (options_.coupling == Coupling::Pair) {
    // Products of turned planes depend on the distance alone: the pair stands that much farther apart.
    const double distance = (pair.pq[0] - pair.pk[0]) * define_factor(pair, parameters), none = 0;
    PlainPair stretched = pair;
    stretched.pq = &distance;
    stretched.pk = &none;
    return operand_->define_product(stretched, parameters);
  }
  const std::int64_t head = dimensions_.head_dim, key_head = pair.head / group();
  const auto moved = [&](const double* x, std::int64_t token, bool query) {
    std::vector<double> y(x, x + head);
    const std::vector<double> s = define_s(*pair.inputs, token, parameters);
    if (s.empty()) return y;
    if (options_.coupling == Coupling::Prerot) {
      const std::vector<double>& w = plain(parameters, name_of(query ? "w_q" : "w_k"));
      for (std::int64_t d = 0; d < head; ++d)
        y[at_place(d)] += row_times(w, (query ? pair.head : key_head) * head + d, s);
      return y;
    }
    const std::int64_t each = planes_.width / planes_.blocks / 2;
    for (std::int64_t plane = 0; plane < planes_.width / 2; ++plane) {
      double phi = row_times(plain(parameters, name_of("w_phi")), plane, s);
      if (options_.warp) {
        const auto& row = plane_frequency_[plane_frequency_.size() == 1 ? 0 : at_place(key_head)];
        phi = kWarpPositions * row[at_place(plane)] * std::tanh(phi);
      }
      const double angle = plain(parameters, name_of("beta")).at(0) * phi;
      const std::int64_t first = planes_.offset + plane / each * 2 * each;
      const std::int64_t index = plane % each;
      const bool half = planes_.layout == Layout::Half;
      const std::size_t a = at_place(first + (half ? index : 2 * index)), b = half ? a + at_place(each) : a + 1;
      const double xa = y[a], xb = y[b];
      y[a] = xa * std::cos(angle) - xb * std::sin(angle);
      y[b] = xa * std::sin(angle) + xb * std::cos(angle);
    }
    return y;
  };
  const std::vector<double> q = moved(pair.q, pair.query_token, true), k = moved(pair.k, pair.key_token, false);
  PlainPair other = pair;
  other.q = q.data();
  other.k = k.data();
  return operand_->define_product(other, parameters);
}

double Sipe::define_bias(const PlainPair& pair, const PlainParameters& parameters) const {
  double bias = operand_->define_bias(pair, parameters);
  if (!acts_in(pair.layer)) return bias;
  if (options_.kind == SipeOperand::Term && options_.coupling == Coupling::Additive)
    bias += define_alignment(pair, parameters);
  else if (options_.kind == SipeOperand::Term && options_.coupling != Coupling::None)
    bias *= define_factor(pair, parameters);
  if (!options_.bias) return bias;
  const std::vector<double> s = define_s(*pair.inputs, pair.key_token, parameters);
  for (std::int64_t d = 0; d < dimensions_.head_dim && !s.empty(); ++d)
    bias += pair.scale * pair.q[d] *
            row_times(plain(parameters, name_of("w_key")), pair.head / group() * dimensions_.head_dim + d, s);
  return bias;
}

double Sipe::define_value(const PlainPair& pair, std::int64_t channel, const PlainParameters& parameters) const {
  if (!options_.bias || !acts_in(pair.layer)) return 0;
  const std::vector<double> s = define_s(*pair.inputs, pair.key_token, parameters);
  if (s.empty()) return 0;
  return plain(parameters, name_of("alpha")).at(0) *
         row_times(plain(parameters, name_of("w_value")), pair.head / group() * dimensions_.head_dim + channel, s);
}

double Sipe::define_token_embedding(const PlainToken& token, std::int64_t channel,
                                    const PlainParameters& parameters) const {
  const double inner = operand_->define_token_embedding(token, channel, parameters);
  if (!options_.input || options_.fuse == SipeOptions::Fuse::Skip || options_.mode == SipeMode::None) return inner;
  const std::vector<double> s = define_s(*token.inputs, token.index, parameters);
  if (s.empty()) return inner;
  if (options_.fuse == SipeOptions::Fuse::Concat) {
    double sum = row_times(plain(parameters, name_of("w_s")), channel, s);
    const std::vector<double> x(token.x, token.x + dimensions_.width);
    return inner + sum + row_times(plain(parameters, name_of("w_x")), channel, x);
  }
  const double added = options_.prior == SipePrior::Fsyn ? row_times(plain(parameters, name_of("w_input")), channel, s)
                                                         : s[at_place(channel)];
  if (options_.fuse == SipeOptions::Fuse::Add) return inner + added;
  return inner + (1 - plain(parameters, name_of("mix")).at(0)) * (added - token.x[channel]);
}

}  // namespace torsor
