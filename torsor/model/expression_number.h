// Numbers of foreign configurations in expressions.
#pragma once

#include <string>

#include "torsor/base/json.h"

namespace torsor {

/// A number as it is written in an expression: read back it has the same bits.
inline std::string expression_number(double value) { return json_text(Json(value)); }

}  // namespace torsor
