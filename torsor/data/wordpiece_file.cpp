// The files of WordPiece: tokenizer.json, vocab.txt with tokenizer_config.json, the vocabulary of a GGUF file.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/base/unicode_forms.h"
#include "torsor/base/utf8.h"
#include "torsor/data/tokenizer_json.h"
#include "torsor/data/wordpiece.h"

namespace torsor {
namespace {

namespace fs = std::filesystem;

void require_type(JsonObject& object, const char* type) {
  if (const auto found = object.get<std::string>("type"); found != type)
    object.fail(str("key 'type' must be ", type, ", found ", shown(found)));
}

/// "vocab" and the tokens beside it, by id.
std::vector<std::string> vocabulary_of(const Json& vocab, const std::vector<BpeAddedToken>& added,
                                       const std::string& source) {
  if (!vocab.is_object()) throw Error(str(source, ": expected an object of tokens and ids, got ", vocab.type_name()));
  std::size_t total = vocab.size();
  std::vector<std::pair<std::string, TokenId>> all;
  for (const auto& [name, value] : vocab.items())
    all.emplace_back(name, token_id_of(value, source, str("the id of ", shown(name))));
  // Only those behind the vocabulary's own: the others are checked against it later.
  for (const BpeAddedToken& token : added) {
    if (token.id < vocab.size()) continue;
    ++total;
    all.emplace_back(token.content, token.id);
  }
  std::vector<std::string> vocabulary(total);
  for (auto& [name, id] : all) {
    if (id >= total)
      throw Error(str(source, ": the ids of ", total, " tokens must be 0 to ", total - 1, " without a hole, got ", id,
                      " for ", shown(name)));
    if (!vocabulary[id].empty())
      throw Error(str(source, ": ", shown(vocabulary[id]), " and ", shown(name), " have the same id ", id));
    vocabulary[id] = std::move(name);
  }
  return vocabulary;
}

void read_normalizer(JsonObject& document, WordPieceModel& made) {
  if (!document.has("normalizer")) {
    made.clean_text = made.chinese = made.strip_accents = made.lowercase = false;
    return;
  }
  JsonObject normalizer = document.object("normalizer");
  require_type(normalizer, "BertNormalizer");
  made.clean_text = normalizer.get<bool>("clean_text", true);
  made.chinese = normalizer.get<bool>("handle_chinese_chars", true);
  made.lowercase = normalizer.get<bool>("lowercase", true);
  made.strip_accents = normalizer.get<bool>("strip_accents", made.lowercase);
  normalizer.finish();
}

/// The names of the tokens around a text, where a post-processor tells them.
void read_marks(const Json& document, const std::string& source, WordPieceModel& made) {
  const auto found = document.find("post_processor");
  if (found == document.end() || found->is_null()) return;
  JsonObject processor(*found, source + ": post_processor", JsonObject::Blame::data);
  const auto type = processor.get<std::string>("type");
  if (type == "BertProcessing") {
    for (const auto& [key, mark] : {std::pair("cls", &made.begin), std::pair("sep", &made.end)}) {
      const auto pair = processor.get<std::vector<Json>>(key);
      if (pair.empty() || !pair.front().is_string()) processor.fail(str("key '", key, "' must be a token and its id"));
      *mark = pair.front().get<std::string>();
    }
  } else if (type == "TemplateProcessing") {
    std::vector<std::string> marks;
    for (const Json& one : processor.get<std::vector<Json>>("single"))
      if (one.is_object() && one.contains("SpecialToken"))
        marks.push_back(
            JsonObject(one, processor.source(), JsonObject::Blame::data).object("SpecialToken").get<std::string>("id"));
    if (marks.size() == 2) made.begin = marks[0], made.end = marks[1];
  }
}

WordPieceModel wordpiece_model_of(const Json& json, const std::string& path) {
  JsonObject document(json, path, JsonObject::Blame::data);
  JsonObject model = document.object("model");
  // Older files leave the type out.
  if (const auto type = model.get<std::string>("type", "WordPiece"); type != "WordPiece")
    model.fail(str("key 'type' must be WordPiece, found ", shown(type)));
  WordPieceModel made;
  made.unknown = model.get<std::string>("unk_token", "[UNK]");
  made.prefix = model.get<std::string>("continuing_subword_prefix", "##");
  made.longest_word = model.get<std::uint64_t>("max_input_chars_per_word", 100);
  model.allow("vocab");
  model.finish();
  check_tokenizer_document(document);
  read_normalizer(document, made);
  JsonObject pre = document.object("pre_tokenizer");
  require_type(pre, "BertPreTokenizer");
  pre.finish();
  if (document.has("decoder")) {
    JsonObject decoder = document.object("decoder");
    require_type(decoder, "WordPiece");
    if (const auto prefix = decoder.get<std::string>("prefix", "##"); prefix != made.prefix)
      decoder.fail(str("key 'prefix' must be that of the model, ", shown(made.prefix), ", found ", shown(prefix)));
    made.cleanup = decoder.get<bool>("cleanup", true);
    decoder.finish();
  }
  document.allow("added_tokens");
  document.allow("post_processor");
  document.finish();
  read_marks(json, path, made);
  made.added = added_tokens_of(json, path);
  made.vocabulary =
      vocabulary_of(tokenizer_part(json.at("model"), "vocab", path + ": model"), made.added, path + ": model: vocab");
  return made;
}

/// The tokens of a vocab.txt.
std::vector<std::string> lines_of(std::string_view text, const std::string& source) {
  if (const std::size_t at = find_invalid_utf8(text); at != std::string_view::npos)
    throw Error(str(source, ": expected UTF-8, found another byte at ", at));
  std::vector<std::string> lines;
  std::unordered_map<std::string_view, std::size_t> seen;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) throw Error(str(source, ':', lines.size() + 1, ": expected a token, found an empty line"));
    const auto [place, is_new] = seen.emplace(line, lines.size() + 1);
    if (!is_new)
      throw Error(str(source, ':', lines.size() + 1, ": the token ", shown(line), " stands in line ", place->second));
    lines.emplace_back(line);
  }
  if (lines.empty()) throw Error(str(source, ": expected tokens, one a line, found nothing"));
  return lines;
}

