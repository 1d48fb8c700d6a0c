#include "torsor/encoding/rotary/xpos.h"

#include <cmath>

#include "torsor/encoding/rotary/rotary.h"

namespace torsor {
namespace {

class Xpos : public Rotary {
 public:
  Xpos(const Dimensions& dimensions, RotarySpec spec, double scale_base, double gamma)
      : Rotary(dimensions, std::move(spec)), scale_base_(scale_base), gamma_(gamma) {}

  std::vector<Decay> decays() const override {
    std::vector<double> rate;
    const double d = static_cast<double>(spec().width);
    for (std::int64_t i = 0; i < spec().planes(); ++i)
      rate.push_back(std::log((2.0 * static_cast<double>(i) + gamma_ * d) / ((1 + gamma_) * d)) / scale_base_);
    Decay decay;
    decay.heads = all_heads();
    decay.layout = spec().layout;
    decay.offset = spec().offset;
    decay.width = spec().width;
    decay.blocks = spec().blocks;
    decay.rate = at::tensor(rate, at::kDouble);
    return {decay};
  }

 protected:
  double define_decay(std::int64_t index, double distance) const override {
    const double place = static_cast<double>(index) / static_cast<double>(spec().planes());
    return std::pow((place + gamma_) / (1 + gamma_), distance / scale_base_);
  }

 private:
  double scale_base_, gamma_;
};

}  // namespace

NameInfo xpos_name() {
  using Type = KeyInfo::Type;
  NameInfo info;
  info.name = "xpos";
  info.summary = "a rotation whose planes fade with the distance, the slow ones least";
  info.formula =
      "plane i of q.k turns as in rope and is multiplied by zeta_i^((p_q - p_k)/S), zeta_i = (2i + g d)/((1 + g) d)";
  info.source = "Sun et al. 2022, arXiv:2212.10554";
  info.page = "xpos";
  info.rotary = true;
  info.keys = {
      {"base", Type::Number, 10000.0, "base of the frequencies", {}, 1, 1e300, true},
      {"scale_base", Type::Number, 512.0, "S: distance at which plane i has faded to zeta_i", {}, 0, 1e300, true},
      {"gamma", Type::Number, 0.4, "how little the fastest plane keeps; larger fades less", {}, 0, 1e300, true},
      {"layout",
       Type::Word,
       std::string("half"),
       "pairs (i, i + d/2), or interleaved pairs (2i, 2i + 1)",
       {"half", "interleaved"}},
  };
  info.make = [](MakeRequest& request) -> std::unique_ptr<Encoding> {
    const Settings& settings = request.settings;
    const std::int64_t width = request.dimensions.head_dim;
    if (width % 2 != 0) throw UsageError(str("xpos: head_dim=", width, " must be even"));
    RotarySpec spec;
    spec.name = "xpos";
    spec.layout = settings.word("layout") == "interleaved" ? Layout::Interleaved : Layout::Half;
    spec.width = spec.exponent_width = width;
    spec.live = width / 2;
    spec.bases = {settings.number("base")};
    return std::make_unique<Xpos>(request.dimensions, std::move(spec), settings.number("scale_base"),
                                  settings.number("gamma"));
  };
  return info;
}

}  // namespace torsor
