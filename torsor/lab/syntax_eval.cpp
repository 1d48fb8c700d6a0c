#include "torsor/lab/syntax_eval.h"

#include <algorithm>

namespace torsor {
namespace {

// The key that both kinds of entries begin with.
Json entry(const char* task, std::int64_t length, bool refused, const std::string& reason, bool leaks,
           double accuracy) {
  Json json;
  json["task"] = task;
  json["length"] = length;
  json["status"] = refused ? "refused" : "ok";
  json["reason"] = reason;
  if (leaks) json["leaks"] = true;
  json["accuracy"] = refused ? Json(nullptr) : Json(accuracy);
  json["groups"] = Json::array();
  json["windows"] = Json::array();
  return json;
}

Json part(const std::string& name, const std::string& group, bool counted, double accuracy, std::size_t items) {
  return {{"name", name}, {"group", group}, {"counted", counted}, {"accuracy", accuracy}, {"items", items}};
}

// All answers in a row, where that has the accuracy as its mean.
void add_windows(Json& json, const std::vector<const std::vector<bool>*>& answers) {
  for (const std::vector<bool>* one : answers)
    if (one->size() != answers.front()->size()) return;
  for (const std::vector<bool>* one : answers)
    for (const bool right : *one) json["windows"].push_back(right ? 1 : 0);
}

}  // namespace

SuiteEvaluation evaluate_suites(const Decoder& model, const std::vector<Suite>& suites,
                                const SentenceOptions& options) {
  SuiteEvaluation evaluation;
  evaluation.leaks = leaks(model.encoding());
  try {
    for (const Suite& suite : suites) {
      std::vector<SuiteSentence> sentences;
      std::vector<ScoredText> texts;
      for (const SuiteItem& item : suite.items)
        for (const SuiteCondition& condition : item.conditions) {
          sentences.push_back(suite_sentence(suite, condition, options.final_period));
          texts.push_back({sentences.back().text, condition.tree ? &*condition.tree : nullptr});
        }
      const std::vector<Surprisals> surprisals = surprisals_of(model, texts, options);
      SuiteValues values;
      std::size_t next = 0;
      for (const SuiteItem& item : suite.items) {
        auto& of_item = values.emplace_back();
        for (std::size_t c = 0; c < item.conditions.size(); ++c, ++next)
          of_item.push_back(
              region_values(suite.metric, sentences[next], surprisals[next].tokens, surprisals[next].bits));
      }
      evaluation.results.push_back(score_suite(suite, values));
    }
  } catch (const Refusal& refusal) {
    evaluation.refused = true;
    evaluation.reason = refusal.what();
    evaluation.results.clear();
  }
  evaluation.summary = summarize_suites(evaluation.results);
  return evaluation;
}

BlimpEvaluation evaluate_blimp(const Decoder& model, const std::vector<Paradigm>& paradigms,
                               const SentenceOptions& options) {
  BlimpEvaluation evaluation;
  evaluation.leaks = leaks(model.encoding());
  try {
    for (const Paradigm& paradigm : paradigms) {
      std::vector<ScoredText> texts;
      for (const MinimalPair& pair : paradigm.pairs) {
        texts.push_back({pair.good});
        texts.push_back({pair.bad});
      }
      const std::vector<Surprisals> surprisals = surprisals_of(model, texts, options);
      ParadigmResult& result = evaluation.results.emplace_back();
      result.uid = paradigm.uid, result.field = paradigm.field, result.term = paradigm.term;
      for (std::size_t p = 0; p < paradigm.pairs.size(); ++p)
        result.correct.push_back(surprisals[2 * p].sum() < surprisals[2 * p + 1].sum());
    }
  } catch (const Refusal& refusal) {
    evaluation.refused = true;
    evaluation.reason = refusal.what();
    evaluation.results.clear();
  }
  evaluation.summary = summarize_blimp(evaluation.results);
  return evaluation;
}

Json suite_evaluation_to_json(const SuiteEvaluation& evaluation, std::int64_t length) {
  Json json = entry("syntax", length, evaluation.refused, evaluation.reason, evaluation.leaks, evaluation.summary.mean);
  for (const auto& [name, circuit] : evaluation.summary.circuits)
    json["groups"].push_back({{"name", name}, {"accuracy", circuit.mean}, {"count", circuit.suites}});
  json["suites"] = Json::array();
  std::vector<const std::vector<bool>*> answers;
  for (const SuiteResult& result : evaluation.results) {
    Json one = part(result.suite, result.circuit, result.counted, result.accuracy(), result.correct.front().size());
    for (std::size_t p = 1; p < result.correct.size(); ++p) one["further"].push_back(result.accuracy(p));
    json["suites"].push_back(std::move(one));
    if (result.counted) answers.push_back(&result.correct.front());
  }
  add_windows(json, answers);
  return json;
}

Json blimp_evaluation_to_json(const BlimpEvaluation& evaluation, std::int64_t length) {
  Json json =
      entry("blimp", length, evaluation.refused, evaluation.reason, evaluation.leaks, evaluation.summary.all.mean);
  for (const auto& [name, term] : evaluation.summary.terms)
    json["groups"].push_back({{"name", name}, {"accuracy", term.mean}, {"count", term.paradigms}});
  json["paradigms"] = Json::array();
  std::vector<const std::vector<bool>*> answers;
  for (const ParadigmResult& result : evaluation.results) {
    json["paradigms"].push_back(part(result.uid, result.term, true, result.accuracy(), result.correct.size()));
    answers.push_back(&result.correct);
  }
  add_windows(json, answers);
  return json;
}

}  // namespace torsor
