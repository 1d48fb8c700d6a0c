// Llama-like models in GGUF files.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "torsor/base/gguf.h"
#include "torsor/data/tokenizer.h"
#include "torsor/model/config.h"

namespace torsor {

struct GgufModel {
  ModelConfig config;
  std::map<std::string, at::Tensor> weights;  ///< float32, under the names of Decoder
  std::vector<std::int64_t> end_tokens;
  std::shared_ptr<const Tokenizer> reader;  ///< nothing where there is none, or none that is read
  std::string unread;                       ///< why one that is there was not read
};

/// Reads the architectures llama (interleaved pairs), qwen2, qwen3 and phi3 (half-split). Scaling is read from
/// rope.scaling.* and rope_freqs, rope_factors_long and _short as llama.cpp reads them; without a type, linear is
/// meant. Throws Error naming the file and the key or tensor: another architecture, a key about positions that is not
/// known, experts, or tensors that do not fit.
GgufModel read_gguf_model(const std::string& path);

}  // namespace torsor
