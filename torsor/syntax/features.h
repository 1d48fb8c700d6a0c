// What an encoding reads of a parse, token by token: tags, sentences, links and the arcs that f_syn embeds.
//
// Made once for a whole document and then cut into windows, so that a window that begins inside a sentence has the
// tags of the complete sentence (oracle modes), or of all words ahead (incremental: these are no future).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "torsor/syntax/align.h"
#include "torsor/syntax/parse.h"

namespace torsor::syntax {

/// Which tokens of a word carry its tag.
enum class SubwordRule : std::uint8_t {
  kFirst,    ///< the first
  kAll,      ///< every one
  kDelayed,  ///< the first token of a word carries the tag of the word before it: the state after all complete words.
             ///< In incremental mode the first token with which the word is known to begin: that of the last byte of
             ///< its first character
  kLast,     ///< the last
};

/// "first", "all", "delayed", "last", and back; subword_rule throws UsageError for another word.
std::string_view rule_name(SubwordRule rule);
SubwordRule subword_rule(std::string_view name);
/// The rule for a mode where none is asked for: delayed for incremental and oracle_revealed tags; else all for
/// rotations, whose pieces of a word must stay in phase, and first for everything else.
SubwordRule default_rule(ParseMode mode, bool rotation);

struct FeatureOptions {
  SubwordRule rule = SubwordRule::kFirst;
  /// kDelayed: the later tokens of a word repeat what the first one carries (for rotations).
  bool repeat = false;
  /// The tokenizer's pieces show where a word ends, which kLast needs in incremental mode: otherwise a tag on the last
  /// piece would tell that no other follows.
  bool pieces_mark_ends = false;
};

/// The arc of a word as f_syn reads it; ids, 0 = none. Incremental parses show what is known when the word has been
/// read: a head on its left alone, the left dependents taken, the words that still wait for a head.
struct ArcFeatures {
  std::uint8_t relation = 0;                        ///< relation_id
  std::uint8_t direction = 0;                       ///< 1 root, 2 head on the left, 3 head on the right
  std::uint8_t distance = 0;                        ///< floor(log2 |head - word|), at most 7; 0 without a head
  std::uint8_t left_count = 0;                      ///< incremental: left dependents, at most 4
  std::array<std::uint8_t, 3> left_relations = {};  ///< incremental: of the nearest three, nearest first
  std::uint8_t waiting = 0;                         ///< incremental: floor(log2(words without a head + 1)), at most 7
  std::uint8_t valid = 0;                           ///< 1 where there is a word with a tag

  static constexpr std::size_t kColumns = 9;
  std::array<std::uint8_t, kColumns> columns() const;
  bool operator==(const ArcFeatures&) const = default;
};

/// An arc between the first subwords of two words; which is the head is not told.
struct Link {
  std::uint32_t one = 0, other = 0;  ///< tokens of the document
  bool operator==(const Link&) const = default;
};

/// Features of a document's T tokens. Tables are row-major.
struct SyntaxFeatures {
  ParseMode mode = ParseMode::kNone;
  std::vector<std::array<std::uint8_t, 2>> tags;  ///< (T) tau 0..2, nu 0..5; 0 0 = none
  std::vector<std::int32_t> sentences;            ///< (T) sentence of the token's word; -1 = none, or not parsed
  std::vector<ArcFeatures> arcs;                  ///< (T)
  std::vector<std::uint32_t> link_begin;          ///< (T + 1)
  std::vector<Link> links;  ///< those of token t, which become known there, at link_begin[t] .. link_begin[t + 1]
  /// Of whole sentences alone, else empty: (T) the first token of the token's word, and at first tokens the first token
  /// of the head's word; -1 = none.
  std::vector<std::int32_t> word_tokens, head_tokens;
  std::size_t text_tokens = 0;        ///< tokens that hold more than white space
  std::size_t multi_word_tokens = 0;  ///< see Alignment
  std::size_t swallowed = 0;

  std::size_t size() const { return tags.size(); }
  /// Share of the tokens of text that belong to a parsed sentence; 0 without any.
  double coverage() const;

  /// A window of `length` tokens from `begin` on, into rows of an encoding's inputs; tokens behind the document's end
  /// get none. Throws Error when `begin` lies behind the end.
  void write_tags(std::size_t begin, std::size_t length, std::int64_t* out) const;       ///< (length, 2)
  void write_sentences(std::size_t begin, std::size_t length, std::int64_t* out) const;  ///< (length)
  void write_labels(std::size_t begin, std::size_t length,
                    std::int64_t* out) const;                                       ///< (length) ArcFeatures::relation
  void write_arcs(std::size_t begin, std::size_t length, std::int64_t* out) const;  ///< (length, 9)
  /// (length, per_token, 2): distances back from the token to both ends of each link, -1 -1 = none. Links with an end
  /// ahead of the window are left out; those that find no room at their token go to the ones behind it, never ahead.
  /// Returns how many found none up to the end.
  std::size_t write_links(std::size_t begin, std::size_t length, std::size_t per_token, std::int64_t* out) const;
};

/// Features of `tokens` of `text` in the parse's mode. In incremental mode everything at a token is a function of the
/// text up to the token's last byte, given that the parser keeps its promise. Throws Error when the parse is of another
/// text; UsageError in incremental mode for the rules first and all, which would tell of the rest of a word, and last
/// without pieces_mark_ends.
SyntaxFeatures syntax_features(const Parse& parse, std::string_view text, std::span<const ByteSpan> tokens,
                               const FeatureOptions& options);

}  // namespace torsor::syntax
