#include "torsor/encoding/rotary/ntk_by_parts.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "torsor/encoding/rotary/scaling.h"

namespace torsor {
namespace {

// Turns within the training length between which linear gives way to NTK, and NTK to the plain frequencies.
constexpr double kLinearFast = 1.25, kLinearSlow = 0.75;
constexpr double kPlainFast = 16, kPlainSlow = 2;

class NtkByParts : public Scaling {
 public:
  NtkByParts(const Dimensions& dimensions, RotarySpec spec, double factor, double length)
      : Scaling(dimensions, std::move(spec)), factor_(factor), length_(length) {}

 protected:
  std::vector<double> frequencies(double base, double length) const override {
    std::vector<double> plain = Rotary::frequencies(base, length);
    const std::vector<double> ntk = Rotary::frequencies(ntk_base(base, factor_, d()), length);
    const RampRange slow = ramp_range(kLinearFast, kLinearSlow, d(), base, length_, true);
    const RampRange fast = ramp_range(kPlainFast, kPlainSlow, d(), base, length_, true);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const double r = ramp(static_cast<double>(i), slow), r2 = ramp(static_cast<double>(i), fast);
      const double blend = plain[i] / factor_ * r + ntk[i] * (1 - r);
      plain[i] = blend * r2 + plain[i] * (1 - r2);
    }
    return plain;
  }

  at::Tensor frequencies_float32(double base, double length) const override {
    const at::Tensor exponent = at::arange(0, 2 * spec().live, 2, at::kFloat) / spec().exponent_width;
    const at::Tensor linear = (at::pow(at::Scalar(base), exponent) * factor_).reciprocal();
    const at::Tensor plain = Rotary::frequencies_float32(base, length);
    const at::Tensor ntk = Rotary::frequencies_float32(ntk_base(base, factor_, d()), length);
    at::Tensor share = 1 - ramp_float32(spec().live, ramp_range(kLinearFast, kLinearSlow, d(), base, length_, true));
    const at::Tensor blend = linear * (1 - share) + ntk * share;
    share = 1 - ramp_float32(spec().live, ramp_range(kPlainFast, kPlainSlow, d(), base, length_, true));
    return blend * (1 - share) + plain * share;
  }

  double define_frequency(double base, std::int64_t index, double length) const override {
    const double plain = Rotary::define_frequency(base, index, length);
    const double ntk = plain * std::exp(-2.0 * static_cast<double>(index) / (d() - 2) * std::log(factor_));
    const double slowness = rise(base, index, kLinearFast, kLinearSlow);
    const double wanted = ntk + slowness * (plain / factor_ - ntk);
    return plain + rise(base, index, kPlainFast, kPlainSlow) * (wanted - plain);
  }

 private:
  // How far plane `index` has come from the one that turns `fast` times to the one that turns `slow` times.
  double rise(double base, std::int64_t index, double fast, double slow) const {
    const auto turning = [&](double turns) {
      return d() / 2 * std::log(length_ / turns / (2 * std::numbers::pi)) / std::log(base);
    };
    const double from = std::max(0.0, std::floor(turning(fast)));
    const double to = std::min(d() - 1, std::ceil(turning(slow)));
    const double done = (static_cast<double>(index) - from) / (from == to ? 0.001 : to - from);
    return done < 0 ? 0 : done > 1 ? 1 : done;
  }

  double factor_, length_;
};

}  // namespace

NameInfo ntk_by_parts_name() {
  NameInfo info;
  info.name = "ntk-by-parts";
  info.summary = "plain frequencies for fast planes, NTK-aware for middling ones, interpolated for slow ones";
  info.formula = "A_i = (theta_i / s) r_i + theta_i(base') (1 - r_i), theta'_i = A_i r2_i + theta_i (1 - r2_i)";
  info.source = "released code of Peng et al. 2023, arXiv:2309.00071, before YaRN";
  info.page = "ntk-by-parts";
  info.operand = Operand::Rotary;
  info.rotary = true;
  info.keys = {factor_key(), length_key()};
  info.make = [](MakeRequest& request) -> std::unique_ptr<Encoding> {
    RotarySpec spec = scaled_spec(request, "ntk-by-parts");
    refuse_two_channels(spec);
    return std::make_unique<NtkByParts>(request.dimensions, std::move(spec), request.settings.number("factor"),
                                        scaling_length(request, "ntk-by-parts"));
  };
  return info;
}

}  // namespace torsor
