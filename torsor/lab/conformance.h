// Conformance files, "torsor-conformance-1": cases of attention under an encoding, and what they must give. The format
// is described in docs/conformance.md.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/encoding/encoding.h"

namespace torsor {

/// The largest error of a tensor may be abs + rel * its largest finite absolute value.
struct Tolerance {
  double rel = 0;
  double abs = 0;
};

/// One case. Numbers are float64 and indices int64, whatever dtype the case is computed in; tensors that the file does
/// not give are undefined.
struct ConformanceCase {
  std::string id;
  std::string where;                    ///< "FILE: case 'ID'", for messages
  std::string encoding;                 ///< the expression as written
  at::Tensor q, k, v;                   ///< (B, Hq, Tq, D), (B, Hk, Tk, D), (B, Hk, Tk, Dv)
  at::Tensor x;                         ///< (B, Tk, C)
  at::Tensor positions_q, positions_k;  ///< (B, T, axes)
  at::Tensor documents_q, documents_k;  ///< (B, T) int64
  at::Tensor key_lengths;               ///< (B) int64
  at::Tensor state;                     ///< (B, Hs, Tk, W) position state that enters the layer
  at::Tensor mlp_out;  ///< (B, Tk, C) what the layer's MLP answers, before it is added to the residual stream
  NamedTensors named;
  std::int64_t layer = 0, layers = 1;
  NamedTensors parameters;
  bool causal = true;
  std::optional<std::int64_t> window;
  std::optional<double> scale;
  at::Tensor grad_out;  ///< (B, Hq, Tq, Dv)
  /// By name: "out", "lse", "state", "carried", "embedding", "grad.q", "grad.state", "grad.parameters.t5.table" ...
  NamedTensors outputs;
  std::map<std::string, Tolerance> tolerance;  ///< by dtype: "float64", "float32", "bf16"
  std::string fault;                           ///< why the case could not be read; empty = it could
};

/// What becomes of a file with a case that is wrong in itself.
enum class Faulty {
  Refused,  ///< Error
  Kept      ///< the case has a `fault` and no tensors; the others are read all the same
};

struct ConformanceFile {
  Json json;  ///< the document as it was read
  std::vector<ConformanceCase> cases;
};

/// Reads a document and checks every shape and type that does not depend on the encoding. Throws Error naming the
/// source, the case and the key; of a single case only where `faulty` asks for it.
ConformanceFile parse_conformance(const std::string& text, const std::string& source, Faulty faulty = Faulty::Refused);
ConformanceFile read_conformance(const std::string& path, Faulty faulty = Faulty::Refused);

/// The text of a document, one case a line.
std::string conformance_text(const Json& document);

/// {"shape": [...], "data": [...]}, row-major, minus infinity as null. Throws Error for any other number that is not
/// finite, naming `what`.
Json tensor_to_json(const at::Tensor& tensor, const std::string& what);

}  // namespace torsor
