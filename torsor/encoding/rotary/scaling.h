// What the scalings of rotary frequencies share: their operand, their common keys, YaRN's ramp.
#pragma once

#include <utility>

#include "torsor/encoding/registry.h"
#include "torsor/encoding/rotary/rotary.h"

namespace torsor {

/// A rotary encoding with other frequencies, made of the spec of its operand.
class Scaling : public Rotary {
 public:
  using Rotary::Rotary;

 protected:
  /// d of base^(-2i/d).
  double d() const { return static_cast<double>(spec().exponent_width); }
};

/// The planes of request's operand, marked as scaled by `name`. Throws UsageError for an operand that is no plain
/// rotation: a scaling, xpos, trained frequencies (but for linear and yarn) or
/// proportional ones (but for linear).
RotarySpec scaled_spec(MakeRequest& request, const std::string& name);

/// The key train_length, or the model's training length. Throws UsageError when neither is known.
double scaling_length(const MakeRequest& request, const std::string& name);

/// base * stretch^(d/(d - 2)): slows the slowest of d/2 planes by `stretch`.
double ntk_base(double base, double stretch, double d);
/// Throws UsageError when the NTK exponent d/(d - 2) does not exist.
void refuse_two_channels(const RotarySpec& spec);

/// Keys that several scalings have.
KeyInfo factor_key();
KeyInfo length_key();
KeyInfo attention_factor_key();

/// Plane indices between which YaRN's ramp rises: planes before `low` turn `fast` times or more within `length`
/// positions, planes after `high` turn `slow` times or fewer (Peng et al. 2023, arXiv:2309.00071, section 3.2, as
/// published code has it: floor and ceiling, then the range [0, d - 1]).
struct RampRange {
  double low = 0, high = 0;
};
RampRange ramp_range(double fast, double slow, double d, double base, double length, bool truncate);
/// 0 up to low, 1 from high on, linear in the index between.
double ramp(double index, RampRange range);
/// The same for indices 0 ... count - 1 in float32 operations.
at::Tensor ramp_float32(std::int64_t count, RampRange range);

}  // namespace torsor
