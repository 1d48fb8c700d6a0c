#include "torsor/data/bpe_names.h"

#include <unordered_set>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"
#include "torsor/data/bpe_alphabet.h"
#include "torsor/data/tokenizer_json.h"

namespace torsor {

BpeNames::BpeNames(const Json& vocabulary, std::vector<BpeAddedToken> added, std::string source)
    : source_(std::move(source)), added_(std::move(added)) {
  if (!vocabulary.is_object()) fail(str("expected an object of tokens and ids, got ", vocabulary.type_name()));
  std::unordered_set<std::string_view> known;
  for (const auto& item : vocabulary.items()) known.insert(item.key());
  std::size_t total = known.size();
  for (const BpeAddedToken& token : added_)
    if (known.insert(token.content).second) ++total;
  names_.assign(total, nullptr);
  for (const auto& [name, value] : vocabulary.items()) {
    const bool whole = value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
    if (!whole) fail(str("the id of ", shown(name), " must be a whole number, got ", quote(json_text(value), 40)));
    const auto id = value.get<std::uint64_t>();
    if (id >= total)
      fail(str("the ids of ", total, " tokens must be 0 to ", total - 1, " without a hole, got ", id, " for ",
               shown(name)));
    place(name, static_cast<TokenId>(id));
  }
  for (const BpeAddedToken& token : added_) {
    if (const auto inside = find(token.content)) {
      if (*inside != token.id)
        fail(str("the added token ", shown(token.content), " has the id ", token.id, " and in the vocabulary ",
                 *inside));
      continue;
    }
    if (token.id >= total)
      fail(str("the ids of ", total, " tokens must be 0 to ", total - 1, " without a hole, got ", token.id,
               " for the added token ", shown(token.content)));
    place(token.content, token.id);
  }
}

BpeNames::BpeNames(const std::vector<std::string>& names, std::vector<BpeAddedToken> added, std::string source)
    : source_(std::move(source)), added_(std::move(added)) {
  names_.assign(names.size(), nullptr);
  for (std::size_t id = 0; id < names.size(); ++id) {
    if (const auto other = find(names[id]))
      fail(str("the ids ", *other, " and ", id, " have the same token ", shown(names[id])));
    place(names[id], static_cast<TokenId>(id));
  }
}

void BpeNames::fail(const std::string& message) const { throw Error(str(source_, ": ", message)); }

std::optional<TokenId> BpeNames::find(const std::string& name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

void BpeNames::place(const std::string& name, TokenId id) {
  if (names_[id] != nullptr) fail(str(shown(*names_[id]), " and ", shown(name), " have the same id ", id));
  names_[id] = &ids_.emplace(name, id).first->first;
}

std::vector<std::string> BpeNames::bytes(const std::vector<TokenId>& literal) const {
  std::vector<bool> as_it_is(names_.size(), false);
  for (const BpeAddedToken& token : added_) as_it_is[token.id] = true;
  for (const TokenId id : literal) as_it_is[id] = true;
  std::vector<std::string> vocabulary;
  vocabulary.reserve(names_.size());
  for (TokenId id = 0; id < names_.size(); ++id) {
    auto bytes = as_it_is[id] ? std::optional(*names_[id]) : letters_to_bytes(*names_[id]);
    if (!bytes) fail(str("the token ", shown(*names_[id]), " of id ", id, " has a character that stands for no byte"));
    vocabulary.push_back(std::move(*bytes));
  }
  return vocabulary;
}

BpeMerge BpeNames::merge(const std::string& left, const std::string& right, const std::string& where) const {
  const auto known = [&](const std::string& name, const char* what) {
    const auto id = find(name);
    if (!id) throw Error(str(where, ": ", shown(name), what));
    return *id;
  };
  const TokenId first = known(left, " is no token"), second = known(right, " is no token");
  return {first, second, known(left + right, ", which the merge makes, is no token")};
}

BpeMerge BpeNames::merge(std::string_view both, const std::string& where) const {
  const std::size_t space = both.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == both.size() ||
      both.find(' ', space + 1) != std::string_view::npos)
    throw Error(str(where, ": expected two tokens with a space between, got ", shown(both)));
  return merge(std::string(both.substr(0, space)), std::string(both.substr(space + 1)), where);
}

std::vector<BpeMerge> BpeNames::merges(const Json& list, const std::string& source) const {
  if (!list.is_array()) throw Error(str(source, ": expected a list, got ", list.type_name()));
  std::vector<BpeMerge> made;
  for (const Json& one : list) {
    const std::string where = str(source, '[', made.size(), ']');
    if (one.is_string())
      made.push_back(merge(std::string_view(one.get_ref<const std::string&>()), where));
    else if (one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_string())
      made.push_back(merge(one[0].get_ref<const std::string&>(), one[1].get_ref<const std::string&>(), where));
    else
      throw Error(str(where, ": expected \"a b\" or [\"a\", \"b\"], got ", quote(json_text(one), 40)));
  }
  return made;
}

bool check_bpe_model(JsonObject& model, bool byte_fallback) {
  if (const auto type = model.get<std::string>("type", "BPE"); type != "BPE")
    model.fail(str("key 'type' must be BPE, found ", quote(type, 40)));
  if (model.get<double>("dropout", 0) != 0) model.fail("key 'dropout' must be null: it makes ids a matter of chance");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.get<std::string>(key, "").empty()) model.fail(str("key '", key, "' must be null or empty"));
  if (model.get<bool>("byte_fallback", false) != byte_fallback)
    model.fail(str("key 'byte_fallback' must be ", byte_fallback ? "true" : "false"));
  if (!model.has("merges")) model.fail("key 'merges' is missing: this is no BPE");
  // Every byte has its token, so nothing is ever unknown.
  for (const char* key : {"unk_token", "fuse_unk", "vocab"}) model.allow(key);
  const bool ignore_merges = model.get<bool>("ignore_merges", false);
  model.finish();
  return ignore_merges;
}

Json bpe_model_json(bool byte_fallback, bool ignore_merges, Json vocabulary, Json merges) {
  Json model;
  model["type"] = "BPE";
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
    model[key] = nullptr;
  model["fuse_unk"] = false;
  model["byte_fallback"] = byte_fallback;
  if (ignore_merges) model["ignore_merges"] = true;
  model["vocab"] = std::move(vocabulary);
  model["merges"] = std::move(merges);
  return model;
}

}  // namespace torsor
