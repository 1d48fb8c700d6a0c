#include "torsor/encoding/temperature/llama4_scale.h"

#include <cmath>

#include "torsor/encoding/temperature/temperature.h"

namespace torsor {
namespace {

class Llama4Scale : public Temperature {
 public:
  Llama4Scale(const Dimensions& dimensions, double scale, double length)
      : Temperature(dimensions, "llama4-scale"), scale_(scale), length_(length) {}

  double define_query_factor(const double* pq, std::int64_t /*head*/, std::int64_t /*layer*/) const override {
    // Whole lengths that lie behind the query, itself included; none before position 0.
    const double passed = pq[0] + 1 < length_ ? 0 : std::floor((pq[0] + 1) / length_);
    return 1 + scale_ * std::log(1 + passed);
  }

 protected:
  at::Tensor factors(const at::Tensor& position) const override {
    if (dimensions().precision == Precision::HuggingFace) {
      const at::Tensor passed = ((position.to(at::kFloat) + 1.0) / length_).floor().clamp_min(0);
      return (passed.log1p() * scale_ + 1.0).to(at::kDouble);
    }
    return ((position + 1) / length_).floor().clamp_min(0).log1p() * scale_ + 1;
  }

 private:
  double scale_, length_;
};

}  // namespace

NameInfo llama4_scale_name() {
  using Type = KeyInfo::Type;
  NameInfo info;
  info.name = "llama4-scale";
  info.summary = "sharpens the attention of far queries by one step every `length` positions";
  info.formula = "q.k * (1 + scale * ln(floor((p + 1) / length) + 1)), one factor a query";
  info.source = "Llama 4 release, 2025; Nakanishi 2025, arXiv:2501.19399";
  info.page = "llama4-scale";
  info.keys = {
      {"scale", Type::Number, 0.1, "height of the logarithm", {}, 0},
      {"length", Type::Number, 8192.0, "positions of one step", {}, 1},
  };
  info.make = [](MakeRequest& request) -> std::unique_ptr<Encoding> {
    return std::make_unique<Llama4Scale>(request.dimensions, request.settings.number("scale"),
                                         request.settings.number("length"));
  };
  return info;
}

}  // namespace torsor
