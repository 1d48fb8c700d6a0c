// Random weights in the form of another library's checkpoints, and the plain float64 pieces that say what they mean.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/base/test_folder.h"
#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/train/state.h"

namespace torsor::testing {

/// Named float32 tensors from one seeded stream, and the same numbers in float64.
class ForeignWeights {
 public:
  explicit ForeignWeights(std::uint64_t seed) : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {}

  void add(const std::string& name, const std::vector<std::int64_t>& shape, double deviation = 0.3, double mean = 0) {
    tensors_[name] = (at::randn(shape, generator_) * deviation + mean).to(at::kFloat);
  }
  void linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias = true) {
    add(name + ".weight", {outputs, inputs}, 1.2 / std::sqrt(static_cast<double>(inputs)));
    if (bias) add(name + ".bias", {outputs}, 0.2);
  }
  void norm(const std::string& name, std::int64_t width, bool bias = true) {
    add(name + ".weight", {width}, 0.2, 1);
    if (bias) add(name + ".bias", {width}, 0.2);
  }

  at::Tensor operator()(const std::string& name) const { return tensors_.at(name).to(at::kDouble); }
  std::map<std::string, at::Tensor>& tensors() { return tensors_; }

  /// x W^T + b in float64.
  at::Tensor apply(const std::string& name, const at::Tensor& x) const {
    at::Tensor y = at::matmul(x, (*this)(name + ".weight").t());
    return tensors_.count(name + ".bias") > 0 ? y + (*this)(name + ".bias") : y;
  }

 private:
  at::Generator generator_;
  std::map<std::string, at::Tensor> tensors_;
};

/// Heads of (T, H d) as (H, T, d), and back.
inline at::Tensor split_heads(const at::Tensor& x, std::int64_t heads) {
  return x.view({x.size(0), heads, -1}).transpose(0, 1);
}
inline at::Tensor join_heads(const at::Tensor& x) { return x.transpose(0, 1).reshape({x.size(1), -1}); }

/// A folder of transformers.
inline void write_hugging_face(const TestFolder& folder, const Json& config, ForeignWeights& weights) {
  write_file_atomic(folder / "config.json", json_text(config));
  save_tensors(folder / "model.safetensors", weights.tensors(), {{"format", "pt"}});
}

/// (count) ids from `first` on and below `end`.
inline at::Tensor some_tokens(std::int64_t count, std::int64_t first, std::int64_t end, std::uint64_t seed) {
  return at::randint(first, end, {count}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kLong);
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace torsor::testing
