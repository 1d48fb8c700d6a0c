// learned: a trained vector for every position, added to the token embedding.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `learned(length=L)`: embedding = table[position]. Trained: `table` (length, C), one for the model.
///
/// embedding() answers (B, T, C) in the table's type. A position must be a whole number in [0, length); anything else
/// is an Error that names the position and the length. Padding tokens (document -1) get zeros and are never looked up.
/// (Gehring et al. 2017, section 3.1; GPT-2, BERT.)
NameInfo learned_name();

}  // namespace torsor
