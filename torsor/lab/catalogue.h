// What encodings exist: names, formulas, keys, trained tensors, bias forms, cache contracts, from the registry.
#pragma once

#include <string>

#include "torsor/base/json.h"

namespace torsor {

/// Every name in the order of the documentation: [{"name", "summary", "formula", "source", "keys": [{"name", "type",
/// "default", "range", "words", "about"}], "trained": [{"name", "shape", "with"}], "takes", "bias_forms", "rotates",
/// "relative", "length_dependent", "reads_content", "cache": {"keys", "kept", "shift", "evict", "note"}}].
///
/// A shape is a list of numbers and of the letters H (query heads), K (key heads), D (head width), D/2, C (model width)
/// and L (training length); "with" is the key that brings the tensor, or null. "cache" and what follows from a made
/// encoding are null for heads and layers, which are what they are made of.
Json catalogue();

/// One entry. Throws UsageError for an unknown name, telling what there is.
Json catalogue_entry(const std::string& name);

/// The same for people: all names with their summaries, or everything about one.
std::string catalogue_text();
std::string catalogue_text(const std::string& name);

}  // namespace torsor
