#include "torsor/model/foreign_tensors.h"

#include <algorithm>
#include <utility>

#include "torsor/encoding/encoding.h"

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

void ForeignTensors::pass_over(const std::string& name) {
  const auto found = left_.find(name);
  if (found == left_.end()) return;
  passed_over_.unread[name] = std::move(found->second);
  left_.erase(found);
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

at::Tensor OwnTensors::take(const std::string& ours) {
  const auto found = left_.find(ours);
  if (found == left_.end()) throw Error(str("the model has no tensor '", ours, "'"));
  at::Tensor tensor = found->second;
  left_.erase(found);
  return tensor;
}

void OwnTensors::module(const std::string& ours, const std::string& theirs, bool transposed) {
  for (const char* part : {".weight", ".bias"}) {
    if (!has(ours + part)) continue;
    const at::Tensor tensor = take(ours + part);
    put(theirs + part, transposed && tensor.dim() == 2 ? tensor.t() : tensor);
  }
}

std::map<std::string, at::Tensor> OwnTensors::finish(const PassedOver& passed_over) {
  if (!left_.empty()) throw Refusal(str("a ", family_, " of Hugging Face has no tensor '", left_.begin()->first, "'"));
  for (const auto& [name, tensor] : passed_over.unread) result_.emplace(name, tensor);
  for (const auto& [name, other] : passed_over.copies) result_.emplace(name, result_.at(other));
  return std::move(result_);
}

}  // namespace torsor
