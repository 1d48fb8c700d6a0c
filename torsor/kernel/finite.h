// Tells whether numbers are finite, in one pass at the speed of memory.
#pragma once

#include <cstdint>

#include "torsor/kernel/element.h"

namespace torsor::kernel {

/// True when none of the `count` numbers is infinite or NaN.
bool all_finite(Element element, const void* numbers, std::int64_t count);

}  // namespace torsor::kernel
