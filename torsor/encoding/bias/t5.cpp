#include "torsor/encoding/bias/t5.h"

#include <cmath>

#include "torsor/encoding/bias/answer.h"
#include "torsor/encoding/bias/bucket.h"

namespace torsor {
namespace {

class T5 : public Encoding {
 public:
  T5(const Dimensions& dimensions, std::string prefix, Buckets rule, bool shared)
      : Encoding(dimensions), table_name_(prefix + ".table"), rule_(rule), shared_(shared) {}

  Traits traits() const override {
    Traits traits;
    traits.forms = {"table"};
    return traits;
  }

  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    ParameterInfo info;
    info.name = table_name_;
    info.shape = {rule_.buckets, dimensions_.heads};
    info.initial.kind = Initial::Kind::Normal;
    info.initial.b = 0.02;  // small beside a logit's spread of 1; T5's own start, 1/sqrt(width), is for scale = 1
    info.shared = shared_;
    return {info};
  }

  std::vector<BiasForm> biases(const Question& question) const override {
    return {{all_heads(), TableForm{rule_, trained(question, table_name_)}}};
  }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    contract.shift = contract.evict = "exact";
    contract.note = "keys are kept as they are; only positions move";
    return contract;
  }

  double define_bias(const PlainPair& pair, const PlainParameters& parameters) const override {
    const std::int64_t row = bucket(pair.pq[0] - pair.pk[0]);
    return plain(parameters, table_name_).at(static_cast<std::size_t>(row * dimensions_.heads + pair.head));
  }

  std::vector<std::int64_t> buckets(const std::vector<double>& distances) const override {
    std::vector<std::int64_t> rows;
    for (const double distance : distances) rows.push_back(bucket(distance));
    return rows;
  }

 private:
  /// The rule of bucket.h once more, one distance at a time: this is the definition.
  std::int64_t bucket(double distance) const {
    double n = distance - std::remainder(distance, 1.0);  // nearest whole, halves to even
    std::int64_t count = rule_.buckets, first = 0;
    if (rule_.bidirectional) {
      count /= 2;
      if (n < 0) first = count;
      n = std::abs(n);
    }
    if (n < 0) n = 0;
    double limit = static_cast<double>(rule_.max_distance);
    if (rule_.far == Buckets::Far::Wrap) n -= limit * std::floor(n / limit);
    if (rule_.far == Buckets::Far::Log) limit = 1048576;
    const std::int64_t e = count / 2;
    if (n < static_cast<double>(e)) return first + static_cast<std::int64_t>(n);
    const double start = static_cast<double>(e);
    const double steps = std::log(n / start) / std::log(limit / start) * static_cast<double>(count - e);
    // The logarithms of exact powers may come out a rounding below the whole number (buckets=9, max_distance=128, n=8).
    return first + std::min(e + static_cast<std::int64_t>(std::floor(steps + 1e-10)), count - 1);
  }

  std::string table_name_;
  Buckets rule_;
  bool shared_;
};

KeyInfo key(std::string name, KeyInfo::Type type, Value fallback, std::string about) {
  KeyInfo info;
  info.name = std::move(name);
  info.type = type;
  info.fallback = std::move(fallback);
  info.about = std::move(about);
  return info;
}

}  // namespace

NameInfo t5_name() {
  NameInfo info;
  info.name = "t5";
  info.summary = "a trained table: near distances have a row each, far ones share rows on a logarithmic scale";
  info.formula =
      "b = table[bucket(n)][h], n = p_q - p_k;  e = buckets/2;  n < e: n, else e + floor(ln(n/e) / ln(max_distance/e) * "
      "(buckets - e)), at most buckets - 1";
  info.source = "Raffel et al. 2020 (arXiv 1910.10683), section 2.1";
  info.page = "t5.md";
  KeyInfo buckets = key("buckets", KeyInfo::Type::Integer, 32.0, "rows of the table");
  buckets.low = 2;
  buckets.high = 65536;
  KeyInfo max_distance = key("max_distance", KeyInfo::Type::Integer, 128.0, "distance, in tokens, at which the last row begins");
  max_distance.low = 2;
  max_distance.high = kFarLogDistance;
  KeyInfo far = key("far", KeyInfo::Type::Word, std::string("clamp"),
                    "past max_distance: clamp = all share the last row; wrap = modulo max_distance; log = rows spread to 2^20");
  far.words = {"clamp", "wrap", "log"};
  info.keys = {buckets, max_distance,
               key("bidirectional", KeyInfo::Type::Boolean, false, "half of the rows for keys after the query"), far,
               key("shared", KeyInfo::Type::Boolean, false, "one table for all layers instead of one a layer")};
  info.make = [](MakeRequest& request) {
    const Settings& settings = request.settings;
    Buckets rule;
    rule.buckets = settings.integer("buckets");
    rule.max_distance = settings.integer("max_distance");
    rule.bidirectional = settings.boolean("bidirectional");
    const std::string& word = settings.word("far");
    rule.far = word == "wrap" ? Buckets::Far::Wrap : word == "log" ? Buckets::Far::Log : Buckets::Far::Clamp;
    check_buckets(rule, "t5");
    return std::make_unique<T5>(request.dimensions, request.prefix, rule, settings.boolean("shared"));
  };
  return info;
}

}  // namespace torsor
