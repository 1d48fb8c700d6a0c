// The decision tree: which injection of syntax for which encoding, what a closed gate means, what to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "torsor/syntax/gate.h"

namespace torsor::syntax {

struct AdviceQuestion {
  std::string encoding;            ///< of the model as it is ("rope", "alibi", "txl", ...); "" or "none" = no positions
  bool encoder = false;            ///< reads in both directions
  bool oracle = false;             ///< neither generation nor a real perplexity is needed
  bool pretrained = false;         ///< the base has been trained already
  std::optional<GateReport> gate;  ///< of the parser that is to be used
  std::vector<std::string> domains;  ///< that the model will read; empty = those of the gate
  bool allow_unverified = false;
  std::optional<double> rise;  ///< of the perplexity against the base, where one was measured
};

struct Advice {
  std::string expression;            ///< what to write; empty = leave the encoding as it is
  std::vector<std::string> reasons;  ///< why, and what else holds; one sentence each
  std::vector<std::string> closed;   ///< domains that run without tags
  bool stop = false;                 ///< the perplexity gate has tripped
};

/// Throws UsageError for an encoding that sipe takes none of, and for what is no expression.
Advice advise(const AdviceQuestion& question);

/// The whole tree as text.
std::string decision_tree();

}  // namespace torsor::syntax
