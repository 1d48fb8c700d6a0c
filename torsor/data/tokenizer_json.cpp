#include "torsor/data/tokenizer_json.h"

#include <charconv>
#include <limits>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/utf8.h"

namespace torsor {

Json read_tokenizer_json(const std::string& path) { return parse_json(read_file(path, kLargestTokenizerFile), path); }

std::string tokenizer_kind(const Json& document) {
  if (!document.is_object()) return "";
  const auto model = document.find("model");
  if (model == document.end() || !model->is_object()) return "";
  const auto type = model->find("type");
  if (type != model->end()) return type->is_string() ? type->get<std::string>() : "";
  // Older files leave it out.
  if (model->contains("merges")) return "BPE";
  if (model->contains("max_input_chars_per_word")) return "WordPiece";
  return model->contains("unk_id") ? "Unigram" : "";
}

BpeAddedToken added_token_of(const Json& one, const std::string& source, const std::string* id) {
  JsonObject object(one, source, JsonObject::Blame::data);
  BpeAddedToken token;
  std::uint64_t number = 0;
  if (id == nullptr) {
    number = object.get<std::uint64_t>("id");
  } else {
    const auto [end, failed] = std::from_chars(id->data(), id->data() + id->size(), number);
    if (failed != std::errc() || end != id->data() + id->size()) object.fail("expected an id as the key");
  }
  if (number >= std::numeric_limits<TokenId>::max()) object.fail(str("key 'id' is too large: ", number));
  token.id = static_cast<TokenId>(number);
  token.content = object.get<std::string>("content");
  token.special = object.get<bool>("special", false);
  token.lstrip = object.get<bool>("lstrip", false);
  token.rstrip = object.get<bool>("rstrip", false);
  // Older files leave it out and mean this.
  token.normalized = object.get<bool>("normalized", !token.special);
  if (object.get<bool>("single_word", false))
    object.fail("key 'single_word' must be false: tokens that match whole words alone are not read");
  object.finish();
  return token;
}

std::vector<BpeAddedToken> added_tokens_of(const Json& document, const std::string& source) {
  std::vector<BpeAddedToken> added;
  const auto found = document.find("added_tokens");
  if (found == document.end() || found->is_null()) return added;
  if (!found->is_array()) throw Error(str(source, ": key 'added_tokens' must be a list, got ", found->type_name()));
  for (const Json& one : *found)
    added.push_back(added_token_of(one, str(source, ": added_tokens[", added.size(), "]")));
  return added;
}

Json added_token_json(const BpeAddedToken& token) {
  return {{"content", token.content}, {"single_word", false},           {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},   {"normalized", token.normalized}, {"special", token.special}};
}

Json added_tokens_json(const std::vector<BpeAddedToken>& added) {
  Json list = Json::array();
  for (const BpeAddedToken& token : added) {
    Json one = {{"id", token.id}};
    one.update(added_token_json(token));
    list.push_back(std::move(one));
  }
  return list;
}

std::string shown(std::string_view text) { return quote(text, 40); }
std::string type_of(JsonObject& object) { return object.get<std::string>("type"); }

void refuse_key(JsonObject& object, const char* key, const char* why) {
  if (object.has(key)) object.fail(str("key '", key, "' must be null: ", why));
}

Json tokenizer_document(const std::vector<BpeAddedToken>& added) {
  Json document;
  document["version"] = "1.0";
  document["truncation"] = nullptr;
  document["padding"] = nullptr;
  document["added_tokens"] = added_tokens_json(added);
  return document;
}

void check_tokenizer_document(JsonObject& document) {
  if (const auto version = document.get<std::string>("version", "1.0"); version != "1.0")
    document.fail(str("key 'version' must be 1.0, found ", quote(version, 40)));
  refuse_key(document, "truncation", "whole texts are encoded");
  refuse_key(document, "padding", "texts are encoded one by one");
}

namespace {

/// The TemplateProcessing of a post-processor, or null.
const Json* template_of(const Json& processor) {
  if (!processor.is_object() || !processor.contains("type")) return nullptr;
  if (processor.at("type") == "TemplateProcessing") return &processor;
  if (processor.at("type") != "Sequence" || !processor.contains("processors")) return nullptr;
  const Json& list = processor.at("processors");
  if (!list.is_array()) return nullptr;
  for (const Json& one : list)
    if (one.is_object() && one.contains("type") && one.at("type") == "TemplateProcessing") return &one;
  return nullptr;
}

}  // namespace

std::optional<TokenId> begin_token_of(JsonObject& document) {
  if (!document.has("post_processor")) return std::nullopt;
  const auto processor = document.get<Json>("post_processor");
  const Json* found = template_of(processor);
  if (found == nullptr) return std::nullopt;
  const std::string source = document.source() + ": post_processor: single";
  JsonObject pattern(*found, document.source() + ": post_processor", JsonObject::Blame::data);
  const auto single = pattern.get<std::vector<Json>>("single");
  if (single.size() != 2 || !single[0].is_object() || !single[0].contains("SpecialToken") || !single[1].is_object() ||
      !single[1].contains("Sequence"))
    return std::nullopt;
  JsonObject token(single[0].at("SpecialToken"), source + ": SpecialToken", JsonObject::Blame::data);
  JsonObject known = pattern.object("special_tokens").object(token.get<std::string>("id"));
  const auto ids = known.get<std::vector<std::uint64_t>>("ids");
  if (ids.size() != 1 || ids[0] >= std::numeric_limits<TokenId>::max())
    known.fail("key 'ids' must hold the one id of the token that texts begin with");
  return static_cast<TokenId>(ids[0]);
}

Json begin_token_json(std::optional<TokenId> begin, const std::string& text) {
  if (!begin) return nullptr;
  const auto sequence = [](const char* id, int type) { return Json{{"Sequence", {{"id", id}, {"type_id", type}}}}; };
  const auto token = [&](int type) { return Json{{"SpecialToken", {{"id", text}, {"type_id", type}}}}; };
  Json known = Json::object();
  known[text] = {{"id", text}, {"ids", Json::array({*begin})}, {"tokens", Json::array({text})}};
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({token(0), sequence("A", 0)})},
          {"pair", Json::array({token(0), sequence("A", 0), token(1), sequence("B", 1)})},
          {"special_tokens", known}};
}

const Json& tokenizer_part(const Json& object, const char* key, const std::string& source) {
  const auto found = object.find(key);
  if (found == object.end()) throw Error(str(source, ": key '", key, "' is missing"));
  return *found;
}

TokenId token_id_of(const Json& value, const std::string& source, const std::string& what) {
  const bool whole = value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
  if (!whole || value.get<std::uint64_t>() >= std::numeric_limits<TokenId>::max())
    throw Error(str(source, ": ", what, " must be a whole number, got ", quote(json_text(value), 40)));
  return static_cast<TokenId>(value.get<std::uint64_t>());
}

}  // namespace torsor
