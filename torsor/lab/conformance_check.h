// Recomputes conformance cases on one path in one dtype and compares; fills in what a case does not say yet.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "torsor/attention/attend.h"
#include "torsor/lab/conformance.h"

namespace torsor {

/// Reference: the definition-shaped path, with every gradient. Fused: the fused kernels. Step and Chunk: through the KV
/// cache, one token or three at a time, without gradients.
enum class CheckPath { Reference, Fused, Step, Chunk };

/// The named per-token inputs of a case as attention takes them. A file's tensors are float64; whole numbers are told
/// from others by the name that the encoding reads them under.
NamedTensors named_inputs(const ConformanceCase& c);

/// Throws UsageError for a name other than reference, fused, step and chunk.
CheckPath check_path_named(const std::string& name);
/// Throws UsageError for a name other than float64, float32 and bf16.
at::ScalarType check_dtype_named(const std::string& name);

struct CaseResult {
  enum class Status { Passed, Failed, Skipped, NotOnThisPath };
  Status status = Status::Passed;
  std::string id;
  std::string tensor;  ///< with the largest share of its tolerance
  double share = 0;    ///< largest error / tolerance; infinite where minus infinities differ or a number is NaN
  double error = 0;    ///< largest error of that tensor
  std::string reason;  ///< why it failed, was skipped, or is not on this path
};

/// Checks one case. One that is wrong itself fails with the reason: an expression that cannot be read, a trained tensor
/// that is missing or has another shape.
CaseResult check_case(const ConformanceCase& c, CheckPath path, const std::string& dtype);

/// The encoding of a case, made for the case's own sizes. Throws Error, naming the case, when the case itself is wrong.
std::shared_ptr<const Encoding> encoding_of(const ConformanceCase& c);

/// As in AttendOptions: what stands behind the moves of q and k, such as a norm; empty = nothing. Cases say nothing of
/// it.
using AfterMoves = std::function<at::Tensor(const at::Tensor&, Role)>;

/// What attention computes for a case without the cache: "out", "lse", "carried", "embedding", "grad...", and "state"
/// after the layer where the case says what the MLP answered and the queries are all of its tokens. Tensors that
/// nothing depends on have no gradient and are left out; without grad_out there are none. `encoding` is that of all
/// layers; c.encoding is not read.
NamedTensors compute_case(const ConformanceCase& c, const Encoding& encoding, at::ScalarType dtype, Path path,
                          const AfterMoves& after_moves = {});

/// "out", "lse" and "carried" through a KV cache, `tokens` at a time. Where what a token gives depends on later tokens
/// (no causal order, frequencies that depend on the length), all keys are appended before the first query is read.
NamedTensors compute_through_cache(const ConformanceCase& c, std::shared_ptr<const Encoding> encoding,
                                   at::ScalarType dtype, std::int64_t tokens, const AfterMoves& after_moves = {});

struct Recorded {
  std::int64_t cases = 0;  ///< cases that were filled in
};

/// Adds to file.json what the cases' outputs lack, computed in float64 on the reference path; nothing there changes.
Recorded record_missing(ConformanceFile& file);

}  // namespace torsor
