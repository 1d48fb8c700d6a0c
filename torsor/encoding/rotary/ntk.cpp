#include "torsor/encoding/rotary/ntk.h"

#include <cmath>

#include "torsor/encoding/rotary/scaling.h"

namespace torsor {
namespace {

class Ntk : public Scaling {
 public:
  Ntk(const Dimensions& dimensions, RotarySpec spec, double factor)
      : Scaling(dimensions, std::move(spec)), factor_(factor) {}

 protected:
  std::vector<double> frequencies(double base, double length) const override {
    return Rotary::frequencies(ntk_base(base, factor_, d()), length);
  }
  at::Tensor frequencies_float32(double base, double length) const override {
    return Rotary::frequencies_float32(ntk_base(base, factor_, d()), length);
  }
  // base'^(-2i/d) = base^(-2i/d) * factor^(-2i/(d - 2))
  double define_frequency(double base, std::int64_t index, double length) const override {
    return Rotary::define_frequency(base, index, length) *
           std::exp(-2.0 * static_cast<double>(index) / (d() - 2) * std::log(factor_));
  }

 private:
  double factor_;
};

}  // namespace

NameInfo ntk_name() {
  NameInfo info;
  info.name = "ntk";
  info.summary = "raises the base so that the slowest plane is slowed by the factor and the fastest stays";
  info.formula = "theta'_i = base'^(-2i/d), base' = base * factor^(d/(d - 2))";
  info.source = "bloc97 2023, NTK-aware scaled RoPE; Peng et al. 2023, arXiv:2309.00071, section 3.1";
  info.page = "ntk";
  info.operand = Operand::Rotary;
  info.rotary = true;
  info.keys = {factor_key()};
  info.make = [](MakeRequest& request) -> std::unique_ptr<Encoding> {
    RotarySpec spec = scaled_spec(request, "ntk");
    refuse_two_channels(spec);
    return std::make_unique<Ntk>(request.dimensions, std::move(spec), request.settings.number("factor"));
  };
  return info;
}

}  // namespace torsor
