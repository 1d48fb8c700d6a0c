#include "torsor/encoding/rotary/longrope.h"

#include <cmath>

#include "torsor/encoding/rotary/scaling.h"

namespace torsor {
namespace {

struct LongRopeOptions {
  std::vector<double> short_factors, long_factors;  // one a plane of a block
  double length = 0;
  double factor = 1;
  std::optional<double> attention_factor;
};

class LongRope : public Scaling {
 public:
  LongRope(const Dimensions& dimensions, RotarySpec spec, LongRopeOptions options)
      : Scaling(dimensions, std::move(spec)), options_(std::move(options)) {
    if (options_.attention_factor)
      magnitude_ = *options_.attention_factor;
    else if (options_.factor > 1)
      magnitude_ = std::sqrt(1 + std::log(options_.factor) / std::log(options_.length));
  }

 protected:
  bool length_dependent() const override { return true; }
  double regime(double length) const override { return length > options_.length ? 1 : 0; }
  double magnitude() const override { return magnitude_; }

  std::vector<double> frequencies(double base, double length) const override {
    std::vector<double> all = Rotary::frequencies(base, length);
    const std::vector<double>& divisors = chosen(length);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] /= divisors[i];
    return all;
  }

  at::Tensor frequencies_float32(double base, double length) const override {
    const at::Tensor exponent = at::arange(0, 2 * spec().live, 2, at::kLong).to(at::kFloat) / spec().exponent_width;
    return (at::tensor(chosen(length), at::kFloat) * at::pow(at::Scalar(base), exponent)).reciprocal();
  }

  double define_frequency(double base, std::int64_t index, double length) const override {
    const std::size_t i = static_cast<std::size_t>(index);
    const double divisor = length > options_.length ? options_.long_factors[i] : options_.short_factors[i];
    return Rotary::define_frequency(base, index, length) / divisor;
  }

  double define_magnitude() const override {
    if (options_.attention_factor) return *options_.attention_factor;
    if (options_.factor <= 1) return 1;
    return std::sqrt(std::log(options_.factor * options_.length) / std::log(options_.length));
  }

 private:
  const std::vector<double>& chosen(double length) const {
    return length > options_.length ? options_.long_factors : options_.short_factors;
  }

  LongRopeOptions options_;
  double magnitude_ = 1;
};

std::unique_ptr<Encoding> make_longrope(MakeRequest& request) {
  const Settings& settings = request.settings;
  RotarySpec spec = scaled_spec(request, "longrope");
  LongRopeOptions options;
  options.short_factors = settings.list("short");
  options.long_factors = settings.list("long");
  for (const auto& [key, list] : {std::pair("short", &options.short_factors), std::pair("long", &options.long_factors)})
    if (static_cast<std::int64_t>(list->size()) != spec.block_planes())
      throw UsageError(
          str("longrope: ", key, "= needs ", spec.block_planes(), " numbers, one a plane, found ", list->size()));
  options.length = scaling_length(request, "longrope");
  if (!settings.is_auto("attention_factor")) {
    options.attention_factor = settings.number("attention_factor");
  } else {
    if (!settings.is_auto("factor"))
      options.factor = settings.number("factor");
    else if (request.dimensions.train_length > 0)
      options.factor = static_cast<double>(request.dimensions.train_length) / options.length;
    else
      throw UsageError(
          "longrope needs factor: the model has no training length here, give factor= or attention_factor=");
    if (options.factor > 1 && options.length <= 1)
      throw UsageError(str("longrope: train_length=", options.length, " must be above 1 to give a magnitude"));
  }
  return std::make_unique<LongRope>(request.dimensions, std::move(spec), std::move(options));
}

}  // namespace

NameInfo longrope_name() {
  using Type = KeyInfo::Type;
  NameInfo info;
  info.name = "longrope";
  info.summary = "divides each frequency by its own factor: one list for short documents, one for long ones";
  info.formula =
      "theta'_i = 1 / (f_i base^(2i/d)), f = long if T > L else short; cos and sin times sqrt(1 + ln s/ln L)";
  info.source = "Ding et al. 2024, arXiv:2402.13753; Phi-3";
  info.page = "longrope";
  info.operand = Operand::Rotary;
  info.rotary = true;
  info.keys = {
      {"short", Type::List, std::string(), "a divisor a plane while T <= train_length", {}, 0, 1e300, true},
      {"long", Type::List, std::string(), "a divisor a plane beyond it", {}, 0, 1e300, true},
      length_key(),
      {"factor",
       Type::NumberOrAuto,
       std::string("auto"),
       "s of the magnitude; auto = the model's training length / train_length",
       {},
       0,
       1e300,
       true},
      attention_factor_key(),
  };
  info.make = make_longrope;
  return info;
}

}  // namespace torsor
