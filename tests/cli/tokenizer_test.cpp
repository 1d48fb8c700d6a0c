// torsor tokenizer train, encode, decode, show.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/base/gguf_file.h"
#include "tests/cli/program.h"

namespace torsor::testing {
namespace {

TEST(CliTokenizer, ExamplesOfEveryHelpWork) {
  const TestFolder folder;
  folder.put("book.txt", tiny_text(20000));
  for (const char* command : {"train", "encode", "decode", "show"}) {
    const Ran help = run({"tokenizer", command, "--help"});
    ASSERT_EQ(help.code, 0) << help;
    std::istringstream lines(help.out);
    int examples = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("Example: ", 0) != 0) continue;
      ++examples;
      const Ran ran = run_shell(line.substr(9), folder.path());
      EXPECT_EQ(ran.code, 0) << line << "\n" << ran;
      EXPECT_EQ(ran.out.empty(), contains(line, ">")) << line;
    }
    EXPECT_GT(examples, 0) << command;
  }
}

TEST(CliTokenizer, TrainsEncodesAndDecodes) {
  const TestFolder folder;
  const std::string text = folder.put("ab.txt", "ab ab abab");
  const Ran trained = run({"tokenizer", "train", "--text", text, "--vocabulary", "300", "--out", folder / "t"});
  ASSERT_EQ(trained.code, 0) << trained;
  EXPECT_TRUE(contains(trained.out, ": 258 tokens, ")) << trained;
  EXPECT_TRUE(contains(trained.err, "258 tokens instead of 300")) << trained;
  EXPECT_EQ(folder.names(), std::vector<std::string>({"ab.txt", "t"}));

  // 256 is "ab", 257 " ab".
  EXPECT_EQ(run({"tokenizer", "encode", "--tokenizer", folder / "t", text}).out, "256 257 257 256\n");
  EXPECT_EQ(run({"tokenizer", "encode", "--tokenizer", folder / "t/tokenizer.json", text}).out, "256 257 257 256\n");
  const Json encoded = parse_json(run({"tokenizer", "encode", "--tokenizer", folder / "t", text, "--json"}).out, "ids");
  EXPECT_EQ(encoded.at("ids"), Json({256, 257, 257, 256}));
  EXPECT_EQ(encoded.at("text_bytes"), 10);
  const Ran piped = run_shell(
      "torsor tokenizer encode --tokenizer t < ab.txt | torsor tokenizer decode --tokenizer t -", folder.path());
  EXPECT_EQ(piped.out, "ab ab abab") << piped;
  const std::string empty = folder.put("empty.txt", "");
  EXPECT_EQ(run({"tokenizer", "encode", "--tokenizer", folder / "t", empty}).out, "\n");
  EXPECT_EQ(run({"tokenizer", "decode", "--tokenizer", folder / "t", empty}).out, "");

  // Any bytes come back.
  std::string odd;
  for (int byte = 255; byte >= 0; --byte) odd += static_cast<char>(byte);
  const std::string bytes = folder.put("odd.bin", odd);
  const std::string ids = folder.put("ids.txt", run({"tokenizer", "encode", "--tokenizer", folder / "t", bytes}).out);
  EXPECT_EQ(run({"tokenizer", "decode", "--tokenizer", folder / "t", ids}).out, odd);
  const Json decoded = parse_json(
      run({"tokenizer", "decode", "--tokenizer", folder / "t", folder.put("two.txt", "256\n 257"), "--json"}).out,
      "text");
  EXPECT_EQ(decoded.at("text"), "ab ab");
  EXPECT_EQ(decoded.at("tokens"), 2);

  const Json shown =
      parse_json(run({"tokenizer", "show", "--tokenizer", folder / "t", "--text", text, "--json"}).out, "s");
  EXPECT_EQ(shown.at("name"), encoded.at("tokenizer"));
  EXPECT_EQ(shown.at("vocabulary_size"), 258);
  EXPECT_EQ(shown.at("merges"), 2);
  EXPECT_EQ(shown.at("tokens"), 4);
  EXPECT_EQ(shown.at("bytes_per_token"), 2.5);
  const Ran plain = run({"tokenizer", "show", "--tokenizer", folder / "t", "--text", text});
  EXPECT_TRUE(contains(plain.out, "258 tokens, 2 merges, 0 added tokens\n2.500 bytes a token: 10 bytes, 4 tokens\n"))
      << plain;
}

