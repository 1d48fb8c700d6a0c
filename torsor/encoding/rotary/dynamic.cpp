#include "torsor/encoding/rotary/dynamic.h"

#include <algorithm>
#include <cmath>

#include "torsor/encoding/rotary/scaling.h"

namespace torsor {
namespace {

class DynamicNtk : public Scaling {
 public:
  DynamicNtk(const Dimensions& dimensions, RotarySpec spec, double factor, double length)
      : Scaling(dimensions, std::move(spec)), factor_(factor), length_(length) {}

 protected:
  bool length_dependent() const override { return true; }
  double regime(double length) const override { return std::max(length, length_); }

  std::vector<double> frequencies(double base, double length) const override {
    // Short documents keep the plain numbers, bit for bit.
    if (length <= length_) return Rotary::frequencies(base, length);
    return Rotary::frequencies(ntk_base(base, factor_ * length / length_ - (factor_ - 1), d()), length);
  }

  // There the length is a tensor, so that the base itself is made in float32.
  at::Tensor frequencies_float32(double base, double length) const override {
    if (length <= length_) return Rotary::frequencies_float32(base, length);
    const at::Tensor tokens = at::scalar_tensor(length, at::kFloat);
    const at::Tensor grown = at::pow(tokens * factor_ / length_ - (factor_ - 1), d() / (d() - 2)) * base;
    const at::Tensor exponent = at::arange(0, 2 * spec().live, 2, at::kLong).to(at::kFloat) / spec().exponent_width;
    return at::pow(grown, exponent).reciprocal();
  }

  double define_frequency(double base, std::int64_t index, double length) const override {
    const double plain = Rotary::define_frequency(base, index, length);
    if (length <= length_) return plain;
    const double stretch = 1 + factor_ * (length - length_) / length_;
    return plain * std::exp(-2.0 * static_cast<double>(index) / (d() - 2) * std::log(stretch));
  }

 private:
  double factor_, length_;
};

}  // namespace

NameInfo dynamic_name() {
  NameInfo info;
  info.name = "dynamic";
  info.summary = "raises the base by as much as the length of the document needs; short documents stay plain";
  info.formula = "theta'_i = base'^(-2i/d), base' = base * (s max(T, L)/L - (s - 1))^(d/(d - 2))";
  info.source = "emozilla 2023, dynamically scaled RoPE; Peng et al. 2023, arXiv:2309.00071, section 3.3";
  info.page = "dynamic";
  info.operand = Operand::Rotary;
  info.rotary = true;
  info.keys = {factor_key(), length_key()};
  info.make = [](MakeRequest& request) -> std::unique_ptr<Encoding> {
    RotarySpec spec = scaled_spec(request, "dynamic");
    refuse_two_channels(spec);
    return std::make_unique<DynamicNtk>(request.dimensions, std::move(spec), request.settings.number("factor"),
                                        scaling_length(request, "dynamic"));
  };
  return info;
}

}  // namespace torsor
