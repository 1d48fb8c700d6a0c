// Gates where models are trained and judged: domains without syntax, perplexity beside the base, the embedder of a
// checkpoint.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "tests/lab/toy_causal_parser.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/encoding/registry.h"
#include "torsor/encoding/syntax/sipe.h"
#include "torsor/lab/compare.h"
#include "torsor/lab/encoder_run.h"
#include "torsor/lab/parsed_feed.h"
#include "torsor/lab/perplexity_watch.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/structure_embedder.h"
#include "torsor/syntax/arc_embedder.h"
#include "torsor/syntax/gate.h"
#include "torsor/syntax/make_parser.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::TestFolder;

class Gates : public ::testing::Test {
 protected:
  Gates() { at::set_num_threads(1); }

  /// A treebank of two documents, weblog and email, and one whose sentences tell no domain.
  std::string treebank(const std::string& name, std::uint64_t seed, std::size_t sentences = 30) const {
    std::string conllu;
    const auto trees = syntax::testing::sentences_of(syntax::testing::small_trees(sentences, seed));
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const char* domain = i < sentences / 2 ? "weblog" : "email";
      if (i == 0 || i == sentences / 2) conllu += str("# newdoc id = ", domain, "\n");
      conllu += str("# sent_id = ", domain, "-", i, "\n", syntax::conllu_text(trees[i]));
    }
    return folder_.put(name, conllu);
  }

  /// What `torsor syntax gate` would have written of the toy parser; UAS and the lower end by domain.
  std::string report(const std::string& name, const std::vector<std::pair<std::string, std::pair<double, double>>>& uas,
                     const std::string& model = "") const {
    syntax::GateReport report;
    report.parser = syntax::make_parser(testing::toy_causal_parser())->info();
    if (!model.empty()) report.parser.model_sha256 = model;
    for (const auto& [domain, figures] : uas) {
      syntax::DomainGate one;
      one.domain = domain;
      one.words = 900;
      one.uas = figures.first, one.low = figures.second, one.high = figures.first + 1;
      one.verdict = figures.first > 85 ? syntax::GateVerdict::kPass : syntax::GateVerdict::kFail;
      report.domains.push_back(one);
    }
    return folder_.put(name, json_text(syntax::gate_to_json(report)));
  }

  ParseSources sources(const std::string& report) const {
    ParseSources sources{.parsers = {testing::toy_causal_parser()}};
    if (!report.empty()) sources.gate.reports = {report};
    return sources;
  }

  static std::shared_ptr<const Encoding> encoding(const std::string& expression) {
    return make_encoding(expression, {.heads = 2, .head_dim = 8, .train_length = 16});
  }
  LmData data() const {
    DataSource source;
    source.text = {treebank("train.conllu", 4)};
    source.valid = {treebank("valid.conllu", 5)};
    return load_data(source, 16);
  }
  static Batch window(const Corpus& corpus, std::size_t document) {
    Batch batch;
    batch.rows = 1;
    batch.length = 40;
    batch.windows = {{document, 30}};
    batch.tokens.resize(41);
    corpus.documents[document].tokens.copy(30, 41, batch.tokens.data());
    return batch;
  }
  std::int64_t tags(const SyntaxFeed& feed, const Corpus& corpus, std::size_t document) const {
    return feed_windows(&feed, *encoding("sipe(alibi)"), corpus, window(corpus, document))
        .at(kSyntaxTags)
        .count_nonzero()
        .item<std::int64_t>();
  }

  TestFolder folder_;
};

TEST_F(Gates, TreebanksBringDomains) {
  const LmData lm = data();
  EXPECT_FALSE(lm.other_texts);
  std::set<std::string> names;
  for (const auto& [hash, domain] : lm.domains()) names.insert(domain);
  EXPECT_EQ(names, (std::set<std::string>{"email", "weblog"}));
  // Sentences that tell nothing are of their file, as in `torsor syntax gate`; a document may be of several.
  const auto trees = syntax::testing::sentences_of(syntax::testing::small_trees(2, 1));
  const std::string mixed = folder_.put(
      "toy.conllu", "# sent_id = reviews-1\n" + syntax::conllu_text(trees[0]) + syntax::conllu_text(trees[1]));
  const TextData text = load_texts({mixed});
  EXPECT_EQ(text.domains().begin()->second, "reviews+toy");
  EXPECT_TRUE(load_texts({folder_.put("plain.txt", "words")}).other_texts);
}