/// A vocabulary of GGUF: the tokens of a tokenizer.json, and the beginning that it must name.
std::string vocabulary_in_gguf(const Json& document, const std::string& pre) {
  const auto list = [](std::uint32_t type, std::size_t size) { return bytes_of(type) + bytes_of(std::uint64_t{size}); };
  const Json& model = document.at("model");
  const std::size_t size = model.at("vocab").size() + 1;
  std::string tokens = list(8, size), types = list(5, size), merges = list(8, model.at("merges").size());
  for (const auto& [name, id] : model.at("vocab").items())
    tokens += gguf_text(name), types += bytes_of(std::int32_t{1});
  for (const Json& one : model.at("merges")) merges += gguf_text(one.get<std::string>());
  GgufParts parts;
  parts.text_key("tokenizer.ggml.model", "gpt2");
  parts.text_key("tokenizer.ggml.pre", pre);
  parts.key("tokenizer.ggml.tokens", 9, tokens + gguf_text("<|begin_of_text|>"));
  parts.key("tokenizer.ggml.token_type", 9, types + bytes_of(std::int32_t{3}));
  parts.key("tokenizer.ggml.merges", 9, merges);
  parts.number_key("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(size - 1));
  return parts.build();
}

// Kinds that are read and not trained here: a tokenizer.json with byte_fallback, a vocabulary in GGUF.
TEST(CliTokenizer, AppliesWhatOthersMade) {
  const TestFolder folder;
  const std::string euro = "ab \xE2\x82\xAC", text = folder.put("ab.txt", euro);
  Json fallback =
      parse_json(R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
{"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}, "added_tokens": [{"id": 0, "content": "<s>", "special": true}],
"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
"model": {"type": "BPE", "byte_fallback": true, "vocab": {"<s>": 0, "\u2581": 257, "a": 258, "b": 259, "ab": 260, "\u2581ab": 261},
"merges": ["a b", "\u2581 ab"]}})",
                 "fallback");
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    fallback["model"]["vocab"][name] = byte + 1;
  }
  const std::string json = folder.put("tokenizer.json", json_text(fallback));
  EXPECT_EQ(run({"tokenizer", "encode", "--tokenizer", folder.path(), text}).out, "0 261 257 227 131 173\n");
  const std::string ids = folder.put("ids.txt", "0 261 257 227 131 173");
  EXPECT_EQ(run({"tokenizer", "decode", "--tokenizer", json, ids}).out, euro);
  const Ran shown = run({"tokenizer", "show", "--tokenizer", json});
  EXPECT_TRUE(contains(shown.out, "fallbackbpe-")) << shown;
  EXPECT_TRUE(
      contains(shown.out, ": 262 tokens of BPE with byte fallback, 2 merges, 1 added tokens, texts begin with <s>\n"))
      << shown;

  ASSERT_EQ(run({"tokenizer", "train", "--text", folder.put("abab.txt", "abab"), "--vocabulary", "257", "--out",
                 folder / "t"})
                .code,
            0);
  const Json bytes = read_json(folder / "t/tokenizer.json");
  const std::string gguf = folder.put("x.gguf", vocabulary_in_gguf(bytes, "llama-bpe"));
  EXPECT_EQ(run({"tokenizer", "encode", "--tokenizer", gguf, text}).out, "257 256 220 158 224 105\n");
  const Ran other = run({"tokenizer", "show", "--tokenizer", gguf, "--text", text});
  EXPECT_TRUE(contains(other.out,
                       ": 258 tokens, 1 merges, 1 added tokens, cut as llama3, texts begin with <|begin_of_text|>\n"))
      << other;
  EXPECT_FALSE(contains(other.out, "do not come back")) << other;
  const Json described = parse_json(run({"tokenizer", "show", "--tokenizer", gguf, "--json"}).out, "show");
  EXPECT_EQ(described.at("split"), "llama3");
  EXPECT_EQ(described.at("add_begin"), true);
  const std::string unknown = folder.put("y.gguf", vocabulary_in_gguf(bytes, "tekken"));
  expect_refusal(run({"tokenizer", "show", "--tokenizer", unknown}), 1,
                 {"y.gguf: tokenizer.ggml.pre: 'tekken' is not read"});
}

