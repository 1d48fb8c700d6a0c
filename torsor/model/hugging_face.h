// Folders of Hugging Face transformers: what their config.json says of positions and blocks, and whose tensors are
// whose.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
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
  std::vector<std::int64_t> end_tokens;  ///< eos_token_id
  std::vector<double> slopes;  ///< of alibi(learn=true): those of the family, where they are no formula of ours
};

/// Whether a config.json is one of Hugging Face's ("model_type"), not one of this project's alone.
bool is_hugging_face(const Json& config);

/// Reads llama, mistral, qwen2, qwen3, phi3, gpt2, gpt_neox, bloom, mpt and falcon. Positions are read from
/// rope_parameters or from the older rope_scaling, rope_theta, rotary_pct, rotary_emb_base and partial_rotary_factor.
/// Throws Error naming `source` and the key: for a family that is not known, for a value that changes the model and is
/// not supported, and for every key about positions that is not known, since ignoring one would be silently wrong.
HuggingFaceModel read_hugging_face(const Json& config, const std::string& source);

/// The tensors of a folder under the names and shapes of Decoder, in float32. Buffers that only repeat what the
/// configuration says (inv_freq, causal masks) are left out. Throws Error naming the tensor and `source`.
std::map<std::string, at::Tensor> hugging_face_weights(const HuggingFaceModel& model,
                                                       const std::map<std::string, at::Tensor>& tensors,
                                                       const std::string& source);

/// All tensors of a folder: model.safetensors, or the files that model.safetensors.index.json names. Throws Error where
/// the index names anything but files of the folder, a tensor is missing, or stands in another file than it says.
std::map<std::string, at::Tensor> load_sharded(const std::string& folder);
/// The names of these files, sorted. Throws Error for an index that is none.
std::vector<std::string> weight_files(const std::string& folder);

}  // namespace torsor
