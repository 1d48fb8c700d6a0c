#include "torsor/encoding/bias/alibi.h"

#include <cmath>

#include "torsor/encoding/bias/answer.h"
#include "torsor/encoding/bias/slopes.h"

namespace torsor {
namespace {

class Alibi : public Encoding {
 public:
  Alibi(const Dimensions& dimensions, const std::string& prefix, double max_exponent, bool learn)
      : Encoding(dimensions),
        slopes_name_(prefix + ".slopes"),
        max_exponent_(max_exponent),
        learn_(learn),
        slopes_(alibi_slopes(dimensions.heads, max_exponent)) {}

  Traits traits() const override {
    Traits traits;
    traits.forms = {"linear"};
    return traits;
  }

  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    if (!learn_) return {};
    ParameterInfo info;
    info.name = slopes_name_;
    info.shape = {dimensions_.heads};
    info.initial.kind = Initial::Kind::Values;
    info.initial.values = slopes_;
    return {info};
  }

  std::vector<BiasForm> biases(const Question& question) const override {
    at::Tensor slope = learn_ ? trained(question, slopes_name_) : fixed(question, slopes_, answer_type(question));
    return {{all_heads(), LinearForm{std::move(slope)}}};
  }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    contract.shift = contract.evict = "exact";
    contract.note = "keys are kept as they are; only positions move";
    return contract;
  }

  double define_bias(const PlainPair& pair, const PlainParameters& parameters) const override {
    const double slope = learn_ ? plain(parameters, slopes_name_).at(static_cast<std::size_t>(pair.head))
                                : define_alibi_slope(pair.head, dimensions_.heads, max_exponent_);
    return -slope * std::abs(pair.pq[0] - pair.pk[0]);
  }

  std::vector<double> slopes() const override { return slopes_; }

 private:
  std::string slopes_name_;
  double max_exponent_;
  bool learn_;
  std::vector<double> slopes_;
};

}  // namespace

NameInfo alibi_name() {
  NameInfo info;
  info.name = "alibi";
  info.summary = "a penalty that grows in a straight line with the distance, a slope a head";
  info.formula = "b = -slope_h * |p_q - p_k|;  slope_h = 2^(-max_exponent (h + 1) / H) for H a power of two";
  info.source = "Press, Smith, Lewis 2022 (arXiv 2108.12409), section 3";
  info.page = "alibi";
  info.keys = {
      {.name = "max_exponent",
       .type = KeyInfo::Type::Number,
       .fallback = 8.0,  // the paper's
       .about = "the last head's slope is 2^-max_exponent",
       .low = 0,
       .high = 126,  // 2^-126 is the smallest normal float32
       .open_low = true},
      {
          .name = "learn",
          .type = KeyInfo::Type::Boolean,
          .fallback = false,
          .about = "train the slopes, starting at the formula's values",
      },
  };
  info.make = [](MakeRequest& request) {
    return std::make_unique<Alibi>(request.dimensions, request.prefix, request.settings.number("max_exponent"),
                                   request.settings.boolean("learn"));
  };
  return info;
}

}  // namespace torsor
