#include "torsor/encoding/bias/grape_a.h"

#include <cmath>

#include "torsor/encoding/bias/answer.h"
#include "torsor/encoding/bias/slopes.h"

namespace torsor {
namespace {

constexpr double kShortest = 1e-6;  // a vector of length 1 is v / max(|v|, this)

struct GrapeASettings {
  bool key_gate = false, query_gate = false;
  bool paper = false;
  bool learn_slopes = false;
  bool gated() const { return key_gate || query_gate; }
};

class GrapeA : public Encoding {
 public:
  GrapeA(const Dimensions& dimensions, const std::string& prefix, const GrapeASettings& settings)
      : Encoding(dimensions),
        prefix_(prefix),
        u_name_(prefix + ".u"),
        v_name_(prefix + ".v"),
        rho_name_(prefix + ".rho"),
        slopes_name_(prefix + ".log_slopes"),
        gate_name_(prefix + ".gate"),
        set_(settings) {
    if (!(set_.gated() && set_.paper)) slopes_ = alibi_slopes(dimensions.heads);
  }

  Traits traits() const override {
    Traits traits;
    traits.content = set_.gated();
    traits.forms = {set_.gated() ? "gated" : "linear"};
    return traits;
  }

  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    std::vector<ParameterInfo> all;
    const auto vector = [&](const std::string& name, std::int64_t heads) {
      const double deviation = 1 / std::sqrt(static_cast<double>(dimensions_.head_dim));
      all.push_back({name, {heads, dimensions_.head_dim}, {Initial::Kind::Normal, 0, deviation, {}}});
    };
    if (set_.key_gate) vector(u_name_, dimensions_.kv_heads);
    if (set_.query_gate) vector(v_name_, dimensions_.heads);
    // softplus(rho) = 1
    if (set_.gated())
      all.push_back({rho_name_, {dimensions_.heads}, {Initial::Kind::Constant, std::log(std::expm1(1.0)), 0, {}}});
    if (set_.learn_slopes) {
      ParameterInfo info{slopes_name_, {dimensions_.heads}, {Initial::Kind::Values, 0, 0, {}}};
      for (const double slope : slopes_) info.initial.values.push_back(std::log(slope));
      all.push_back(info);
    }
    return all;
  }

  NamedTensors arrive(const Question& question, NamedTensors&) const override {
    if (!set_.key_gate) return {};
    return {{gate_name_, gate(question, question.k, u_name_)}};
  }

  std::vector<BiasForm> biases(const Question& question) const override {
    if (!set_.gated()) return {{all_heads(), LinearForm{slopes_for(question)}}};
    need_causal(question, prefix_, "has a gated slope, which leads");
    GatedForm form;
    form.omega = log1p_exp(trained(question, rho_name_));
    if (!set_.paper) form.omega = form.omega * slopes_for(question);
    if (set_.key_gate) {
      form.key = question.kept->at(gate_name_);
      if (group() > 1) form.key = form.key.repeat_interleave(group(), 1);
    }
    if (set_.query_gate) form.query = gate(question, question.q, v_name_);
    return {{all_heads(), std::move(form)}};
  }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    if (set_.key_gate) contract.kept = {gate_name_};
    contract.shift = contract.evict = "exact";
    contract.note = set_.key_gate ? "the gate of every key is kept; positions move without it"
                                  : "keys are kept as they are; only positions move";
    return contract;
  }

  double define_bias(const PlainPair& pair, const PlainParameters& parameters) const override {
    const double n = pair.pq[0] - pair.pk[0];
    double slope = 1;
    if (set_.learn_slopes)
      slope = std::exp(plain(parameters, slopes_name_).at(static_cast<std::size_t>(pair.head)));
    else if (!(set_.gated() && set_.paper))
      slope = define_alibi_slope(pair.head, dimensions_.heads);
    if (!set_.gated()) return -slope * std::abs(n);
    const std::int64_t width = dimensions_.head_dim;
    const auto plus = [](double z) { return z > 0 ? z + std::log1p(std::exp(-z)) : std::log1p(std::exp(z)); };
    const auto lambda = [&](const std::string& name, std::int64_t head, const double* token) {
      const double* vector = plain(parameters, name).data() + head * width;
      double product = 0, square = 0;
      for (std::int64_t c = 0; c < width; ++c) product += vector[c] * token[c], square += vector[c] * vector[c];
      if (!set_.paper) product /= std::max(std::sqrt(square), kShortest);
      return plus(product / std::sqrt(static_cast<double>(width)));
    };
    double rate = 0;
    if (set_.key_gate) rate += lambda(u_name_, pair.head * dimensions_.kv_heads / dimensions_.heads, pair.k);
    if (set_.query_gate) rate += lambda(v_name_, pair.head, pair.q);
    return -n * plus(plain(parameters, rho_name_).at(static_cast<std::size_t>(pair.head))) * slope * rate;
  }

