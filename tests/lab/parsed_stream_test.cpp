// Generation with syntax: texts that are being written are parsed as they come, and the cache stays exact.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "tests/lab/toy_causal_parser.h"
#include "torsor/base/hash.h"
#include "torsor/encoding/registry.h"
#include "torsor/encoding/syntax/sipe.h"
#include "torsor/lab/parsed_feed.h"
#include "torsor/lab/parsed_inputs.h"
#include "torsor/model/generate.h"
#include "torsor/syntax/arc_embedder.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::TestFolder;
using Rows = std::vector<std::vector<std::int64_t>>;

class ParsedStream : public ::testing::Test {
 protected:
  ParsedStream() { at::set_num_threads(1); }

  static std::shared_ptr<const Encoding> encoding(const std::string& expression) {
    return make_encoding(expression, {.heads = 2, .head_dim = 8, .train_length = 16});
  }
  static FeedRow row_of(const std::string& text) {
    FeedRow row;
    row.text = text;
    for (std::size_t t = 0; t < text.size(); ++t) row.tokens.push_back({t, t + 1});
    return row;
  }
  static std::vector<std::string> bytes_of(const std::string& text) {
    std::vector<std::string> bytes;
    for (const char byte : text) bytes.emplace_back(1, byte);
    return bytes;
  }
  static std::vector<std::int64_t> ids_of(const std::string& text) {
    std::vector<std::int64_t> ids;
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
  }
  /// All that was read of every row so far.
  static std::string hash_of(const SyntaxStream& stream, std::size_t rows, std::int64_t tokens) {
    Sha256 hash;
    for (const auto& [name, tensor] : stream.inputs(std::vector<std::int64_t>(rows, 0))) {
      const at::Tensor some = tensor.narrow(1, 0, tokens).contiguous();
      hash.update(name).update(std::string_view(static_cast<const char*>(some.const_data_ptr()), some.nbytes()));
    }
    return hash.hex();
  }
};

constexpr const char* kText =
    "the old king sees the cat. the boy quickly likes that dog.\n\nthe d\u00e9j\u00e0 vu runs. a";

TEST_F(ParsedStream, GivesWhatTheWholeTextGives) {
  const TestFolder folder;
  syntax::write_native_model(folder / "arcs",
                             syntax::ArcEmbedder({.incremental = true}, syntax::Weights(1)).to_model());
  const auto feed = make_parsed_feed({.parsers = {testing::toy_causal_parser()}, .arcs = folder / "arcs"}, true, {});
  const std::string text = kText;
  const auto count = static_cast<std::int64_t>(text.size());
  for (const char* expression : {"sipe(t5)", "sipe(rope)", "sipe(txl)", "sipe(alibi, coupling=sparse)",
                                 "sipe(t5, prior=fsyn)", "sipe(none, inject=input)", "sipe(none, labels=add)"}) {
    SCOPED_TRACE(expression);
    const auto one = encoding(expression);
    const NamedTensors whole = feed_rows(feed.get(), *one, {row_of(text)}, count);
    const auto stream = feed->stream(*one);
    std::string hash;
    for (std::int64_t t = 0; t < count; ++t) {
      stream->read(0, {text.substr(static_cast<std::size_t>(t), 1)});
      // The newest token alone, and all of them: no number ever changes.
      const NamedTensors newest = stream->inputs({t});
      for (const auto& [name, tensor] : newest) {
        ASSERT_EQ(tensor.size(1), 1);
        // A product of another height may be summed in another order.
        if (name == kSyntaxVectors)
          EXPECT_LT((tensor.select(1, 0) - whole.at(name).select(1, t)).abs().max().item<double>(), 1e-5) << t;
        else
          EXPECT_TRUE(at::equal(tensor.select(1, 0), whole.at(name).select(1, t))) << name << " of token " << t;
      }
      if (t == 20) hash = hash_of(*stream, 1, 20);
    }
    EXPECT_EQ(hash_of(*stream, 1, 20), hash);
    for (const auto& [name, tensor] : stream->inputs({0})) EXPECT_TRUE(at::allclose(tensor, whole.at(name), 0, 1e-5));
    // Of every input something is told: what says nothing would be equal whatever the stream gave.
    const NamedTensors nothing = empty_inputs(one->inputs(), 1, count);
    for (const auto& [name, tensor] : whole)  // a relation shows with a head on the left alone, four times in this text
      EXPECT_GT(tensor.ne(nothing.at(name)).sum().item<std::int64_t>(), name == kSyntaxLabels ? 3 : 4) << name;
    EXPECT_THROW(stream->inputs({count + 1}), Error);
  }
}

