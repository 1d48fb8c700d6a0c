#include "torsor/encoding/rotary/yarn.h"

#include <cmath>
#include <numbers>

#include "torsor/encoding/rotary/scaling.h"

namespace torsor {
namespace {

struct YarnOptions {
  double factor = 1;
  double length = 0;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  std::optional<double> attention_factor;
  double mscale = 0, mscale_all_dim = 0;
};

// 0.1 ln s + 1 is the fit of the paper's section 3.4 (its sqrt(1/t)).
double sharpening(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

class Yarn : public Scaling {
 public:
  Yarn(const Dimensions& dimensions, RotarySpec spec, YarnOptions options)
      : Scaling(dimensions, std::move(spec)), options_(options) {
    const double s = options_.factor;
    if (options_.attention_factor)
      magnitude_ = *options_.attention_factor;
    else if (options_.mscale != 0 && options_.mscale_all_dim != 0)
      magnitude_ = sharpening(s, options_.mscale) / sharpening(s, options_.mscale_all_dim);
    else
      magnitude_ = sharpening(s, 1);
  }

  double softmax_factor() const override {
    if (options_.mscale_all_dim == 0) return 1;
    const double one_side = sharpening(options_.factor, options_.mscale_all_dim);
    return one_side * one_side;
  }

 protected:
  double magnitude() const override { return magnitude_; }

  std::vector<double> frequencies(double base, double length) const override {
    std::vector<double> all = Rotary::frequencies(base, length);
    const RampRange range = range_of(base);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double r = ramp(static_cast<double>(i), range);
      all[i] = all[i] / options_.factor * r + all[i] * (1 - r);
    }
    return all;
  }

  at::Tensor frequencies_float32(double base, double /*length*/) const override {
    const at::Tensor exponent = at::arange(0, 2 * spec().live, 2, at::kFloat) / spec().exponent_width;
    const at::Tensor power = at::pow(at::Scalar(base), exponent);
    const at::Tensor stays = power.reciprocal(), slowed = (power * options_.factor).reciprocal();
    const at::Tensor share = 1 - ramp_float32(spec().live, range_of(base));
    return slowed * (1 - share) + stays * share;
  }

  double define_frequency(double base, std::int64_t index, double length) const override {
    const double theta = Rotary::define_frequency(base, index, length), i = static_cast<double>(index);
    // The real-valued index of a plane that turns `beta` times in L positions: L theta = 2 pi beta.
    const auto turning = [&](double beta) {
      return d() / 2 * std::log(options_.length / (2 * std::numbers::pi) / beta) / std::log(base);
    };
    double low = turning(options_.beta_fast), high = turning(options_.beta_slow);
    if (options_.truncate) low = std::floor(low), high = std::ceil(high);
    if (low < 0) low = 0;
    if (high > d() - 1) high = d() - 1;
    if (high == low) high = low + 0.001;
    const double rise = (i - low) / (high - low);
    if (rise <= 0) return theta;
    if (rise >= 1) return theta / options_.factor;
    return theta * (1 - rise * (1 - 1 / options_.factor));
  }

  double define_magnitude() const override {
    if (options_.attention_factor) return *options_.attention_factor;
    if (options_.factor <= 1) return 1;
    const double a = std::log(options_.factor) / 10;
    if (options_.mscale == 0 || options_.mscale_all_dim == 0) return 1 + a;
    return (1 + a * options_.mscale) / (1 + a * options_.mscale_all_dim);
  }

 private:
  RampRange range_of(double base) const {
    return ramp_range(options_.beta_fast, options_.beta_slow, d(), base, options_.length, options_.truncate);
  }

  YarnOptions options_;
  double magnitude_ = 1;
};

std::unique_ptr<Encoding> make_yarn(MakeRequest& request) {
  const Settings& settings = request.settings;
  YarnOptions options;
  options.factor = settings.number("factor");
  options.length = scaling_length(request, "yarn");
  options.beta_fast = settings.number("beta_fast");
  options.beta_slow = settings.number("beta_slow");
  if (options.beta_fast <= options.beta_slow)
    throw UsageError(str("yarn: beta_fast=", options.beta_fast, " must be larger than beta_slow=", options.beta_slow));
  options.truncate = settings.boolean("truncate");
  if (!settings.is_auto("attention_factor")) options.attention_factor = settings.number("attention_factor");
  options.mscale = settings.number("mscale");
  options.mscale_all_dim = settings.number("mscale_all_dim");
  return std::make_unique<Yarn>(request.dimensions, scaled_spec(request, "yarn"), options);
}

}  // namespace

NameInfo yarn_name() {
  using Type = KeyInfo::Type;
  NameInfo info;
  info.name = "yarn";
  info.summary = "keeps fast planes, slows slow planes by the factor, and sharpens attention";
  info.formula =
      "theta'_i = (theta_i / s) r_i + theta_i (1 - r_i), r a ramp over plane indices; cos and sin times 0.1 ln s + 1";
  info.source =
      "Peng et al. 2023, arXiv:2309.00071, sections 3.2 and 3.4; DeepSeek-V2 2024, arXiv:2405.04434 for mscale";
  info.page = "yarn";
  info.operand = Operand::Rotary;
  info.rotary = true;
  info.keys = {
      factor_key(),
      length_key(),
      {"beta_fast", Type::Number, 32.0, "planes that turn this often in train_length stay", {}, 0, 1e300, true},
      {"beta_slow", Type::Number, 1.0, "planes that turn this seldom in it are slowed", {}, 0, 1e300, true},
      {"truncate", Type::Boolean, true, "round the ends of the ramp to whole planes", {}},
      attention_factor_key(),
      {"mscale", Type::Number, 0.0, "with mscale_all_dim: numerator of the magnitude", {}, 0},
      {"mscale_all_dim", Type::Number, 0.0, "scales the softmax; with mscale: denominator of the magnitude", {}, 0},
  };
  info.make = make_yarn;
  return info;
}

}  // namespace torsor
