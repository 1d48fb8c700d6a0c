// Gates and advice.
#include "torsor/syntax/gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/base/test_folder.h"
#include "torsor/base/error.h"
#include "torsor/encoding/registry.h"
#include "torsor/syntax/advise.h"
#include "torsor/syntax/parser_conllu.h"

namespace torsor::syntax {
namespace {

using testing::contains;
using testing::message_of;

/// `count` sentences of ten words in a chain; domain by sent_id.
std::vector<Sentence> chains(const std::string& domain, std::size_t count) {
  std::vector<Sentence> sentences;
  for (std::size_t s = 0; s < count; ++s) {
    Sentence sentence;
    sentence.comments = {str("# sent_id = ", domain, "-", s)};
    for (int i = 0; i < 10; ++i)
      sentence.words.push_back({.form = str("w", i), .head = i, .deprel = i == 0 ? "root" : "dep"});
    sentences.push_back(sentence);
  }
  return sentences;
}

/// Answers with the gold trees, of which it spoils a word in some sentences.
class SpoilingParser final : public Parser {
 public:
  SpoilingParser(std::vector<Sentence> gold, std::size_t every) : gold_(std::move(gold)), every_(every) {
    info_ = {.backend = "test", .name = "spoiling"};
  }
  const ParserInfo& info() const override { return info_; }
  std::vector<ParsedSentence> parse_tokens(const std::vector<std::vector<std::string>>&) override {
    std::vector<ParsedSentence> results;
    for (std::size_t i = 0; i < gold_.size(); ++i) {
      results.push_back({gold_[i]});
      if (every_ > 0 && i % every_ == 0)
        for (std::size_t w = 2; w < 10; ++w) results.back().sentence.words[w].head = 1;
    }
    return results;
  }
  std::vector<ParsedSentence> parse_text(const std::string& text) override { return {unparsed(text, "no")}; }