TEST_F(Gates, AFailedDomainIsTheBaseBitForBit) {
  const LmData lm = data();
  const std::string gate = report("gate.json", {{"weblog", {91, 89}}, {"email", {80, 78}}});
  const auto feed = make_parsed_feed(sources(gate), true, lm.gold, {}, lm.domains);
  const auto all = make_parsed_feed(sources(""), true, lm.gold, {}, lm.domains);
  EXPECT_NE(feed->sha256(), all->sha256());
  for (const Corpus* corpus : {&lm.train, &lm.valid}) {
    ASSERT_EQ(corpus->documents.size(), 2u);
    EXPECT_GT(tags(*feed, *corpus, 0), 5);
    EXPECT_EQ(tags(*feed, *corpus, 1), 0);
    EXPECT_GT(tags(*all, *corpus, 1), 5);
  }
  const at::NoGradGuard no_gradient;
  for (const auto& [form, base] : {std::pair("sipe(alibi)", "alibi"), std::pair("sipe(rope)", "rope"),
                                   std::pair("sipe(txl)", "txl"), std::pair("sipe(none, inject=input)", "none")}) {
    at::manual_seed(1);
    const auto edit = [](const std::string& name, at::Tensor& tensor) {
      if (name.find("sipe") != std::string::npos) tensor.uniform_(-0.5, 0.5);
    };
    const Decoder model = testing::edited_model(testing::tiny_config(form, 64), 3, edit),
                  plain = testing::edited_model(testing::tiny_config(base, 64), 3, edit);
    for (const std::size_t document : {0, 1}) {
      const Batch one = window(lm.valid, document);
      const at::Tensor tokens = at::tensor(one.tokens, at::kLong).view({1, 41});
      const at::Tensor losses =
          model.token_losses(tokens, at::kFloat, feed_windows(feed.get(), model.encoding(), lm.valid, one));
      EXPECT_EQ(at::equal(losses, plain.token_losses(tokens, at::kFloat)), document == 1) << form;
    }
  }
  const Json account = feed->account(*encoding("sipe(alibi)"));
  EXPECT_EQ(account.at("gate"), "asked");
  EXPECT_EQ(account.at("closed_documents"), 2);
  EXPECT_EQ(account.at("documents"), 4);
  EXPECT_GT(account.at("coverage").get<double>(), 0.3);
  EXPECT_LT(account.at("coverage").get<double>(), 0.7);
  EXPECT_EQ(gate_lines(account), std::vector<std::string>{"gate: email: fail (UAS 80.0), has no syntax"});
  EXPECT_EQ(all->account(*encoding("sipe(alibi)")).at("gate"), "not asked");
  // Strictly, the lower end decides.
  ParseSources strict = sources(report("near.json", {{"weblog", {86, 84}}, {"email", {90, 88}}}));
  EXPECT_GT(tags(*make_parsed_feed(strict, true, lm.gold, {}, lm.domains), lm.valid, 0), 5);
  strict.gate.strict = true;
  EXPECT_EQ(tags(*make_parsed_feed(strict, true, lm.gold, {}, lm.domains), lm.valid, 0), 0);
}

