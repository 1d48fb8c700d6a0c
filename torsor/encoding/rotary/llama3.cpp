#include "torsor/encoding/rotary/llama3.h"

#include <cmath>
#include <numbers>

#include "torsor/encoding/rotary/scaling.h"

namespace torsor {
namespace {

struct Llama3Options {
  double factor = 8, low = 1, high = 4, length = 8192;
};

class Llama3 : public Scaling {
 public:
  Llama3(const Dimensions& dimensions, RotarySpec spec, Llama3Options options)
      : Scaling(dimensions, std::move(spec)), options_(options) {}

 protected:
  std::vector<double> frequencies(double base, double length) const override {
    std::vector<double> all = Rotary::frequencies(base, length);
    for (double& frequency : all) {
      const double wavelength = 2 * std::numbers::pi / frequency;
      if (wavelength < options_.length / options_.high) continue;
      if (wavelength > options_.length / options_.low) {
        frequency /= options_.factor;
        continue;
      }
      const double t = (options_.length / wavelength - options_.low) / (options_.high - options_.low);
      frequency = (1 - t) * frequency / options_.factor + t * frequency;
    }
    return all;
  }

  at::Tensor frequencies_float32(double base, double length) const override {
    const at::Tensor plain = Rotary::frequencies_float32(base, length);
    const at::Tensor wavelength = plain.reciprocal() * (2 * std::numbers::pi);
    const at::Tensor is_long = wavelength.gt(options_.length / options_.low);
    const at::Tensor is_short = wavelength.lt(options_.length / options_.high);
    const at::Tensor slowed = at::where(is_long, plain / options_.factor, plain);
    const at::Tensor t = (wavelength.reciprocal() * options_.length - options_.low) / (options_.high - options_.low);
    const at::Tensor blend = (1 - t) * slowed / options_.factor + t * slowed;
    return at::where(is_long.logical_or(is_short), slowed, blend);
  }

  // As a slope over the number of turns within the length, cut at both ends.
  double define_frequency(double base, std::int64_t index, double length) const override {
    const double theta = Rotary::define_frequency(base, index, length);
    const double turns = options_.length * theta / (2 * std::numbers::pi);
    const double kept = (turns - options_.low) / (options_.high - options_.low);
    const double share = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return theta * (share + (1 - share) / options_.factor);
  }

 private:
  Llama3Options options_;
};

}  // namespace

NameInfo llama3_name() {
  using Type = KeyInfo::Type;
  NameInfo info;
  info.name = "llama3";
  info.summary = "keeps short wavelengths, slows long ones by the factor, blends between";
  info.formula =
      "t = (L theta_i / 2 pi - low) / (high - low) cut to [0, 1], theta'_i = (1 - t) theta_i / s + t theta_i";
  info.source = "Llama 3.1 release, 2024; arXiv:2407.21783";
  info.page = "llama3";
  info.operand = Operand::Rotary;
  info.rotary = true;
  KeyInfo factor = factor_key();
  factor.fallback = 8.0;
  info.keys = {
      factor,
      {"low_freq_factor",
       Type::Number,
       1.0,
       "planes with fewer turns within train_length are slowed",
       {},
       0,
       1e300,
       true},
      {"high_freq_factor", Type::Number, 4.0, "planes with more turns within train_length stay", {}, 0, 1e300, true},
      {"train_length", Type::Number, 8192.0, "positions the model was first trained on", {}, 1},
  };
  info.make = [](MakeRequest& request) -> std::unique_ptr<Encoding> {
    const Settings& settings = request.settings;
    const Llama3Options options{settings.number("factor"), settings.number("low_freq_factor"),
                                settings.number("high_freq_factor"), settings.number("train_length")};
    if (options.low >= options.high)
      throw UsageError(
          str("llama3: low_freq_factor=", options.low, " must be smaller than high_freq_factor=", options.high));
    return std::make_unique<Llama3>(request.dimensions, scaled_spec(request, "llama3"), options);
  };
  return info;
}

}  // namespace torsor
