// The files of a byte-level BPE: tokenizer.json, vocab.json with merges.txt.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/base/utf8.h"
#include "torsor/data/bpe.h"
#include "torsor/data/bpe_alphabet.h"
#include "torsor/data/bpe_names.h"
#include "torsor/data/tokenizer_json.h"

namespace torsor {
namespace {

namespace fs = std::filesystem;

/// Texts are cut by one of the rules that are known, then written as bytes.
struct Cutting {
  BpeSplit split = BpeSplit::gpt2;
  bool prefix_space = false;
};

constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// A step of `pre_tokenizer` that cuts before ByteLevel does.
BpeSplit split_of(JsonObject& step) {
  const auto type = step.get<std::string>("type");
  if (type == "Digits") {
    if (!step.get<bool>("individual_digits", false)) step.fail("key 'individual_digits' must be true");
    step.finish();
    return BpeSplit::digits;
  }
  if (type != "Split") step.fail(str("key 'type' must be Split or Digits, found ", shown(type)));
  JsonObject pattern = step.object("pattern");
  const auto expression = pattern.get<std::string>("Regex");
  if (const auto behavior = step.get<std::string>("behavior"); behavior != "Isolated")
    step.fail(str("key 'behavior' must be Isolated, found ", shown(behavior)));
  if (step.get<bool>("invert", false)) step.fail("key 'invert' must be false");
  step.finish();
  pattern.finish();
  for (const auto& [known, split] :
       {std::pair(kGpt2, BpeSplit::gpt2), std::pair(kLlama3, BpeSplit::llama3), std::pair(kQwen2, BpeSplit::qwen2)})
    if (expression == known) return split;
  pattern.fail(str("key 'Regex' is none of the expressions that are read (those of GPT-2, Llama 3 and Qwen 2): ",
                   quote(expression, 120)));
}

/// Checks a ByteLevel step; `cuts` says whether it must cut as GPT-2 does, or must not.
bool prefix_space_of(JsonObject& bytes, bool cuts) {
  if (const auto type = bytes.get<std::string>("type"); type != "ByteLevel")
    bytes.fail(str("key 'type' must be ByteLevel, found ", shown(type)));
  const bool prefix = bytes.get<bool>("add_prefix_space");
  bytes.allow("trim_offsets");
  if (bytes.get<bool>("use_regex", true) != cuts)
    bytes.fail(cuts ? "key 'use_regex' must be true: another split, or none, is not read"
                    : "key 'use_regex' must be false behind another split");
  bytes.finish();
  return prefix;
}

Cutting cutting_of(JsonObject& document) {
  JsonObject pre = document.object("pre_tokenizer");
  Cutting cutting;
  if (const auto type = pre.get<std::string>("type"); type != "Sequence") {
    cutting.prefix_space = prefix_space_of(pre, true);
    return cutting;
  }
  const auto list = pre.get<std::vector<Json>>("pretokenizers");
  pre.finish();
  if (list.size() != 2) pre.fail(str("expected a split and ByteLevel, found ", list.size(), " of them"));
  JsonObject first(list[0], pre.source() + ": pretokenizers[0]", JsonObject::Blame::data);
  cutting.split = split_of(first);
  JsonObject second(list[1], pre.source() + ": pretokenizers[1]", JsonObject::Blame::data);
  if (prefix_space_of(second, cutting.split == BpeSplit::digits))
    second.fail("key 'add_prefix_space' must be false behind another split");
  return cutting;
}

/// What cutting_of() reads.
Json cutting_json(const BpeModel& model) {
  Json bytes = {{"type", "ByteLevel"},
                {"add_prefix_space", model.add_prefix_space},
                {"trim_offsets", true},
                {"use_regex", model.split == BpeSplit::gpt2 || model.split == BpeSplit::digits}};
  if (model.split == BpeSplit::gpt2) return bytes;
  Json first;
  if (model.split == BpeSplit::digits)
    first = {{"type", "Digits"}, {"individual_digits", true}};
  else
    first = {{"type", "Split"},
             {"pattern", {{"Regex", model.split == BpeSplit::llama3 ? kLlama3 : kQwen2}}},
             {"behavior", "Isolated"},
             {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({first, bytes})}};
}

BpeModel bpe_model_of(const Json& json, const std::string& path) {
  JsonObject document(json, path, JsonObject::Blame::data);
  // The model's type first: it tells best what kind of file this is.
  JsonObject model = document.object("model");
  const bool ignore_merges = check_bpe_model(model, false);
  const bool composes = document.has("normalizer");
  if (composes) {
    JsonObject normalizer = document.object("normalizer");
    if (const auto type = normalizer.get<std::string>("type"); type != "NFC")
      normalizer.fail(str("key 'type' must be NFC, found ", shown(type)));
    normalizer.finish();
  }
  check_tokenizer_document(document);
  const Cutting cutting = cutting_of(document);
  if (document.has("decoder")) {
    JsonObject decoder = document.object("decoder");
    if (const auto type = decoder.get<std::string>("type"); type != "ByteLevel")
      decoder.fail(str("key 'type' must be ByteLevel, found ", shown(type)));
  }
  document.allow("added_tokens");
  const std::optional<TokenId> begin = begin_token_of(document);
  document.finish();

  const Json& inner = json.at("model");
  const BpeNames names(tokenizer_part(inner, "vocab", path + ": model"), added_tokens_of(json, path),
                       path + ": model: vocab");
  BpeModel made;
  made.vocabulary = names.bytes();
  made.added = names.added();
  made.add_prefix_space = cutting.prefix_space;
  made.composes = composes;
  made.split = cutting.split;
  made.ignore_merges = ignore_merges;
  made.begin = begin;
  made.merges = names.merges(tokenizer_part(inner, "merges", path + ": model"), path + ": model: merges");
  return made;
}

std::vector<BpeMerge> read_merges(const std::string& path, const BpeNames& names) {
  const std::string text = read_file(path, kLargestTokenizerFile);
  if (const std::size_t at = find_invalid_utf8(text); at != std::string::npos)
    throw Error(str(path, ": expected UTF-8, found another byte at ", at));
  std::vector<BpeMerge> merges;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if ((number == 1 && line.starts_with("#version")) || (line.empty() && begin >= text.size())) continue;
    merges.push_back(names.merge(line, str(path, ':', number)));
  }
  return merges;
}

BpeModel read_vocab_and_merges(const std::string& folder) {
  const std::string vocab = folder + "/vocab.json";
  const Json json = read_tokenizer_json(vocab);
  const BpeNames names(json, {}, vocab);
  BpeModel made;
  made.vocabulary = names.bytes();
  made.merges = read_merges(folder + "/merges.txt", names);
  return made;
}

}  // namespace

