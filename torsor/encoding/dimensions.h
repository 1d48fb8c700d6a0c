// What an encoding must know of a model: plain numbers, which readers of configurations fill in without libtorch.
#pragma once

#include <cstdint>

namespace torsor {

/// `Exact`: phases, running sums and tables in float64, rounded once. `HuggingFace`: float32 operations in the order
/// that Hugging Face transformers uses (encodings.md C1), to reproduce a checkpoint bit for bit.
enum class Precision { Exact, HuggingFace };

/// The model that an encoding is made for.
struct Dimensions {
  std::int64_t heads = 1;         ///< query heads
  std::int64_t kv_heads = 0;      ///< key heads; 0 = as many as heads; divides heads
  std::int64_t head_dim = 0;      ///< channels of a head
  std::int64_t width = 0;         ///< model width C; 0 = heads * head_dim
  std::int64_t train_length = 0;  ///< L; 0 = unknown: an expression that needs it must say it
  std::int64_t layers = 1;
  Precision precision = Precision::Exact;
};

}  // namespace torsor
