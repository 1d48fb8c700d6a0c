// The tensors of another library's checkpoint, taken out one by one under this project's names.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

namespace torsor {

/// What a folder holds and its model here does not, under the folder's names: kept so that the folder can be written
/// again as it was.
struct PassedOver {
  std::map<std::string, at::Tensor> unread;   ///< no part of the model
  std::map<std::string, std::string> copies;  ///< repeats the numbers of another tensor: its name, and that one's
};

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
  /// The same, and keeps it among passed_over().
  void pass_over(const std::string& name);
  PassedOver& passed_over() { return passed_over_; }

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
  PassedOver passed_over_;
  std::string source_, family_;
};

/// The way back: a model's tensors, taken out one by one under another library's names.
class OwnTensors {
 public:
  /// `family` as above.
  OwnTensors(std::map<std::string, at::Tensor> tensors, std::string family)
      : left_(std::move(tensors)), family_(std::move(family)) {}

  bool has(const std::string& ours) const { return left_.count(ours) > 0; }
  /// Takes one out. Throws Error where it is missing.
  at::Tensor take(const std::string& ours);
  void put(const std::string& theirs, const at::Tensor& tensor) { result_[theirs] = tensor.contiguous(); }
  /// As ForeignTensors::module.
  void module(const std::string& ours, const std::string& theirs, bool transposed = false);

  /// What was put, and what was passed over in reading. Throws Refusal naming a tensor that nobody took.
  std::map<std::string, at::Tensor> finish(const PassedOver& passed_over = {});

 private:
  std::map<std::string, at::Tensor> left_, result_;
  std::string family_;
};

}  // namespace torsor
