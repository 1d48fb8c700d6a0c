// Folders of Hugging Face transformers: what their config.json says of positions and blocks, and whose tensors are
// whose.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/model/hugging_face_config.h"

namespace torsor {

/// What describe_hugging_face reads, its expression checked for this model and brought to its canonical form. Throws
/// Error as it does, and for an encoding that there is not.
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
