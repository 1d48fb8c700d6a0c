// torsor tokenizer: train, encode, decode, show
#include <filesystem>
#include <iostream>
#include <memory>

#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/base/utf8.h"
#include "torsor/cli/common.h"
#include "torsor/data/bpe.h"
#include "torsor/data/bpe_train.h"
#include "torsor/data/fallback_bpe.h"
#include "torsor/data/grammar.h"
#include "torsor/data/sentencepiece.h"
#include "torsor/data/tokenizer_file.h"
#include "torsor/data/wordpiece.h"
#include "torsor/lab/data.h"
#include "torsor/report/numbers.h"

namespace torsor {
namespace {

constexpr std::int64_t kMostTokens = 1'000'000;

struct TokenizerTrainArguments {
  std::vector<std::string> text;
  std::int64_t generated = 4'000'000;
  bool generated_given = false;
  std::int64_t vocabulary = 8192;
};

struct UseArguments {
  std::string tokenizer;
  std::string file = "-";
  std::vector<std::string> text;
};

struct Amount {
  std::size_t bytes = 0, tokens = 0, texts = 0;
  std::size_t changed = 0;  // texts that do not come back
  double bytes_per_token() const { return static_cast<double>(bytes) / static_cast<double>(tokens); }
};

Amount measure(const Tokenizer& tokenizer, const Corpus& corpus, const char* command) {
  Amount amount;
  for (const Document& document : corpus.documents) {
    if (stop_requested) throw Interrupted(str(command, " was stopped"));
    const std::string_view text = document.tokens.bytes();
    const std::vector<TokenId> ids = tokenizer.encode(text);
    amount.bytes += text.size();
    amount.tokens += ids.size();
    ++amount.texts;
    if (tokenizer.decode(ids) != text) ++amount.changed;
  }
  return amount;
}

int run_tokenizer_train(const TokenizerTrainArguments& arguments, const CommonOptions& common) {
  if (common.out.empty()) throw UsageError("tokenizer train needs --out, the folder that tokenizer.json is written to");
  if (!arguments.text.empty() && arguments.generated_given)
    throw UsageError("tokenizer train takes --text or --generated, not both");
  const std::string file = common.out + "/tokenizer.json";
  if (!common.force && std::filesystem::exists(file)) throw Error(str("'", file, "' exists; replace it with --force"));
  const Corpus corpus = arguments.text.empty()
                            ? generate_corpus(static_cast<std::size_t>(arguments.generated), common.seed)
                            : load_texts(arguments.text).corpus;
  std::vector<std::string_view> texts;
  for (const Document& document : corpus.documents) texts.push_back(document.tokens.bytes());
  make_directories(common.out);
  const Progress::Options progress = progress_options(common, "tokens");
  const auto wanted = static_cast<std::uint32_t>(arguments.vocabulary);
  const auto tokenizer = train_bpe(texts, wanted, {.stop = &stop_requested, .progress = &progress});
  const Amount amount = measure(*tokenizer, corpus, "tokenizer train");
  write_file_atomic(file, tokenizer->json());
  if (tokenizer->vocabulary_size() < wanted)
    say(common, str("no further pair occurs twice: ", tokenizer->vocabulary_size(), " tokens instead of ", wanted));
  if (common.json)
    std::cout << json_text({{"out", file},
                            {"name", tokenizer->name()},
                            {"vocabulary_size", tokenizer->vocabulary_size()},
                            {"text_bytes", amount.bytes},
                            {"tokens", amount.tokens},
                            {"bytes_per_token", amount.bytes_per_token()}})
              << "\n";
  else
    std::cout << tokenizer->name() << ": " << tokenizer->vocabulary_size() << " tokens, "
              << report::format_decimals(amount.bytes_per_token(), 3) << " bytes a token on the text, in " << file
              << "\n";
  return 0;
}

int run_tokenizer_encode(const UseArguments& arguments, const CommonOptions& common) {
  refuse_out(common, "tokenizer encode");
  const auto tokenizer = load_tokenizer(arguments.tokenizer);
  const std::string text = read_input(arguments.file);
  const std::vector<TokenId> ids = tokenizer->encode(text);
  if (common.json) {
    std::cout << json_text({{"tokenizer", tokenizer->name()}, {"text_bytes", text.size()}, {"ids", ids}}) << "\n";
    return 0;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) std::cout << (i > 0 ? " " : "") << ids[i];
  std::cout << "\n";
  return 0;
}

int run_tokenizer_decode(const UseArguments& arguments, const CommonOptions& common) {
  refuse_out(common, "tokenizer decode");
  const auto tokenizer = load_tokenizer(arguments.tokenizer);
  const std::vector<TokenId> ids =
      read_ids(read_input(arguments.file), arguments.file == "-" ? "standard input" : arguments.file);
  const std::string text = tokenizer->decode(ids);
  if (common.json)
    std::cout << json_text({{"tokenizer", tokenizer->name()}, {"tokens", ids.size()}, {"text", text}}) << "\n";
  else
    std::cout << text;
  return 0;
}

const char* split_name(BpeSplit split) {
  switch (split) {
    case BpeSplit::digits:
      return "digits";
    case BpeSplit::llama3:
      return "llama3";
    case BpeSplit::qwen2:
      return "qwen2";
    default:
      return "gpt2";
  }
}

/// What a tokenizer is beside its size, for people; the same goes into `json`.
std::string describe(const Tokenizer& tokenizer, Json& json) {
  if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(&tokenizer)) {
    const BpeModel& model = bpe->model();
    json["kind"] = "byte-level BPE";
    json["merges"] = model.merges.size();
    json["added_tokens"] = model.added.size();
    json["add_prefix_space"] = model.add_prefix_space;
    json["split"] = split_name(model.split);
    json["nfc"] = model.composes;
    json["add_begin"] = model.begin.has_value();
    return str(", ", model.merges.size(), " merges, ", model.added.size(), " added tokens",
               model.split == BpeSplit::gpt2 ? "" : str(", cut as ", split_name(model.split)),
               model.composes ? ", NFC" : "", model.add_prefix_space ? ", a space before every text" : "",
               model.begin ? ", texts begin with " + model.vocabulary[*model.begin] : "");
  }
  if (const auto* fallback = dynamic_cast<const FallbackBpeTokenizer*>(&tokenizer)) {
    const FallbackBpeModel& model = fallback->model();
    json["kind"] = "BPE with byte fallback";
    json["merges"] = model.merges.size();
    json["added_tokens"] = model.added.size();
    json["add_begin"] = model.begin.has_value();
    return str(" of BPE with byte fallback, ", model.merges.size(), " merges, ", model.added.size(), " added tokens",
               model.begin ? ", texts begin with " + model.vocabulary[*model.begin] : "");
  }
  if (const auto* words = dynamic_cast<const WordPieceTokenizer*>(&tokenizer)) {
    const WordPieceModel& model = words->model();
    json["kind"] = "WordPiece";
    json["added_tokens"] = model.added.size();
    json["lowercase"] = model.lowercase;
    json["strip_accents"] = model.strip_accents;
    return str(" of WordPiece, ", model.added.size(), " added tokens, ", model.lowercase ? "lower case" : "cased",
               model.strip_accents ? ", no accents" : "");
  }
  if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer)) {
    const SentencePieceModel& model = pieces->model();
    const bool unigram = model.method == SentencePieceModel::Method::unigram;
    json["kind"] = "SentencePiece";
    json["method"] = unigram ? "unigram" : "bpe";
    json["byte_fallback"] = model.byte_fallback;
    json["added_tokens"] = pieces->options().added.size();
    json["add_begin"] = pieces->options().add_begin;
    return str(" of SentencePiece, ", unigram ? "Unigram" : "BPE", model.byte_fallback ? " with bytes" : "", ", ",
               pieces->options().added.size(), " added tokens",
               pieces->options().add_begin ? ", texts begin with " + pieces->options().begin : "");
  }
  json["kind"] = "llama2.c";
  return " of llama2.c";
}

