// How words are counted: from 1, since head 0 is the root.
#pragma once

#include <cstddef>

namespace torsor::syntax {

/// Where a word, 1 for the first, stands in an array of all.
inline std::size_t index(int word) { return static_cast<std::size_t>(word) - 1; }

}  // namespace torsor::syntax