TEST_F(ParsedStream, RowsAreApart) {
  const auto feed = make_parsed_feed({.parsers = {testing::toy_causal_parser()}}, true, {});
  const auto one = encoding("sipe(t5)");
  const auto stream = feed->stream(*one);
  const std::string first = "the old king sees. the cat", second = "a boy";
  for (std::size_t t = 0; t < first.size(); ++t) {
    stream->read(0, bytes_of(first.substr(t, 1)));
    if (t < second.size()) stream->read(1, bytes_of(second.substr(t, 1)));
  }
  const NamedTensors both = stream->inputs({0, 0});
  const NamedTensors apart =
      feed_rows(feed.get(), *one, {row_of(first), row_of(second)}, static_cast<std::int64_t>(first.size()));
  for (const auto& [name, tensor] : both) EXPECT_TRUE(at::equal(tensor, apart.at(name))) << name;
  EXPECT_EQ(stream->size(1), second.size());
  EXPECT_EQ(stream->size(7), 0u);
}

TEST_F(ParsedStream, GeneratesWhatFullPassesSay) {
  const at::NoGradGuard no_gradient;
  const auto feed = make_parsed_feed({.parsers = {testing::toy_causal_parser()}}, true, {});
  for (const char* expression : {"sipe(rope)", "sipe(alibi)", "sipe(txl)", "sipe(alibi, coupling=sparse)"}) {
    SCOPED_TRACE(expression);
    at::manual_seed(1);
    const Decoder model =
        testing::edited_model(testing::tiny_config(expression, 64), 3, [](const std::string& name, at::Tensor& tensor) {
          if (is_positional(name)) tensor.uniform_(-0.5, 0.5);
          if (name == "model.embed_tokens.weight") tensor *= 20;
        });
    // Prompts of different lengths, one of which ends inside of a character.
    const Rows prompts = {ids_of("the old king sees the cat. the b"), ids_of("a dog"), ids_of("the boy \xE4\xBD")};
    GenerateOptions options;
    options.max_tokens = 24;
    options.inputs = stream_inputs(feed->stream(model.encoding()), std::make_shared<ByteTokenizer>());
    std::vector<std::string> earlier;
    const Generated found = generate(model, prompts, options);
    std::int64_t tagged = 0;
    for (std::size_t b = 0; b < prompts.size(); ++b) {
      std::vector<std::int64_t> row = prompts[b];
      for (const std::int64_t token : found.tokens[b]) {
        // A full pass over what is there, with the inputs of a stream that reads it at once.
        const auto stream = feed->stream(model.encoding());
        TokenBatch batch;
        batch.tokens = at::tensor(row, at::kLong).unsqueeze(0);
        batch.named = stream_inputs(feed->stream(model.encoding()), std::make_shared<ByteTokenizer>())({row}, {0});
        tagged += batch.named.at(kSyntaxTags).count_nonzero().item<std::int64_t>();
        const at::Tensor logits = model.logits(model.hidden(batch))[0][-1];
        const auto best = logits.argmax().item<std::int64_t>();
        // Greedy steps through the cache round in another order; a tie may fall the other way.
        EXPECT_LT((logits[best] - logits[token]).item<double>(), 1e-4) << "row " << b;
        row.push_back(token);
      }
    }
    EXPECT_GT(tagged, 100);
  }
}

TEST_F(ParsedStream, RefusesWhatChangesAsATextGrows) {
  const auto feed = make_parsed_feed({.parsers = {testing::toy_causal_parser(), "gold"}}, true, {});
  for (const char* mode : {"oracle", "oracle_revealed"}) {
    const std::string message = message_of<Refusal>([&] { feed->stream(*encoding(str("sipe(t5, mode=", mode, ")"))); });
    EXPECT_TRUE(contains(message, mode) && contains(message, "mode=incremental")) << message;
  }
  EXPECT_THROW(feed->under("shuffled")->stream(*encoding("sipe(t5)")), Refusal);
  const auto gold = make_parsed_feed({.parsers = {"gold"}}, true, {});
  EXPECT_THROW(gold->stream(*encoding("sipe(t5)"))->read(0, {"a"}), UsageError);
  // Rows only grow, and tokens are bytes.
  const auto inputs = stream_inputs(feed->stream(*encoding("sipe(t5)")), std::make_shared<ByteTokenizer>());
  inputs({ids_of("abc")}, {0});
  EXPECT_THROW(inputs({ids_of("ab")}, {0}), Error);
  EXPECT_THROW(inputs({{97, 98, 99, 300}}, {3}), Error);
}

}  // namespace
}  // namespace torsor
