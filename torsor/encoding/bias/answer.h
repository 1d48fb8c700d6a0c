// What the answers of biases and embeddings have in common: the type and device they are given in, and how a trained
// tensor is read.
#pragma once

#include <ATen/ATen.h>

#include <limits>
#include <string>

#include "torsor/encoding/encoding.h"

namespace torsor {

/// float64 when the call computes in float64, else float32: a bias is never rounded to half precision. Of tokens that
/// arrive there may be no q: then k tells.
inline at::ScalarType answer_type(const Question& question) {
  const at::Tensor& told = question.q.defined() ? question.q : question.k;
  return told.defined() && told.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

inline at::Device answer_device(const Question& question) {
  const at::Tensor& told = question.q.defined() ? question.q : question.k;
  return told.defined() ? told.device() : question.query.positions.device();
}

/// The block's input (B, T, C) in the type of the answers. Throws Error when the call brought none; `name` says who
/// reads it.
inline at::Tensor hidden_states(const Question& question, const std::string& name) {
  if (!question.x.defined()) throw Error(str(name, " reads the block's input: x must be given"));
  return question.x.to(answer_device(question), answer_type(question));
}

/// product(tokens) with one entry or row a token: tokens (..., width), the answer (...) or (..., n). A token that is
/// not finite becomes NaN as a whole and has no gradient: products would carry NaN into trained tensors even where
/// nobody sees the token.
template <class Product>
at::Tensor of_tokens(const at::Tensor& tokens, Product product) {
  at::Tensor answer = product(tokens);
  if (at::isfinite(answer).all().item<bool>()) return answer;
  at::Tensor bad = at::isfinite(tokens).all(-1).logical_not();
  const at::Tensor clean = product(tokens.masked_fill(bad.unsqueeze(-1), 0));
  if (clean.dim() > bad.dim()) bad = bad.unsqueeze(-1);
  return clean.masked_fill(bad, std::numeric_limits<double>::quiet_NaN());
}

/// ln(1 + e^z) for any z. (at::softplus answers z itself from 20 on, which is 2e-9 off.)
inline at::Tensor log1p_exp(const at::Tensor& z) { return -at::log_sigmoid(-z); }

/// Refuses a call without causal order: between a query and a later key there is no way that `what` could mean.
inline void need_causal(const Question& question, const std::string& name, const char* what) {
  if (!question.causal)
    throw Refusal(str(name, " ", what, " from a key to a query that comes after it, so it needs causal attention"));
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
