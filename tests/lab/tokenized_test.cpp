// Models of byte-pair tokens in the lab: what was true of bytes stays true.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "tests/lab/toy_causal_parser.h"
#include "torsor/base/file.h"
#include "torsor/data/bpe_train.h"
#include "torsor/encoding/registry.h"
#include "torsor/encoding/syntax/sipe.h"
#include "torsor/lab/compare.h"
#include "torsor/lab/evaluate.h"
#include "torsor/lab/parsed_feed.h"
#include "torsor/lab/surprisal.h"
#include "torsor/lab/workload.h"
#include "torsor/model/checkpoint.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::TestFolder;

const std::string kText =
    "The old king sees the cat. The cat sees the old king, and a boy sees the dogs.\n\nThe dogs see a king. "
    "The boy who sees the cat is old. A na\xC3\xAFve cat!\n\n";

class Tokenized : public ::testing::Test {
 protected:
  Tokenized() { at::set_num_threads(1); }

  static const std::shared_ptr<const BpeTokenizer>& reader() {
    static const auto made = train_bpe({kText, kText}, 300);
    return made;
  }
  static Corpus corpus() { return tokenized(text_corpus(kText + kText + kText, "text"), reader()); }

  static ModelConfig config(const std::string& expression) {
    ModelConfig made = testing::tiny_config(expression, 64);
    made.vocabulary_size = reader()->vocabulary_size();
    return made;
  }
  static std::shared_ptr<const Encoding> encoding(const std::string& expression) {
    return make_encoding(expression, {.heads = 2, .head_dim = 8, .train_length = 64});
  }
  static std::vector<std::int64_t> ids_of(const std::string& text) {
    const std::vector<TokenId> ids = reader()->encode(text);
    return {ids.begin(), ids.end()};
  }

  TestFolder folder_;
};

TEST_F(Tokenized, ACorpusGivesItsTextBack) {
  const Corpus bytes = text_corpus(kText, "text"), pieces = tokenized(bytes, reader());
  EXPECT_EQ(pieces.tokenizer, reader()->name());
  EXPECT_EQ(pieces.text(0), kText);
  EXPECT_EQ(pieces.text_bytes(), kText.size());
  EXPECT_LT(pieces.token_count() * 2, kText.size());
  EXPECT_THROW(tokenized(pieces, reader()), Error);
  const FeedRow row = window_row(pieces, {0, 5}, 7);
  ASSERT_EQ(row.tokens.size(), 7u);
  for (std::size_t t = 0; t < 7; ++t) {
    EXPECT_EQ(row.text.substr(row.tokens[t].begin, row.tokens[t].end - row.tokens[t].begin),
              reader()->text_of(pieces.documents[0].tokens[5 + t]));
  }
  const Split parts = split(pieces, 0.3, 0);
  EXPECT_EQ(parts.train.text(0) + parts.valid.text(0), kText);
  EXPECT_EQ(parts.train.text_bytes() + parts.valid.text_bytes(), kText.size());
}

TEST_F(Tokenized, BitsAByteAndWordsAreOfTheText) {
  const Corpus text = corpus();
  const Decoder uniform = testing::edited_model(config("rope"), 3, [](const std::string& name, at::Tensor& tensor) {
    if (name == "model.embed_tokens.weight") tensor.zero_();
  });
  const EvaluationPlan plan = evaluation_windows(text, {16, 32});
  for (const std::int64_t length : {16, 32}) {
    const LmEvaluation one = evaluate_lm(uniform, text, plan, length, at::kFloat);
    // Counted on the bytes themselves: every target of every span.
    std::size_t bytes = 0, words = 0;
    for (const Window& span : plan.spans) {
      const FeedRow row = window_row(text, span, plan.span_length + 1);
      for (std::size_t at = row.tokens[1].begin; at < row.text.size(); ++at, ++bytes)
        words += row.text[at] > ' ' && row.text[at - 1] <= ' ' && row.text[at - 1] > 0 ? 1 : 0;
    }
    EXPECT_EQ(one.bytes, bytes);
    // A word that begins at a window's own first target is one where the byte before it is white space: so it is here,
    // whatever the length.
    EXPECT_EQ(one.words, words);
    const double expected = std::log2(static_cast<double>(reader()->vocabulary_size())) *
                            static_cast<double>(plan.target_count()) / static_cast<double>(bytes);
    EXPECT_NEAR(evaluation_to_json(one).at("bits_per_byte").get<double>(), expected, 1e-5);
  }
}

