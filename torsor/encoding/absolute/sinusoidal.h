// sinusoidal: fixed sines and cosines of the position, added to the token embedding.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `sinusoidal(base=10000, order=interleaved)`: frequency f_i = base^(-2i/C), i < C/2 (Vaswani et al. 2017,
/// section 3.5).
///
///   order=interleaved   channels 2i, 2i + 1 = sin(p f_i), cos(p f_i)     (the paper)
///   order=halves        channels i, i + C/2 = sin(p f_i), cos(p f_i)     (Marian, RoFormer)
///
/// embedding() answers (B, T, C) float64 for any real position, to be rounded once where it is added; padding tokens
/// (document -1) get zeros. Nothing is trained.
NameInfo sinusoidal_name();

}  // namespace torsor
