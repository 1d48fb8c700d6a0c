// The files of SentencePiece: tokenizer.model, Hugging Face's tokenizer.json of type Unigram, folders.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "torsor/base/base64.h"
#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/base/utf8.h"
#include "torsor/data/sentencepiece.h"
#include "torsor/data/tokenizer_json.h"

namespace torsor {
namespace {

namespace fs = std::filesystem;
using Kind = SentencePieceModel::Kind;

/// The names that marks have by default. In a tokenizer.json nothing else tells them from other special tokens.
bool is_mark(const std::string& text) {
  static const std::set<std::string> kMarks = {"<s>",   "</s>",  "<pad>", "<bos>", "<eos>",
                                               "[CLS]", "[SEP]", "<cls>", "<sep>"};
  return kMarks.count(text) != 0;
}

/// The table of characters of `normalizer`: Precompiled, alone or as the only one of a Sequence.
std::string characters_of(const Json& value, const std::string& where) {
  JsonObject normalizer(value, where, JsonObject::Blame::data);
  const std::string type = type_of(normalizer);
  if (type == "Sequence") {
    const auto list = normalizer.get<std::vector<Json>>("normalizers");
    if (list.size() != 1) normalizer.fail(str("expected one normalizer, Precompiled, found ", list.size()));
    return characters_of(list.front(), where + ": normalizers[0]");
  }
  if (type != "Precompiled") normalizer.fail(str("key 'type' must be Precompiled, found ", shown(type)));
  const auto text = normalizer.get<std::string>("precompiled_charsmap");
  normalizer.finish();
  auto bytes = base64_bytes(text);
  if (!bytes) normalizer.fail("key 'precompiled_charsmap' is not base64");
  return *bytes;
}

/// Words at white space, each with a U+2581 before it: what the library does to a whole text.
void check_words(JsonObject& document) {
  JsonObject pre = document.object("pre_tokenizer");
  if (const auto type = type_of(pre); type != "Sequence")
    pre.fail(str("key 'type' must be Sequence, of WhitespaceSplit and Metaspace, found ", shown(type)));
  const auto list = pre.get<std::vector<Json>>("pretokenizers");
  if (list.size() != 2) pre.fail(str("expected WhitespaceSplit and Metaspace, found ", list.size(), " of them"));
  JsonObject split(list[0], pre.source() + ": pretokenizers[0]", JsonObject::Blame::data);
  if (const auto type = type_of(split); type != "WhitespaceSplit")
    split.fail(str("key 'type' must be WhitespaceSplit, found ", shown(type)));
  JsonObject spaces(list[1], pre.source() + ": pretokenizers[1]", JsonObject::Blame::data);
  if (const auto type = type_of(spaces); type != "Metaspace")
    spaces.fail(str("key 'type' must be Metaspace, found ", shown(type)));
  if (spaces.get<std::string>("replacement") != "\xE2\x96\x81") spaces.fail("key 'replacement' must be U+2581");
  if (!spaces.get<bool>("add_prefix_space", true)) spaces.fail("key 'add_prefix_space' must be true");
  if (const auto scheme = spaces.get<std::string>("prepend_scheme", "always"); scheme != "always")
    spaces.fail(str("key 'prepend_scheme' must be always, found ", shown(scheme)));
  spaces.allow("str_rep");
  spaces.allow("split");
  spaces.finish();
}

void read_pieces(const Json& vocab, const std::string& where, SentencePieceModel& model) {
  if (!vocab.is_array()) throw Error(str(where, ": expected a list of pieces, got ", vocab.type_name()));
  for (const Json& one : vocab) {
    if (!one.is_array() || one.size() != 2 || !one[0].is_string() || !one[1].is_number())
      throw Error(
          str(where, '[', model.pieces.size(), "]: expected a piece and its score, got ", shown(json_text(one))));
    model.pieces.push_back({one[0].get<std::string>(), static_cast<float>(one[1].get<double>())});
  }
}

std::shared_ptr<const SentencePieceTokenizer> of_json(const Json& json, const std::string& path) {
  JsonObject document(json, path, JsonObject::Blame::data);
  JsonObject inner = document.object("model");
  if (const auto type = inner.get<std::string>("type", "Unigram"); type != "Unigram")
    inner.fail(str("key 'type' must be Unigram, found ", shown(type)));
  SentencePieceModel model;
  const auto unknown = inner.get<std::uint64_t>("unk_id");
  model.byte_fallback = inner.get<bool>("byte_fallback", false);
  inner.allow("vocab");
  inner.finish();
  check_tokenizer_document(document);
  if (document.has("normalizer")) model.characters = characters_of(json.at("normalizer"), path + ": normalizer");
  check_words(document);
  if (document.has("decoder")) {
    JsonObject decoder = document.object("decoder");
    if (const auto type = type_of(decoder); type != "Metaspace")
      decoder.fail(str("key 'type' must be Metaspace, found ", shown(type)));
  }
  document.allow("added_tokens");
  document.allow("post_processor");
  document.finish();
  read_pieces(tokenizer_part(json.at("model"), "vocab", path + ": model"), path + ": model: vocab", model);
  if (unknown >= model.pieces.size())
    throw Error(str(path, ": model: key 'unk_id' is ", unknown, ", and there are ", model.pieces.size(), " pieces"));
  SentencePieceOptions options;
  options.added = added_tokens_of(json, path);
  // Special tokens are found in the raw text alone, never as pieces.
  for (const BpeAddedToken& token : options.added)
    if (token.special && token.id < model.pieces.size())
      model.pieces[token.id].kind = is_mark(token.content) ? Kind::control : Kind::unused;
  model.pieces[unknown].kind = Kind::unknown;
  if (model.byte_fallback)
    for (SentencePieceModel::Piece& piece : model.pieces)
      if (piece.text.size() == 6 && piece.text.starts_with("<0x") && piece.text.ends_with('>')) piece.kind = Kind::byte;
  return tokenizer_of<SentencePieceTokenizer>(path, std::move(model), std::move(options));
}

/// What tokenizer_config.json says beside a model; nothing said where there is no such file.
SentencePieceOptions options_of(const fs::path& folder) {
  SentencePieceOptions options;
  std::error_code error;
  const std::string path = (folder / "tokenizer_config.json").string(), json = (folder / "tokenizer.json").string();
  bool names_added = false;
  if (fs::exists(path, error)) {
    const Json config = read_tokenizer_json(path);
    JsonObject object(config, path, JsonObject::Blame::data);
    // Llama's classes begin texts with a mark unless they are told not to.
    const auto kind = object.get<std::string>("tokenizer_class", "");
    options.add_begin = object.get<bool>("add_bos_token", kind == "LlamaTokenizer" || kind == "LlamaTokenizerFast");
    if (object.has("bos_token")) {
      const Json& token = config.at("bos_token");
      options.begin =
          token.is_string()
              ? token.get<std::string>()
              : JsonObject(token, path + ": bos_token", JsonObject::Blame::data).get<std::string>("content");
    }
    options.space_first_only = !object.get<bool>("legacy", true);
    if (object.has("added_tokens_decoder")) {
      const Json& added = config.at("added_tokens_decoder");
      const std::string where = path + ": added_tokens_decoder";
      if (!added.is_object()) throw Error(str(where, ": expected an object, got ", added.type_name()));
      for (const auto& [id, one] : added.items())
        options.added.push_back(added_token_of(one, str(where, ": ", id), &id));
      names_added = true;
    }
  }
  if (!names_added && fs::exists(json, error)) options.added = added_tokens_of(read_tokenizer_json(json), json);
  return options;
}

}  // namespace

std::shared_ptr<const SentencePieceTokenizer> SentencePieceTokenizer::load(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const std::string bytes = read_file(path, kLargestTokenizerFile);
    return path.ends_with(".json") ? parse_json_text(bytes, path) : parse(bytes, path);
  }
  const std::string json = path + "/tokenizer.json";
  if (fs::exists(json, error)) {
    const Json document = read_tokenizer_json(json);
    if (tokenizer_kind(document) == "Unigram") return of_json(document, json);
  }
  for (const char* name : {"tokenizer.model", "spiece.model"}) {
    const std::string file = path + "/" + name;
    if (fs::exists(file, error))
      return tokenizer_of<SentencePieceTokenizer>(
          file, parse_sentencepiece(read_file(file, kLargestTokenizerFile), file), options_of(path));
  }
  throw Error(
      str("tokenizer: expected tokenizer.json of type Unigram, tokenizer.model or spiece.model in '", path, "'"));
}

std::shared_ptr<const SentencePieceTokenizer> SentencePieceTokenizer::parse(std::string_view bytes,
                                                                            const std::string& source) {
  return tokenizer_of<SentencePieceTokenizer>(source, parse_sentencepiece(bytes, source));
}

std::shared_ptr<const SentencePieceTokenizer> SentencePieceTokenizer::parse_json_text(std::string_view text,
                                                                                      const std::string& source) {
  return of_json(parse_json(text, source), source);
}

}  // namespace torsor
