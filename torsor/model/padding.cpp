#include "torsor/model/padding.h"

namespace torsor {

at::Tensor positions_without_padding(const at::Tensor& documents) {
  if (!documents.defined() || documents.dim() != 2 || documents.size(1) < 2) return {};
  const at::Tensor there = documents.ge(0);
  const std::int64_t behind = there.size(1) - 1;
  if (!there.narrow(1, 1, behind).gt(there.narrow(1, 0, behind)).any().item<bool>()) return {};
  return (there.cumsum(1) - 1).clamp_min(0).to(at::kDouble).unsqueeze(2);
}

}  // namespace torsor