TEST_F(Gates, WhatIsUnverifiedHasToBeAllowed) {
  const LmData lm = data();
  ParseSources given = sources(report("gate.json", {{"weblog", {91, 89}}}));
  const auto feed = make_parsed_feed(given, true, lm.gold, {}, lm.domains);
  const auto alibi = encoding("sipe(alibi)");
  EXPECT_TRUE(contains(message_of<UsageError>([&] { feed->check(*alibi, false); }), "'email'"));
  EXPECT_THROW(tags(*feed, lm.valid, 1), UsageError);
  EXPECT_GT(tags(*feed, lm.valid, 0), 5);
  given.gate.allow_unverified = true;
  const auto allowed = make_parsed_feed(given, true, lm.gold, {}, lm.domains);
  allowed->check(*alibi, true);
  EXPECT_GT(tags(*allowed, lm.valid, 1), 5);
  // Text that no treebank brings has the domain that it is said to have.
  FeedRow row;
  row.text = "the old king sees the cat. the boy runs. ";
  for (std::size_t t = 0; t < row.text.size(); ++t) row.tokens.push_back({t, t + 1});
  const auto tagged = [&](const SyntaxFeed& one) {
    return feed_rows(&one, *alibi, {row}, 41).at(kSyntaxTags).count_nonzero().item<std::int64_t>();
  };
  given.gate.allow_unverified = false;
  EXPECT_THROW(tagged(*make_parsed_feed(given, true, {})), UsageError);
  given.gate.domain = "weblog";
  EXPECT_GT(tagged(*make_parsed_feed(given, true, {})), 5);
  const auto writing = make_parsed_feed(given, true, {})->stream(*alibi);
  writing->read(0, {"a", " ", "b", " "});
  EXPECT_GT(writing->inputs({0}).at(kSyntaxTags).count_nonzero().item<std::int64_t>(), 0);
  given.gate.reports = {report("bad.json", {{"weblog", {50, 40}}})};
  EXPECT_EQ(tagged(*make_parsed_feed(given, true, {})), 0);
  const auto closed = make_parsed_feed(given, true, {})->stream(*alibi);
  closed->read(0, {"a", " ", "b", " "});
  EXPECT_EQ(closed->inputs({0}).at(kSyntaxTags).count_nonzero().item<std::int64_t>(), 0);
}

TEST_F(Gates, ReportsMustBeOnTheParsersGiven) {
  const std::string other = report("other.json", {{"weblog", {91, 89}}}, std::string(64, 'a'));
  EXPECT_TRUE(contains(message_of<UsageError>([&] { make_parsed_feed(sources(other), true, {}); }), "aaaaaaaaaaaa"));
  ParseSources twice = sources(report("gate.json", {{"weblog", {91, 89}}}));
  twice.gate.reports.push_back(twice.gate.reports.front());
  EXPECT_TRUE(contains(message_of<UsageError>([&] { make_parsed_feed(twice, true, {}); }), "second report"));
  ParseSources none = sources("");
  none.gate.strict = true;
  EXPECT_THROW(make_parsed_feed(none, true, {}), UsageError);
  EXPECT_EQ(sources_from_json(sources_to_json(twice), "x").gate.reports, twice.gate.reports);
}

TEST(PerplexityWatch, BasesAreTheExpressionsWithoutSyntax) {
  EXPECT_EQ(without_syntax("sipe(alibi, mode=oracle)"), "alibi");
  EXPECT_EQ(without_syntax("rope + sipe(t5)"), print(parse("rope + t5")));
  EXPECT_EQ(without_syntax("heads(sipe(alibi) * 1, t5 * 1)"), print(parse("heads(alibi * 1, t5 * 1)")));
  EXPECT_EQ(without_syntax("rope"), "rope");
  EXPECT_EQ(bases_first({"sipe(alibi)", "none", "sipe(alibi) @ shuffled", "alibi"}),
            (std::vector<std::string>{"alibi", "sipe(alibi)", "none", "sipe(alibi) @ shuffled"}));
}

TEST(PerplexityWatch, TakesOnlyEvidence) {
  Json entry = {{"status", "ok"}, {"perplexity", 5.0}, {"windows", {1.0, 2.0, 3.0}}};
  const WatchedFigure figure = watched_figure(entry, 7, {"a", "b", "a"});
  EXPECT_EQ(figure.kind, "perplexity");
  EXPECT_DOUBLE_EQ(figure.domains.at("a"), std::exp(2.0));
  EXPECT_DOUBLE_EQ(figure.domains.at("b"), std::exp(2.0));
  entry = {{"status", "ok"}, {"leaks", true}, {"perplexity", nullptr}, {"cond_ppl", 4.0}, {"joint_ppl", nullptr}};
  EXPECT_FALSE(watched_figure(entry, 7, {}).perplexity.has_value());
  EXPECT_TRUE(contains(watched_figure(entry, 7, {}).kind, "leaks"));
  entry["joint_ppl"] = 6.0;
  EXPECT_EQ(watched_figure(entry, 7, {}).perplexity, 6.0);
  EXPECT_EQ(watched_figure(entry, 7, {}).kind, "joint_ppl");
}

