#include "torsor/lab/workload.h"

#include <algorithm>
#include <map>
#include <utility>

#include "torsor/base/hash.h"
#include "torsor/lab/evaluate.h"
#include "torsor/lab/tasks.h"

namespace torsor {
namespace {

class TextWorkload : public Workload {
 public:
  explicit TextWorkload(const ComparePlan& plan) {
    const std::int64_t longest = *std::max_element(plan.eval_lengths.begin(), plan.eval_lengths.end());
    data_ = load_data(plan.data, longest);
    text_training(plan.run, data_.train, data_.sha256);  // refuses what is too short
    const std::vector<std::size_t> lengths(plan.eval_lengths.begin(), plan.eval_lengths.end());
    evaluation_ = evaluation_windows(data_.valid, lengths, static_cast<std::size_t>(plan.eval_spans));
  }

  const std::string& description() const override { return data_.description; }
  const std::string& sha256() const override { return data_.sha256; }
  std::int64_t inputs_of(std::int64_t length) const override { return length; }
  TrainingData training(const RunPlan& plan) const override { return text_training(plan, data_.train, data_.sha256); }

  Json evaluate(const Decoder& model, std::int64_t length, at::ScalarType dtype,
                const std::function<bool()>& stop) const override {
    return evaluation_to_json(evaluate_lm(model, data_.valid, evaluation_, length, dtype, stop),
                              data_.valid.tokenizer == "bytes");
  }

  std::vector<std::int64_t> prompt(std::int64_t most) const override {
    const std::vector<Document>& documents = data_.valid.documents;
    const auto longest = std::max_element(documents.begin(), documents.end(), [](const Document& a, const Document& b) {
      return a.tokens.size() < b.tokens.size();
    });
    std::vector<std::int64_t> tokens(std::min(static_cast<std::size_t>(most), longest->tokens.size()));
    longest->tokens.copy(0, tokens.size(), tokens.data());
    return tokens;
  }

 private:
  LmData data_;
  EvaluationPlan evaluation_;
};

class TaskWorkload : public Workload {
 public:
  explicit TaskWorkload(const ComparePlan& plan) : task_(make_task(plan.task, plan.run.length)) {
    Sha256 hash;
    hash.update(str(task_->name(), " ", task_->trained_length(), "\n"));
    const auto add = [&](const std::vector<TaskProblem>& problems) {
      for (const TaskProblem& problem : problems) hash.update(task_->text(problem.tokens) + "\n");
    };
    // A generator that changed shows in its first problems.
    add(task_->training(0, 0, static_cast<std::size_t>(plan.run.batch)));
    std::size_t count = 0;
    for (const std::int64_t length : plan.eval_lengths) {
      std::vector<TaskProblem>& problems = problems_[length];
      problems = task_->test(length, static_cast<std::size_t>(plan.problems));
      add(problems);
      count += problems.size();
    }
    sha256_ = hash.hex();
    description_ = str(task_->name(), " trained up to length ", task_->trained_length(), " (",
                       inputs_of(task_->trained_length()), " tokens), tested on ", count, " problems of length ",
                       plan.eval_lengths.front(), " to ", plan.eval_lengths.back());
  }

  const std::string& description() const override { return description_; }
  const std::string& sha256() const override { return sha256_; }
  std::int64_t inputs_of(std::int64_t length) const override { return task_->inputs_of(length); }
  TrainingData training(const RunPlan& plan) const override { return task_training(plan, task_, sha256_); }

  Json evaluate(const Decoder& model, std::int64_t length, at::ScalarType dtype,
                const std::function<bool()>& stop) const override {
    return task_evaluation_to_json(evaluate_task(model, *task_, problems_.at(length), length, dtype, stop));
  }

  std::vector<std::int64_t> prompt(std::int64_t most) const override {
    std::vector<std::int64_t> tokens = task_->test(task_->trained_length(), 1).back().tokens;
    tokens.resize(std::min(static_cast<std::size_t>(most), tokens.size()));
    return tokens;
  }

 private:
  std::shared_ptr<const Task> task_;
  std::map<std::int64_t, std::vector<TaskProblem>> problems_;  // by length
  std::string description_, sha256_;
};

}  // namespace

std::unique_ptr<const Workload> make_workload(const ComparePlan& plan) {
  if (plan.task == "lm") return std::make_unique<TextWorkload>(plan);
  return std::make_unique<TaskWorkload>(plan);
}

std::int64_t trained_window(const ComparePlan& plan) {
  if (plan.task == "lm") return plan.run.length;
  return make_task(plan.task, plan.run.length)->inputs_of(plan.run.length);
}

}  // namespace torsor
