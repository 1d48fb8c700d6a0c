// llama2.c's files ("version 0"): seven int32 and float32 weights.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "torsor/data/llama2_tokenizer.h"
#include "torsor/model/config.h"

namespace torsor {

struct Llama2Model {
  ModelConfig config;  ///< rope with interleaved pairs, as the file has them
  std::map<std::string, at::Tensor> weights;
};

/// Reads a file: dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size (negative: the output projection is a
/// tensor of its own), seq_len; then token embedding, norms, wq, wk, wv, wo, norms, w1, w2, w3, final norm, two tables
/// of cosines and sines that are not read, and the output projection. Throws Error naming the path where a size has no
/// meaning or the file is not exactly as long as they say.
Llama2Model read_llama2(const std::string& path);

/// The tokenizer that lies beside a file: tok<vocabulary>.bin or tokenizer.bin; nothing where there is none. Throws
/// Error where it has another number of pieces.
std::shared_ptr<const Llama2Tokenizer> find_llama2_tokenizer(const std::string& path, std::int64_t vocabulary);

}  // namespace torsor