TEST(PerplexityWatch, StopsWithReasons) {
  const TestFolder folder;
  {
    WatchRecord record(folder / "");
    for (const std::int64_t step : {10, 20, 30})
      record.add({step, 10.0, "perplexity", {{"email", 10.0}, {"web", 10.0}}});
    record.add({30, 10.0, "perplexity", {{"email", 10.0}, {"web", 10.0}}});
    EXPECT_EQ(record.figures().size(), 3u);
  }
  const WatchRecord base(folder / "");
  ASSERT_NE(base.at(20), nullptr);
  const Decoder model(testing::tiny_config("sipe(alibi)"), 1);
  std::vector<std::string> told;
  PerplexityWatch::Options options;
  options.warmup_steps = 5;
  options.on_message = [&](const std::string& line) { told.push_back(line); };
  options.account = [](const Encoding&) {
    return Json{{"domains", {{{"domain", "email"}, {"uas", 80.0}, {"verdict", "fail"}}}},
                {"coverage", 0.97},
                {"gate", "asked"}};
  };
  options.factors = [](const Decoder&) { return std::vector<std::optional<double>>{0.25, std::nullopt}; };
  PerplexityWatch watch("alibi", base, options);
  watch.observe({10, 10.15, "perplexity", {{"email", 10.4}, {"web", 9.9}}}, model);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(contains(told[0], "warning"));
  EXPECT_EQ(watch.to_json().at("status"), "warned");
  std::string reason;
  try {
    watch.observe({20, 10.2, "perplexity", {{"email", 10.5}, {"web", 9.9}}}, model);
  } catch (const GateStop& stop) {
    reason = stop.what();
  }
  for (const char* part : {"+2.00 %", "'alibi'", "email +5.00 % (UAS 80, fail)", "|beta| by layer 0",
                           "mean |F - 1| by layer 0.25 -", "coverage 97 %", "a smaller beta"})
    EXPECT_TRUE(contains(reason, part)) << reason;
  EXPECT_EQ(watch.to_json().at("status"), "stopped");
  EXPECT_EQ(watch.to_json().at("evaluations").size(), 2u);
  // Warned only, and not judged without evidence.
  options.warn_only = true;
  PerplexityWatch lenient("alibi", base, options);
  lenient.replay({10, 10.5, "perplexity", {}});
  EXPECT_NO_THROW(lenient.observe({20, 11.0, "perplexity", {}}, model));
  EXPECT_EQ(lenient.to_json().at("status"), "warned");
  PerplexityWatch blind("alibi", base, options);
  blind.observe({10, std::nullopt, "leaks: cond_ppl is no evidence, and there is no joint_ppl", {}}, model);
  EXPECT_TRUE(contains(blind.to_json().at("status").get<std::string>(), "not watched: leaks"));
  PerplexityWatch unmatched("alibi", base, options);
  unmatched.observe({15, 10.0, "perplexity", {}}, model);
  EXPECT_TRUE(contains(unmatched.to_json().at("status").get<std::string>(), "step 15"));
}

