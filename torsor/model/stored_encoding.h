// The expression that a file states, once its other keys have been read without libtorch.
#pragma once

#include <string>

#include "torsor/model/config.h"

namespace torsor {

/// Brings config.encoding to its canonical form and checks that the model can have it. Throws Error naming `source`:
/// what came from a file is bad data, not a bad request.
void check_stored_encoding(ModelConfig& config, const std::string& source);

}  // namespace torsor
