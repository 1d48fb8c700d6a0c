#include "torsor/syntax/vocabulary.h"

#include <algorithm>
#include <map>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor::syntax {
namespace {

std::string key_of(std::string_view form) {
  std::string key(form);
  for (char& c : key) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c >= '0' && c <= '9') c = '0';
  }
  return key;
}

using Counts = std::map<std::string, std::int64_t>;

/// The names with at least `least` occurrences, the frequent ones first, equals by their bytes.
std::vector<std::string> frequent(const Counts& counts, std::int64_t least) {
  std::vector<std::string> names;
  for (const auto& [name, count] : counts)
    if (count >= least) names.push_back(name);
  std::stable_sort(names.begin(), names.end(),
                   [&](const std::string& a, const std::string& b) { return counts.at(a) > counts.at(b); });
  return names;
}

}  // namespace

Names::Names(std::vector<std::string> names) : names_(std::move(names)) {
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (!ids_.emplace(names_[i], static_cast<std::int64_t>(i)).second)
      throw Error(str("vocabulary: expected every name once, got ", quote(names_[i]), " twice"));
}

std::int64_t Names::find(std::string_view name, std::int64_t otherwise) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? otherwise : found->second;
}

Vocabulary::Vocabulary(const std::vector<TaggedTree>& trees, std::int64_t least) {
  Counts words, characters, upos, xpos, relations;
  for (const TaggedTree& tagged : trees) {
    for (const std::string& form : tagged.tree.words) {
      ++words[key_of(form)];
      for (std::size_t at = 0; at < form.size();) {
        const CodePoint one = decode_utf8(form, at);
        ++characters[form.substr(at, one.size)];
        at += one.size;
      }
    }
    for (const std::string& tag : tagged.upos) ++upos[tag];
    for (const std::string& tag : tagged.xpos) ++xpos[tag];
    for (const std::string& relation : tagged.tree.relations) ++relations[relation];
  }
  words_ = Names(frequent(words, least));
  for (const std::string& word : words_.all()) counts_.push_back(words.at(word));
  characters_ = Names(frequent(characters, 2));
  upos_ = Names(frequent(upos, 1));
  xpos_ = Names(frequent(xpos, 1));
  relations_ = Names(frequent(relations, 1));
}

std::int64_t Vocabulary::word(std::string_view form) const {
  const std::int64_t id = words_.find(key_of(form), -1);
  return id < 0 ? kUnknown : id + 3;
}

std::int64_t Vocabulary::count(std::int64_t word) const {
  return word < 3 ? 0 : counts_.at(static_cast<std::size_t>(word - 3));
}

std::vector<std::int64_t> Vocabulary::spelling(std::string_view form) const {
  std::vector<std::int64_t> ids;
  for (std::size_t at = 0; at < form.size();) {
    const CodePoint one = decode_utf8(form, at);
    const std::int64_t id = characters_.find(form.substr(at, one.size), -1);
    ids.push_back(id < 0 ? kUnknown : id + 4);
    at += one.size;
  }
  if (ids.size() > kMostCharacters)
    ids.erase(ids.begin() + kMostCharacters / 2, ids.end() - static_cast<std::ptrdiff_t>(kMostCharacters / 2));
  ids.insert(ids.begin(), kBegin);
  ids.push_back(kEnd);
  return ids;
}

Json Vocabulary::to_json() const {
  Json json;
  json["words"] = words_.all();
  json["counts"] = counts_;
  json["characters"] = characters_.all();
  json["upos"] = upos_.all();
  json["xpos"] = xpos_.all();
  json["relations"] = relations_.all();
  return json;
}

Vocabulary Vocabulary::from_json(const Json& json, const std::string& source) {
  JsonObject object(json, source, JsonObject::Blame::data);
  Vocabulary vocabulary;
  const auto names = [&](const char* key) { return Names(object.get<std::vector<std::string>>(key)); };
  vocabulary.words_ = names("words");
  vocabulary.counts_ = object.get<std::vector<std::int64_t>>("counts");
  vocabulary.characters_ = names("characters");
  vocabulary.upos_ = names("upos");
  vocabulary.xpos_ = names("xpos");
  vocabulary.relations_ = names("relations");
  object.finish();
  if (vocabulary.counts_.size() != vocabulary.words_.all().size())
    object.fail(str("expected as many counts as words, got ", vocabulary.counts_.size(), " and ",
                    vocabulary.words_.all().size()));
  if (vocabulary.relations_.size() == 0 || vocabulary.upos_.size() == 0 || vocabulary.xpos_.size() == 0)
    object.fail("expected relations and tags, got none");
  return vocabulary;
}

}  // namespace torsor::syntax
