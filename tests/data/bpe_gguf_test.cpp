// Byte-level BPE in GGUF files: what the keys mean, what is refused, and ids that other programs give.
#include <gtest/gtest.h>

#include <functional>

#include "tests/base/gguf_file.h"
#include "tests/data/bpe_gguf_toy.h"
#include "tests/data/golden_ids.h"
#include "tests/data/test_files.h"
#include "torsor/base/error.h"
#include "torsor/data/tokenizer_file.h"

namespace torsor {
namespace {

using namespace data_test;

std::shared_ptr<const BpeTokenizer> read(const BpeGgufParts& parts) {
  return BpeTokenizer::of_gguf(GgufFile::from_bytes(parts.build(), "toy.gguf"));
}

/// 256 "ab", 257 " ab", 258 "abc", which no merge makes; then <b>, <e>, a pad and a user's token.
BpeGgufParts toy() {
  BpeGgufParts parts;
  parts.pre = "gpt-2";
  for (const char* token : {"ab",
                            "\xC4\xA0"
                            "ab",
                            "abc"})
    parts.add(token, 1);
  parts.add("<b>", 3);
  parts.add("<e>", 3);
  parts.add("[PAD 261]", 5);  // no character of the alphabet stands for a space
  parts.add("# x", 4);
  parts.merges = {"a b", "\xC4\xA0 ab"};
  return parts;
}

TEST(BpeGguf, ReadsTokensMergesAndMarks) {
  const auto tokenizer = read(toy());
  EXPECT_EQ(tokenizer->vocabulary_size(), 263U);
  EXPECT_EQ(tokenizer->encode("ab abc<e># x<b>"), (Ids{256, 257, 66, 260, 262, 259}));
  EXPECT_EQ(tokenizer->decode(Ids{259, 256, 261}), "<b>ab[PAD 261]");
  // What is unused is never found.
  EXPECT_EQ(tokenizer->encode("[PAD 261]").size(), 9U);
  ASSERT_EQ(tokenizer->model().added.size(), 3U);
  EXPECT_TRUE(tokenizer->model().added[0].special);
  EXPECT_FALSE(tokenizer->model().added[2].special);
  EXPECT_EQ(BpeTokenizer::parse(tokenizer->json(), "kept")->name(), tokenizer->name());
}

TEST(BpeGguf, TheNameOfTheSplitTellsTheRule) {
  const std::string text = "abc 1234\n\n x";
  const auto with = [&](const char* pre) {
    BpeGgufParts parts = toy();
    parts.pre = pre;
    parts.begin_id = 259;
    return read(parts)->model();
  };
  for (const char* pre : {"gpt-2", "phi-2", "mpt", "olmo"}) EXPECT_EQ(with(pre).split, BpeSplit::gpt2) << pre;
  for (const char* pre : {"smollm", "starcoder"}) EXPECT_EQ(with(pre).split, BpeSplit::digits) << pre;
  for (const char* pre : {"qwen2", "deepseek-r1-qwen"}) EXPECT_EQ(with(pre).split, BpeSplit::qwen2) << pre;
  for (const char* pre : {"llama-bpe", "llama3", "llama-v3", "dbrx"})
    EXPECT_EQ(with(pre).split, BpeSplit::llama3) << pre;
  // Llama 3 takes whole tokens before merges, and begins texts where nothing denies it.
  EXPECT_TRUE(with("llama-bpe").ignore_merges);
  EXPECT_EQ(with("llama-bpe").begin, TokenId{259});
  EXPECT_FALSE(with("dbrx").ignore_merges);
  EXPECT_EQ(with("dbrx").begin, std::nullopt);
}

TEST(BpeGguf, TheBeginningIsAsked) {
  BpeGgufParts parts = toy();
  parts.begin_id = 259;
  EXPECT_EQ(read(parts)->encode("ab"), (Ids{256}));
  parts.add_begin = true;
  const auto begins = read(parts);
  EXPECT_EQ(begins->encode("ab"), (Ids{259, 256}));
  EXPECT_EQ(begins->decode(begins->encode("ab")), "ab");
  parts.pre = "llama-bpe";
  EXPECT_EQ(read(parts)->encode("abc"), (Ids{259, 258}));
  parts.add_begin = false;
  EXPECT_EQ(read(parts)->encode("abc"), (Ids{258}));
}

TEST(BpeGguf, RefusesByKey) {
  const auto refusal = [](const std::function<void(BpeGgufParts&)>& change) {
    BpeGgufParts parts = toy();
    change(parts);
    const std::string message = message_of<Error>([&] { read(parts); });
    EXPECT_TRUE(message.starts_with("toy.gguf: ")) << message;
    return message;
  };
  using Parts = BpeGgufParts;
  EXPECT_TRUE(contains(refusal([](Parts& p) { p.pre.clear(); }), "tokenizer.ggml.pre: it is missing"));
  const std::string unknown = refusal([](Parts& p) { p.pre = "tekken"; });
  EXPECT_TRUE(contains(unknown, "tokenizer.ggml.pre: 'tekken' is not read; there are gpt-2, ")) << unknown;
  EXPECT_TRUE(contains(unknown, "llama-bpe"));
  EXPECT_TRUE(contains(refusal([](Parts& p) { p.types.pop_back(); }), "token_type: there are 262 for 263 tokens"));
  EXPECT_TRUE(contains(refusal([](Parts& p) { p.types.clear(); }), "token_type: it is missing"));
  EXPECT_TRUE(contains(refusal([](Parts& p) { p.types[5] = 6; }), "token_type: expected 1 to 5, got 6 for id 5"));
  EXPECT_TRUE(
      contains(refusal([](Parts& p) { p.tokens[256] = "a"; }), "tokens: the ids 64 and 256 have the same token 'a'"));
  EXPECT_TRUE(contains(refusal([](Parts& p) { p.tokens[256] = "\xFF"; }), "tokens: the token of id 256 is not UTF-8"));
  EXPECT_TRUE(
      contains(refusal([](Parts& p) { p.tokens[258] = "a c"; }), "'a c' of id 258 has a character that stands"));
  EXPECT_TRUE(contains(refusal([](Parts& p) { p.tokens[80] = "qq"; }), "a token for every byte"));
  EXPECT_TRUE(contains(refusal([](Parts& p) { p.merges[0] = "a zz"; }), "merges[0]: 'zz' is no token"));
  EXPECT_TRUE(contains(refusal([](Parts& p) {
                         p.merges[1] = "ab c";
                         p.tokens[258] = "xyz";
                         p.types[258] = 3;
                       }),
                       "merges[1]: 'abc', which the merge makes, is no token"));
  EXPECT_TRUE(contains(refusal([](Parts& p) { p.merges[1] = "ab"; }), "merges[1]: expected two tokens"));
  EXPECT_TRUE(contains(refusal([](Parts& p) { p.merges[1] = p.merges[0]; }), "merges 0 and 1 are of the same"));
  EXPECT_TRUE(contains(refusal([](Parts& p) { p.add_begin = true; }), "tokenizer.ggml.bos_token_id"));
  EXPECT_TRUE(contains(refusal([](Parts& p) {
                         p.add_begin = true;
                         p.begin_id = 4000000000;
                       }),
                       "bos_token_id: expected an id below 263, got 4000000000"));
  EXPECT_TRUE(contains(refusal([](Parts& p) {
                         p.add_begin = true;
                         p.begin_id = 256;
                       }),
                       "id 256, which texts begin with"));
}

TEST(BpeGgufOfTheField, Gpt2IsTheSameAsItsOwnFiles) {
  const auto file = shared_data("models/ggml-vocab/ggml-vocab-gpt-2.gguf"),
             folder = shared_data("models/tokenizers/gpt2");
  if (!file || !folder) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const auto tokenizer = load_tokenizer(*file), own = load_tokenizer(*folder);
  EXPECT_EQ(tokenizer->vocabulary_size(), 50257U);
  const auto cases = ggml_cases(*file);
  EXPECT_EQ(cases.size(), 46U);
  for (const auto& [text, ids] : cases) {
    EXPECT_EQ(tokenizer->encode(text), ids) << text;
    EXPECT_EQ(tokenizer->encode(text), own->encode(text)) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
  EXPECT_EQ(tokenizer->encode("a<|endoftext|>"), (Ids{64, 50256}));
}

// The vocabulary of GPT-NeoX says not how it cuts; MPT's, which is the same, has reference ids.
TEST(BpeGgufOfTheField, MptHasItsReferenceIds) {
  const auto folder = shared_data("models/ggml-vocab");
  if (!folder) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const GgufFile neox(*folder + "/ggml-vocab-gpt-neox.gguf");
  BpeGgufParts parts;
  parts.pre = "mpt";
  parts.tokens = neox.texts("tokenizer.ggml.tokens");
  parts.types = std::get<std::vector<std::int64_t>>(neox.keys().at("tokenizer.ggml.token_type"));
  parts.merges = neox.texts("tokenizer.ggml.merges");
  const auto tokenizer = read(parts);
  EXPECT_EQ(tokenizer->vocabulary_size(), 50432U);
  const auto cases = ggml_cases(*folder + "/ggml-vocab-mpt.gguf");
  EXPECT_EQ(cases.size(), 46U);
  for (const auto& [text, ids] : cases) EXPECT_EQ(tokenizer->encode(text), ids) << text;
}

}  // namespace
}  // namespace torsor
