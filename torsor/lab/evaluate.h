// Language modelling at several lengths: every length scores the same targets once, in non-overlapping windows of that
// length inside a document (evaluation.md, rules of evidence).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/data/batches.h"
#include "torsor/model/decoder.h"

namespace torsor {

struct LmEvaluation {
  std::int64_t length = 0;
  bool refused = false;
  std::string reason;           ///< why it was refused
  double loss = 0;              ///< mean nats a target
  std::vector<double> windows;  ///< mean loss of each window
  struct Bucket {
    std::int64_t from = 0, to = 0;  ///< positions of the inputs, `to` exclusive
    double loss = 0;
  };
  std::vector<Bucket> positions;
};

/// `stop` is asked between calls of the model; when it answers true, Interrupted is thrown.
LmEvaluation evaluate_lm(const Decoder& model, const Corpus& corpus, const EvaluationPlan& plan, std::int64_t length,
                         at::ScalarType dtype, const std::function<bool()>& stop = {});

/// The entry of results.json; bits a byte only where a token is a byte.
Json evaluation_to_json(const LmEvaluation& evaluation, bool tokens_are_bytes);

}  // namespace torsor
