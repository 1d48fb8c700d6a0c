// Encoders on tasks in the GLUE layouts: pre-trained on text alike, fine-tuned on every task, compared by encoding.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "torsor/data/glue.h"
#include "torsor/lab/compare.h"
#include "torsor/lab/encoder_run.h"

namespace torsor {

/// How a pre-trained encoder is fine-tuned on a task. Length, batch and dtype of a step are those given here; the order
/// of the examples is drawn from the run's seed, epoch by epoch.
struct FineTunePlan {
  double epochs = 3;            ///< passes over the training part, above 0
  std::int64_t most_steps = 0;  ///< 0 = as many as the epochs take
  std::int64_t batch = 16;
  double learning_rate = 5e-4;
  double weight_decay = 0.01;
  double warmup = 0.1;                        ///< share of the steps
  std::int64_t most_train = 0, most_dev = 0;  ///< examples that are read at most, the first ones; 0 = all
};

/// A task's examples.
struct GlueData {
  GlueTask task = GlueTask::CoLA;
  std::string name;  ///< of the folder, which a task that is not GLUE's own may have
  std::vector<GlueExample> train, dev, dev_mismatched;
};

/// Examples as rows: first token, sentence, separator, and for pairs the second sentence (segment 1) and a separator.
/// Where that is longer than `length`, the longer sentence loses its end byte by byte.
EncoderBatch glue_rows(const std::vector<const GlueExample*>& examples, std::int64_t length, const Encoding& encoding,
                       const SyntaxFeed* feed);

struct GlueTaskResult {
  std::string name;
  GlueScore dev;
  GlueScore dev_mismatched;  ///< of MNLI; without values elsewhere
  std::size_t train = 0, examples = 0;
  std::vector<double> losses;  ///< of training
};

/// Fine-tunes a copy of `pretrained` and scores it on the dev part. Leaves a checkpoint, state and log in the folder.
GlueTaskResult fine_tune(const Encoder& pretrained, const GlueData& data, const FineTunePlan& plan, std::uint64_t seed,
                         std::int64_t length, const std::string& dtype, const RunControl& control,
                         const SyntaxFeed* feed);

/// Everything that a comparison does.
struct GlueComparePlan {
  std::vector<std::string> encodings;  ///< canonical, each once
  std::string profile = "quick";
  EncoderPlan encoder;  ///< pre-training; encoding and seed are set for each run
  DataSource data;      ///< the text of the pre-training
  FineTunePlan fine;
  ParseSources parses;             ///< where encodings with per-token inputs have them from
  std::string folder;              ///< holds a folder a task
  std::vector<std::string> tasks;  ///< FOLDER or FOLDER:LAYOUT; empty = every GLUE task whose folder is there
  std::vector<std::int64_t> seeds;
  std::int64_t threads = 0;
  std::string grid;  ///< the grid that the encodings are of (cells.h); empty = none
};

/// The plan of a profile: quick, standard or full.
GlueComparePlan glue_profile(const std::string& name);
Json glue_plan_to_json(const GlueComparePlan& plan);
GlueComparePlan glue_plan_from_json(const Json& config, const std::string& source);

/// Reads the tasks of a plan. "genre-ewt:SST-2" is the folder genre-ewt in the layout of SST-2. Throws UsageError for a
/// name that is no GLUE task and has no layout, Error where nothing is found.
std::vector<GlueData> load_glue_tasks(const std::string& folder, const std::vector<std::string>& tasks,
                                      const FineTunePlan& plan);

/// Pre-trains and fine-tunes what is missing and returns results.json without summary and verdict. Every run has the
/// entries "mlm" (evaluate_masked) and "glue": {"score": the mean over the tasks that count, "complete": whether they
/// are the eight of GLUE, "groups": [{"name", "score", "count"}], "tasks": [{"name", "layout", "values", "member",
/// "mismatched", "warnings"}]}. Fails, resumes and stops as run_compare does.
Json run_glue_compare(const GlueComparePlan& plan, const CompareControl& control);

}  // namespace torsor