TEST_F(Gates, AComparisonIsWatchedAndToldOf) {
  ComparePlan plan;
  plan.encodings = {"alibi", "sipe(alibi)", "sipe(alibi) @ shuffled", "sipe(alibi, mode=oracle)", "sipe(t5)"};
  plan.parses = sources(report("gate.json", {{"weblog", {91, 89}}, {"email", {80, 78}}}));
  plan.parses.parsers.push_back("gold");
  plan.data.text = {treebank("train.conllu", 4)};
  plan.data.valid = {treebank("valid.conllu", 5)};
  plan.run = testing::tiny_plan();
  plan.run.steps = 4;
  plan.eval_lengths = {16};
  plan.seeds = {0};
  plan.gate_every = 2;
  const auto compare = [&](const std::string& name, bool tampered) {
    CompareControl control;
    control.folder = folder_ / name;
    std::vector<std::string> told;
    control.on_message = [&](const std::string& line) { told.push_back(line); };
    control.on_results = [&](const Json& results) {
      if (!tampered || results.at("runs").size() != 1) return;
      // As if the base had been far better.
      for (const auto& entry : std::filesystem::directory_iterator(control.folder + "/runs"))
        if (std::filesystem::exists(entry.path() / "watch.json")) {
          WatchRecord record(entry.path());
          for (WatchedFigure figure : std::vector<WatchedFigure>(record.figures())) {
            figure.perplexity = *figure.perplexity / 2;
            for (auto& [domain, value] : figure.domains) value /= 2;
            record.add(figure);
          }
          EXPECT_EQ(record.figures().size(), 2u);
        }
    };
    const Json results = run_compare(plan, control);
    EXPECT_EQ(std::count(told.begin(), told.end(), "gate: email: fail (UAS 80.0), has no syntax"), 1);
    return results;
  };
  plan.gate_warn_only = true;
  const Json results = compare("watched", false);
  const Json& runs = results.at("runs");
  EXPECT_FALSE(runs[0].contains("syntax"));
  const Json& gate = runs[1].at("perplexity_gate");
  EXPECT_EQ(gate.at("base"), "alibi");
  ASSERT_EQ(gate.at("evaluations").size(), 2u);
  EXPECT_EQ(gate.at("evaluations")[1].at("step"), 4);
  // The last look is at the trained models.
  EXPECT_DOUBLE_EQ(gate.at("evaluations")[1].at("perplexity").get<double>(),
                   runs[1].at("eval")[0].at("perplexity").get<double>());
  EXPECT_DOUBLE_EQ(gate.at("evaluations")[1].at("base").get<double>(),
                   runs[0].at("eval")[0].at("perplexity").get<double>());
  EXPECT_TRUE(gate.at("evaluations")[1].at("domains").contains("email"));
  // Where the gate has closed a domain, it is the base's until the rest of the training tells them apart.
  EXPECT_EQ(runs[2].at("perplexity_gate").at("status"), "not watched: a control");
  // What leaks is watched by what its tokens and tags cost together.
  const Json& joint = runs[3].at("perplexity_gate").at("evaluations");
  ASSERT_EQ(joint.size(), 2u);
  EXPECT_EQ(joint[1].at("kind"), "joint_ppl");
  EXPECT_EQ(joint[1].at("perplexity"), runs[3].at("eval")[0].at("joint_ppl"));
  EXPECT_TRUE(contains(runs[4].at("perplexity_gate").at("status").get<std::string>(), "its base without syntax"));
  EXPECT_TRUE(runs[1].at("decode_tokens_per_second").is_null());  // no gate tells of what a model writes
  const Json& syntax = runs[1].at("syntax");
  EXPECT_EQ(syntax.at("mode"), "incremental");
  EXPECT_EQ(syntax.at("parser").at("name"), "incremental");
  EXPECT_EQ(syntax.at("domains").size(), 2u);
  EXPECT_EQ(runs[3].at("syntax").at("leaks"), true);
  EXPECT_EQ(runs[3].at("syntax").at("domains")[0].at("verdict"), "gold");

  // The same plan twice is the same, and watching changes nothing in what is trained.
  const Json config = results.at("config");
  EXPECT_EQ(compare_from_json(config, "x").gate_every, 2);
  EXPECT_EQ(compare_from_json(config, "x").parses.gate.reports, plan.parses.gate.reports);
  plan.gate_every = 0;
  plan.gate_warn_only = false;
  plan.parses.gate.domain = "weblog";
  const Json unwatched = compare("unwatched", false);
  EXPECT_EQ(unwatched.at("runs")[0].at("eval"), runs[0].at("eval"));
  EXPECT_EQ(unwatched.at("runs")[1].at("eval"), runs[1].at("eval"));
  EXPECT_FALSE(unwatched.at("runs")[1].contains("perplexity_gate"));
  EXPECT_GT(unwatched.at("runs")[1].at("decode_tokens_per_second").get<double>(), 0);

  plan.gate_every = 2;
  plan.encodings = {"alibi", "sipe(alibi)"};
  const Json stopped = compare("stopped", true);
  EXPECT_EQ(stopped.at("runs")[1].at("status"), "stopped");
  for (const char* part : {"worst domains", "mean |F - 1| by layer "})
    EXPECT_TRUE(contains(stopped.at("runs")[1].at("reason").get<std::string>(), part));
  EXPECT_EQ(stopped.at("runs")[1].at("perplexity_gate").at("status"), "stopped");
}