int run_tokenizer_show(const UseArguments& arguments, const CommonOptions& common) {
  refuse_out(common, "tokenizer show");
  const auto tokenizer = load_tokenizer(arguments.tokenizer);
  Json json;
  json["name"] = tokenizer->name();
  json["vocabulary_size"] = tokenizer->vocabulary_size();
  const std::string described = describe(*tokenizer, json);
  Amount amount;
  if (!arguments.text.empty()) {
    amount = measure(*tokenizer, load_texts(arguments.text).corpus, "tokenizer show");
    json["text_bytes"] = amount.bytes;
    json["tokens"] = amount.tokens;
    json["bytes_per_token"] = amount.bytes_per_token();
    json["texts"] = amount.texts;
    json["changed_texts"] = amount.changed;
  }
  if (common.json) {
    std::cout << json_text(json) << "\n";
    return 0;
  }
  std::cout << tokenizer->name() << ": " << tokenizer->vocabulary_size() << " tokens" << described << "\n";
  if (!arguments.text.empty()) {
    std::cout << report::format_decimals(amount.bytes_per_token(), 3) << " bytes a token: " << amount.bytes
              << " bytes, " << amount.tokens << " tokens\n";
    if (amount.changed > 0)
      std::cout << amount.changed << " of " << amount.texts << " texts do not come back byte for byte\n";
  }
  return 0;
}

