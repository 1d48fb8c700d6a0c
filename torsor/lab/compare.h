// The main job: the same model under several encodings, trained alike and evaluated at the training length and beyond.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "torsor/lab/data.h"
#include "torsor/lab/parsed_feed.h"
#include "torsor/lab/run.h"

namespace torsor {

/// What `syntax` evaluates beside perplexity.
struct SyntaxPlan {
  std::vector<std::string> suites;  ///< files or folders in the SyntaxGym format; empty = the generated ones
  std::int64_t items = 40;          ///< of each generated suite
  std::int64_t suite_seed = 0;      ///< of the generated ones
  std::string blimp;                ///< a file or folder of BLiMP; empty = none
  std::string separator = "\n\n";   ///< stands before every sentence (SentenceOptions)
  bool final_period = false;
};

struct ComparePlan {
  /// Canonical expressions, each once. "E @ CONTROL" is E with the syntax of a control (split_control).
  std::vector<std::string> encodings;
  ParseSources parses;      ///< where encodings with per-token inputs have them from
  std::string task = "lm";  ///< "lm", "syntax", or one of task_names()
  std::string profile = "quick";
  DataSource data;  ///< of "lm" and "syntax"
  SyntaxPlan syntax;
  RunPlan run;  ///< what all runs share (encoding and seed are set for each); its length is in the task's unit
  std::vector<std::int64_t> eval_lengths;  ///< ascending, in the task's unit
  std::vector<std::int64_t> seeds;
  std::int64_t eval_spans = 32;  ///< of text: spans of the largest length that are scored; 0 = all
  std::int64_t problems = 40;    ///< of a generated task: test problems a cell
  std::int64_t threads = 0;
  std::string grid;  ///< the grid that the encodings are of (cells.h); empty = none
  /// Steps between two looks of the perplexity gate (perplexity_watch.h): runs with syntax whose base without it is
  /// compared too, with the same seed, and stands before them. 0 = never.
  std::int64_t gate_every = 0;
  bool gate_warn_only = false;  ///< the gate warns and stops nothing
};

/// Without the spaces at both ends.
std::string trimmed(const std::string& text);

/// "E @ shuffled" -> ("E", "shuffled"); without a control ("E", "").
std::pair<std::string, std::string> split_control(const std::string& encoding);

/// Encodings written with ';' between them, checked and brought to canonical form; a repeated one counts once.
std::vector<std::string> split_encodings(const std::vector<std::string>& texts);

/// Throws UsageError for a task that cannot be compared.
void check_task(const std::string& name);

/// Whether a task learns from text: "lm" and "syntax".
bool learns_from_text(const std::string& task);

Json compare_to_json(const ComparePlan& plan);
/// The plan of a results.json. Throws Error naming the key.
ComparePlan compare_from_json(const Json& config, const std::string& source);

struct CompareControl {
  std::string folder;
  bool resume = false;        ///< go on in a folder that holds runs of the same plan
  bool force = false;         ///< replace what is there
  std::string expected_data;  ///< SHA-256 that the data must have; empty = any
  SyntaxFeedFactory feed;     ///< in place of the plan's parses
  const std::atomic<bool>* stop = nullptr;
  std::function<Progress::Options(const std::string& label)> progress;  ///< makes the reporter of one run
  std::function<void(const Json& results)> on_results;  ///< after each run: the document so far, already on disk
  std::function<void(const std::string&)> on_message;   ///< a line for people
};

/// What makes the feed of a comparison: control.feed, or the plan's parses; empty without either.
SyntaxFeedFactory feed_factory(const ParseSources& parses, const CompareControl& control, bool causal);

/// Runs what is missing and returns the document of results.json without summary and verdict. results.json in the
/// folder is replaced after each run. A run that fails is recorded as failed and the others go on; one that the
/// perplexity gate ends has the status "stopped" and its reasons. Runs with syntax have "syntax" (SyntaxFeed::account)
/// and, when the gate is asked, "perplexity_gate" (PerplexityWatch::to_json).
/// Throws Error when the folder holds results of another plan, or results at all without resume and force.
Json run_compare(const ComparePlan& plan, const CompareControl& control);

}  // namespace torsor