TEST_F(Gates, AWatchedRunGoesOnAsIfNothingHadHappened) {
  ComparePlan plan;
  plan.encodings = {"alibi", "sipe(alibi)"};
  plan.parses = sources("");
  plan.data.text = {treebank("train.conllu", 4)};
  plan.data.valid = {treebank("valid.conllu", 5)};
  plan.run = testing::tiny_plan();
  plan.run.steps = 5;
  plan.eval_lengths = {16};
  plan.seeds = {0};
  plan.gate_every = 2;
  CompareControl whole;
  whole.folder = folder_ / "whole";
  const Json undisturbed = run_compare(plan, whole);
  ASSERT_EQ(undisturbed.at("runs")[1].at("perplexity_gate").at("evaluations").size(), 2u);

  std::atomic<bool> stop = false;
  CompareControl parts;
  parts.folder = folder_ / "parts";
  parts.resume = true;
  parts.stop = &stop;
  testing::StepWatch watch([&](int steps) { stop = steps == 1; });
  parts.progress = [&](const std::string&) { return watch.options(); };
  int stops = 0;
  for (; stops < 20; ++stops) {
    stop = false;
    try {
      run_compare(plan, parts);
      break;
    } catch (const Interrupted&) {
    }
  }
  EXPECT_GE(stops, 8);
  const auto comparable = [](Json document) {
    for (Json& run : document["runs"]) run.erase("syntax");  // counts documents that one process read
    return testing::timeless(document);
  };
  EXPECT_TRUE(comparable(read_json(parts.folder + "/results.json")) == comparable(undisturbed));

  // Killed between the last step and the record of the run: the gate's history is not lost.
  const auto kill = [&] {
    std::filesystem::remove(whole.folder + "/results.json");
    for (const auto& entry : std::filesystem::directory_iterator(whole.folder + "/runs"))
      std::filesystem::remove(entry.path() / "result.json");
  };
  kill();
  whole.resume = true;
  EXPECT_TRUE(comparable(run_compare(plan, whole)) == comparable(undisturbed));
  // Nor what it had found at the last of them.
  kill();
  whole.on_results = [&](const Json& results) {
    if (results.at("runs").size() != 1) return;
    for (const auto& entry : std::filesystem::directory_iterator(whole.folder + "/runs"))
      if (!std::filesystem::exists(entry.path() / "result.json")) {
        WatchRecord record(entry.path());
        WatchedFigure last = record.figures().back();
        last.perplexity = *last.perplexity * 2;
        record.add(last);
      }
  };
  const Json stopped = run_compare(plan, whole);
  EXPECT_EQ(stopped.at("runs")[1].at("status"), "stopped");
  EXPECT_EQ(stopped.at("runs")[1].at("perplexity_gate").at("evaluations").size(), 2u);
}

