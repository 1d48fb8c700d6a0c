#include "torsor/encoding/bias/fire.h"

#include <algorithm>
#include <cmath>

#include "torsor/encoding/bias/answer.h"

namespace torsor {
namespace {

class Fire : public Encoding {
 public:
  Fire(const Dimensions& dimensions, std::string prefix, std::int64_t hidden, double length)
      : Encoding(dimensions), prefix_(std::move(prefix)), hidden_(hidden), length_(length) {}

  Traits traits() const override {
    Traits traits;
    traits.relative = false;
    traits.forms = {"piecewise"};
    return traits;
  }

  /// The paper's c = 0.1 and mu = 1; the two layers start as torch.nn.Linear does, uniform up to 1/sqrt(inputs).
  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    const auto uniform = [&](const char* name, std::vector<std::int64_t> shape, double bound) {
      ParameterInfo info;
      info.name = prefix_ + name;
      info.shape = std::move(shape);
      info.initial.kind = Initial::Kind::Uniform;
      info.initial.a = -bound;
      info.initial.b = bound;
      return info;
    };
    const auto constant = [&](const char* name, double value) {
      ParameterInfo info;
      info.name = prefix_ + name;
      info.shape = {1};
      info.initial.a = value;
      return info;
    };
    const double bound = 1 / std::sqrt(static_cast<double>(hidden_));
    return {uniform(".w1", {hidden_}, 1),
            uniform(".b1", {hidden_}, 1),
            uniform(".w2", {dimensions_.heads, hidden_}, bound),
            uniform(".b2", {dimensions_.heads}, bound),
            constant(".c", 0.1),
            constant(".mu", 1)};
  }

  std::vector<BiasForm> biases(const Question& question) const override {
    PiecewiseForm form;
    form.w1 = trained(question, prefix_ + ".w1");
    form.b1 = trained(question, prefix_ + ".b1");
    form.w2 = trained(question, prefix_ + ".w2");
    form.b2 = trained(question, prefix_ + ".b2");
    form.c = trained(question, prefix_ + ".c");
    form.mu = trained(question, prefix_ + ".mu");
    form.length = length_;
    form.epsilon = 1e-6;  // the paper's code; keeps c = 0 finite
    return {{all_heads(), std::move(form)}};
  }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    contract.shift = contract.evict = "exact";
    contract.note =
        "a shift equals a fresh pass at the new positions, but not the pass before it: the bias reads the query's "
        "absolute position";
    return contract;
  }

  double define_bias(const PlainPair& pair, const PlainParameters& parameters) const override {
    const double c = plain(parameters, prefix_ + ".c").at(0), mu = plain(parameters, prefix_ + ".mu").at(0);
    const double longest = std::max(pair.pq[0], std::abs(mu * length_));
    const double z =
        std::log(std::abs(c * (pair.pq[0] - pair.pk[0])) + 1) / (std::log(std::abs(c * longest) + 1) + 1e-6);
    const std::vector<double>& w1 = plain(parameters, prefix_ + ".w1");
    const std::vector<double>& b1 = plain(parameters, prefix_ + ".b1");
    const std::vector<double>& w2 = plain(parameters, prefix_ + ".w2");
    double sum = plain(parameters, prefix_ + ".b2").at(static_cast<std::size_t>(pair.head));
    for (std::size_t k = 0; k < w1.size(); ++k)
      sum += w2.at(static_cast<std::size_t>(pair.head) * w1.size() + k) * std::max(0.0, w1[k] * z + b1.at(k));
    return sum;
  }

 private:
  std::string prefix_;
  std::int64_t hidden_;
  double length_;
};

}  // namespace

NameInfo fire_name() {
  NameInfo info;
  info.name = "fire";
  info.summary = "a small trained network of the distance divided, in logarithms, by the query's position";
  info.formula =
      "b = b2_h + w2_h . relu(w1 z + b1);  z = ln(1 + |c n|) / (ln(1 + |c max(p_q, |mu length|)|) + 1e-6);  n = p_q - "
      "p_k";
  info.source = "Li et al. 2024 (arXiv 2310.04418), section 3";
  info.page = "fire";
  info.keys = {
      {.name = "hidden",
       .type = KeyInfo::Type::Integer,
       .fallback = 32.0,  // the paper's
       .about = "hidden units of the network",
       .low = 1,
       .high = 4096},
      {.name = "length",
       .type = KeyInfo::Type::Number,
       .fallback = 512.0,  // the paper's
       .about = "where the threshold mu * length starts, in tokens",
       .low = 0,
       .high = 1e12,
       .open_low = true},
  };
  info.make = [](MakeRequest& request) {
    return std::make_unique<Fire>(request.dimensions, request.prefix, request.settings.integer("hidden"),
                                  request.settings.number("length"));
  };
  return info;
}

}  // namespace torsor
