// The files of a byte-level BPE: tokenizer.json, vocab.json with merges.txt.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/base/utf8.h"
#include "torsor/data/bpe.h"
#include "torsor/data/bpe_alphabet.h"
#include "torsor/data/tokenizer_json.h"

namespace torsor {
namespace {

namespace fs = std::filesystem;

std::string shown(std::string_view text) { return quote(text, 40); }

/// The tokens as the files write them, by id and back. Messages begin with `source`.
class Names {
 public:
  /// `vocabulary` is the object of names and ids, `added` what stands beside it.
  Names(const Json& vocabulary, std::vector<BpeAddedToken> added, std::string source);

  /// The id of a name, or nothing.
  std::optional<TokenId> find(const std::string& name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  /// The bytes of every id.
  std::vector<std::string> bytes() const;

  const std::vector<BpeAddedToken>& added() const { return added_; }

 private:
  void place(const std::string& name, TokenId id);
  [[noreturn]] void fail(const std::string& message) const { throw Error(str(source_, ": ", message)); }

  std::string source_;
  std::vector<BpeAddedToken> added_;
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<const std::string*> names_;  // by id, looking into ids_
};

Names::Names(const Json& vocabulary, std::vector<BpeAddedToken> added, std::string source)
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

void Names::place(const std::string& name, TokenId id) {
  if (names_[id] != nullptr) fail(str(shown(*names_[id]), " and ", shown(name), " have the same id ", id));
  names_[id] = &ids_.emplace(name, id).first->first;
}

std::vector<std::string> Names::bytes() const {
  std::vector<std::string> vocabulary(names_.size());
  for (const BpeAddedToken& token : added_) vocabulary[token.id] = token.content;
  std::vector<bool> is_added(names_.size(), false);
  for (const BpeAddedToken& token : added_) is_added[token.id] = true;
  for (std::size_t id = 0; id < names_.size(); ++id) {
    if (is_added[id]) continue;
    auto bytes = letters_to_bytes(*names_[id]);
    if (!bytes) fail(str("the token ", shown(*names_[id]), " of id ", id, " has a character that stands for no byte"));
    vocabulary[id] = std::move(*bytes);
  }
  return vocabulary;
}

BpeMerge merge_of(const Names& names, const std::string& left, const std::string& right, const std::string& where) {
  const auto known = [&](const std::string& name, const char* what) {
    const auto id = names.find(name);
    if (!id) throw Error(str(where, ": ", shown(name), what));
    return *id;
  };
  const TokenId first = known(left, " is no token"), second = known(right, " is no token");
  return {first, second, known(left + right, ", which the merge makes, is no token")};
}

/// The two halves of "a b".
std::pair<std::string, std::string> halves(std::string_view text, const std::string& where) {
  const std::size_t space = text.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == text.size() ||
      text.find(' ', space + 1) != std::string_view::npos)
    throw Error(str(where, ": expected two tokens with a space between, got ", shown(text)));
  return {std::string(text.substr(0, space)), std::string(text.substr(space + 1))};
}

std::vector<BpeMerge> merges_of(const Json& merges, const Names& names, const std::string& source) {
  if (!merges.is_array()) throw Error(str(source, ": expected a list, got ", merges.type_name()));
  std::vector<BpeMerge> made;
  for (const Json& one : merges) {
    const std::string where = str(source, '[', made.size(), ']');
    if (one.is_string()) {
      const auto [left, right] = halves(one.get_ref<const std::string&>(), where);
      made.push_back(merge_of(names, left, right, where));
    } else if (one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_string()) {
      made.push_back(
          merge_of(names, one[0].get_ref<const std::string&>(), one[1].get_ref<const std::string&>(), where));
    } else {
      throw Error(str(where, ": expected \"a b\" or [\"a\", \"b\"], got ", quote(json_text(one), 40)));
    }
  }
  return made;
}

/// Checks `pre_tokenizer`; returns whether it puts a space before texts.
bool prefix_space_of(JsonObject& document) {
  JsonObject pre = document.object("pre_tokenizer");
  if (const auto type = pre.get<std::string>("type"); type != "ByteLevel")
    pre.fail(str("key 'type' must be ByteLevel, found ", shown(type)));
  const bool prefix = pre.get<bool>("add_prefix_space");
  pre.allow("trim_offsets");
  if (!pre.get<bool>("use_regex", true)) pre.fail("key 'use_regex' must be true: another split, or none, is not read");
  pre.finish();
  return prefix;
}

/// Checks the keys of `model` beside the vocabulary and the merges.
void check_model(JsonObject& model) {
  if (const auto type = model.get<std::string>("type", "BPE"); type != "BPE")
    model.fail(str("key 'type' must be BPE, found ", shown(type)));
  if (model.get<double>("dropout", 0) != 0) model.fail("key 'dropout' must be null: it makes ids a matter of chance");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.get<std::string>(key, "").empty()) model.fail(str("key '", key, "' must be null or empty"));
  for (const char* key : {"byte_fallback", "ignore_merges"})
    if (model.get<bool>(key, false)) model.fail(str("key '", key, "' must be false"));
  if (!model.has("merges")) model.fail("key 'merges' is missing: this is no BPE");
  // Every byte has its token, so nothing is ever unknown.
  model.allow("unk_token");
  model.allow("fuse_unk");
  model.allow("vocab");
  model.finish();
}

BpeModel model_of(const Json& json, const std::string& path) {
  JsonObject document(json, path, JsonObject::Blame::data);
  // The model's type first: it tells best what kind of file this is.
  JsonObject model = document.object("model");
  check_model(model);
  refuse_key(document, "normalizer", "text is taken as it is");
  check_tokenizer_document(document);
  const bool prefix = prefix_space_of(document);
  if (document.has("decoder")) {
    JsonObject decoder = document.object("decoder");
    if (const auto type = decoder.get<std::string>("type"); type != "ByteLevel")
      decoder.fail(str("key 'type' must be ByteLevel, found ", shown(type)));
  }
  document.allow("added_tokens");
  document.allow("post_processor");
  document.finish();

  const Json& inner = json.at("model");
  const Names names(tokenizer_part(inner, "vocab", path + ": model"), added_tokens_of(json, path),
                    path + ": model: vocab");
  BpeModel made;
  made.vocabulary = names.bytes();
  made.added = names.added();
  made.add_prefix_space = prefix;
  made.merges = merges_of(tokenizer_part(inner, "merges", path + ": model"), names, path + ": model: merges");
  return made;
}

std::vector<BpeMerge> read_merges(const std::string& path, const Names& names) {
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
    const std::string where = str(path, ':', number);
    const auto [left, right] = halves(line, where);
    merges.push_back(merge_of(names, left, right, where));
  }
  return merges;
}

