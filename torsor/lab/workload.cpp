#include "torsor/lab/workload.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <utility>

#include "torsor/base/hash.h"
#include "torsor/base/utf8.h"
#include "torsor/data/minimal_suites.h"
#include "torsor/lab/evaluate.h"
#include "torsor/lab/syntax_eval.h"
#include "torsor/lab/tasks.h"

namespace torsor {
namespace {

class TextWorkload : public Workload {
 public:
  TextWorkload(const ComparePlan& plan, const SyntaxFeedFactory& make_feed) {
    const std::int64_t longest = *std::max_element(plan.eval_lengths.begin(), plan.eval_lengths.end());
    data_ = load_data(plan.data, longest);
    text_training(plan.run, data_.train, data_.sha256);  // refuses what is too short
    const std::vector<std::size_t> lengths(plan.eval_lengths.begin(), plan.eval_lengths.end());
    evaluation_ = evaluation_windows(data_.valid, lengths, static_cast<std::size_t>(plan.eval_spans));
    if (make_feed) feed_ = make_feed(data_);
    if (feed_) {
      data_.description += ", " + feed_->description();
      data_.sha256 = sha256_hex(data_.sha256 + feed_->sha256());
    }
  }

  const std::string& description() const override { return data_.description; }
  const std::string& sha256() const override { return data_.sha256; }
  std::int64_t inputs_of(std::int64_t length) const override { return length; }
  TrainingData training(const RunPlan& plan) const override {
    return text_training(plan, data_.train, data_.sha256, feed_);
  }

  Json evaluate(const Decoder& model, std::int64_t length, at::ScalarType dtype,
                const std::function<bool()>& stop) const override {
    return evaluation_to_json(evaluate_lm(model, data_.valid, evaluation_, length, dtype, stop, feed_.get()));
  }

  std::unique_ptr<const Workload> under(const std::string& control) const override {
    auto other = copy();
    if (!feed_) return Workload::under(control);
    other->feed_ = feed_->under(control);
    other->data_.sha256 = sha256_hex(data_.sha256 + control);  // a run under it is not gone on with under another
    return other;
  }

  decltype(GenerateOptions::inputs) streamed_inputs(const Encoding& encoding) const override {
    if (!feed_ || !data_.valid.reader) return Workload::streamed_inputs(encoding);
    return stream_inputs(feed_->stream(encoding), data_.valid.reader);
  }
  void check(const Encoding& encoding) const override {
    if (feed_ && !encoding.inputs().empty())
      feed_->check(encoding, data_.other_texts || has_sentences(), has_bare_sentences());
  }
  void prepare(const Encoding& encoding) const override {
    if (feed_) feed_->prepare(encoding, data_.train);
  }
  Json account(const Encoding& encoding) const override { return feed_ ? feed_->account(encoding) : Json(nullptr); }

  std::vector<std::optional<double>> factor_effects(const Decoder& model, std::int64_t length,
                                                    at::ScalarType dtype) const override {
    if (!feed_) return {};
    constexpr std::size_t kTokens = 2048;  // enough for a mean, little beside an evaluation
    const std::vector<Window> all = evaluation_.windows(static_cast<std::size_t>(length));
    const std::size_t rows = std::clamp<std::size_t>(kTokens / static_cast<std::size_t>(length), 1, all.size());
    std::vector<Window> windows;
    for (std::size_t row = 0; row < rows; ++row) windows.push_back(all[row * all.size() / rows]);
    const at::NoGradGuard no_gradient;
    const Batch batch = gather(data_.valid, windows, static_cast<std::size_t>(length));
    TokenBatch tokens;
    tokens.tokens =
        at::tensor(batch.tokens, at::kLong).view({static_cast<std::int64_t>(rows), length + 1}).narrow(1, 0, length);
    tokens.named = feed_windows(feed_.get(), model.encoding(), data_.valid, batch);
    std::vector<std::optional<double>> effects(static_cast<std::size_t>(model.config().layers));
    tokens.look = [&](std::int64_t layer, const CoreInput& input) {
      effects[static_cast<std::size_t>(layer)] = mean_factor_effect(input);
    };
    model.hidden(tokens, nullptr, dtype);
    return effects;
  }

