#include "torsor/model/foreign_tensors.h"

#include <algorithm>
#include <utility>

#include "torsor/base/error.h"

namespace torsor {

bool ForeignTensors::any_under(const std::string& root) const {
  return std::any_of(left_.begin(), left_.end(), [&](const auto& one) { return one.first.starts_with(root); });
}

at::Tensor ForeignTensors::take(const std::string& name) {
  const auto found = left_.find(name);
  if (found == left_.end()) throw Error(str(source_, ": tensor '", name, "' is missing"));
  at::Tensor tensor = std::move(found->second);
  left_.erase(found);
  if (!at::isFloatingType(tensor.scalar_type()))
    throw Error(str(source_, ": tensor '", name, "' must be floating, found ", tensor.scalar_type()));
  return tensor;
}

void ForeignTensors::module(const std::string& theirs, const std::string& ours, bool transposed) {
  for (const char* part : {".weight", ".bias"}) {
    if (!has(theirs + part)) continue;
    const at::Tensor tensor = take(theirs + part);
    put(ours + part, transposed && tensor.dim() == 2 ? tensor.t() : tensor);
  }
}

at::Tensor ForeignTensors::kept(const std::string& ours) const {
  const auto found = result_.find(ours);
  return found == result_.end() ? at::Tensor() : found->second;
}

std::map<std::string, at::Tensor> ForeignTensors::finish() {
  if (!left_.empty())
    throw Error(str(source_, ": tensor '", left_.begin()->first, "' ", left_.begin()->second.sizes(),
                    " belongs to no part of a ", family_, " that is read here"));
  return std::move(result_);
}

}  // namespace torsor