std::shared_ptr<const BpeTokenizer> BpeTokenizer::load(const std::string& path) {
  std::error_code error;
  std::string source = path;
  bool two_files = false;
  if (fs::is_directory(path, error)) {
    const auto has = [&](const char* name) { return fs::exists(fs::path(path) / name, error); };
    two_files = !has("tokenizer.json");
    if (two_files && !(has("vocab.json") && has("merges.txt")))
      throw Error(str("tokenizer: expected tokenizer.json, or vocab.json and merges.txt, in '", path, "'"));
    if (!two_files) source += "/tokenizer.json";
  }
  return tokenizer_of<BpeTokenizer>(
      source, two_files ? read_vocab_and_merges(path) : bpe_model_of(read_tokenizer_json(source), source));
}

std::shared_ptr<const BpeTokenizer> BpeTokenizer::parse(std::string_view text, const std::string& source) {
  return tokenizer_of<BpeTokenizer>(source, bpe_model_of(parse_json(text, source), source));
}

std::string BpeTokenizer::json() const {
  // Added tokens at the end stand beside the vocabulary, as the field has them; one between other tokens must be in it,
  // since ids beside it go on where it ends.
  const std::vector<bool> inner = inner_ids();
  std::size_t size = inner.size();
  while (size > 0 && !inner[size - 1]) --size;
  Json merges = Json::array();
  for (const BpeMerge& merge : model_.merges)
    merges.push_back(byte_letters(model_.vocabulary[merge.left]) + " " + byte_letters(model_.vocabulary[merge.right]));
  Json document = tokenizer_document(model_.added);
  document["normalizer"] = model_.composes ? Json{{"type", "NFC"}} : Json();
  document["pre_tokenizer"] = cutting_json(model_);
  document["post_processor"] = begin_token_json(model_.begin, model_.begin ? model_.vocabulary[*model_.begin] : "");
  document["decoder"] = {{"type", "ByteLevel"},
                         {"add_prefix_space", model_.add_prefix_space},
                         {"trim_offsets", true},
                         {"use_regex", true}};
  const auto name_of = [&](std::size_t id) {
    return inner[id] ? byte_letters(model_.vocabulary[id]) : model_.vocabulary[id];
  };
  document["model"] = bpe_model_json(false, model_.ignore_merges, vocabulary_json(size, name_of), std::move(merges));
  return json_text(document, 1) + "\n";
}

}  // namespace torsor
