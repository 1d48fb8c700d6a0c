// The tokenizer.json of a BPE with byte_fallback.
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/base/utf8.h"
#include "torsor/data/bpe_alphabet.h"
#include "torsor/data/bpe_names.h"
#include "torsor/data/fallback_bpe.h"
#include "torsor/data/tokenizer_json.h"

namespace torsor {
namespace {

using Prefix = FallbackBpeModel::Prefix;

const std::string kSpaceText(kSpace);

void check_text(JsonObject& object, const char* key, const std::string& wanted, const char* name) {
  if (object.get<std::string>(key) != wanted) object.fail(str("key '", key, "' must be ", name));
}

/// {"String": " "}
void check_space_pattern(JsonObject& step) {
  JsonObject pattern = step.object("pattern");
  check_text(pattern, "String", " ", "a space");
  pattern.finish();
}

/// Reads `normalizer`: spaces become U+2581, and perhaps one goes before the text.
void read_normalizer(const Json& value, const std::string& where, FallbackBpeModel& model) {
  JsonObject normalizer(value, where, JsonObject::Blame::data);
  std::vector<Json> steps = {value};
  if (type_of(normalizer) == "Sequence") {
    steps = normalizer.get<std::vector<Json>>("normalizers");
    normalizer.finish();
  }
  bool replaces = false;
  model.prefix = Prefix::none;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    JsonObject step(steps[i], steps.size() == 1 ? where : str(where, ": normalizers[", i, ']'),
                    JsonObject::Blame::data);
    const std::string type = type_of(step);
    if (type == "Prepend" && model.prefix == Prefix::none) {
      check_text(step, "prepend", kSpaceText, "U+2581");
      model.prefix = Prefix::each;
    } else if (type == "Replace" && !replaces) {
      check_space_pattern(step);
      check_text(step, "content", kSpaceText, "U+2581");
      replaces = true;
    } else {
      step.fail(str("expected Prepend of U+2581 and Replace of spaces, each once at most, found ", shown(type)));
    }
    step.finish();
  }
  if (!replaces) normalizer.fail("expected a Replace of spaces by U+2581, found none");
}

void read_metaspace(JsonObject& pre, FallbackBpeModel& model) {
  check_text(pre, "replacement", kSpaceText, "U+2581");
  const bool adds = pre.get<bool>("add_prefix_space", true);
  const auto scheme = pre.get<std::string>("prepend_scheme", adds ? "always" : "never");
  if (scheme == "always")
    model.prefix = Prefix::each_bare;
  else if (scheme == "first")
    model.prefix = Prefix::first_if_bare;
  else if (scheme == "never")
    model.prefix = Prefix::none;
  else
    pre.fail(str("key 'prepend_scheme' must be always, first or never, found ", shown(scheme)));
  if (pre.has("add_prefix_space") && !adds && scheme != "never")
    pre.fail("key 'add_prefix_space' is false, and 'prepend_scheme' is not never");
  model.split_words = pre.get<bool>("split", true);
  model.early_spaces = false;
  pre.allow("str_rep");
  pre.finish();
}

/// Reads `normalizer` and `pre_tokenizer`, of which one changes spaces.
void read_spaces(JsonObject& document, const Json& json, FallbackBpeModel& model) {
  const bool early = document.has("normalizer"), cuts = document.has("pre_tokenizer");
  if (early) read_normalizer(json.at("normalizer"), document.source() + ": normalizer", model);
  if (!cuts) {
    if (!early) document.fail("expected a normalizer or a pre_tokenizer that changes spaces, found none");
    return;
  }
  JsonObject pre = document.object("pre_tokenizer");
  const std::string type = type_of(pre);
  if (early && type == "Split") {
    // Gemma's: it cuts at spaces where none is left.
    check_space_pattern(pre);
    return;
  }
  if (early || type != "Metaspace")
    pre.fail(str("expected ", early ? "none beside a normalizer, or Split at spaces" : "Metaspace", ", found ",
                 shown(type)));
  read_metaspace(pre, model);
}

/// Only known steps: what they do follows from how spaces were changed.
void check_decoder(const Json& value, const std::string& where) {
  JsonObject decoder(value, where, JsonObject::Blame::data);
  const std::string type = type_of(decoder);
  if (type == "Sequence") {
    for (const Json& step : decoder.get<std::vector<Json>>("decoders")) {
      JsonObject one(step, where + ": decoders", JsonObject::Blame::data);
      if (type_of(one) == "Sequence") one.fail("a Sequence in a Sequence is not read");
      check_decoder(step, where + ": decoders");
    }
  } else if (type != "Metaspace" && type != "Replace" && type != "ByteFallback" && type != "Fuse" && type != "Strip") {
    decoder.fail(str("key 'type' must be Metaspace, Replace, ByteFallback, Fuse or Strip, found ", shown(type)));
  }
}

FallbackBpeModel fallback_model_of(const Json& json, const std::string& path) {
  JsonObject document(json, path, JsonObject::Blame::data);
  JsonObject inner = document.object("model");
  FallbackBpeModel model;
  model.ignore_merges = check_bpe_model(inner, true);
  check_tokenizer_document(document);
  read_spaces(document, json, model);
  if (document.has("decoder")) check_decoder(json.at("decoder"), path + ": decoder");
  document.allow("added_tokens");
  model.begin = begin_token_of(document);
  document.finish();

  const std::string where = path + ": model";
  const Json& parts = json.at("model");
  const BpeNames names(tokenizer_part(parts, "vocab", where), added_tokens_of(json, path), where + ": vocab");
  for (TokenId id = 0; id < names.size(); ++id) model.vocabulary.push_back(names[id]);
  model.added = names.added();
  model.merges = names.merges(tokenizer_part(parts, "merges", where), where + ": merges");
  return model;
}

}  // namespace

