#include "torsor/encoding/absolute/sinusoidal.h"

#include <cmath>

#include "torsor/encoding/bias/answer.h"

namespace torsor {
namespace {

class Sinusoidal : public Encoding {
 public:
  Sinusoidal(const Dimensions& dimensions, double base, bool halves)
      : Encoding(dimensions), base_(base), halves_(halves) {
    for (std::int64_t i = 0; i < dimensions.width / 2; ++i)
      frequency_.push_back(
          std::exp(-std::log(base) * static_cast<double>(2 * i) / static_cast<double>(dimensions.width)));
  }

  Traits traits() const override {
    Traits traits;
    traits.absolute = true;
    traits.relative = false;
    return traits;
  }

  at::Tensor embedding(const Side& tokens, const NamedTensors&, const NamedTensors&, const at::Tensor&) const override {
    const at::Tensor positions = distinct_positions(tokens).to(at::kDouble);
    const at::Tensor frequency = at::tensor(frequency_, at::TensorOptions().dtype(at::kDouble)).to(positions.device());
    const at::Tensor angle = positions.unsqueeze(2) * frequency;  // (B|1, T, C/2)
    at::Tensor vectors =
        halves_ ? at::cat({angle.sin(), angle.cos()}, 2) : at::stack({angle.sin(), angle.cos()}, 3).flatten(2);
    if (tokens.documents.defined()) vectors = vectors.masked_fill(tokens.documents.lt(0).unsqueeze(2), 0);
    return vectors.expand({tokens.positions.size(0), tokens.tokens(), dimensions_.width});
  }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    contract.shift =
        "sinusoidal is part of the hidden states: cached keys and values keep the positions they were made at";
    contract.evict = "exact";
    contract.note = "keys are kept as they are; their positions are fixed at arrival";
    return contract;
  }

  double define_embedding(double position, std::int64_t channel, const PlainParameters&) const override {
    const std::int64_t half = dimensions_.width / 2;
    const std::int64_t plane = halves_ ? channel % half : channel / 2;
    const bool sine = halves_ ? channel < half : channel % 2 == 0;
    const double angle =
        position / std::pow(base_, static_cast<double>(2 * plane) / static_cast<double>(dimensions_.width));
    return sine ? std::sin(angle) : std::cos(angle);
  }

 private:
  double base_;
  bool halves_;
  std::vector<double> frequency_;
};

}  // namespace

NameInfo sinusoidal_name() {
  NameInfo info;
  info.name = "sinusoidal";
  info.summary = "fixed sines and cosines of the position, added to the token embedding";
  info.formula = "e[2i] = sin(p / base^(2i/C)), e[2i + 1] = cos(p / base^(2i/C));  order=halves: e[i] and e[i + C/2]";
  info.source = "Vaswani et al. 2017 (arXiv 1706.03762), section 3.5";
  info.page = "sinusoidal";
  info.absolute = true;
  info.keys = {
      {.name = "base",
       .type = KeyInfo::Type::Number,
       .fallback = 10000.0,  // the paper's
       .about = "the slowest wave is near 2 pi base tokens long",
       .low = 1,
       .high = 1e300},
      {.name = "order",
       .type = KeyInfo::Type::Word,
       .fallback = std::string("interleaved"),
       .about = "channels: a sine and a cosine in turn, or sines then cosines",
       .words = {"interleaved", "halves"}},
  };
  info.make = [](MakeRequest& request) {
    if (request.dimensions.width % 2 != 0)
      throw UsageError(str("sinusoidal needs an even model width for its sines and cosines, found width ",
                           request.dimensions.width));
    return std::make_unique<Sinusoidal>(request.dimensions, request.settings.number("base"),
                                        request.settings.word("order") == "halves");
  };
  return info;
}

}  // namespace torsor