/// A token of tokenizer_config.json: a text, or an object with one.
std::string token_named(const Json& config, const char* key, std::string fallback, const std::string& source) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return fallback;
  if (found->is_string()) return found->get<std::string>();
  return JsonObject(*found, str(source, ": ", key), JsonObject::Blame::data).get<std::string>("content");
}

bool has_capital(const std::vector<std::string>& tokens) {
  return std::any_of(tokens.begin(), tokens.end(), [](const std::string& token) {
    if (token.starts_with('[') || token.starts_with('<')) return false;  // special ones
    for (std::size_t at = 0; at < token.size();) {
      const CodePoint point = decode_utf8(token, at);
      std::u32string lower;
      append_lower(lower, point.value);
      if (lower.front() != point.value) return true;
      at += point.size;
    }
    return false;
  });
}

WordPieceModel model_of_lines(std::vector<std::string> lines, std::string_view config_text, const std::string& source) {
  WordPieceModel made;
  made.vocabulary = std::move(lines);
  Json config = Json::object();
  const std::string where = (fs::path(source).parent_path() / "tokenizer_config.json").string();
  if (config_text.empty()) {
    made.lowercase = made.strip_accents = !has_capital(made.vocabulary);
  } else {
    config = parse_json(config_text, where);
    JsonObject object(config, where, JsonObject::Blame::data);
    made.lowercase = object.get<bool>("do_lower_case", true);
    made.strip_accents = object.get<bool>("strip_accents", made.lowercase);
    made.chinese = object.get<bool>("tokenize_chinese_chars", true);
    if (!object.get<bool>("do_basic_tokenize", true))
      object.fail("key 'do_basic_tokenize' must be true: texts that are cut into words already are not read");
    if (!object.get<std::vector<std::string>>("never_split", {}).empty())
      object.fail("key 'never_split' must be null or empty");
  }
  made.unknown = token_named(config, "unk_token", made.unknown, where);
  made.begin = token_named(config, "cls_token", made.begin, where);
  made.end = token_named(config, "sep_token", made.end, where);
  std::vector<std::string> specials = {made.unknown, made.begin, made.end,
                                       token_named(config, "pad_token", "[PAD]", where),
                                       token_named(config, "mask_token", "[MASK]", where)};
  std::sort(specials.begin(), specials.end());
  for (TokenId id = 0; id < made.vocabulary.size(); ++id)
    if (std::binary_search(specials.begin(), specials.end(), made.vocabulary[id]))
      made.added.push_back({.id = id, .content = made.vocabulary[id], .special = true});
  return made;
}

}  // namespace