void add_train(Command& group, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<TokenizerTrainArguments>();
  Command* command = group.add_subcommand("train", "learn the merges of a byte-level BPE from text");
  command->footer(
      "FOLDER/tokenizer.json is written, which Hugging Face's tokenizers reads too.\n"
      "Example: torsor tokenizer train --text book.txt --vocabulary 2048 --out my-tokenizer\n"
      "Example: torsor tokenizer train --generated 100000 --seed 1 --vocabulary 512 --out other-tokenizer");
  command->add_option("--text", arguments->text, "files or folders to learn from; left out: generated text");
  CommandOption* generated = command->add_option("--generated", arguments->generated, "bytes of generated text, about")
                                 ->check(whole_number(1, std::int64_t{1} << 30))
                                 ->capture_default_str();
  command->add_option("--vocabulary", arguments->vocabulary, "tokens, the 256 bytes included")
      ->check(whole_number(256, kMostTokens))
      ->capture_default_str();
  command->callback([&common, &chosen, arguments, generated] {
    arguments->generated_given = generated->count() > 0;
    chosen = [&common, arguments] { return run_tokenizer_train(*arguments, common); };
  });
}

/// A command that uses a tokenizer.
Command* add_use(Command& group, const char* name, const char* what, const std::shared_ptr<UseArguments>& arguments,
                 int (*action)(const UseArguments&, const CommonOptions&), CommonOptions& common, Chosen& chosen) {
  Command* command = group.add_subcommand(name, what);
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "a folder with a tokenizer, or its file: tokenizer.json, tokenizer.model, vocab.txt, tokenizer.bin, "
                   "a .gguf")
      ->required();
  command->callback([&common, &chosen, arguments, action] {
    chosen = [&common, arguments, action] { return action(*arguments, common); };
  });
  return command;
}

}  // namespace

void add_tokenizer_command(Command& app, CommonOptions& common, Chosen& chosen) {
  Command* group = app.add_subcommand(
      "tokenizer", "train a byte-level BPE; encode, decode and show with any tokenizer that is read");
  group->footer("Example: torsor tokenizer train --generated 100000 --vocabulary 512 --out my-tokenizer");
  group->require_subcommand();
  add_train(*group, common, chosen);

  auto encoded = std::make_shared<UseArguments>();
  Command* encode = add_use(*group, "encode", "print the ids of a text", encoded, run_tokenizer_encode, common, chosen);
  encode->footer("Example: torsor tokenizer encode --tokenizer my-tokenizer book.txt > ids.txt");
  encode->add_option("file", encoded->file, "a text; - or left out: standard input");

  auto decoded = std::make_shared<UseArguments>();
  Command* decode = add_use(*group, "decode", "print the text of ids", decoded, run_tokenizer_decode, common, chosen);
  decode->footer(
      "The bytes are written as they are; with --json, what is not UTF-8 becomes U+FFFD.\n"
      "Example: torsor tokenizer decode --tokenizer my-tokenizer ids.txt");
  decode->add_option("file", decoded->file, "ids with blanks between them; - or left out: standard input");

  auto shown = std::make_shared<UseArguments>();
  Command* show = add_use(*group, "show", "the size and the name of a tokenizer, and how long its tokens are on text",
                          shown, run_tokenizer_show, common, chosen);
  show->footer("Example: torsor tokenizer show --tokenizer my-tokenizer --text book.txt");
  show->add_option("--text", shown->text, "files or folders to measure the bytes a token on");
}

}  // namespace torsor
