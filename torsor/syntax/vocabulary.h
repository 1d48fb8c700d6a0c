// Words, characters, tags and relations as numbers, learned from a treebank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/syntax/treebank.h"

namespace torsor::syntax {

/// A list of names and the number of each.
class Names {
 public:
  Names() = default;
  /// Throws Error for a name that is given twice.
  explicit Names(std::vector<std::string> names);

  std::int64_t size() const { return static_cast<std::int64_t>(names_.size()); }
  const std::string& operator[](std::int64_t id) const { return names_.at(static_cast<std::size_t>(id)); }
  /// The number of `name`, or `otherwise` when it is not in the list.
  std::int64_t find(std::string_view name, std::int64_t otherwise) const;
  const std::vector<std::string>& all() const { return names_; }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> ids_;
};

/// What a parser knows of a language. Words are looked up in lower case (ASCII letters) with every digit as 0, since
/// the characters tell the case; tags and relations as they are.
class Vocabulary {
 public:
  /// Numbers of words: padding, not among the words, the artificial root.
  static constexpr std::int64_t kPadding = 0, kUnknown = 1, kRoot = 2;
  /// Numbers of characters beside the first two of these: begin and end of a word.
  static constexpr std::int64_t kBegin = 2, kEnd = 3;
  /// Characters of a word that are read; of longer ones the first and the last half of this many.
  static constexpr std::size_t kMostCharacters = 24;

  Vocabulary() = default;
  /// Words that occur at least `least` times, all characters that occur at least twice, all tags and relations.
  Vocabulary(const std::vector<TaggedTree>& trees, std::int64_t least);

  std::int64_t words() const { return words_.size() + 3; }
  std::int64_t characters() const { return characters_.size() + 4; }
  std::int64_t word(std::string_view form) const;
  /// How often the word of this number stood in the treebank; 0 for the first three.
  std::int64_t count(std::int64_t word) const;
  /// kBegin, the numbers of the characters, kEnd.
  std::vector<std::int64_t> spelling(std::string_view form) const;

  const Names& upos() const { return upos_; }
  const Names& xpos() const { return xpos_; }
  const Names& relations() const { return relations_; }

  Json to_json() const;
  /// Throws Error naming `source` for what to_json did not write.
  static Vocabulary from_json(const Json& json, const std::string& source);

 private:
  Names words_, characters_, upos_, xpos_, relations_;
  std::vector<std::int64_t> counts_;
};

}  // namespace torsor::syntax
