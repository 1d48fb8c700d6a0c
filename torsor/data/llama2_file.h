// The bytes of llama2.c's models ("version 0"): seven int32 and float32 weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/base/file.h"

namespace torsor {

class Llama2File {
 public:
  /// What the header says, all at least 1.
  struct Sizes {
    std::int64_t dim = 0, hidden_dim = 0, layers = 0, heads = 0, kv_heads = 0, vocabulary = 0, length = 0;
    bool tied = true;  ///< the output projection is the embedding (the file has a positive vocabulary)
    std::int64_t head_dim() const { return dim / heads; }
  };
  /// float32 numbers, row-major, little-endian, at no particular alignment. `bytes` lives as long as the file.
  struct Tensor {
    std::string name;  ///< as in a Decoder (parameters.h)
    std::vector<std::int64_t> shape;
    std::string_view bytes;
  };

  /// Reads token embedding, norms, wq, wk, wv, wo, norms, w1, w2, w3, final norm, two tables of cosines and sines that
  /// are passed over, and the output projection where it is not tied. Throws Error naming the path where a size has no
  /// meaning or the file is not exactly as long as the sizes say.
  static Llama2File open(const std::string& path);
  static Llama2File from_bytes(std::string bytes, const std::string& source);

  const Sizes& sizes() const { return sizes_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  Llama2File(std::unique_ptr<FileContent> content, const std::string& source);

  std::unique_ptr<FileContent> content_;
  Sizes sizes_;
  std::vector<Tensor> tensors_;
};

}  // namespace torsor