BpeModel read_vocab_and_merges(const std::string& folder) {
  const std::string vocab = folder + "/vocab.json";
  const Json json = read_tokenizer_json(vocab);
  const Names names(json, {}, vocab);
  BpeModel made;
  made.vocabulary = names.bytes();
  made.merges = read_merges(folder + "/merges.txt", names);
  return made;
}

std::shared_ptr<const BpeTokenizer> checked(BpeModel model, const std::string& source) {
  try {
    return std::make_shared<const BpeTokenizer>(std::move(model));
  } catch (const Error& problem) {
    throw Error(str(source, ": ", problem.what()));
  }
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
  return checked(two_files ? read_vocab_and_merges(path) : model_of(read_tokenizer_json(source), source), source);
}

std::shared_ptr<const BpeTokenizer> BpeTokenizer::parse(std::string_view text, const std::string& source) {
  return checked(model_of(parse_json(text, source), source), source);
}

std::string BpeTokenizer::json() const {
  // Added tokens at the end stand beside the vocabulary, as the field has them; one between other tokens must be in it,
  // since ids beside it go on where it ends.
  const std::vector<bool> inner = inner_ids();
  std::size_t size = inner.size();
  while (size > 0 && !inner[size - 1]) --size;
  Json vocab = Json::object();
  // Not by key, which would search all that is there.
  auto& members = vocab.get_ref<Json::object_t&>();
  for (std::size_t id = 0; id < size; ++id)
    members.emplace_back(inner[id] ? byte_letters(model_.vocabulary[id]) : model_.vocabulary[id], id);
  Json merges = Json::array();
  for (const BpeMerge& merge : model_.merges)
    merges.push_back(byte_letters(model_.vocabulary[merge.left]) + " " + byte_letters(model_.vocabulary[merge.right]));
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", model_.add_prefix_space},
                      {"trim_offsets", true},
                      {"use_regex", true}};
  Json document;
  document["version"] = "1.0";
  document["truncation"] = nullptr;
  document["padding"] = nullptr;
  document["added_tokens"] = added_tokens_json(model_.added);
  document["normalizer"] = nullptr;
  document["pre_tokenizer"] = bytes;
  document["post_processor"] = nullptr;
  document["decoder"] = bytes;
  Json& model = document["model"];
  model["type"] = "BPE";
  model["dropout"] = nullptr;
  model["unk_token"] = nullptr;
  model["continuing_subword_prefix"] = nullptr;
  model["end_of_word_suffix"] = nullptr;
  model["fuse_unk"] = false;
  model["byte_fallback"] = false;
  model["vocab"] = std::move(vocab);
  model["merges"] = std::move(merges);
  return json_text(document, 1) + "\n";
}

}  // namespace torsor
