// What the config.json of Hugging Face transformers says of a decoder, read without libtorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/model/config.h"
#include "torsor/model/hugging_face_names.h"

namespace torsor {

struct HuggingFaceModel {
  std::string model_type;
  ModelConfig config;
  FusedRows fused = FusedRows::Apart;
  std::vector<std::int64_t> end_tokens;  ///< eos_token_id, what the vocabulary has of it
  std::vector<double> slopes;  ///< of alibi(learn=true): those of the family, where they are no formula of ours
};

/// Whether a config.json is one of Hugging Face's ("model_type"), not one of this project's alone.
bool is_hugging_face(const Json& config);

/// Reads llama, mistral, qwen2, qwen3, phi3, gpt2, gpt_neox, bloom, mpt and falcon. Positions are read from
/// rope_parameters or from the older rope_scaling, rope_theta, rotary_pct, rotary_emb_base and partial_rotary_factor.
/// Throws Error naming `source` and the key: for a family that is not known, for a value that changes the model and is
/// not supported, and for every key about positions that is not known, since ignoring one would be silently wrong. The
/// expression is of the grammar; whether the registry has it for this model, read_hugging_face (hugging_face.h) checks.
HuggingFaceModel describe_hugging_face(const Json& config, const std::string& source);

}  // namespace torsor
