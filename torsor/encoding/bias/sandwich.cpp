#include "torsor/encoding/bias/sandwich.h"

#include <cmath>

#include "torsor/encoding/bias/answer.h"

namespace torsor {
namespace {

class Sandwich : public Encoding {
 public:
  Sandwich(const Dimensions& dimensions, std::int64_t width) : Encoding(dimensions), width_(width) {
    for (std::int64_t i = 0; i < width / 2; ++i)
      frequency_.push_back(std::exp(-std::log(10000.0) * static_cast<double>(2 * i) / static_cast<double>(width)));
    for (std::int64_t head = 1; head <= dimensions.heads; ++head)
      weight_.push_back(static_cast<double>(dimensions.heads) / (8.0 * static_cast<double>(head)));
  }

  Traits traits() const override {
    Traits traits;
    traits.forms = {"cosine"};
    return traits;
  }

  std::vector<BiasForm> biases(const Question& question) const override {
    return {{all_heads(), CosineForm{fixed(question, frequency_, at::kDouble), fixed(question, weight_, at::kDouble)}}};
  }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    contract.shift = contract.evict = "exact";
    contract.note = "keys are kept as they are; only positions move";
    return contract;
  }

  double define_bias(const PlainPair& pair, const PlainParameters&) const override {
    const double n = pair.pq[0] - pair.pk[0], width = static_cast<double>(width_);
    double sum = 0;
    for (double channel = 0; channel < width; channel += 2) sum += std::cos(n / std::pow(10000.0, channel / width));
    const double ratio = 8.0 * static_cast<double>(pair.head + 1) / static_cast<double>(dimensions_.heads);
    return sum / ratio;
  }

 private:
  std::int64_t width_;
  std::vector<double> frequency_, weight_;
};

}  // namespace

NameInfo sandwich_name() {
  NameInfo info;
  info.name = "sandwich";
  info.summary = "the inner product of the two tokens' sinusoidal vectors, added to the logit";
  info.formula = "b = H / (8 (h + 1)) * sum_{i < width/2} cos(n / 10000^(2i/width));  n = p_q - p_k";
  info.source = "Chi, Fan, Rudnicky, Ramadge 2023 (arXiv 2212.10356), section 5";
  info.page = "sandwich";
  info.keys = {
      {.name = "width",
       .type = KeyInfo::Type::Integer,
       .fallback = 128.0,  // the paper's
       .about = "channels of the sinusoidal vector, even",
       .low = 2,
       .high = 65536},
  };
  info.make = [](MakeRequest& request) {
    const std::int64_t width = request.settings.integer("width");
    if (width % 2 != 0) throw UsageError(str("sandwich: width=", width, " must be even"));
    return std::make_unique<Sandwich>(request.dimensions, width);
  };
  return info;
}

}  // namespace torsor