  std::vector<double> slopes() const override { return slopes_; }

  std::vector<std::string> content() const override {
    std::vector<std::string> lines;
    if (set_.key_gate) lines.push_back("gate of each key, softplus(u . k / sqrt(D)) (B, K, T)");
    if (set_.query_gate) lines.push_back("gate of each query, softplus(v . q / sqrt(D)) (B, H, T)");
    return lines;
  }

 private:
  at::Tensor slopes_for(const Question& question) const {
    return set_.learn_slopes ? trained(question, slopes_name_).exp() : fixed(question, slopes_, answer_type(question));
  }

  /// (B, heads, T) from tokens (B, heads, T, D) and a vector a head.
  at::Tensor gate(const Question& question, const at::Tensor& tokens, const std::string& name) const {
    at::Tensor vector = trained(question, name);
    // The length in float64, where no square of a float32 overflows.
    if (!set_.paper)
      vector = (vector / vector.to(at::kDouble).norm(2, {-1}, true).clamp_min(kShortest)).to(vector.scalar_type());
    const at::Tensor product = of_tokens(tokens.to(vector.scalar_type()), [&](const at::Tensor& each) {
      return at::matmul(each, vector.unsqueeze(2)).squeeze(3);
    });
    return log1p_exp(product / std::sqrt(static_cast<double>(dimensions_.head_dim)));
  }

  std::string prefix_, u_name_, v_name_, rho_name_, slopes_name_, gate_name_;
  GrapeASettings set_;
  std::vector<double> slopes_;
};

}  // namespace

NameInfo grape_a_name() {
  NameInfo info;
  info.name = "grape-a";
  info.summary = "a penalty in a straight line whose slope the key, the query or both decide";
  info.formula =
      "b = -(p_q - p_k) * softplus(rho_h) * slope_h * rate;  rate = softplus(u . k / sqrt(D)), softplus(v . q / "
      "sqrt(D)) or both; without a gate b = -slope_h * |p_q - p_k|";
  info.source = "Zhang et al. 2026 (arXiv 2512.07805), Eq. (4.6), and the authors' code";
  info.page = "grape-a";
  info.keys = {
      {.name = "gate",
       .type = KeyInfo::Type::Word,
       .fallback = std::string("none"),
       .about = "who decides the slope: nobody (ALiBi), the key, the query, both",
       .words = {"none", "k", "q", "qk"}},
      {.name = "variant",
       .type = KeyInfo::Type::Word,
       .fallback = std::string("released"),
       .about = "gate vectors of length 1 and ALiBi's slopes, or raw vectors and a free scale",
       .words = {"released", "paper"}},
      {.name = "learn_slopes",
       .type = KeyInfo::Type::Boolean,
       .fallback = false,
       .about = "train the logarithms of the slopes, starting at ALiBi's"},
  };
  info.make = [](MakeRequest& request) {
    const std::string& gate = request.settings.word("gate");
    GrapeASettings settings;
    settings.key_gate = gate == "k" || gate == "qk";
    settings.query_gate = gate == "q" || gate == "qk";
    settings.paper = request.settings.word("variant") == "paper";
    settings.learn_slopes = request.settings.boolean("learn_slopes");
    if (settings.paper && !settings.gated())
      throw UsageError("grape-a: variant=paper says how gates are used, and gate=none has none; give gate=k, q or qk");
    if (settings.paper && settings.learn_slopes)
      throw UsageError(
          "grape-a: learn_slopes=true has no slopes to train with variant=paper, whose scale is rho alone");
    return std::make_unique<GrapeA>(request.dimensions, request.prefix, settings);
  };
  return info;
}

}  // namespace torsor