TEST_F(Tokenized, WindowsHaveTheTagsOfTheWholeText) {
  const Corpus text = corpus();
  const auto feed = make_parsed_feed({.parsers = {testing::toy_causal_parser()}}, true, {});
  const auto sipe = encoding("sipe(t5)");
  // The whole text as a row of its own, which no place tells about.
  FeedRow whole = window_row(text, {0, 0}, text.documents[0].tokens.size());
  whole.place.reset();
  const at::Tensor all =
      feed_rows(feed.get(), *sipe, {whole}, static_cast<std::int64_t>(whole.tokens.size())).at(kSyntaxTags)[0];
  EXPECT_GT(all.count_nonzero().item<std::int64_t>(), 40);
  for (const std::size_t begin : {std::size_t{0}, std::size_t{9}, std::size_t{31}}) {
    Batch batch;
    batch.rows = 1;
    batch.length = 20;
    batch.windows = {{0, begin}};
    EXPECT_TRUE(at::equal(feed_windows(feed.get(), *sipe, text, batch).at(kSyntaxTags)[0],
                          all.narrow(0, static_cast<std::int64_t>(begin), 20)));
  }
}

TEST_F(Tokenized, StreamsHaveTheTagsOfTheWholeText) {
  const auto feed = make_parsed_feed({.parsers = {testing::toy_causal_parser()}}, true, {});
  for (const char* expression : {"sipe(t5)", "sipe(alibi, coupling=sparse)"}) {
    const auto sipe = encoding(expression);
    const std::vector<std::int64_t> ids = ids_of(kText);
    const Corpus text = tokenized(text_corpus(kText, "text"), reader());
    FeedRow whole = window_row(text, {0, 0}, ids.size());
    whole.place.reset();
    const NamedTensors all = feed_rows(feed.get(), *sipe, {whole}, static_cast<std::int64_t>(ids.size()));
    const auto inputs = stream_inputs(feed->stream(*sipe), reader());
    NamedTensors streamed;
    for (std::size_t count = 1; count <= ids.size(); ++count) {
      const std::vector<std::int64_t> row(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
      streamed = inputs({row}, {0});
    }
    for (const auto& [name, tensor] : all) EXPECT_TRUE(at::equal(streamed.at(name), tensor)) << expression << name;
  }
}

TEST_F(Tokenized, SurprisalsAreThoseOfTheTokens) {
  const at::NoGradGuard no_gradient;
  const Decoder model(config("alibi"), 1);
  SentenceOptions options;
  options.reader = reader();
  const std::vector<ScoredText> texts = {{"The cat sees the old king."}, {"A dog."}, {"The boy is old."}};
  const std::vector<Surprisals> found = surprisals_of(model, texts, options);
  for (std::size_t n = 0; n < texts.size(); ++n) {
    const std::string& text = texts[n].text;
    const std::vector<std::int64_t> ids = ids_of("\n\n" + text);
    const std::size_t before = ids.size() - found[n].bits.size();
    const at::Tensor losses = model.token_losses(at::tensor(ids, at::kLong).unsqueeze(0))[0];
    double sum = 0;
    for (std::size_t t = before; t < ids.size(); ++t)
      sum += losses[static_cast<std::int64_t>(t) - 1].item<double>() / std::numbers::ln2;
    EXPECT_NEAR(found[n].sum(), sum, 1e-4);
    // The tokens are the sentence, from its first byte to its last.
    std::size_t at = 0;
    for (const ByteRange& token : found[n].tokens) {
      EXPECT_EQ(token.begin, at);
      at = token.end;
    }
    EXPECT_EQ(at, text.size());
  }
  options.reader = std::make_shared<ByteTokenizer>();
  const std::vector<Surprisals> wrong = surprisals_of(model, texts, options);
  EXPECT_EQ(wrong[1].bits.size(), 6u);
  // A separator that the first word's token swallows leaves nothing to predict it from.
  options.reader = reader();
  options.separator = " ";
  EXPECT_TRUE(contains(message_of<UsageError>([&] { surprisals_of(model, {{"king sees"}}, options); }), "separator"));
}

TEST_F(Tokenized, CheckpointsHoldTheirTokenizer) {
  const Decoder model(config("rope"), 1);
  save_checkpoint(folder_ / "model", model, reader()->name(), "", reader());
  const LoadedModel loaded = load_checkpoint(folder_ / "model");
  ASSERT_TRUE(loaded.reader);
  EXPECT_EQ(loaded.reader->name(), reader()->name());
  EXPECT_EQ(loaded.reader->encode(kText), reader()->encode(kText));
  write_file_atomic(folder_ / "model/tokenizer.json", train_bpe({kText}, 290)->json());
  EXPECT_TRUE(
      contains(message_of<Error>([&] { load_checkpoint(folder_ / "model"); }), "not the tokenizer of this model"));
  std::filesystem::remove(folder_ / "model/tokenizer.json");
  EXPECT_TRUE(contains(message_of<Error>([&] { load_checkpoint(folder_ / "model"); }), "tokenizer.json"));
}

TEST_F(Tokenized, FactorsOfAWorkloadAreThoseOfTheModel) {
  folder_.put("text.txt", kText + kText + kText + kText + kText);
  write_file_atomic(folder_ / "tokenizer.json", reader()->json());
  ComparePlan plan;
  plan.data.text = {folder_ / "text.txt"};
  plan.data.tokenizer = folder_ / "tokenizer.json";
  plan.run = testing::tiny_plan();
  plan.eval_lengths = {16};
  const auto workload = make_workload(plan, [](const LmData& data) {
    return make_parsed_feed({.parsers = {testing::toy_causal_parser()}}, true, data.gold);
  });
  const auto effect = [&](const std::string& expression, double beta) {
    const Decoder model =
        testing::edited_model(config(expression), 3, [&](const std::string& name, at::Tensor& tensor) {
          if (name.ends_with("beta")) tensor.fill_(beta);
        });
    return workload->factor_effects(model, 16, at::kFloat);
  };
  // F = 1 + beta tanh(z): nothing where beta is 0, and in proportion to it.
  const auto none = effect("sipe(t5)", 0), small = effect("sipe(t5)", 0.1), large = effect("sipe(t5)", 0.2);
  ASSERT_EQ(small.size(), 1u);
  EXPECT_EQ(none[0], 0.0);
  EXPECT_GT(*small[0], 1e-4);
  EXPECT_NEAR(*large[0], 2 * *small[0], 1e-6);
  EXPECT_FALSE(effect("t5", 0.1)[0]);
}

TEST_F(Tokenized, ComparisonsAreOfTheSameText) {
  folder_.put("text.txt", kText + kText + kText + kText + kText);
  write_file_atomic(folder_ / "tokenizer.json", reader()->json());
  ComparePlan plan;
  plan.encodings = {"alibi", "sipe(alibi)"};
  plan.task = "syntax";
  plan.parses.parsers = {testing::toy_causal_parser()};
  plan.data.text = {folder_ / "text.txt"};
  plan.data.tokenizer = folder_ / "tokenizer.json";
  plan.run = testing::tiny_plan();
  plan.eval_lengths = {8, 16};
  plan.seeds = {0};
  plan.syntax.items = 1;
  CompareControl control;
  control.folder = folder_ / "out";
  const Json results = run_compare(plan, control);
  for (const Json& run : results.at("runs")) {
    ASSERT_EQ(run.at("status"), "ok") << run.at("reason");
    EXPECT_GT(run.at("decode_tokens_per_second").get<double>(), 0);
    const Json& lm = run.at("eval")[0];
    EXPECT_LT(lm.at("bits_per_byte").get<double>(), 0.6 * lm.at("loss").get<double>() / std::numbers::ln2);
    EXPECT_EQ(run.at("eval")[2].at("task"), "syntax");
  }
  EXPECT_EQ(compare_from_json(results.at("config"), "x").data.tokenizer, plan.data.tokenizer);
  for (const auto& entry : std::filesystem::directory_iterator(control.folder + "/runs"))
    EXPECT_EQ(load_checkpoint(entry.path()).reader->name(), reader()->name());
}

}  // namespace
}  // namespace torsor
