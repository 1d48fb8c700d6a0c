#include "torsor/encoding/temperature/logn.h"

#include <cmath>

#include "torsor/encoding/temperature/temperature.h"

namespace torsor {
namespace {

class Logn : public Temperature {
 public:
  Logn(const Dimensions& dimensions, double length) : Temperature(dimensions, "logn"), length_(length) {}

  double define_query_factor(const double* pq, std::int64_t /*head*/, std::int64_t /*layer*/) const override {
    // The logarithm of p + 1 to the base L, once p has left the training length behind.
    return pq[0] + 1 <= length_ ? 1 : std::log(pq[0] + 1) / std::log(length_);
  }

 protected:
  at::Tensor factors(const at::Tensor& position) const override {
    return ((position + 1).clamp_min(1).log() / std::log(length_)).clamp_min(1);
  }

 private:
  double length_;
};

}  // namespace

NameInfo logn_name() {
  NameInfo info;
  info.name = "logn";
  info.summary = "sharpens the attention of far queries: the logits grow with the logarithm of the position";
  info.formula = "q.k * max(1, ln(p + 1) / ln(L)), one factor a query";
  info.source = "Su 2021, entropy invariance of attention; Qwen";
  info.page = "logn";
  info.keys = {{"train_length",
                KeyInfo::Type::NumberOrAuto,
                std::string("auto"),
                "positions the model was trained on; auto = the model's training length",
                {},
                1,
                1e300,
                true}};
  info.make = [](MakeRequest& request) -> std::unique_ptr<Encoding> {
    double length = static_cast<double>(request.dimensions.train_length);
    if (!request.settings.is_auto("train_length")) length = request.settings.number("train_length");
    if (length <= 0)
      throw UsageError(
          "logn needs train_length: the model has no training length here, give train_length= (or --train-length)");
    if (length <= 1) throw UsageError(str("logn: train_length=", length, " must be above 1"));
    return std::make_unique<Logn>(request.dimensions, length);
  };
  return info;
}

}  // namespace torsor
