#include "torsor/encoding/bias/grape_ap.h"

#include <cmath>

#include "torsor/encoding/bias/answer.h"
#include "torsor/encoding/bias/slopes.h"
#include "torsor/encoding/own_tokens.h"

namespace torsor {
namespace {

constexpr double kEpsilon = 1.1920929e-7;  // beside the mean square of a probe: 2^-23, the step of float32 at 1

struct GrapeApSettings {
  enum class Variant { Released, Paper, Relative } variant = Variant::Released;
  enum class Tie { None, Query, Key, Value } tie = Tie::None;
  std::int64_t width = 8;
  bool learn_alpha = false;
};

class GrapeAp : public Encoding {
 public:
  using Variant = GrapeApSettings::Variant;
  using Tie = GrapeApSettings::Tie;

  GrapeAp(const Dimensions& dimensions, const std::string& prefix, const GrapeApSettings& settings)
      : Encoding(dimensions),
        prefix_(prefix),
        weight_name_(prefix + ".weight"),
        alpha_name_(prefix + ".log_alpha"),
        probe_name_(prefix + ".probe"),
        own_name_(prefix + ".own"),
        set_(settings),
        alpha_(alibi_slopes(dimensions.heads)) {}

  Traits traits() const override {
    Traits traits;
    traits.content = true;
    traits.relative = set_.variant == Variant::Relative;
    traits.forms = {"path"};
    return traits;
  }

  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    std::vector<ParameterInfo> all;
    if (set_.tie == Tie::None) {
      ParameterInfo weight;
      weight.name = weight_name_;
      weight.shape = {dimensions_.heads, set_.width, dimensions_.width};
      weight.initial = {Initial::Kind::Normal, 0, 0.5 / std::sqrt(static_cast<double>(dimensions_.width)), {}};
      weight.decay = true;  // a projection like W_K, not a positional scalar
      all.push_back(weight);
    }
    if (set_.learn_alpha) {
      ParameterInfo alpha{alpha_name_, {dimensions_.heads}, {Initial::Kind::Values, 0, 0, {}}};
      for (const double slope : alpha_) alpha.initial.values.push_back(std::log(slope));
      all.push_back(alpha);
    }
    return all;
  }

  NamedTensors arrive(const Question& question, NamedTensors&) const override {
    const at::Tensor raw = probes(question);
    NamedTensors kept;
    kept[probe_name_] = turned(normalised(raw), distinct_positions(question.key), key_sign());
    // The query's side of these reads k or v of its own token, which a query does not bring.
    if (set_.tie == Tie::Key || set_.tie == Tie::Value) kept[own_name_] = raw;
    return kept;
  }

  NamedTensors shift_kept(const NamedTensors& kept, const at::Tensor& offsets) const override {
    NamedTensors all = kept;
    const auto probe = all.find(probe_name_);
    if (probe != all.end()) probe->second = turned(probe->second, offsets, key_sign());
    return all;
  }

  std::vector<BiasForm> biases(const Question& question) const override {
    need_causal(question, prefix_, "sums over the tokens");
    const bool kept = set_.tie == Tie::Key || set_.tie == Tie::Value;
    at::Tensor query = kept ? own_tokens(question, question.kept->at(own_name_)) : probes(question);
    if (set_.variant == Variant::Paper) query = normalised(query);
    if (set_.variant == Variant::Relative) query = turned(query, distinct_positions(question.query), key_sign());
    const at::Tensor alpha =
        set_.learn_alpha ? trained(question, alpha_name_).exp() : fixed(question, alpha_, answer_type(question));
    return {{all_heads(), PathForm{to_query_heads(query), to_query_heads(question.kept->at(probe_name_)), alpha}}};
  }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    contract.kept = {probe_name_};
    if (set_.tie == Tie::Key || set_.tie == Tie::Value) contract.kept.push_back(own_name_);
    contract.shift = "exact";
    contract.evict =
        "grape-ap sums over every token between key and query: dropping a row's oldest tokens is exact, dropping "
        "tokens in its middle (sinks) loses their edges";
    contract.evict_oldest = "exact";
    contract.note = set_.variant == Variant::Relative
                        ? "the turned probe of every token is kept; a shift turns it further"
                        : "the turned probe of every token is kept; a shift turns it further and equals a fresh pass "
                          "at the new positions, not the pass before it: probes read the absolute position";
    return contract;
  }

