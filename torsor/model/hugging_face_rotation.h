// Rotary expressions as the keys of Hugging Face's config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "torsor/base/json.h"
#include "torsor/model/config.h"

namespace torsor {

struct RotationKeys {
  Json parameters;                            ///< rope_parameters; null where there is no such rotation
  std::string obstacle;                       ///< why there is none
  std::int64_t longest = 0;                   ///< max_position_embeddings
  std::optional<std::int64_t> original = {};  ///< original_max_position_embeddings of the types that have one
};

/// The keys of rope and of linear, ntk, dynamic, yarn, longrope and llama3 around it, in the form of transformers 5.
/// They may say less than the expression (that trained frequencies are trained, say): read them back and compare.
/// `longest` as in HuggingFaceRequest.
RotationKeys rotation_keys(const ModelConfig& config, std::int64_t longest);

}  // namespace torsor
