#include "torsor/encoding/rotary/linear.h"

#include "torsor/encoding/rotary/scaling.h"

namespace torsor {
namespace {

class Linear : public Scaling {
 public:
  Linear(const Dimensions& dimensions, RotarySpec spec, double factor)
      : Scaling(dimensions, std::move(spec)), factor_(factor) {}

 protected:
  std::vector<double> frequencies(double base, double length) const override {
    std::vector<double> all = Rotary::frequencies(base, length);
    for (double& frequency : all) frequency /= factor_;
    return all;
  }
  at::Tensor frequencies_float32(double base, double length) const override {
    return Rotary::frequencies_float32(base, length) / factor_;
  }
  double define_frequency(double base, std::int64_t index, double length) const override {
    return Rotary::define_frequency(base, index, length) / factor_;
  }

 private:
  double factor_;
};

}  // namespace

NameInfo linear_name() {
  NameInfo info;
  info.name = "linear";
  info.summary = "slows every plane of a rotation by the same factor (position interpolation)";
  info.formula = "theta'_i = theta_i / factor";
  info.source = "Chen et al. 2023, arXiv:2306.15595";
  info.page = "linear";
  info.operand = Operand::Rotary;
  info.rotary = true;
  info.keys = {factor_key()};
  info.make = [](MakeRequest& request) -> std::unique_ptr<Encoding> {
    return std::make_unique<Linear>(request.dimensions, scaled_spec(request, "linear"),
                                    request.settings.number("factor"));
  };
  return info;
}

}  // namespace torsor
