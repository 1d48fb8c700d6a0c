// The results of a comparison as the report reads them: a typed, checked view of results.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torsor/base/json.h"

namespace torsor::report {

/// How a run, or the evaluation of a run at one length, ended. A refusal is an answer, not a fault: the encoding does
/// not allow what was asked (a learned table past its last row). So is a run that the perplexity gate stopped.
enum class Status { ok, refused, failed, stopped };

const char* status_name(Status status);

/// The mean loss in nats a token over the positions `from` .. `to` - 1 of a window.
struct PositionLoss {
  std::int64_t from = 0;
  std::int64_t to = 0;
  double loss = 0;
};

/// Problems of one kind and how many of them were solved: for addition `x` and `y` are the digits of the operands, for
/// passkey the tokens of the context and the depth of the key in percent.
struct EvalCell {
  std::int64_t x = 0;
  std::int64_t y = 0;
  std::int64_t correct = 0;
  std::int64_t count = 0;
};

/// The share that a run reaches in one group of a task's problems: a circuit of suites, a linguistic term, a task of
/// GLUE.
struct EvalGroup {
  std::string name;
  double value = 0;        ///< a share 0..1; of scores -1..1
  std::int64_t count = 0;  ///< suites, paradigms or examples in it
};

/// One evaluation of a run: one task at one length (for addition the digits of the longer operand).
struct Eval {
  std::string task;
  std::int64_t length = 0;
  Status status = Status::ok;
  std::string reason;
  std::optional<double> loss;              ///< nats a token; empty where it is not finite
  std::optional<double> perplexity;        ///< a token; empty where it is not finite
  std::optional<double> joint_perplexity;  ///< of tokens and their tags together, where the run leaks
  std::optional<double> bits_per_byte;
  std::vector<PositionLoss> position_loss;
  std::optional<double> accuracy;  ///< the share of problems solved, 0..1, of tasks that are scored so
  bool score = false;              ///< the accuracy is a mean of scores -1..1 (correlations among them)
  bool leaks = false;              ///< conditional on what tells of later words: shown, never compared
  std::vector<EvalGroup> groups;   ///< by group, the same groups in every run
  std::vector<EvalCell> cells;     ///< the same by kind of problem, the same kinds and counts in every run
  /// Mean loss of every window, or 1 for every problem solved and 0 for the others: the same windows, or problems, in
  /// the same order in every run of this length.
  std::vector<double> windows;
};

/// A training step and its loss; the loss is empty where it was not finite.
struct TrainLoss {
  std::int64_t step = 0;
  std::optional<double> loss;
};

struct Train {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
  std::optional<double> tokens_per_second;
  std::vector<TrainLoss> losses;
};

/// How good a parser is on a domain.
struct SyntaxDomain {
  std::string name;                           ///< empty for texts without one
  std::string verdict;                        ///< "pass", "fail", "insufficient", "unverified", "gold"
  bool fed = true;                            ///< whether the domain's texts had syntax
  std::optional<double> uas, las, low, high;  ///< percent; empty where no report tells
  std::optional<std::int64_t> words;          ///< gold words behind them
  std::optional<double> threshold;            ///< UAS that the report asked for
};

/// The syntax that a run read.
struct SyntaxBlock {
  std::string mode, prior;
  bool leaks = false;
  std::string parser;  ///< for people: backend, name, version, the beginning of the model's hash
  std::string gate;    ///< "asked" or "not asked"
  std::vector<SyntaxDomain> domains;
  std::optional<double> coverage;  ///< share of the tokens of text that a parsed sentence holds
  std::int64_t tokens = 0, sentences = 0, unparsed = 0, repaired = 0, multi_word_tokens = 0;
};

/// One encoding trained with one seed.
struct Run {
  std::string encoding;
  std::int64_t seed = 0;
  Status status = Status::ok;
  std::string reason;
  std::optional<std::int64_t> parameters;
  Train train;
  std::optional<double> peak_memory_bytes;
  std::optional<double> decode_tokens_per_second;
  std::vector<Eval> eval;
  std::optional<SyntaxBlock> syntax;  ///< where the run read some and the results tell of it
  std::string watch;                  ///< what the perplexity gate found; empty where it was not asked
  std::optional<double> watch_rise;   ///< at its last look: perplexity over the base's, minus 1
};

/// A 95 % interval of a mean. The ends are empty where nothing could be resampled (one seed and no windows).
struct Interval {
  double mean = 0;
  std::optional<double> low;
  std::optional<double> high;
};

/// One figure of one encoding over its seeds.
struct SummaryRow {
  std::string encoding;
  std::string task;
  std::int64_t length = 0;
  std::string metric;                          ///< "perplexity", "bits_per_byte", "loss", or one of accuracy.h
  std::optional<double> mean;                  ///< empty when it is not finite for some seed
  std::optional<double> sd;                    ///< of the sample (n - 1); empty with fewer than two seeds
  std::int64_t n = 0;                          ///< evaluations that ended, finite or not
  std::optional<Interval> difference_to_best;  ///< this one minus the best, over the seeds that both have
  bool leaks = false;                          ///< not compared: it is never the best and has no difference
};

/// What an encoding adds to a logit, or does to it, by distance.
struct Effect {
  enum class Kind { none, bias, rotation, content };
  std::string encoding;
  Kind kind = Kind::none;
  std::vector<double> distances;
  std::vector<std::vector<std::optional<double>>> per_head;  ///< head x distance; empty = minus infinity
  std::string note;
};

struct Results {
  Json config;  ///< as written by the lab
  Json machine;
  std::vector<Run> runs;
  std::vector<SummaryRow> summary;
  std::vector<std::string> verdict;
  std::vector<Effect> effects;
  std::vector<std::string> published;  ///< published figures for orientation, each with its source and what differs
  Json document;                       ///< the whole document as read, with keys that the report does not know
};

/// Reads results.json (`"format": "torsor-results-1"`). Keys that the report does not know are kept and ignored; those
/// that it knows must have the right type and range. Throws Error "SOURCE: KEY: ..." otherwise, also when a run is
/// there twice, when two runs have different windows or cells at one length, or when an accuracy, its cells and its
/// windows do not say the same.
Results parse_results(const Json& document, const std::string& source = "results.json");

/// parse_results of a file's content.
Results read_results(const std::string& path);

/// The document with `summary` and `verdict` as they are in `results`; all other keys as they were read.
Json to_json(const Results& results);

/// The length trained at: `config.length`; without it the shortest evaluated one; 0 when nothing was evaluated.
std::int64_t training_length(const Results& results);

/// Encodings, tasks and seeds in order of their first run; lengths of a task (all runs), ascending.
std::vector<std::string> encodings_of(const Results& results);
std::vector<std::string> tasks_of(const Results& results);
std::vector<std::int64_t> seeds_of(const Results& results);
std::vector<std::int64_t> lengths_of(const Results& results, const std::string& task);

/// The encoding that costs are relative to: `none` when it was run, else the first; empty without runs.
std::string base_encoding(const Results& results);

/// The evaluation of `run` for a task at a length, or null.
const Eval* find_eval(const Run& run, const std::string& task, std::int64_t length);

/// The row of the summary, or null.
const SummaryRow* find_summary(const Results& results, const std::string& encoding, const std::string& task,
                               std::int64_t length, const std::string& metric);

}  // namespace torsor::report
