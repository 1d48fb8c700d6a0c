// linear: position interpolation.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// theta'_i = theta_i / factor (Chen et al. 2023, arXiv:2306.15595). Takes proportional frequencies too.
NameInfo linear_name();

}  // namespace torsor