  void define_path(std::vector<double>& logits, const PlainTokens& tokens,
                   const PlainParameters& parameters) const override {
    if (tokens.seen.empty()) return;
    const std::size_t head = static_cast<std::size_t>(tokens.head);
    const double alpha = set_.learn_alpha ? std::exp(plain(parameters, alpha_name_).at(head))
                                          : define_alibi_slope(tokens.head, dimensions_.heads);
    const bool paper = set_.variant == Variant::Paper;
    std::vector<double> query = define_probe(tokens.own, tokens, parameters);
    if (paper) define_norm(query);
    if (set_.variant == Variant::Relative) define_turn(query, -tokens.own.position, false);
    double sum = 0;
    for (std::size_t j = tokens.seen.size(); j-- > 0;) {
      logits[j] += alpha * sum;
      std::vector<double> probe = define_probe(tokens.seen[j], tokens, parameters);
      define_norm(probe);
      define_turn(probe, paper ? tokens.seen[j].position : -tokens.seen[j].position, paper);
      double z = 0;
      for (std::size_t c = 0; c < probe.size(); ++c) z += query[c] * probe[c];
      z /= static_cast<double>(probe.size());
      sum += z < 0 ? z - std::log1p(std::exp(z)) : -std::log1p(std::exp(-z));
    }
  }

  std::vector<double> slopes() const override { return alpha_; }

  std::vector<std::string> content() const override {
    return {"edges ln sigmoid(<query probe, key probe> / P) (B, H, Tq, Tk), summed from the key to the query"};
  }

 private:
  double key_sign() const { return set_.variant == Variant::Paper ? 1 : -1; }

  /// Raw probes of the question's tokens: (B, H or K, T, P).
  at::Tensor probes(const Question& question) const {
    const at::ScalarType type = answer_type(question);
    switch (set_.tie) {
      case Tie::Query:
        if (!question.q.defined())
          throw Refusal(str(prefix_,
                            "(tie=q) reads the query of every token: a call must bring as many queries as "
                            "tokens, and a cache must be filled with them"));
        return whole(question.q.to(type));
      case Tie::Key:
        return whole(question.k.to(type));
      case Tie::Value:
        if (question.v.size(3) % 2 != 0)
          throw Error(
              str(prefix_, "(tie=v) turns the values as planes and needs an even width, found ", question.v.size(3)));
        return whole(question.v.to(type));
      case Tie::None:
        break;
    }
    const at::Tensor x = hidden_states(question, prefix_), weight = trained(question, weight_name_).flatten(0, 1);
    const at::Tensor flat = of_tokens(x, [&](const at::Tensor& each) { return at::matmul(each, weight.t()); });
    return flat.view({x.size(0), x.size(1), dimensions_.heads, set_.width}).transpose(1, 2);
  }

  /// Tokens as they are; one that is not finite is NaN without a gradient.
  static at::Tensor whole(const at::Tensor& tokens) {
    return of_tokens(tokens, [](const at::Tensor& each) { return each; });
  }

  at::Tensor to_query_heads(const at::Tensor& probes) const {
    return probes.size(1) == dimensions_.heads ? probes : probes.repeat_interleave(group(), 1);
  }

  /// In float64, where no square of a float32 overflows.
  static at::Tensor normalised(const at::Tensor& p) {
    return p * at::rsqrt(p.to(at::kDouble).square().mean({-1}, true) + kEpsilon).to(p.scalar_type());
  }

  /// Every plane of p (B, heads, T, P) turned by sign * position radians; positions (B|1, T) float64.
  at::Tensor turned(const at::Tensor& p, const at::Tensor& positions, double sign) const {
    const at::Tensor angle = (positions.to(p.device()) * sign).unsqueeze(1).unsqueeze(3);
    const at::Tensor cosine = angle.cos().to(p.scalar_type()), sine = angle.sin().to(p.scalar_type());
    const bool pairs = set_.variant == Variant::Paper;
    const std::int64_t width = p.size(3);
    const at::Tensor a = pairs ? p.slice(3, 0, width, 2) : p.narrow(3, 0, width / 2);
    const at::Tensor b = pairs ? p.slice(3, 1, width, 2) : p.narrow(3, width / 2, width / 2);
    const at::Tensor x = a * cosine - b * sine, y = a * sine + b * cosine;
    return pairs ? at::stack({x, y}, 4).flatten(3) : at::cat({x, y}, 3);
  }

