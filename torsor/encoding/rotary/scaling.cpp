#include "torsor/encoding/rotary/scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace torsor {

RotarySpec scaled_spec(MakeRequest& request, const std::string& name) {
  const Rotary* rotary =
      request.operands.size() == 1 ? dynamic_cast<const Rotary*>(request.operands[0].get()) : nullptr;
  if (!rotary) throw UsageError(str(name, " takes one rotary encoding, for example ", name, "(rope)"));
  RotarySpec spec = rotary->spec();
  if (!spec.scaled_by.empty())
    throw UsageError(str(name, " cannot scale '", spec.scaled_by, "': a scaling takes a plain rotation"));
  if (spec.name == "xpos")
    throw UsageError(str(name, " cannot scale xpos, whose decay is tied to its own frequencies; use rope"));
  if (!spec.trained.empty() && name != "linear" && name != "yarn")
    throw UsageError(str(name, " cannot scale trained frequencies (learn=true); only linear and yarn can"));
  if (spec.proportional && name != "linear")
    throw UsageError(str(name, " cannot scale frequencies=proportional; only linear can"));
  spec.scaled_by = name;
  spec.name = str(name, "(", spec.name, ")");
  return spec;
}

double scaling_length(const MakeRequest& request, const std::string& name) {
  if (!request.settings.is_auto("train_length")) return request.settings.number("train_length");
  if (request.dimensions.train_length <= 0)
    throw UsageError(str(
        name, " needs train_length: the model has no training length here, give train_length= (or --train-length)"));
  return static_cast<double>(request.dimensions.train_length);
}

double ntk_base(double base, double stretch, double d) { return base * std::pow(stretch, d / (d - 2)); }

void refuse_two_channels(const RotarySpec& spec) {
  if (spec.exponent_width < 4)
    throw UsageError(str(spec.name, ": the exponent d/(d - 2) needs at least 4 turning channels a block, found ",
                         spec.exponent_width));
}

KeyInfo factor_key() {
  return {"factor", KeyInfo::Type::Number, std::string(), "how many times longer the context becomes", {}, 1};
}

KeyInfo length_key() {
  return {"train_length",
          KeyInfo::Type::NumberOrAuto,
          std::string("auto"),
          "positions the model was trained on; auto = the model's training length",
          {},
          1};
}

KeyInfo attention_factor_key() {
  return {"attention_factor",
          KeyInfo::Type::NumberOrAuto,
          std::string("auto"),
          "multiplies cos and sin of q and of k",
          {},
          0,
          1e300,
          true};
}

RampRange ramp_range(double fast, double slow, double d, double base, double length, bool truncate) {
  const auto index = [&](double turns) {
    return d * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  double low = index(fast), high = index(slow);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, d - 1);
  if (low == high) high += 0.001;
  return {low, high};
}

double ramp(double index, RampRange range) {
  return std::clamp((index - range.low) / (range.high - range.low), 0.0, 1.0);
}

at::Tensor ramp_float32(std::int64_t count, RampRange range) {
  return ((at::arange(count, at::kFloat) - range.low) / (range.high - range.low)).clamp(0, 1);
}

}  // namespace torsor