TEST(CliTokenizer, TrainsOnTreebanksAndGeneratedText) {
  const TestFolder folder;
  const std::string treebank = folder.put("treebank.conllu", kTreebank);
  const Ran trees =
      run({"tokenizer", "train", "--text", treebank, "--vocabulary", "256", "--out", folder / "a", "--json"});
  ASSERT_EQ(trees.code, 0) << trees;
  const Json json = parse_json(trees.out, "train");
  EXPECT_EQ(json.at("bytes_per_token"), 1.0);
  EXPECT_EQ(json.at("out"), folder / "a/tokenizer.json");
  EXPECT_EQ(json.at("text_bytes"), json.at("tokens"));

  const auto generated = [&](const std::string& seed, const std::string& out) {
    const Ran ran = run({"tokenizer", "train", "--generated", "50000", "--seed", seed, "--vocabulary", "400", "--out",
                         folder / out, "--json", "--quiet"});
    EXPECT_EQ(ran.code, 0) << ran;
    EXPECT_EQ(ran.err, "");
    return parse_json(ran.out, "train");
  };
  const Json one = generated("1", "b"), again = generated("1", "c"), other = generated("2", "d");
  EXPECT_EQ(one.at("vocabulary_size"), 400);
  EXPECT_EQ(one.at("name"), again.at("name"));
  EXPECT_EQ(slurp(folder / "b/tokenizer.json"), slurp(folder / "c/tokenizer.json"));
  EXPECT_NE(one.at("name"), other.at("name"));
}

