// llama3: the scaling of Llama 3.1 and later.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// By wavelength 2 pi / theta_i: shorter than L/high_freq_factor stays, longer than L/low_freq_factor is slowed by the
/// factor, between them a blend linear in L / wavelength (Llama 3.1 release, 2024; arXiv:2407.21783).
NameInfo llama3_name();

}  // namespace torsor
