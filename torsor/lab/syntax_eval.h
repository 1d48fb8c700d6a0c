// SyntaxGym suites and BLiMP pairs under a decoder (sipe.md 6.1, 6.2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/data/blimp.h"
#include "torsor/data/syntaxgym.h"
#include "torsor/lab/surprisal.h"

namespace torsor {

struct SuiteEvaluation {
  bool refused = false;
  std::string reason;
  bool leaks = false;  ///< the encoding's inputs tell of later words: not comparable with scores that come without
  std::vector<SuiteResult> results;
  SuiteSummary summary;
};

/// Scores every suite: surprisals of its sentences, values of the regions, predictions. A refusal of the encoding
/// refuses the whole. Throws Interrupted.
SuiteEvaluation evaluate_suites(const Decoder& model, const std::vector<Suite>& suites, const SentenceOptions& options);

struct BlimpEvaluation {
  bool refused = false;
  std::string reason;
  bool leaks = false;
  std::vector<ParadigmResult> results;
  BlimpSummary summary;
};

/// Compares the probabilities of whole sentences.
BlimpEvaluation evaluate_blimp(const Decoder& model, const std::vector<Paradigm>& paradigms,
                               const SentenceOptions& options);

/// Entries of results.json: {"task": "syntax" or "blimp", "length", "status", "reason", "accuracy": the mean over what
/// counts, "groups": [{"name": circuit or linguistics_term, "accuracy", "count"}], "suites" or "paradigms": [{"name",
/// "group", "counted", "accuracy", "items"}], "windows": 1 for each item that is right and 0 for the others where all
/// suites have equally many, so that the accuracy is the mean of the windows; else empty}, with "leaks": true where it
/// does. `length` is the training length.
Json suite_evaluation_to_json(const SuiteEvaluation& evaluation, std::int64_t length);
Json blimp_evaluation_to_json(const BlimpEvaluation& evaluation, std::int64_t length);

}  // namespace torsor