  std::vector<double> define_probe(const PlainTokens::Token& token, const PlainTokens& tokens,
                                   const PlainParameters& parameters) const {
    if (set_.tie == Tie::Query) return {token.q, token.q + dimensions_.head_dim};
    if (set_.tie == Tie::Key) return {token.k, token.k + dimensions_.head_dim};
    if (set_.tie == Tie::Value) return {token.v, token.v + tokens.value_dim};
    const double* row = plain(parameters, weight_name_).data() + tokens.head * set_.width * dimensions_.width;
    std::vector<double> probe(static_cast<std::size_t>(set_.width), 0.0);
    for (double& one : probe)
      for (std::int64_t c = 0; c < dimensions_.width; ++c) one += *row++ * token.x[c];
    return probe;
  }

  static void define_norm(std::vector<double>& probe) {
    double square = 0;
    for (const double one : probe) square += one * one;
    const double length = std::sqrt(square / static_cast<double>(probe.size()) + kEpsilon);
    for (double& one : probe) one /= length;
  }

  static void define_turn(std::vector<double>& probe, double angle, bool neighbours) {
    const std::size_t planes = probe.size() / 2;
    for (std::size_t n = 0; n < planes; ++n) {
      double& a = probe[neighbours ? 2 * n : n];
      double& b = probe[neighbours ? 2 * n + 1 : n + planes];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
  }

  std::string prefix_, weight_name_, alpha_name_, probe_name_, own_name_;
  GrapeApSettings set_;
  std::vector<double> alpha_;
};

}  // namespace

NameInfo grape_ap_name() {
  NameInfo info;
  info.name = "grape-ap";
  info.summary = "a path integral: every token between key and query costs what the query thinks of it";
  info.formula =
      "b = alpha_h * sum over l from j+1 to i of ln sigmoid(<a_i, R_l r_l> / P);  p = weight_h x, r = p / rms(p), R_l "
      "turns by the position of l; a = p (released), r (paper), R_i p (relative)";
  info.source = "Zhang et al. 2026 (arXiv 2512.07805), Eq. (5.1), and the authors' code";
  info.page = "grape-ap";
  info.keys = {
      {.name = "width",
       .type = KeyInfo::Type::Integer,
       .fallback = 8.0,  // the authors' configurations
       .about = "numbers in a probe, even",
       .low = 2,
       .high = 4096},
      {.name = "variant",
       .type = KeyInfo::Type::Word,
       .fallback = std::string("released"),
       .about = "the authors' code, the paper's text, or released with both sides turned",
       .words = {"released", "paper", "relative"}},
      {.name = "tie",
       .type = KeyInfo::Type::Word,
       .fallback = std::string("none"),
       .about = "take q, k or v as probes instead of a projection of their own",
       .words = {"none", "q", "k", "v"}},
      {.name = "learn_alpha",
       .type = KeyInfo::Type::Boolean,
       .fallback = false,
       .about = "train the logarithms of alpha, starting at ALiBi's slopes"},
  };
  info.make = [](MakeRequest& request) {
    const std::string &variant = request.settings.word("variant"), &tie = request.settings.word("tie");
    GrapeApSettings settings;
    settings.variant = variant == "paper"      ? GrapeApSettings::Variant::Paper
                       : variant == "relative" ? GrapeApSettings::Variant::Relative
                                               : GrapeApSettings::Variant::Released;
    settings.tie = tie == "q"   ? GrapeApSettings::Tie::Query
                   : tie == "k" ? GrapeApSettings::Tie::Key
                   : tie == "v" ? GrapeApSettings::Tie::Value
                                : GrapeApSettings::Tie::None;
    settings.width = request.settings.integer("width");
    settings.learn_alpha = request.settings.boolean("learn_alpha");
    if (settings.tie != GrapeApSettings::Tie::None && request.settings.given("width"))
      throw UsageError(str("grape-ap: width= has no meaning with tie=", tie, ", whose probes are as wide as the head"));
    if (settings.tie == GrapeApSettings::Tie::None && settings.width % 2 != 0)
      throw UsageError(str("grape-ap: width=", settings.width, " must be even: probes turn in planes of two"));
    if (settings.tie != GrapeApSettings::Tie::None && request.dimensions.head_dim % 2 != 0)
      throw UsageError(str("grape-ap: tie=", tie, " turns heads in planes of two and needs an even head_dim, found ",
                           request.dimensions.head_dim));
    return std::make_unique<GrapeAp>(request.dimensions, request.prefix, settings);
  };
  return info;
}

}  // namespace torsor
