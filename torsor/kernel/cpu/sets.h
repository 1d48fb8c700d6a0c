// The instruction sets that the fused kernels are compiled for. Include it before Highway.
#pragma once

// Register tiles are arrays of vectors, which sets with vectors of unknown length do not have.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
