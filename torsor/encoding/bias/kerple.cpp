#include "torsor/encoding/bias/kerple.h"

#include <algorithm>
#include <cmath>

#include "torsor/encoding/bias/answer.h"

namespace torsor {
namespace {

class Kerple : public Encoding {
 public:
  Kerple(const Dimensions& dimensions, const std::string& prefix, bool power)
      : Encoding(dimensions), r1_name_(prefix + ".r1"), r2_name_(prefix + ".r2"), power_(power) {}

  Traits traits() const override {
    Traits traits;
    traits.forms = {power_ ? "power" : "log"};
    return traits;
  }

  /// The authors' code starts the factor of the logarithm and the exponent of the power between 0 and 2, the other two
  /// between 0 and 1.
  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    ParameterInfo r1, r2;
    r1.name = r1_name_;
    r2.name = r2_name_;
    r1.shape = r2.shape = {dimensions_.heads};
    r1.initial.kind = r2.initial.kind = Initial::Kind::Uniform;
    r1.initial.b = power_ ? 1 : 2;
    r2.initial.b = power_ ? 2 : 1;
    return {r1, r2};
  }

  std::vector<BiasForm> biases(const Question& question) const override {
    const at::Tensor r1 = trained(question, r1_name_).clamp_min(0.01);
    const at::Tensor r2 = trained(question, r2_name_);
    if (power_) return {{all_heads(), PowerForm{r1, r2.clamp(0.01, 2.0)}}};
    return {{all_heads(), LogForm{r1, r2.clamp_min(0.01)}}};
  }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    contract.shift = contract.evict = "exact";
    contract.note = "keys are kept as they are; only positions move";
    return contract;
  }

  double define_bias(const PlainPair& pair, const PlainParameters& parameters) const override {
    const auto head = static_cast<std::size_t>(pair.head);
    const double r1 = std::max(plain(parameters, r1_name_).at(head), 0.01);
    double r2 = std::max(plain(parameters, r2_name_).at(head), 0.01);
    const double distance = std::abs(pair.pq[0] - pair.pk[0]);
    if (!power_) return -r1 * std::log1p(r2 * distance);
    r2 = std::min(r2, 2.0);
    return -r1 * std::pow(distance, r2);
  }

 private:
  std::string r1_name_, r2_name_;
  bool power_;
};

}  // namespace

NameInfo kerple_name() {
  NameInfo info;
  info.name = "kerple";
  info.summary = "a penalty that grows like a logarithm (or a power) of the distance, two trained numbers a head";
  info.formula =
      "b = -r1 ln(1 + r2 |n|), or -r1 |n|^r2 with kind=power;  n = p_q - p_k;  r1, r2 >= 0.01, power r2 <= 2";
  info.source = "Chi, Fan, Ramadge, Rudnicky 2022 (arXiv 2205.09921), section 4";
  info.page = "kerple";
  info.keys = {
      {.name = "kind",
       .type = KeyInfo::Type::Word,
       .fallback = std::string("log"),
       .about = "how the penalty grows with the distance",
       .words = {"log", "power"}},
  };
  info.make = [](MakeRequest& request) {
    return std::make_unique<Kerple>(request.dimensions, request.prefix, request.settings.word("kind") == "power");
  };
  return info;
}

}  // namespace torsor