std::shared_ptr<const WordPieceTokenizer> WordPieceTokenizer::load(const std::string& path) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  const std::string json = folder ? path + "/tokenizer.json" : path, vocab = folder ? path + "/vocab.txt" : path;
  if (folder ? fs::exists(json, error) : path.ends_with(".json"))
    return tokenizer_of<WordPieceTokenizer>(json, wordpiece_model_of(read_tokenizer_json(json), json));
  if (folder && !fs::exists(vocab, error))
    throw Error(str("tokenizer: expected tokenizer.json or vocab.txt in '", path, "'"));
  const fs::path config = fs::path(vocab).parent_path() / "tokenizer_config.json";
  return parse_vocabulary(read_file(vocab, kLargestTokenizerFile),
                          fs::exists(config, error) ? read_file(config.string(), kLargestTokenizerFile) : "", vocab);
}

std::shared_ptr<const WordPieceTokenizer> WordPieceTokenizer::parse_json_text(std::string_view text,
                                                                              const std::string& source) {
  return tokenizer_of<WordPieceTokenizer>(source, wordpiece_model_of(parse_json(text, source), source));
}

std::shared_ptr<const WordPieceTokenizer> WordPieceTokenizer::parse_vocabulary(std::string_view text,
                                                                               std::string_view config,
                                                                               const std::string& source) {
  return tokenizer_of<WordPieceTokenizer>(source, model_of_lines(lines_of(text, source), config, source));
}

std::shared_ptr<const WordPieceTokenizer> WordPieceTokenizer::of_gguf(const GgufFile& file) {
  if (const auto kind = file.text("tokenizer.ggml.model", ""); kind != "bert")
    throw Error(str(file.source(), ": expected tokenizer.ggml.model bert, found ", shown(kind)));
  // There a word begins with U+2581, and a piece that goes on with one has no mark.
  constexpr std::string_view kWord = "\xE2\x96\x81";
  std::vector<std::string> lines;
  for (const std::string& token : file.texts("tokenizer.ggml.tokens")) {
    const bool special = token.starts_with('[') && token.ends_with(']') && token.size() > 2;
    lines.push_back(token.starts_with(kWord) ? token.substr(kWord.size()) : special ? token : "##" + token);
  }
  // llama.cpp lowers case and strips accents whatever the model.
  return tokenizer_of<WordPieceTokenizer>(
      file.source(), model_of_lines(std::move(lines), R"({"do_lower_case": true})", file.source()));
}

std::string WordPieceTokenizer::json() const {
  Json document = tokenizer_document(model_.added);
  document["normalizer"] = {{"type", "BertNormalizer"},
                            {"clean_text", model_.clean_text},
                            {"handle_chinese_chars", model_.chinese},
                            {"strip_accents", model_.strip_accents},
                            {"lowercase", model_.lowercase}};
  document["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  const auto begin = ids_.find(model_.begin), end = ids_.find(model_.end);
  document["post_processor"] = nullptr;
  if (begin != ids_.end() && end != ids_.end())
    document["post_processor"] = {{"type", "BertProcessing"},
                                  {"sep", Json::array({model_.end, end->second})},
                                  {"cls", Json::array({model_.begin, begin->second})}};
  document["decoder"] = {{"type", "WordPiece"}, {"prefix", model_.prefix}, {"cleanup", model_.cleanup}};
  Json& model = document["model"];
  model["type"] = "WordPiece";
  model["unk_token"] = model_.unknown;
  model["continuing_subword_prefix"] = model_.prefix;
  model["max_input_chars_per_word"] = model_.longest_word;
  model["vocab"] = vocabulary_json(model_.vocabulary.size(), [this](std::size_t id) { return model_.vocabulary[id]; });
  return json_text(document, 1) + "\n";
}

}  // namespace torsor
