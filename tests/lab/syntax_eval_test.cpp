// Surprisals, suites and pairs under a decoder; perplexities kept apart; the door for per-token inputs.
#include "torsor/lab/syntax_eval.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>
#include <utility>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "torsor/data/minimal_suites.h"
#include "torsor/encoding/syntax/sipe.h"
#include "torsor/lab/compare.h"
#include "torsor/lab/evaluate.h"
#include "torsor/lab/perplexity.h"
#include "torsor/lab/profile.h"

namespace torsor {
namespace {

using testing::contains;
using testing::edited_model;
using testing::message_of;
using testing::tiny_config;
using testing::tiny_text;

Decoder lively(const std::string& encoding, std::uint64_t seed = 3) {
  return edited_model(tiny_config(encoding), seed, [](const std::string& name, at::Tensor& tensor) {
    if (name == "model.embed_tokens.weight") tensor *= 40;
  });
}

// A feed that tags every token by its byte, and remembers what it was asked.
class FakeFeed : public SyntaxFeed {
 public:
  std::string description() const override { return "a fake parser"; }
  std::string sha256() const override { return "f"; }
  std::shared_ptr<const SyntaxFeed> under(const std::string& control) const override {
    throw UsageError("the fake parser has no control " + control);
  }
  NamedTensors inputs(const std::vector<FeedRow>& rows, std::int64_t tokens, const Encoding& encoding) const override {
    asked.insert(asked.end(), rows.begin(), rows.end());
    NamedTensors named;
    const auto count = static_cast<std::int64_t>(rows.size());
    for (const std::string& name : encoding.inputs()) {
      if (name == kSyntaxTags) {
        at::Tensor tags = at::zeros({count, tokens, 2}, at::kLong);
        for (std::int64_t r = 0; r < count; ++r)
          for (std::int64_t t = 0; t < tokens; ++t) {
            const ByteRange range = rows[static_cast<std::size_t>(r)].tokens.at(static_cast<std::size_t>(t));
            if (range.begin == range.end) continue;
            const unsigned char c = static_cast<unsigned char>(rows[static_cast<std::size_t>(r)].text[range.begin]);
            tags[r][t][0] = 1 + c % 2;
            tags[r][t][1] = 1 + c % 5;
          }
        named[name] = tags;
      } else if (name == kSyntaxSentences) {
        named[name] = at::zeros({count, tokens}, at::kLong);
      } else if (wrong_shape) {
        named[name] = at::zeros({count, tokens + 1}, at::kLong);
      }
    }
    return named;
  }
  mutable std::vector<FeedRow> asked;
  bool wrong_shape = false;
};

class LabSyntax : public ::testing::Test {
 protected:
  LabSyntax() { at::set_num_threads(1); }
};

TEST_F(LabSyntax, SurprisalsAreThoseOfTheTokensBehindTheSeparator) {
  at::NoGradGuard no_grad;
  const Decoder model = lively("rope");
  SentenceOptions options;
  options.separator = "\n\n";
  const std::vector<ScoredText> texts = {{"the cat"}, {"a"}, {"the dog"}};
  const std::vector<Surprisals> all = surprisals_of(model, texts, options);
  ASSERT_EQ(all.size(), 3U);
  for (std::size_t n = 0; n < texts.size(); ++n) {
    const std::string text = "\n\n" + texts[n].text;
    at::Tensor tokens = at::empty({1, static_cast<std::int64_t>(text.size())}, at::kLong);
    for (std::size_t t = 0; t < text.size(); ++t) tokens[0][static_cast<std::int64_t>(t)] = static_cast<int>(text[t]);
    const at::Tensor losses = model.token_losses(tokens)[0].to(at::kDouble) / std::numbers::ln2;
    ASSERT_EQ(all[n].bits.size(), texts[n].text.size());
    for (std::size_t t = 0; t < all[n].bits.size(); ++t) {
      // float32 sums in another order.
      EXPECT_NEAR(all[n].bits[t], losses[static_cast<std::int64_t>(t) + 1].item<double>(), 1e-4);
      EXPECT_EQ(all[n].tokens[t], (ByteRange{t, t + 1}));
    }
  }
  EXPECT_THROW(surprisals_of(model, {{""}}, options), Error);
  options.separator = "";
  EXPECT_THROW(surprisals_of(model, texts, options), UsageError);
  options.separator = "\n";
  options.stop = [] { return true; };
  EXPECT_THROW(surprisals_of(model, texts, options), Interrupted);
}

// Without attention a byte is predicted from the one before it alone, so every region can be computed by hand.
TEST_F(LabSyntax, SuitesAreScoredByTheSumsOfTheirRegions) {
  at::NoGradGuard no_grad;
  const Decoder model = edited_model(tiny_config("none"), 3, [](const std::string& name, at::Tensor& tensor) {
    if (name.find("o_proj") != std::string::npos) tensor.zero_();
    if (name == "model.embed_tokens.weight") tensor *= 50;
  });
  const auto bits = [&](char before, char after) {
    const at::Tensor window = at::tensor(std::vector<std::int64_t>{before, after}).view({1, 2});
    return model.token_losses(window).item<double>() / std::numbers::ln2;
  };
  const auto sum = [&](const std::string& text, std::size_t begin, std::size_t end) {
    double total = 0;
    for (std::size_t t = begin; t < end; ++t) total += bits(t == 0 ? '\n' : text[t - 1], text[t]);
    return total;
  };
  Suite suite;
  suite.name = "number_hand";
  for (int i = 1; i <= 6; ++i) {
    const std::string a(1, static_cast<char>('a' + i)), b(1, static_cast<char>('q' + i));
    suite.items.push_back({i,
                           {{"x", {{1, "we"}, {2, a + "b"}, {3, "go."}}, std::nullopt},
                            {"y", {{1, "we"}, {2, b + "c"}, {3, "go."}}, std::nullopt}}});
  }
  suite.predictions.push_back(Formula::parse("(2;%x%) < (2;%y%)"));
  SentenceOptions options;
  const SuiteEvaluation evaluation = evaluate_suites(model, {suite}, options);
  std::size_t right = 0;
  for (int i = 1; i <= 6; ++i) {
    const std::string x = std::string("we ") + static_cast<char>('a' + i) + "b go.";
    const std::string y = std::string("we ") + static_cast<char>('q' + i) + "c go.";
    const bool holds = sum(x, 2, 5) < sum(y, 2, 5);
    EXPECT_EQ(evaluation.results[0].correct[0][static_cast<std::size_t>(i - 1)], holds) << i;
    right += holds ? 1 : 0;
  }
  EXPECT_GT(right, 0U);  // else the order of the conditions would not show
  EXPECT_LT(right, 6U);
  EXPECT_DOUBLE_EQ(evaluation.summary.mean, static_cast<double>(right) / 6);

  Paradigm paradigm{"u", "syntax", "t", {}};
  for (int i = 0; i < 8; ++i)
    paradigm.pairs.push_back(
        {std::string("a") + static_cast<char>('a' + i), std::string("b") + static_cast<char>('a' + i), ""});
  paradigm.pairs.push_back({"same", "same", ""});
  const BlimpEvaluation blimp = evaluate_blimp(model, {paradigm}, options);
  for (int i = 0; i < 8; ++i) {
    const MinimalPair& pair = paradigm.pairs[static_cast<std::size_t>(i)];
    EXPECT_EQ(blimp.results[0].correct[static_cast<std::size_t>(i)], sum(pair.good, 0, 2) < sum(pair.bad, 0, 2));
  }
  EXPECT_FALSE(blimp.results[0].correct.back());  // a tie is a miss
}

TEST_F(LabSyntax, EntriesOfResults) {
  at::NoGradGuard no_grad;
  std::vector<Suite> suites;
  for (const char* name : {"generated_npi_ever", "generated_cleft"})
    suites.push_back(minimal_suite(name, {.seed = 0, .items = 4, .grammar = {}}).suite);
  const Json entry = suite_evaluation_to_json(evaluate_suites(lively("rope"), suites, {}), 16);
  EXPECT_EQ(entry.at("task"), "syntax");
  EXPECT_EQ(entry.at("status"), "ok");
  EXPECT_EQ(entry.at("groups").size(), 2U);
  EXPECT_EQ(entry.at("windows").size(), 8U);
  EXPECT_FALSE(entry.contains("leaks"));
  double right = 0;
  for (const Json& one : entry.at("windows")) right += one.get<double>();
  EXPECT_DOUBLE_EQ(entry.at("accuracy").get<double>(), right / 8);
  // Suites of different sizes count alike, so the windows would have another mean.
  suites.push_back(minimal_suite("generated_filler_gap", {.seed = 0, .items = 3, .grammar = {}}).suite);
  EXPECT_TRUE(suite_evaluation_to_json(evaluate_suites(lively("rope"), suites, {}), 16).at("windows").empty());
  // A learned table ends: the whole is refused.
  const Json refused = suite_evaluation_to_json(evaluate_suites(lively("learned"), suites, {}), 16);
  EXPECT_EQ(refused.at("status"), "refused");
  EXPECT_TRUE(refused.at("accuracy").is_null());
  EXPECT_FALSE(refused.at("reason").get<std::string>().empty());
}

TEST_F(LabSyntax, TheFeedIsAskedAndItsInputsArrive) {
  at::NoGradGuard no_grad;
  const std::string expression = "sipe(t5, coupling=tag_align, mode=incremental)";
  const Decoder model = edited_model(tiny_config(expression), 3, [](const std::string& name, at::Tensor& tensor) {
    if (name == "model.embed_tokens.weight") tensor *= 40;
    if (is_positional(name)) tensor = at::ones_like(tensor) + at::arange(tensor.numel()).view(tensor.sizes()) * 0.01;
  });
  FakeFeed feed;
  SentenceOptions options;
  options.feed = &feed;
  // The rows that the feed was asked about point to these trees.
  const std::vector<Suite> suites = {minimal_suite("generated_cleft", {.seed = 0, .items = 1, .grammar = {}}).suite};
  const SuiteEvaluation evaluation = evaluate_suites(model, suites, options);
  EXPECT_FALSE(evaluation.leaks);
  ASSERT_EQ(feed.asked.size(), 4U);
  for (const FeedRow& row : feed.asked) {
    EXPECT_TRUE(row.text.starts_with("\n\n"));
    EXPECT_EQ(row.tree_begin, 2U);
    ASSERT_NE(row.tree, nullptr);
    const ByteRange word = row.tree->words[0];
    EXPECT_EQ(row.text.substr(2 + word.begin, word.end - word.begin), row.tree->tree.words[0]);
    EXPECT_EQ(row.tokens.size() + 1, row.text.size());  // the last byte is only a target
  }
  const std::string some = tiny_text(600);
  const Corpus corpus = text_corpus(some, "text");
  const EvaluationPlan plan = evaluation_windows(corpus, {16}, 4);
  feed.asked.clear();
  const LmEvaluation fed = evaluate_lm(model, corpus, plan, 16, at::kFloat, {}, &feed);
  ASSERT_EQ(feed.asked.size(), 4U);
  for (const FeedRow& row : feed.asked) {
    ASSERT_TRUE(row.place);
    EXPECT_EQ(row.place->count, 16U);
    EXPECT_EQ(row.text, some.substr(row.place->window.begin, 16));
  }
  // Other tags, another loss.
  class NoTags : public FakeFeed {
   public:
    NamedTensors inputs(const std::vector<FeedRow>& rows, std::int64_t tokens,
                        const Encoding& encoding) const override {
      NamedTensors named = FakeFeed::inputs(rows, tokens, encoding);
      named.at(kSyntaxTags).zero_();
      return named;
    }
  } none;
  EXPECT_GT(std::abs(evaluate_lm(model, corpus, plan, 16, at::kFloat, {}, &none).loss - fed.loss), 1e-5);
  // An encoding that reads nothing asks nobody.
  feed.asked.clear();
  evaluate_lm(lively("rope"), corpus, plan, 16, at::kFloat, {}, &feed);
  EXPECT_TRUE(feed.asked.empty());
  EXPECT_TRUE(contains(message_of<UsageError>([&] { evaluate_lm(model, corpus, plan, 16, at::kFloat); }),
                       "no parses were given"));
}

TEST_F(LabSyntax, WhatLeaksIsNoPerplexity) {
  at::NoGradGuard no_grad;
  ModelConfig headless = tiny_config("sipe(t5, coupling=tag_align, mode=oracle)");
  headless.tag_heads = false;
  const FakeFeed feed;
  const Corpus corpus = text_corpus(tiny_text(600), "text");
  const EvaluationPlan plan = evaluation_windows(corpus, {16}, 4);
  const LmEvaluation alone = evaluate_lm(Decoder(headless, 3), corpus, plan, 16, at::kFloat, {}, &feed);
  EXPECT_TRUE(alone.leaks);
  const Json json = evaluation_to_json(alone);
  EXPECT_TRUE(json.at("perplexity").is_null());
  EXPECT_TRUE(json.at("loss").is_null());
  EXPECT_TRUE(json.at("bits_per_byte").is_null());
  EXPECT_TRUE(json.at("leaks").get<bool>());
  EXPECT_NEAR(json.at("cond_ppl").get<double>(), std::exp(alone.loss), 1e-9);
  EXPECT_TRUE(json.at("joint_ppl").is_null());
  EXPECT_TRUE(json.at("windows").empty());
  EXPECT_TRUE(contains(json.at("reason"), "no perplexity"));
}

TEST_F(LabSyntax, TheJointBoundPaysForEveryTag) {
  at::NoGradGuard no_grad;
  const Decoder oracle = lively("sipe(t5, coupling=tag_align, mode=oracle)");
  const FakeFeed feed;
  Corpus corpus = text_corpus(tiny_text(600), "text");
  corpus.documents.push_back(text_corpus(tiny_text(40, 2), "other").documents[0]);
  const EvaluationPlan plan = evaluation_windows(corpus, {8, 16}, 3);
  for (const std::int64_t length : {8, 16}) {
    const LmEvaluation joint = evaluate_lm(oracle, corpus, plan, length, at::kFloat, {}, &feed);
    ASSERT_TRUE(joint.joint);
    // Tokens and tags of every target, one window after the other; first tokens that are nobody's targets are paid for
    // too.
    double sum = 0;
    std::set<std::pair<std::size_t, std::size_t>> first, targets;
    for (const Window& window : plan.windows(static_cast<std::size_t>(length))) {
      const Batch batch = gather(corpus, std::vector<Window>{window}, static_cast<std::size_t>(length));
      const at::Tensor tokens = at::tensor(batch.tokens, at::kLong).view({1, length + 1});
      const NamedTensors named = feed_windows(&feed, oracle.encoding(), corpus, batch, true);
      EXPECT_EQ(named.at(kSyntaxTags).size(1), length + 1);
      EXPECT_EQ(named.at(kSyntaxTags)[0][length][0].item<std::int64_t>(),
                1 + tokens[0][length].item<std::int64_t>() % 2);
      const Decoder::JointLosses losses = oracle.joint_losses(tokens, named);
      sum += (losses.tokens + losses.tags).sum().item<double>();
      first.insert({window.document, window.begin});
      for (std::size_t t = 1; t <= static_cast<std::size_t>(length); ++t)
        targets.insert({window.document, window.begin + t});
    }
    EXPECT_EQ(targets.size(), plan.target_count());
    std::size_t unpaid = 0;
    for (const auto& place : first) unpaid += targets.count(place) == 0 ? 1 : 0;
    EXPECT_GE(unpaid, 1U);
    EXPECT_NEAR(*joint.joint * static_cast<double>(targets.size()), sum + static_cast<double>(unpaid) * std::log(18),
                1e-3);
    EXPECT_GT(*joint.joint, joint.loss);
    const Json json = evaluation_to_json(joint);
    EXPECT_NEAR(json.at("joint_ppl").get<double>(), std::exp(*joint.joint), 1e-9);
    EXPECT_TRUE(contains(json.at("reason"), "joint_ppl"));
  }
  // Sliding over both documents: every target once, and two first tokens.
  const TextPerplexity whole = sliding_perplexity(oracle, corpus, {16, 16, at::kFloat, &feed, {}});
  const TextPerplexity fine = sliding_perplexity(oracle, corpus, {16, 4, at::kFloat, &feed, {}});
  ASSERT_TRUE(whole.joint_nats && fine.joint_nats);
  EXPECT_EQ(whole.tokens, fine.tokens);
  EXPECT_GT(std::abs(*whole.joint_nats - *fine.joint_nats), 1e-3);
  const Json figures = perplexity_to_json(fine);
  EXPECT_FALSE(figures.contains("token_ppl"));
  EXPECT_NEAR(figures.at("joint_ppl").get<double>(), std::exp(*fine.joint_nats / static_cast<double>(fine.tokens)),
              1e-9);
  // With heads that know nothing every tag costs what all of them equally likely do.
  const Decoder blind = edited_model(tiny_config("sipe(t5, coupling=tag_align, mode=oracle)"), 3,
                                     [](const std::string& name, at::Tensor& tensor) {
                                       if (TagHeads::owns(name)) tensor.zero_();
                                     });
  const TextPerplexity even = sliding_perplexity(blind, corpus, {16, 4, at::kFloat, &feed, {}});
  EXPECT_NEAR(*even.joint_nats - even.nats, static_cast<double>(even.tokens + 2) * std::log(18), 1e-2);
}

TEST_F(LabSyntax, TagsAreLearnedBesideTokensAndToldApart) {
  const auto shared = std::make_shared<FakeFeed>();
  RunPlan plan = testing::tiny_plan();
  plan.encoding = "sipe(t5, coupling=tag_align, mode=oracle)";
  plan.length = 16;
  plan.batch = 2;
  const Corpus corpus = text_corpus(tiny_text(600), "text");
  const auto gradients = [&](double weight) {
    plan.tag_loss = weight;
    Decoder model = make_model(plan, 256);
    model.require_gradients();
    const at::Tensor loss = text_training(plan, corpus, "", shared).loss(model, 0);
    loss.backward();
    std::pair<double, double> found{loss.item<double>(), 0};
    for (const ModelParameter& parameter : model.parameters())
      if (parameter.name == "head.tau.weight") found.second = parameter.tensor.grad().abs().sum().item<double>();
    return found;
  };
  const auto [loss, pull] = gradients(1);
  const auto [same, none] = gradients(0);
  const auto [again, half] = gradients(0.5);
  EXPECT_EQ(loss, same);  // what is told is the tokens' loss
  EXPECT_EQ(loss, again);
  EXPECT_GT(pull, 0);
  EXPECT_EQ(none, 0);
  EXPECT_NEAR(half, pull / 2, 1e-6 * pull);
}

TEST_F(LabSyntax, SlidingWindowsScoreEveryTargetOnce) {
  at::NoGradGuard no_grad;
  // Each byte from the one before it alone: every stride must give the same.
  const Decoder model = edited_model(tiny_config("none"), 3, [](const std::string& name, at::Tensor& tensor) {
    if (name.find("o_proj") != std::string::npos) tensor.zero_();
    if (name == "model.embed_tokens.weight") tensor *= 50;
  });
  Corpus corpus = text_corpus(tiny_text(333), "a");
  for (const std::size_t size : {9, 1, 50, 17}) {
    Corpus other = text_corpus(tiny_text(size, size), "b");
    corpus.documents.push_back(other.documents[0]);
  }
  const TextPerplexity whole = sliding_perplexity(model, corpus, {400, 400, at::kFloat, nullptr, {}});
  EXPECT_EQ(whole.tokens, 332U + 8 + 0 + 49 + 16);
  std::size_t words = 0;
  for (const std::string& text : {tiny_text(333), tiny_text(9, 9), tiny_text(50, 50), tiny_text(17, 17)})
    for (std::size_t t = 1; t < text.size(); ++t) words += text[t - 1] == ' ' && text[t] != ' ' ? 1 : 0;
  EXPECT_EQ(whole.words, words);
  for (const auto& [length, stride] : {std::pair(16, 16), std::pair(16, 5), std::pair(7, 1), std::pair(48, 31)}) {
    const TextPerplexity one = sliding_perplexity(model, corpus, {length, stride, at::kFloat, nullptr, {}});
    EXPECT_EQ(one.tokens, whole.tokens);
    EXPECT_EQ(one.words, whole.words);
    EXPECT_NEAR(one.nats, whole.nats, 1e-3) << length << " " << stride;
  }
  const Json json = perplexity_to_json(whole);
  EXPECT_NEAR(json.at("token_ppl").get<double>(), std::exp(whole.nats / static_cast<double>(whole.tokens)), 1e-9);
  EXPECT_NEAR(std::log(json.at("word_ppl").get<double>()), whole.nats / static_cast<double>(whole.words), 1e-9);
  // With attention a longer context counts.
  const Decoder attentive = lively("rope");
  EXPECT_GT(std::abs(sliding_perplexity(attentive, corpus, {32, 32, at::kFloat, nullptr, {}}).nats -
                     sliding_perplexity(attentive, corpus, {32, 4, at::kFloat, nullptr, {}}).nats),
            1e-2);
  EXPECT_THROW(sliding_perplexity(model, corpus, {16, 17, at::kFloat, nullptr, {}}), UsageError);
  EXPECT_THROW(sliding_perplexity(model, corpus, {16, 0, at::kFloat, nullptr, {}}), UsageError);
  EXPECT_THROW(sliding_perplexity(model, text_corpus("a", "a"), {16, 16, at::kFloat, nullptr, {}}), Error);
}

TEST_F(LabSyntax, WordsAreCountedBesideTokens) {
  at::NoGradGuard no_grad;
  const std::string text = tiny_text(600);
  const Corpus corpus = text_corpus(text, "text");
  const EvaluationPlan plan = evaluation_windows(corpus, {16, 32}, 0);
  const LmEvaluation one = evaluate_lm(lively("rope"), corpus, plan, 16, at::kFloat);
  std::size_t words = 0;
  for (std::size_t t = 1; t <= plan.target_count(); ++t) words += text[t - 1] == ' ' && text[t] != ' ' ? 1 : 0;
  EXPECT_EQ(one.words, words);
  const Json json = evaluation_to_json(one);
  EXPECT_NEAR(std::log(json.at("word_ppl").get<double>()),
              one.loss * static_cast<double>(plan.target_count()) / static_cast<double>(words), 1e-9);
}

TEST_F(LabSyntax, AComparisonFeedsTrainingTextAndSuites) {
  testing::TestFolder folder;
  ComparePlan plan = profile_plan("quick", "syntax");
  EXPECT_EQ(plan.task, "syntax");
  plan.encodings = {"t5", print(parse("sipe(t5, coupling=tag_align, mode=incremental)")),
                    print(parse("sipe(t5, coupling=tag_align, mode=oracle)"))};
  plan.run.model = testing::tiny_plan().model;
  plan.run.batch = 2;
  plan.run.steps = 2;
  plan.run.warmup_steps = 1;
  set_length(plan, 16);
  plan.eval_spans = 2;
  plan.data.generated_bytes = 6000;
  plan.syntax.items = 1;
  plan.threads = 1;
  CompareControl control;
  control.folder = folder / "out";
  std::vector<std::string> told;
  control.on_message = [&](const std::string& line) { told.push_back(line); };
  EXPECT_TRUE(
      contains(message_of<UsageError>([&] { run_compare(plan, control); }), "no parses of the text were given"));
  const auto feed = std::make_shared<FakeFeed>();
  control.feed = [&](const LmData& data) {
    EXPECT_FALSE(data.train.documents.empty());
    EXPECT_FALSE(data.valid.documents.empty());
    return feed;
  };
  const Json document = run_compare(plan, control);
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(contains(told.front(), "a fake parser")) << told.front();
  ASSERT_EQ(document.at("runs").size(), 3U);
  for (const Json& run : document.at("runs")) {
    ASSERT_EQ(run.at("status"), "ok") << run.at("reason");
    ASSERT_EQ(run.at("eval").size(), plan.eval_lengths.size() + 1);
    const bool oracle = contains(run.at("encoding"), "mode=oracle");
    for (const Json& entry : run.at("eval")) EXPECT_EQ(entry.value("leaks", false), oracle) << run.at("encoding");
    EXPECT_EQ(run.at("eval")[0].at("perplexity").is_null(), oracle);
    EXPECT_EQ(run.at("eval").back().at("task"), "syntax");
  }
  EXPECT_EQ(compare_to_json(compare_from_json(document.at("config"), "results.json")), compare_to_json(plan));
}

TEST_F(LabSyntax, AFeedThatGivesTheWrongThingIsRefused) {
  at::NoGradGuard no_grad;
  FakeFeed feed;
  const auto encoding = make_encoding("sipe(t5, prior=fsyn)", tiny_config().dimensions());
  FeedRow row;
  row.text = "ab";
  row.tokens = {{0, 1}, {1, 2}};
  EXPECT_TRUE(contains(message_of<Error>([&] { feed_rows(&feed, *encoding, {row}, 2); }), "gives no syntax.vectors"));
  feed.wrong_shape = true;
  EXPECT_TRUE(
      contains(message_of<Error>([&] { feed_rows(&feed, *encoding, {row}, 2); }), "must have shape (1, 2, ...)"));
}

}  // namespace
}  // namespace torsor