std::shared_ptr<const FallbackBpeTokenizer> FallbackBpeTokenizer::load(const std::string& path) {
  return tokenizer_of<FallbackBpeTokenizer>(path, fallback_model_of(read_tokenizer_json(path), path));
}

std::shared_ptr<const FallbackBpeTokenizer> FallbackBpeTokenizer::parse(std::string_view text,
                                                                        const std::string& source) {
  return tokenizer_of<FallbackBpeTokenizer>(source, fallback_model_of(parse_json(text, source), source));
}

std::string FallbackBpeTokenizer::json() const {
  const Json to_space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceText}};
  Json normalizer, pre_tokenizer;
  if (model_.early_spaces && model_.prefix == Prefix::each)
    normalizer = {{"type", "Sequence"},
                  {"normalizers", Json::array({Json{{"type", "Prepend"}, {"prepend", kSpaceText}}, to_space})}};
  else if (model_.early_spaces)
    normalizer = to_space;
  else
    pre_tokenizer = {{"type", "Metaspace"},
                     {"replacement", kSpaceText},
                     {"prepend_scheme", model_.prefix == Prefix::each_bare       ? "always"
                                        : model_.prefix == Prefix::first_if_bare ? "first"
                                                                                 : "never"},
                     {"split", model_.split_words}};
  Json decoders = Json::array({Json{{"type", "Replace"}, {"pattern", {{"String", kSpaceText}}}, {"content", " "}},
                               Json{{"type", "ByteFallback"}}, Json{{"type", "Fuse"}}});
  if (model_.prefix != Prefix::none)
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  // Added tokens at the end stand beside the vocabulary, as the field has them, save where the model itself needs them.
  std::vector<bool> beside = is_added_;
  for (const BpeMerge& merge : model_.merges)
    for (const TokenId id : {merge.left, merge.right, merge.result}) beside[id] = false;
  for (const TokenId id : byte_ids_) beside[id] = false;
  std::size_t size = model_.vocabulary.size();
  while (size > 0 && beside[size - 1]) --size;
  Json merges = Json::array();
  for (const BpeMerge& merge : model_.merges)
    merges.push_back(Json::array({model_.vocabulary[merge.left], model_.vocabulary[merge.right]}));
  Json document = tokenizer_document(model_.added);
  document["normalizer"] = std::move(normalizer);
  document["pre_tokenizer"] = std::move(pre_tokenizer);
  document["post_processor"] = begin_token_json(model_.begin, model_.begin ? model_.vocabulary[*model_.begin] : "");
  document["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  document["model"] = bpe_model_json(true, model_.ignore_merges,
                                     vocabulary_json(size, [this](std::size_t id) { return model_.vocabulary[id]; }),
                                     std::move(merges));
  return json_text(document, 1) + "\n";
}

}  // namespace torsor