 private:
  std::vector<Sentence> gold_;
  std::size_t every_;
  ParserInfo info_;
};

TEST(Gate, JudgesEachDomainByItself) {
  std::vector<Sentence> gold = chains("weblog", 60);
  for (const Sentence& sentence : chains("email", 20)) gold.push_back(sentence);
  SpoilingParser parser(gold, 2);  // every second sentence has eight of ten heads wrong
  const GateReport report = run_gate(parser, gold, {.tokens = true});
  ASSERT_EQ(report.domains.size(), 2u);
  EXPECT_EQ(report.domains[0].domain, "email");
  EXPECT_EQ(report.domains[0].words, 200u);
  EXPECT_EQ(report.domains[0].verdict, GateVerdict::kInsufficient);
  EXPECT_EQ(report.domains[1].verdict, GateVerdict::kFail);
  EXPECT_DOUBLE_EQ(report.domains[1].uas, 60);  // (10 + 2) of 20 words
  // 60 sentences of 100 or 20 percent: standard error 40 / sqrt(60) = 5.2, so about 49.9 to 70.1.
  EXPECT_NEAR(report.domains[1].low, 49.9, 2);
  EXPECT_NEAR(report.domains[1].high, 70.1, 2);
  EXPECT_EQ(report.all.words, 800u);
  EXPECT_EQ(verdict_of(report, "email"), GateVerdict::kInsufficient);
  EXPECT_EQ(verdict_of(report, "poems"), GateVerdict::kUnverified);
}

TEST(Gate, PassesAndIsStrictOnRequest) {
  const std::vector<Sentence> gold = chains("reviews", 60);
  SpoilingParser good(gold, 0);
  EXPECT_EQ(run_gate(good, gold, {.tokens = true}).domains[0].verdict, GateVerdict::kPass);
  SpoilingParser middling(gold, 6);  // 10 of 60 sentences at 20 percent: 86.7 +- 7.5
  const GateReport loose = run_gate(middling, gold, {.tokens = true});
  EXPECT_NEAR(loose.domains[0].uas, 86.67, 0.01);
  EXPECT_EQ(loose.domains[0].verdict, GateVerdict::kPass);
  EXPECT_EQ(run_gate(middling, gold, {.strict = true, .tokens = true}).domains[0].verdict, GateVerdict::kFail);
  // The threshold itself does not pass.
  EXPECT_EQ(run_gate(middling, gold, {.threshold = loose.domains[0].uas, .tokens = true}).domains[0].verdict,
            GateVerdict::kFail);
  // The same seed gives the same interval.
  EXPECT_EQ(run_gate(middling, gold, {.tokens = true}).domains[0].low, loose.domains[0].low);
}

TEST(Gate, TextWithoutAParseCountsAsWrong) {
  const std::vector<Sentence> gold = chains("weblog", 60);
  SpoilingParser parser(gold, 0);
  const GateReport report = run_gate(parser, gold, {});
  EXPECT_EQ(report.all.unparsed, 1u);
  EXPECT_EQ(report.all.uas, 0);
  EXPECT_EQ(report.domains[0].verdict, GateVerdict::kFail);
}

TEST(Gate, ReportsSurviveJson) {
  const std::vector<Sentence> gold = chains("answers", 60);
  SpoilingParser parser(gold, 3);
  const GateReport report = run_gate(parser, gold, {.tokens = true});
  const GateReport again = gate_from_json(parse_json(json_text(gate_to_json(report)), "gate"), "gate");
  EXPECT_EQ(gate_to_json(again), gate_to_json(report));
  EXPECT_THROW(gate_from_json(Json::object(), "gate"), Error);
  const std::string table = gate_table(report);
  EXPECT_TRUE(contains(table, "answers")) << table;
  EXPECT_TRUE(contains(table, "fail")) << table;
}

TEST(Gate, ReportsSayHowManyWordsAreLeast) {
  const std::vector<Sentence> gold = chains("answers", 20);  // 200 words
  SpoilingParser parser(gold, 0);
  const GateReport report = run_gate(parser, gold, {.least_words = 100, .tokens = true});
  ASSERT_EQ(report.domains[0].verdict, GateVerdict::kPass);
  Json json = gate_to_json(report);
  EXPECT_EQ(json.at("least_words"), 100);
  EXPECT_EQ(gate_from_json(json, "gate").domains[0].verdict, GateVerdict::kPass);
  // Without the key the usual number is meant, and 200 words are too few for a verdict then.
  json.erase("least_words");
  EXPECT_TRUE(contains(message_of<Error>([&] { gate_from_json(json, "gate"); }), "500 are the least"));
}

TEST(Gate, EditedReportsAreRefused) {
  const std::vector<Sentence> gold = chains("answers", 200);
  SpoilingParser parser(gold, 3);
  const Json report = gate_to_json(run_gate(parser, gold, {.tokens = true}));
  ASSERT_EQ(report.at("domains")[0].at("verdict"), "fail");
  const auto refused = [&](const std::string& key, const Json& value, const std::string& part) {
    Json edited = report;
    edited["domains"][0][key] = value;
    const std::string message = message_of<Error>([&] { gate_from_json(edited, "gate"); });
    EXPECT_TRUE(contains(message, part)) << key << ": " << message;
  };
  refused("verdict", "pass", "threshold");
  refused("verdict", "insufficient", "the least that are judged");
  refused("verdict", "fine", "a verdict is");
  refused("words", 499, "the least that are judged");
  refused("uas", -5, "0 to 100");
  refused("high", 2000, "0 to 100");
  refused("low", 100, "an interval");
  Json twice = report;
  twice["domains"].push_back(report.at("domains")[0]);
  EXPECT_TRUE(contains(message_of<Error>([&] { gate_from_json(twice, "gate"); }), "twice"));
}

TEST(Gate, SentencesWithoutAGenreAreOfTheirFile) {
  const std::vector<Sentence> gold = chains("none", 6);
  SpoilingParser parser(gold, 3);
  GateOptions options{.tokens = true};
  options.of_sentence = {"a", "a", "b", "b", "b", "b"};
  const GateReport report = run_gate(parser, gold, options);
  ASSERT_EQ(report.domains.size(), 2u);
  EXPECT_EQ(report.domains[0].domain, "a");
  EXPECT_EQ(report.domains[0].sentences, 2u);
  EXPECT_EQ(report.domains[1].sentences, 4u);
  options.of_sentence.pop_back();
  EXPECT_THROW(run_gate(parser, gold, options), Error);
}

TEST(Gate, DomainsComeFromTheSentenceIds) {
  const auto named = [](const std::string& id) {
    Sentence sentence;
    sentence.comments = {"# sent_id = " + id};
    return domain_of(sentence, "file");
  };
  EXPECT_EQ(named("weblog-blogspot.com_x-0001"), "weblog");
  EXPECT_EQ(named("newsgroup-groups.google.com_y-0002"), "newsgroup");
  EXPECT_EQ(named("n01001011"), "news");
  EXPECT_EQ(named("w02013093"), "wiki");
  EXPECT_EQ(named("dev-0001.atis"), "file");
  EXPECT_EQ(domain_of({}, "file"), "file");
}

TEST(PerplexityGate, WarnsOnceAndStopsTheSecondTime) {
  using Verdict = PerplexityGate::Verdict;
  PerplexityGate gate;
  EXPECT_EQ(gate.observe(10.05, 10), Verdict::kFine);
  EXPECT_EQ(gate.observe(10.11, 10), Verdict::kWarn);
  EXPECT_EQ(gate.observe(10.05, 10), Verdict::kFine);
  EXPECT_EQ(gate.observe(10.11, 10), Verdict::kWarn);
  EXPECT_FALSE(gate.stopped());
  EXPECT_EQ(gate.observe(10.2, 10), Verdict::kStop);
  EXPECT_TRUE(gate.stopped());
  EXPECT_NEAR(gate.rise(), 0.02, 1e-12);
  PerplexityGate once;
  EXPECT_EQ(once.observe(11, 10, /*warmed_up=*/false), Verdict::kWarn);
  PerplexityGate steep;
  EXPECT_EQ(steep.observe(10.31, 10), Verdict::kStop);
  PerplexityGate mild({.warn_only = true});
  EXPECT_EQ(mild.observe(20, 10), Verdict::kWarn);
  EXPECT_EQ(mild.observe(20, 10), Verdict::kWarn);
  EXPECT_THROW(gate.observe(std::numeric_limits<double>::infinity(), 10), Error);
  EXPECT_THROW(gate.observe(10, 0), Error);
}

TEST(Advise, FollowsTheTree) {
  const auto expression = [](const std::string& encoding, bool encoder, bool oracle) {
    return advise({.encoding = encoding, .encoder = encoder, .oracle = oracle}).expression;
  };
  EXPECT_EQ(expression("txl", false, false), "sipe(txl, mode=incremental, coupling=tag_align)");
  EXPECT_EQ(expression("txl", false, true), "sipe(txl, mode=oracle, coupling=tag_align)");
  EXPECT_EQ(expression("t5(buckets=16)", false, false),
            "sipe(t5(buckets=16), mode=incremental, coupling=bilinear, factor=linear)");
  EXPECT_EQ(expression("alibi", false, false), "sipe(alibi, mode=incremental, coupling=bilinear, factor=bounded)");
  EXPECT_EQ(expression("yarn(rope, factor=4)", false, false),
            "sipe(yarn(rope, factor=4), mode=incremental, bound=warp)");
  EXPECT_EQ(expression("learned", false, false), "sipe(learned, mode=incremental, inject=input)");
  EXPECT_EQ(expression("", false, false), "sipe(none, mode=incremental, inject=input)");
  EXPECT_EQ(expression("rope", true, false), "sipe(rope, mode=oracle, inject=input)");
  EXPECT_THROW(advise({.encoding = "rope + t5"}), UsageError);
  EXPECT_THROW(advise({.encoding = "cope"}), UsageError);
  EXPECT_THROW(advise({.encoding = "no such thing"}), UsageError);
  EXPECT_TRUE(contains(decision_tree(), "tag_align"));
}

// What is advised can be written, where the encoding is there.
TEST(Advise, ExpressionsCanBeMade) {
  if (find_name("sipe") == nullptr) GTEST_SKIP() << "this build has no sipe(...)";
  const Dimensions dimensions = {
      .heads = 4, .kv_heads = 4, .head_dim = 16, .width = 64, .train_length = 64, .layers = 2};
  for (const char* encoding : {"txl", "t5", "alibi", "rope", "yarn(rope, factor=4)", "learned", ""})
    for (const bool encoder : {false, true})
      for (const bool oracle : {false, true}) {
        const Advice advice = advise({.encoding = encoding, .encoder = encoder, .oracle = oracle});
        EXPECT_NO_THROW(make_encoding(advice.expression, dimensions)) << advice.expression;
      }
}

TEST(Advise, SaysWhatAClosedGateMeans) {
  AdviceQuestion question;
  question.encoding = "alibi";
  GateReport gate;
  gate.parser = {.backend = "process", .name = "spacy", .scheme = "clear"};
  gate.domains = {{.domain = "email", .words = 900, .uas = 60.5, .verdict = GateVerdict::kFail},
                  {.domain = "weblog", .words = 900, .uas = 90, .verdict = GateVerdict::kPass}};
  question.gate = gate;
  Advice advice = advise(question);
  EXPECT_EQ(advice.closed, std::vector<std::string>{"email"});
  EXPECT_FALSE(advice.expression.empty());
  const auto says = [&](const std::string& part) {
    for (const std::string& reason : advice.reasons)
      if (contains(reason, part)) return true;
    return false;
  };
  EXPECT_TRUE(says("not prefix safe"));
  EXPECT_TRUE(says("scheme clear"));
  EXPECT_TRUE(says("domain email is closed: UAS 60.50 on 900 words, not above 85.0"));
  question.domains = {"email", "poems"};
  advice = advise(question);
  EXPECT_EQ(advice.closed, (std::vector<std::string>{"email", "poems"}));
  EXPECT_TRUE(advice.expression.empty());
  EXPECT_TRUE(says("no domain is open"));
  question.allow_unverified = true;
  advice = advise(question);
  EXPECT_EQ(advice.closed, std::vector<std::string>{"email"});
  EXPECT_TRUE(says("used because you allow it"));
  question.rise = 0.05;
  EXPECT_TRUE(advise(question).stop);
  question.rise = 0.02;
  advice = advise(question);
  EXPECT_FALSE(advice.stop);
  EXPECT_TRUE(says("perplexity gate warns"));
}

}  // namespace
}  // namespace torsor::syntax
