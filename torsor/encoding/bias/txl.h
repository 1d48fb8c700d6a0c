// txl: Transformer-XL's relative attention.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `txl(order=halves)`: logit = scale * ((q + u).k + (q + v).(W R_n)), n = p_q - p_k real (Dai et al. 2019,
/// section 3.3).
///
/// R_n (C) is the sinusoid of the distance at the model's width C, base 10000: frequency i is 10000^(-2i/C);
/// order=halves puts the sines first and the cosines after them (the authors' code), order=interleaved takes them in
/// turn. Trained, a query head each: `u`, `v` (H, D), `w` (H, D, C).
///
/// Answers: u is added to q; the second term is one product of per-token vectors of width C. With a = W^T (q + v),
/// a_s on the sines and a_c on the cosines, angle addition gives
///   query (a_s sin(p_q f) + a_c cos(p_q f), a_c sin(p_q f) - a_s cos(p_q f)),  key (cos(p_k f), sin(p_k f)).
NameInfo txl_name();

}  // namespace torsor
