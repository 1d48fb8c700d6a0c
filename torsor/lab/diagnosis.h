// What breaks past the training length, why, and what to do: findings in words from facts (diagnosis_facts.h) and from
// measurements (diagnosis_model.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/lab/diagnosis_facts.h"
#include "torsor/lab/diagnosis_model.h"

namespace torsor {

enum class Severity { Breaks, Degrades, Note };
const char* severity_name(Severity severity);

struct Finding {
  Severity severity = Severity::Note;
  bool measured = false;             ///< on text; else expected, from expression and weights alone
  std::string topic;                 ///< one word: loss, angles, scaling, rows, table, embedding, lengths ...
  std::optional<std::int64_t> from;  ///< tokens of the shortest text that it concerns; nothing = every length
  std::string what, why;             ///< sentences without their full stop
  std::vector<std::string> advice;   ///< what to do; a command begins with "torsor "
};

struct Diagnosis {
  std::string checkpoint;   ///< path; empty for an expression
  std::int64_t layers = 0;  ///< of the checkpoint; of an expression the period of its pattern
  Facts facts;
  std::optional<Measures> measures;
  std::string not_measured;       ///< why there are no measures; empty where there are
  std::vector<Finding> findings;  ///< worst first, measured before expected
  std::vector<std::string> verdict;
};

/// Fills in findings and verdict from the rest.
void judge(Diagnosis& diagnosis);

/// The expression with every rotation stretched `factor` times by yarn, or by linear where yarn cannot; nothing where
/// there is no rotation that could be.
std::optional<std::string> stretched(const std::string& encoding, const Dimensions& dimensions, double factor);

/// {"format": "torsor-diagnosis-1", ...}: all of it; docs/diagnose.md tells the keys.
Json diagnosis_to_json(const Diagnosis& diagnosis);

}  // namespace torsor
