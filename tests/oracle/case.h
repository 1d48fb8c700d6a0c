// One conformance case, and the file that holds many.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/oracle/expression.h"

namespace oracle {

using Json = nlohmann::ordered_json;

/// Row-major numbers with a shape; in a file, null stands for minus infinity.
struct Tensor {
  std::vector<int> shape;
  std::vector<double> data;

  Tensor() = default;
  explicit Tensor(std::vector<int> dims, double fill = 0.0);
  int size(int axis) const { return shape.at(static_cast<std::size_t>(axis)); }
  double at(int a) const { return data[index(a)]; }
  double at(int a, int b) const { return data[index(a, b)]; }
  double at(int a, int b, int c) const { return data[index(a, b, c)]; }
  double at(int a, int b, int c, int d) const { return data[index(a, b, c, d)]; }
  std::size_t index(int a) const { return static_cast<std::size_t>(a); }
  std::size_t index(int a, int b) const { return static_cast<std::size_t>(a) * dim(1) + static_cast<std::size_t>(b); }
  std::size_t index(int a, int b, int c) const { return index(a, b) * dim(2) + static_cast<std::size_t>(c); }
  std::size_t index(int a, int b, int c, int d) const { return index(a, b, c) * dim(3) + static_cast<std::size_t>(d); }

 private:
  std::size_t dim(std::size_t axis) const { return static_cast<std::size_t>(shape[axis]); }
};

using Tensors = std::map<std::string, Tensor>;

struct Case {
  std::string id, note, encoding;
  Tensor q, k, v;                                  ///< (B, Hq, Tq, D), (B, Hk, Tk, D), (B, Hk, Tk, Dv)
  std::optional<Tensor> x;                         ///< (B, Tk, C)
  std::optional<Tensor> state;                     ///< (B, Hs, Tk, W), that enters the layer
  std::optional<Tensor> mlp_out;                   ///< (B, Tk, C), what the layer's MLP answers
  Tensor positions_q, positions_k;                 ///< (B, T, axes)
  std::optional<Tensor> documents_q, documents_k;  ///< (B, T), -1 is padding
  std::optional<Tensor> key_lengths;               ///< (B)
  Tensors named;                                   ///< (B, Tk, ...) each: what tokens bring beside their contents
  int layer = 0, layers = 1;                       ///< the layer's number counts from 0
  Tensors parameters;
  bool causal = true;
  std::optional<int> window;
  std::optional<double> scale;
  std::optional<Tensor> grad_out;  ///< the shape of out

  int rows() const { return q.size(0); }
  int heads() const { return q.size(1); }
  int key_heads() const { return k.size(1); }
  int queries() const { return q.size(2); }
  int keys() const { return k.size(2); }
  int head_dim() const { return q.size(3); }
  int value_dim() const { return v.size(3); }
};

/// What a case's file holds, or should hold, under "outputs": `out`, `lse`, `state`, `carried`, `embedding`, `grad.q`,
/// `grad.k`, `grad.v`, `grad.x` where x is read, `grad.state`, `grad.parameters.NAME`.
using Outputs = Tensors;

Tensor tensor_from_json(const Json& json, const std::string& what);
Json tensor_to_json(const Tensor& tensor, bool whole_numbers = false);

/// Reads a case without its outputs. Throws Unsupported where it has inputs that nothing here reads.
Case case_from_json(const Json& json);
Json case_to_json(const Case& c);

Outputs outputs_from_json(const Json& outputs);
Json outputs_to_json(const Outputs& outputs);

Json read_file(const std::string& path);
/// One case a line, so that two versions of a file can be compared line by line.
void write_file(const std::string& path, const Json& file);

}  // namespace oracle
