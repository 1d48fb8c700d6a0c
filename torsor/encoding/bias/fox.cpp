#include "torsor/encoding/bias/fox.h"

#include <cmath>

#include "torsor/encoding/bias/answer.h"
#include "torsor/encoding/own_tokens.h"
#include "torsor/encoding/running_sum.h"

namespace torsor {
namespace {

// A gate below e^-65536 is that: nothing survives it in any format, and a running sum past it keeps its digits, which
// the logarithm of a gate of 0 (often written as a logit of -1e30) would swallow for all later tokens.
constexpr double kLowestLogGate = -65536;

class Fox : public Encoding {
 public:
  Fox(const Dimensions& dimensions, const std::string& prefix)
      : Encoding(dimensions),
        prefix_(prefix),
        weight_name_(prefix + ".weight"),
        bias_name_(prefix + ".bias"),
        potential_name_(prefix + ".potential") {}

  Traits traits() const override {
    Traits traits;
    traits.content = true;
    traits.forms = {"potential"};
    return traits;
  }

  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    ParameterInfo weight;
    weight.name = weight_name_;
    weight.shape = {dimensions_.heads, dimensions_.width};
    weight.initial = {Initial::Kind::Normal, 0, 0.5 / std::sqrt(static_cast<double>(dimensions_.width)), {}};
    ParameterInfo bias;
    bias.name = bias_name_;
    bias.shape = {dimensions_.heads};
    return {weight, bias};
  }

  NamedTensors arrive(const Question& question, NamedTensors& state) const override {
    const at::Tensor weight = trained(question, weight_name_), bias = trained(question, bias_name_);
    const at::Tensor logit = of_tokens(hidden_states(question, prefix_),
                                       [&](const at::Tensor& x) { return at::matmul(x, weight.t()) + bias; });
    // The logarithm of the gate from its logit: sigmoid would underflow to 0 first. Float64 from here on, as the sums
    // of a long row are large and only their differences count.
    const at::Tensor log_gate = at::log_sigmoid(logit.to(at::kDouble)).clamp_min(kLowestLogGate).transpose(1, 2);
    return {{potential_name_, running_sum(log_gate, question.key, prefix_, state).through}};
  }

  NamedTensors rewind(const Side& tokens, const NamedTensors& kept) const override {
    const auto potential = kept.find(potential_name_);
    return potential == kept.end() ? NamedTensors() : rewound_sum(potential->second, tokens, prefix_);
  }

  std::vector<BiasForm> biases(const Question& question) const override {
    need_causal(question, prefix_, "multiplies the gates of the tokens");
    const at::Tensor& potential = question.kept->at(potential_name_);
    return {{all_heads(), PotentialForm{own_tokens(question, potential), potential}}};
  }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    contract.kept = {potential_name_};
    contract.shift = contract.evict = "exact";
    contract.note =
        "the running sum of every token is kept, so rolling back is exact; keys that stay after an eviction are still "
        "decayed by the gates of those that went";
    return contract;
  }

  void define_path(std::vector<double>& logits, const PlainTokens& tokens,
                   const PlainParameters& parameters) const override {
    const std::vector<double>& weight = plain(parameters, weight_name_);
    const double bias = plain(parameters, bias_name_).at(static_cast<std::size_t>(tokens.head));
    double sum = 0;
    for (std::size_t j = tokens.seen.size(); j-- > 0;) {
      logits[j] += sum;
      double z = bias;
      for (std::int64_t c = 0; c < dimensions_.width; ++c)
        z += weight.at(static_cast<std::size_t>(tokens.head * dimensions_.width + c)) * tokens.seen[j].x[c];
      sum += z < 0 ? z - std::log1p(std::exp(z)) : -std::log1p(std::exp(-z));
    }
  }

  std::vector<std::string> content() const override {
    return {"logarithms of forget gates ln sigmoid(weight x + bias) (B, H, T), summed from the key to the query"};
  }

 private:
  std::string prefix_, weight_name_, bias_name_, potential_name_;
};

}  // namespace

NameInfo fox_name() {
  NameInfo info;
  info.name = "fox";
  info.summary = "forgets: gates that read the content say how much of the past stays at each token";
  info.formula = "f_l = sigmoid(weight_h . x_l + bias_h);  b = ln f_{j+1} + ... + ln f_i  (own gate in, the key's out)";
  info.source = "Lin, Nikishin, He, Courville 2025 (arXiv 2503.02130), section 3";
  info.page = "fox";
  info.make = [](MakeRequest& request) { return std::make_unique<Fox>(request.dimensions, request.prefix); };
  return info;
}

}  // namespace torsor
