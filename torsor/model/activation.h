// What stands between the projections of an MLP.
#pragma once

#include <ATen/ATen.h>

#include "torsor/model/config.h"

namespace torsor {

/// The inner layer of an MLP from its projections (..., width); `gate` is read by gated kinds alone.
at::Tensor activated(MlpKind kind, const at::Tensor& up, const at::Tensor& gate);

}  // namespace torsor
