// Whether a config.json of another library, read back, says the same model: nothing is written that would be read as
// another one.
#pragma once

#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/encoding/encoding.h"
#include "torsor/model/config.h"

namespace torsor {

/// Whether two models' expressions mean the same: the same words, or rotations by the same angles at every length.
bool same_positions(const ModelConfig& a, const ModelConfig& b);
/// One phrase where they do not, else empty.
std::string encoding_difference(const ModelConfig& config, const ModelConfig& read);

/// The keys of `mine` that `theirs` says otherwise, a phrase each: "mlp=\"swiglu\", not \"gelu\"".
std::vector<std::string> key_differences(const Json& mine, const Json& theirs);

/// What `read` says otherwise than `config` of all that decides a decoder's function.
std::vector<std::string> model_differences(const ModelConfig& config, const ModelConfig& read);

/// What is thrown where no family has a model: the nearest one, and what keeps it from having the model.
Refusal no_family(const std::string& nearest, const std::vector<std::string>& reasons);

}  // namespace torsor