TEST(CliTokenizer, RefusesInOneLine) {
  const TestFolder folder;
  const std::string text = folder.put("ab.txt", "ab ab");
  const std::vector<std::string> train = {"tokenizer", "train", "--text", text, "--vocabulary", "300"};
  const auto with = [](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  expect_refusal(with(train, {}), 2, {"tokenizer train", "--out"});
  expect_refusal(with(train, {"--generated", "1000", "--out", folder / "t"}), 2, {"--text", "--generated"});
  expect_refusal(run({"tokenizer", "train", "--text", text, "--vocabulary", "255", "--out", folder / "t"}), 2,
                 {"--vocabulary", "255"});
  expect_refusal(run({"tokenizer", "train", "--text", folder / "none.txt", "--out", folder / "t"}), 1, {"none.txt"});
  expect_refusal(run({"tokenizer", "train", "--text", folder.put("e.txt", ""), "--out", folder / "t"}), 1, {"empty"});
  EXPECT_FALSE(std::filesystem::exists(folder / "t"));
  ASSERT_EQ(with(train, {"--out", folder / "t"}).code, 0);
  const std::string before = slurp(folder / "t/tokenizer.json");
  folder.put("ab.txt", "xy xy");
  expect_refusal(with(train, {"--out", folder / "t"}), 1, {"t/tokenizer.json", "--force"});
  EXPECT_EQ(slurp(folder / "t/tokenizer.json"), before);
  EXPECT_EQ(with(train, {"--out", folder / "t", "--force"}).code, 0);
  EXPECT_NE(slurp(folder / "t/tokenizer.json"), before);
  expect_refusal(with(train, {"--out", text}), 1, {"ab.txt"});

  expect_refusal(run({"tokenizer"}), 2, {"subcommand"});
  expect_refusal(run({"tokenizer", "trian"}), 2, {"trian", "encode"});
  expect_refusal(run({"tokenizer", "encode", text}), 2, {"--tokenizer"});
  expect_refusal(run({"tokenizer", "encode", "--tokenizer", folder / "none", text}), 1, {"none"});
  expect_refusal(run({"tokenizer", "encode", "--tokenizer", text, text}), 1, {"ab.txt: ", "no token '[UNK]'"});
  expect_refusal(run({"tokenizer", "encode", "--tokenizer", folder.put("ab.md", "ab"), text}), 1, {"ab.md:1:1"});
  expect_refusal(run({"tokenizer", "encode", "--tokenizer", folder.put("ab.model", "ab"), text}), 1, {"ab.model: "});
  expect_refusal(run({"tokenizer", "encode", "--tokenizer", folder.path(), text}), 1, {"tokenizer.json", "vocab.txt"});
  expect_refusal(run({"tokenizer", "encode", "--tokenizer", folder / "t", folder / "none.txt"}), 1, {"none.txt"});
  for (const char* command : {"encode", "decode", "show"})
    expect_refusal(run({"tokenizer", command, "--tokenizer", folder / "t", "--out", folder / "o"}), 2,
                   {command, "--out"});
  const std::string ids = folder.put("ids.txt", "65 66 x7");
  expect_refusal(run({"tokenizer", "decode", "--tokenizer", folder / "t", ids}), 1, {"ids.txt", "'x7'", "number 3"});
  folder.put("ids.txt", "65 258");
  expect_refusal(run({"tokenizer", "decode", "--tokenizer", folder / "t", ids}), 1, {"258", "index 1"});
  folder.put("ids.txt", "-1");
  expect_refusal(run({"tokenizer", "decode", "--tokenizer", folder / "t", ids}), 1, {"'-1'"});
  folder.put("ids.txt", "99999999999");
  expect_refusal(run({"tokenizer", "decode", "--tokenizer", folder / "t", ids}), 1, {"99999999999"});
}

TEST(CliTokenizer, AppliesWordPiece) {
  const TestFolder folder;
  std::filesystem::create_directories(folder / "w");
  folder.put("w/vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\n##b\n.\n");
  const std::string text = folder.put("text.txt", "AB  a.\nx");
  EXPECT_EQ(run({"tokenizer", "encode", "--tokenizer", folder / "w", text}).out, "3 4 3 5 0\n");
  EXPECT_EQ(run({"tokenizer", "encode", "--tokenizer", folder / "w/vocab.txt", text}).out, "3 4 3 5 0\n");
  const std::string ids = folder.put("ids.txt", "3 4 3 5 0");
  EXPECT_EQ(run({"tokenizer", "decode", "--tokenizer", folder / "w", ids}).out, "ab a. [UNK]");
  const Ran shown = run({"tokenizer", "show", "--tokenizer", folder / "w", "--text", text});
  EXPECT_TRUE(contains(shown.out, ": 6 tokens of WordPiece, 3 added tokens, lower case, no accents\n")) << shown;
  EXPECT_TRUE(contains(shown.out, "1 of 1 texts do not come back byte for byte\n")) << shown;
  const Json json =
      parse_json(run({"tokenizer", "show", "--tokenizer", folder / "w", "--text", text, "--json"}).out, "s");
  EXPECT_EQ(json.at("kind"), "WordPiece");
  EXPECT_EQ(json.at("changed_texts"), 1);
  EXPECT_EQ(json.at("tokens"), 5);
  expect_refusal(
      run({"train", "--encoding", "rope", "--tokenizer", folder / "w", "--text", text, "--out", folder / "run"}), 1,
      {"byte for byte", "wordpiece-", "text.txt"});
}

TEST(CliTokenizer, ModelsFromElsewhereReadTextWithTheirs) {
  const std::string model = shared_path("data/models/stories260K");
  if (model.empty()) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const TestFolder folder;
  std::filesystem::create_directories(folder / "hf");
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(model + "/hf/" + name, folder / ("hf/" + std::string(name)));
  const std::vector<std::string> generate = {
      "generate", folder / "hf", "--prompt", "Once upon a time", "--temperature", "0", "--max-tokens", "40", "--quiet"};
  expect_refusal(run(generate), 1, {"no text", "--ids"});
  folder.put("hf/tokenizer.json", R"({"model": {"type": "WordLevel"}})");
  expect_refusal(run(generate), 1, {"tokenizer.json", "WordLevel", "--ids"});
  expect_refusal(run({"eval", folder / "hf", "--text", folder.put("t.txt", "a b c"), "--lengths", "2"}), 1,
                 {"tokenizer.json", "WordLevel", "--tokens"});
  std::filesystem::remove(folder / "hf/tokenizer.json");
  std::filesystem::copy_file(model + "/tok512.bin", folder / "hf/tokenizer.bin");
  const Ran ran = run(generate);
  const std::string expected = slurp(model + "/expected/greedy_200.txt");
  EXPECT_EQ(ran.code, 0) << ran;
  EXPECT_EQ(ran.out.substr(0, 60), expected.substr(0, 60)) << ran;
}

}  // namespace
}  // namespace torsor::testing
