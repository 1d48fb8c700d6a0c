#include "torsor/model/document_positions.h"

#include <cstdint>

namespace torsor {

at::Tensor positions_in_documents(const at::Tensor& documents) {
  if (!documents.defined() || documents.dim() != 2) return {};
  const at::Tensor plain = documents.to(at::TensorOptions(at::kLong).device(at::kCPU)).contiguous();
  const std::int64_t tokens = plain.size(1);
  at::Tensor positions = at::zeros({plain.size(0), tokens, 1}, at::kDouble);
  bool apart = false;
  for (std::int64_t row = 0; row < plain.size(0); ++row) {
    const std::int64_t* of = plain.const_data_ptr<std::int64_t>() + row * tokens;
    double* to = positions.data_ptr<double>() + row * tokens;
    std::int64_t document = -1, count = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (of[t] < 0) continue;
      if (of[t] != document) document = of[t], count = 0;
      to[t] = static_cast<double>(count);
      apart = apart || count != t;
      ++count;
    }
  }
  return apart ? positions.to(documents.device()) : at::Tensor();
}

}  // namespace torsor