TEST_F(Gates, CheckpointsKnowTheirEmbedder) {
  for (const bool other : {false, true})
    syntax::write_native_model(folder_ / (other ? "other" : "arcs"),
                               syntax::ArcEmbedder({.incremental = true}, syntax::Weights(other ? 2 : 1)).to_model());
  const LmData lm = data();
  ParseSources given = sources("");
  given.arcs = folder_ / "arcs";
  const auto feed = make_parsed_feed(given, true, lm.gold, {}, lm.domains);
  RunControl control;
  control.folder = folder_ / "run";
  train_run(testing::tiny_plan("sipe(alibi, prior=fsyn)"), lm, control, feed);
  const LoadedModel loaded = load_checkpoint(control.folder);
  EXPECT_EQ(loaded.embedder, feed->embedder());
  EXPECT_EQ(loaded.embedder.size(), 64u);
  given.arcs = folder_ / "other";
  const auto other = make_parsed_feed(given, true, lm.gold, {}, lm.domains);
  EXPECT_NO_THROW(require_embedder(loaded.model.encoding(), loaded.embedder, feed->embedder(), "run"));
  const std::string message =
      message_of<Error>([&] { require_embedder(loaded.model.encoding(), loaded.embedder, other->embedder(), "run"); });
  EXPECT_TRUE(contains(message, loaded.embedder.substr(0, 12)) && contains(message, other->embedder().substr(0, 12)));
  EXPECT_THROW(require_embedder(loaded.model.encoding(), loaded.embedder, "", "run"), Error);
  EXPECT_NO_THROW(require_embedder(*encoding("sipe(alibi)"), loaded.embedder, "", "run"));
  // Labels that are numbered in another way are refused when it is loaded.
  Json config = read_json(control.folder + "/config.json");
  config["structure_embedder"]["relations"][0] = "subject";
  write_file_atomic(control.folder + "/config.json", json_text(config));
  EXPECT_TRUE(contains(message_of<Error>([&] { load_checkpoint(control.folder); }), "relations"));
  // Models without vectors say nothing of any.
  control.folder = folder_ / "tags";
  train_run(testing::tiny_plan("sipe(alibi)"), lm, control, feed);
  EXPECT_EQ(load_checkpoint(control.folder).embedder, "");
}

