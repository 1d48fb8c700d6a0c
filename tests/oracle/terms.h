// Which term of an expression speaks for which heads, and the trained tensors that it has.
#pragma once

#include <string>
#include <vector>

#include "tests/oracle/autodiff.h"
#include "tests/oracle/case.h"

namespace oracle {

/// A term and the query heads that it holds for; to the term they are heads 0 .. heads-1, as if it were alone.
struct Part {
  const Term* term = nullptr;
  const Term* syntax = nullptr;  ///< the sipe that stands around the term
  int first_head = 0, heads = 0;
  int first_key_head = 0, key_heads = 0;

  bool covers(int head) const { return head >= first_head && head < first_head + heads; }
};

/// The parts that act in the case's layer.
std::vector<Part> parts_of(const Sum& sum, const Case& c);

/// One trained tensor.
struct ParameterInfo {
  std::string name;        ///< `t5#2.table`
  std::string tensor;      ///< `table`
  const Term* term;        ///< the term that owns it: the rotary itself, not what scales it
  std::vector<int> shape;  ///< a first size of -1 means 1 or the number of key heads
  int key_heads;
};

/// Every trained tensor that the expression has in the case's layer. `channels` is the width C of the hidden states.
std::vector<ParameterInfo> parameters_of(const Sum& sum, const Case& c, int channels);

/// A tensor of variables.
struct VarTensor {
  std::vector<int> shape;
  std::vector<Var> data;

  const Var& at(int a) const { return data[static_cast<std::size_t>(a)]; }
  const Var& at(int a, int b) const { return data[static_cast<std::size_t>(a * shape[1] + b)]; }
  const Var& at(int a, int b, int c) const { return data[static_cast<std::size_t>((a * shape[1] + b) * shape[2] + c)]; }
  const Var& at(int a, int b, int c, int d) const {
    return data[static_cast<std::size_t>(((a * shape[1] + b) * shape[2] + c) * shape[3] + d)];
  }
};

using Parameters = std::map<std::string, VarTensor>;

/// The trained tensor `tensor` of `term`; throws Error where the case lacks it.
const VarTensor& parameter(const Parameters& parameters, const Term& term, const std::string& tensor);

}  // namespace oracle
