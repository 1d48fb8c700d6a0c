// What the answers of biases and embeddings have in common: the type and device they are given in, and how a trained
// tensor is read.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "torsor/encoding/encoding.h"

namespace torsor {

/// float64 when the call computes in float64, else float32: a bias is never rounded to half precision.
inline at::ScalarType answer_type(const Question& question) {
  return question.q.defined() && question.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

inline at::Device answer_device(const Question& question) {
  return question.q.defined() ? question.q.device() : question.query.positions.device();
}

/// A trained tensor as it was given. Throws Error when the layer's parameters lack it.
inline const at::Tensor& find_trained(const NamedTensors* parameters, const std::string& name) {
  if (parameters != nullptr) {
    const auto found = parameters->find(name);
    if (found != parameters->end() && found->second.defined()) return found->second;
  }
  throw Error(str("the trained tensor '", name, "' was not given"));
}

/// A trained tensor in the type and on the device of the answers; gradients reach the tensor itself.
inline at::Tensor trained(const Question& question, const std::string& name) {
  return find_trained(question.parameters, name).to(answer_device(question), answer_type(question));
}

/// Fixed numbers in a type of choice, on the device of the answers.
inline at::Tensor fixed(const Question& question, const std::vector<double>& values, at::ScalarType type) {
  return at::tensor(values, at::TensorOptions().dtype(at::kDouble)).to(answer_device(question), type);
}

/// The positions of one side as far as rows differ: (1, T) when the batch repeats one row without copying it, else
/// (B, T). Axis 0 is what a bias reads.
inline at::Tensor distinct_positions(const Side& side) {
  at::Tensor positions = side.positions.select(2, 0);
  if (positions.size(0) > 1 && positions.stride(0) == 0) positions = positions.narrow(0, 0, 1);
  return positions;
}

/// A trained tensor's plain values. Throws Error when it was not given.
inline const std::vector<double>& plain(const PlainParameters& parameters, const std::string& name) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) throw Error(str("the trained tensor '", name, "' was not given"));
  return found->second;
}

}  // namespace torsor