TEST_F(Gates, EncodersReadAnExchangeAlongTheArcs) {
  syntax::write_native_model(folder_ / "arcs", syntax::ArcEmbedder({.exchange = true}, syntax::Weights(1)).to_model());
  syntax::write_native_model(folder_ / "plain", syntax::ArcEmbedder({}, syntax::Weights(1)).to_model());
  const LmData lm = data();
  const auto feed_of = [&](const char* arcs, bool causal) {
    return make_parsed_feed({.parsers = {"gold"}, .arcs = folder_ / arcs}, causal, lm.gold, {}, lm.domains);
  };
  const auto feed = feed_of("arcs", false);
  const syntax::ArcEmbedder embedder = syntax::load_arc_embedder(folder_ / "arcs");
  const auto fsyn = encoding("sipe(none, prior=fsyn, inject=input)");
  // The whole document at once, word by word.
  const std::string text(lm.train.documents[0].tokens.bytes());
  syntax::Parse gold;
  for (syntax::Parse& one : lm.gold())
    if (one.text_sha256 == sha256_hex(text)) gold = std::move(one);
  std::vector<std::int64_t> columns, heads, first;
  for (const syntax::ParseSentence& sentence : gold.sentences) {
    const auto base = static_cast<std::int64_t>(first.size());
    std::int64_t number = 0;
    for (const syntax::ParseWord& word : sentence.words) {
      ++number;
      syntax::ArcFeatures arc;
      arc.valid = 1;
      arc.relation = static_cast<std::uint8_t>(word.relation);
      arc.direction = word.head == 0 ? 1 : word.head < number ? 2 : 3;
      std::int64_t distance = std::abs(word.head - number);
      if (word.head > 0)
        while (distance > 1) ++arc.distance, distance /= 2;
      for (const std::uint8_t column : arc.columns()) columns.push_back(column);
      heads.push_back(word.head > 0 ? base + word.head - 1 : -1);
      first.push_back(word.byte_begin);
    }
  }
  const auto count = static_cast<std::int64_t>(first.size());
  const at::NoGradGuard no_gradient;
  const at::Tensor expected = embedder(at::tensor(columns, at::kLong).view({count, 9}), at::tensor(heads, at::kLong));
  const auto vectors_of = [&](const Window& window, std::vector<bool> withheld) {
    FeedRow row;
    row.place = FeedRow::Place{&lm.train, window, 1, 60};
    row.withheld = std::move(withheld);
    return feed_rows(feed.get(), *fsyn, {row}, 62).at(kSyntaxVectors)[0];
  };
  // A window that begins and ends inside of sentences has the vectors of the whole.
  const at::Tensor vectors = vectors_of({0, 33}, {});
  std::int64_t found = 0;
  for (std::int64_t t = 0; t < 60; ++t) {
    const auto word = std::find(first.begin(), first.end(), 33 + t);
    const at::Tensor one = vectors[t + 1];
    if (word == first.end()) {
      EXPECT_EQ(one.count_nonzero().item<std::int64_t>(), 0);
      continue;
    }
    ++found;
    EXPECT_LT((one - expected[word - first.begin()]).abs().max().item<double>(), 1e-5);
  }
  EXPECT_GT(found, 8);
  EXPECT_EQ(vectors[0].count_nonzero().item<std::int64_t>() + vectors[61].count_nonzero().item<std::int64_t>(), 0);
  // What a withheld word's arc says shows nowhere: neither its relation nor where its head lies changes anything.
  std::vector<bool> withheld(62, false);
  std::int64_t masked = -1;
  for (std::size_t w = 0; w < first.size(); ++w)
    if (first[w] > 40 && heads[w] >= 0 && first[static_cast<std::size_t>(heads[w])] > 33) {
      masked = static_cast<std::int64_t>(w);
      break;
    }
  ASSERT_GE(masked, 0);
  withheld[static_cast<std::size_t>(first[static_cast<std::size_t>(masked)] - 33 + 1)] = true;
  const at::Tensor without = vectors_of({0, 33}, withheld);
  const auto of_word = [&](const at::Tensor& all, std::int64_t word) {
    return all[first[static_cast<std::size_t>(word)] - 33 + 1];
  };
  EXPECT_EQ(of_word(without, masked).count_nonzero().item<std::int64_t>(), 0);
  EXPECT_FALSE(at::equal(of_word(without, heads[static_cast<std::size_t>(masked)]),
                         of_word(vectors, heads[static_cast<std::size_t>(masked)])));
  std::vector<std::int64_t> hidden_columns = columns, hidden_heads = heads;
  std::fill_n(hidden_columns.begin() + masked * 9, 9, 0);
  hidden_heads[static_cast<std::size_t>(masked)] = -1;
  const at::Tensor hidden =
      embedder(at::tensor(hidden_columns, at::kLong).view({count, 9}), at::tensor(hidden_heads, at::kLong));
  for (std::int64_t w = 0; w < count; ++w)
    if (first[static_cast<std::size_t>(w)] >= 33 && first[static_cast<std::size_t>(w)] < 93) {
      EXPECT_LT((of_word(without, w) - hidden[w]).abs().max().item<double>(), 1e-5) << w;
    }
  // Decoders are refused, and an embedder without the exchange gives other vectors.
  EXPECT_TRUE(contains(message_of<UsageError>([&] {
                         feed_of("arcs", true)->check(*encoding("sipe(t5, prior=fsyn, mode=oracle)"), false);
                       }),
                       "encoders"));
  // An encoder trains with it.
  EncoderPlan plan;
  plan.encoder.model.width = 16;
  plan.encoder.model.layers = 1;
  plan.encoder.model.heads = 2;
  plan.encoder.complete();
  plan.run = testing::tiny_plan("sipe(none, prior=fsyn, inject=input)");
  RunControl control;
  control.folder = folder_ / "encoder";
  const EncoderResult result = train_encoder(plan, lm, control, feed);
  EXPECT_TRUE(std::isfinite(result.train.losses.back()));
  EXPECT_EQ(load_encoder(control.folder).embedder, feed->embedder());
}

}  // namespace
}  // namespace torsor