  std::vector<std::string> window_domains(std::int64_t length) const override {
    const std::map<std::string, std::string> known =
        data_.domains ? data_.domains() : std::map<std::string, std::string>();
    if (known.empty()) return {};
    std::map<std::size_t, std::string> by_document;
    std::vector<std::string> domains;
    for (const Window& window : evaluation_.windows(static_cast<std::size_t>(length))) {
      auto found = by_document.find(window.document);
      if (found == by_document.end()) {
        const auto domain = known.find(sha256_hex(data_.valid.text(window.document)));
        found = by_document.emplace(window.document, domain == known.end() ? "" : domain->second).first;
      }
      domains.push_back(found->second);
    }
    return domains;
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

 protected:
  /// Whether sentences are fed that belong to no document.
  virtual bool has_sentences() const { return false; }
  /// Whether some of these have no tree.
  virtual bool has_bare_sentences() const { return false; }
  virtual std::unique_ptr<TextWorkload> copy() const { return std::make_unique<TextWorkload>(*this); }

  LmData data_;
  std::shared_ptr<const SyntaxFeed> feed_;

 private:
  EvaluationPlan evaluation_;
};

// Text, and minimal pairs beside it.
class SyntaxWorkload : public TextWorkload {
 public:
  SyntaxWorkload(const ComparePlan& plan, const SyntaxFeedFactory& make_feed)
      : TextWorkload(plan, make_feed), plan_(plan.syntax), length_(plan.run.length) {
    if (!data_.valid.reader) throw UsageError("--task syntax needs text, not tokens");
    suites_ = suites_of(plan_);
    if (!plan_.blimp.empty()) paradigms_ = load_blimp(plan_.blimp);
    Sha256 hash;
    hash.update(data_.sha256);
    std::size_t sentences = 0, pairs = 0;
    for (const Suite& suite : suites_) {
      hash.update(json_text(suite_to_json(suite)));
      for (const SuiteItem& item : suite.items) sentences += item.conditions.size();
    }
    for (const Paradigm& paradigm : paradigms_) {
      pairs += paradigm.pairs.size();
      for (const MinimalPair& pair : paradigm.pairs) hash.update(pair.good + "\n" + pair.bad + "\n");
    }
    data_.sha256 = hash.hex();
    data_.description +=
        str("; ", suites_.size(), plan_.suites.empty() ? " generated suites of " : " suites of ", sentences,
            " sentences", pairs > 0 ? str(", BLiMP ", pairs, " pairs") : "", ", each sentence after ",
            quote(plan_.separator), plan_.final_period ? ", with a final period" : "");
  }

  Json evaluate_more(const Decoder& model, at::ScalarType dtype, const std::function<bool()>& stop) const override {
    const SentenceOptions options{plan_.separator, plan_.final_period, dtype, feed_.get(), stop, data_.valid.reader};
    Json entries = Json::array();
    entries.push_back(suite_evaluation_to_json(evaluate_suites(model, suites_, options), length_));
    if (!paradigms_.empty())
      entries.push_back(blimp_evaluation_to_json(evaluate_blimp(model, paradigms_, options), length_));
    return entries;
  }

 private:
  bool has_sentences() const override { return true; }
  bool has_bare_sentences() const override { return !paradigms_.empty() || any_bare(suites_); }
  std::unique_ptr<TextWorkload> copy() const override { return std::make_unique<SyntaxWorkload>(*this); }

  SyntaxPlan plan_;
  std::int64_t length_;
  std::vector<Suite> suites_;
  std::vector<Paradigm> paradigms_;
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

std::vector<Suite> suites_of(const SyntaxPlan& plan) {
  if (!plan.suites.empty()) return load_suites(plan.suites);
  MinimalSuiteOptions options;
  options.seed = static_cast<std::uint64_t>(plan.suite_seed);
  options.items = static_cast<std::size_t>(plan.items);
  std::vector<Suite> suites;
  for (MinimalSuite& one : minimal_suites(options)) suites.push_back(std::move(one.suite));
  return suites;
}

std::unique_ptr<const Workload> make_workload(const ComparePlan& plan, const SyntaxFeedFactory& feed) {
  if (plan.task == "lm") return std::make_unique<TextWorkload>(plan, feed);
  if (plan.task == "syntax") return std::make_unique<SyntaxWorkload>(plan, feed);
  return std::make_unique<TaskWorkload>(plan);
}

std::int64_t trained_window(const ComparePlan& plan) {
  if (learns_from_text(plan.task)) return plan.run.length;
  return make_task(plan.task, plan.run.length)->inputs_of(plan.run.length);
}

}  // namespace torsor
