// The tensors of another library's checkpoint, taken out one by one under this project's names.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

namespace torsor {

class ForeignTensors {
 public:
  /// `source` names the folder or file in messages, `family` the model whose parts the tensors are.
  ForeignTensors(std::map<std::string, at::Tensor> tensors, std::string source, std::string family)
      : left_(std::move(tensors)), source_(std::move(source)), family_(std::move(family)) {}

  bool has(const std::string& name) const { return left_.count(name) > 0; }
  /// Whether the name of any begins so.
  bool any_under(const std::string& root) const;
  /// Takes one out. Throws Error where it is missing or holds no real numbers.
  at::Tensor take(const std::string& name);
  /// Leaves one out, where it is there.
  void drop(const std::string& name) { left_.erase(name); }

  /// Keeps one, in float32.
  void put(const std::string& ours, const at::Tensor& tensor) { result_[ours] = tensor.to(at::kFloat).contiguous(); }
  /// Weight and bias of a module, where they are there (the model says which it misses); `transposed` = a matrix lies
  /// as (inputs, outputs).
  void module(const std::string& theirs, const std::string& ours, bool transposed = false);
  /// One that was kept before; undefined where it was not.
  at::Tensor kept(const std::string& ours) const;

  /// What was kept. Throws Error naming a tensor that nobody took.
  std::map<std::string, at::Tensor> finish();

 private:
  std::map<std::string, at::Tensor> left_, result_;
  std::string source_, family_;
};

}  // namespace torsor
