// longrope: two searched lists of divisors, one for short and one for long documents.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// theta'_i = 1 / (f_i base^(2i/d)), f = long when the token's document is longer than train_length, else short; cos
/// and sin times sqrt(1 + ln s / ln L), the same for both (Ding et al. 2024, arXiv:2402.13753; Phi-3). s is `factor`;
/// auto = the model's training length / train_length, and a UsageError where the model has none.
NameInfo longrope_name();

}  // namespace torsor
