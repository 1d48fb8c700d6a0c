// The nine GLUE tasks as their files lie on the disk (Wang, Singh, Michael, Hill, Levy, Bowman, "GLUE: A Multi-Task
// Benchmark and Analysis Platform for Natural Language Understanding", ICLR 2019): tab-separated, no quoting, '"' an
// ordinary character. Any data in these layouts may be read; scores on other data are not GLUE scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "torsor/data/glue_metrics.h"

namespace torsor {

enum class GlueTask { CoLA, SST2, MRPC, QQP, STSB, MNLI, QNLI, RTE, WNLI };
inline constexpr std::size_t kGlueTasks = 9;

enum class GlueMetric { Accuracy, Matthews, AccuracyAndF1, PearsonAndSpearman };

/// What a task is.
struct GlueInfo {
  GlueTask task = GlueTask::CoLA;
  std::string name;                 ///< "SST-2", the folder's name as well
  bool pairs = false;               ///< two sentences an example
  std::vector<std::string> labels;  ///< as they stand in the files, in the order of their numbers; empty = regression
  GlueMetric metric = GlueMetric::Accuracy;
  bool counted = true;  ///< a member of the mean of eight; WNLI is not

  bool regression() const { return labels.empty(); }
};

const GlueInfo& glue_info(GlueTask task);

/// The task of this name, in any case of letters ("sst-2"). Throws UsageError naming all.
GlueTask glue_task_of(std::string_view name);

/// The parts that a task's folder has. MNLI has dev and test twice: Dev and Test are those that match.
enum class GlueSplit { Train, Dev, DevMismatched, Test, TestMismatched };

/// The file of a part: "train.tsv", "dev_matched.tsv". Throws UsageError for a mismatched part of another task than
/// MNLI.
std::string glue_file(GlueTask task, GlueSplit split);

struct GlueExample {
  std::string first, second;  ///< `second` is empty where the task has no pairs
  std::int64_t label = -1;    ///< place in GlueInfo::labels; -1 for regression and in the test part
  double score = 0;           ///< of regression, 0 to 5
};

/// Reads the text of a file. A byte-order mark at the start and carriage returns at the ends of lines are passed over.
/// Throws Error "SOURCE:LINE: ..." for a header that lacks a needed column, a row with another number of columns, a
/// label that the task does not have, a score outside 0 to 5, text that is not UTF-8 and an empty line; nothing is
/// passed over. Throws Error without any row.
std::vector<GlueExample> glue_from_text(GlueTask task, GlueSplit split, std::string_view text,
                                        const std::string& source);

/// Reads FOLDER/glue_file(task, split).
std::vector<GlueExample> load_glue(GlueTask task, GlueSplit split, const std::string& folder);

/// A task's figures on one part.
struct GlueScore {
  std::vector<std::pair<std::string, double>> values;  ///< by name: "accuracy", "f1"
  double member = 0;                                   ///< its share in the mean over tasks
  std::vector<std::string> warnings;                   ///< figures that are not defined and count 0
};

/// Scores of classes. Throws Error when the lists differ in size, are empty, or the task is a regression.
GlueScore score_glue(GlueTask task, const std::vector<std::int64_t>& predicted, const std::vector<std::int64_t>& gold);
/// Scores of a regression.
GlueScore score_glue(GlueTask task, const std::vector<double>& predicted, const std::vector<double>& gold);

/// The plain mean over tasks that count. `complete` says whether all eight are there, each once; a mean of fewer is not
/// comparable and must not be called a GLUE score. Throws Error when a task is there twice.
struct GlueMean {
  double mean = 0;
  std::size_t tasks = 0;
  bool complete = false;
};
GlueMean glue_mean(const std::vector<std::pair<GlueTask, double>>& members);

}  // namespace torsor
