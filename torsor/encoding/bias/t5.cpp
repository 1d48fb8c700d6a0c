#include "torsor/encoding/bias/t5.h"

#include <cmath>

#include "torsor/encoding/bias/answer.h"
#include "torsor/encoding/bias/bucket.h"

namespace torsor {
namespace {

class T5 : public Encoding {
 public:
  T5(const Dimensions& dimensions, const std::string& prefix, Buckets rule, bool shared)
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

}  // namespace

NameInfo t5_name() {
  NameInfo info;
  info.name = "t5";
  info.summary = "a trained table: near distances have a row each, far ones share rows on a logarithmic scale";
  info.formula =
      "b = table[bucket(n)][h], n = p_q - p_k;  e = buckets/2;  n < e: n, else "
      "e + floor(ln(n/e) / ln(max_distance/e) * (buckets - e)), at most buckets - 1";
  info.source = "Raffel et al. 2020 (arXiv 1910.10683), section 2.1";
  info.page = "t5";
  info.keys = {
      {.name = "buckets",
       .type = KeyInfo::Type::Integer,
       .fallback = 32.0,
       .about = "rows of the table",
       .low = 2,
       .high = 65536},
      {.name = "max_distance",
       .type = KeyInfo::Type::Integer,
       .fallback = 128.0,
       .about =
           "distance in tokens from which far=clamp tells nothing apart and far=wrap starts again (far=log ignores it)",
       .low = 2,
       .high = kFarLogDistance},
      {
          .name = "bidirectional",
          .type = KeyInfo::Type::Boolean,
          .fallback = false,
          .about = "half of the rows for keys before the query, half for keys after it",
      },
      {.name = "far",
       .type = KeyInfo::Type::Word,
       .fallback = std::string("clamp"),
       .about = "far distances: clamp = the last row, wrap = modulo max_distance, log = rows spread up to 2^20",
       .words = {"clamp", "wrap", "log"}},
      {
          .name = "shared",
          .type = KeyInfo::Type::Boolean,
          .fallback = false,
          .about = "one table for all layers, not one a layer",
      },
  };
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
