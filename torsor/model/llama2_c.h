// llama2.c's models: llama2_file.h as a decoder.
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

/// Reads a file. Throws Error as Llama2File does.
Llama2Model read_llama2(const std::string& path);

/// The tokenizer that lies beside a file: tok<vocabulary>.bin or tokenizer.bin; nothing where there is none. Throws
/// Error where it has another number of pieces.
std::shared_ptr<const Llama2Tokenizer> find_llama2_tokenizer(const std::string& path, std::int64_t vocabulary);

}  // namespace torsor
