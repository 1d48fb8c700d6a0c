// CoNLL-U, the file format of Universal Dependencies (https://universaldependencies.org/format.html): reading with
// every defect named by its line, and writing. Reading and writing a file without defects gives back its bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/data/tree.h"

namespace torsor::syntax {

/// HEAD where it is unspecified ("_").
inline constexpr int kNoHead = -1;

/// A syntactic word. The strings are the columns as they stand in the file, "_" where nothing is specified.
struct Word {
  std::string form;
  std::string lemma = "_";
  std::string upos = "_";
  std::string xpos = "_";
  std::string feats = "_";
  int head = kNoHead;  ///< the number of a word of the sentence (from 1), 0 for the root, kNoHead for "_"
  std::string deprel = "_";
  std::string deps = "_";  ///< the enhanced graph: kept, never read
  std::string misc = "_";

  bool operator==(const Word&) const = default;
};

/// A token that stands for several words ("au" = "à le"): the range line FIRST-LAST.
struct MultiwordToken {
  int first = 0;  ///< number of its first word, from 1
  int last = 0;   ///< number of its last word, above `first`
  std::string form;
  std::string feats = "_";  ///< "_" or "Typo=Yes"
  std::string misc = "_";

  bool operator==(const MultiwordToken&) const = default;
};

/// A node of the enhanced graph that stands for no token: the line AFTER.INDEX. No part of the basic tree.
struct EmptyNode {
  int after = 0;  ///< number of the word before it; 0 = before the first
  int index = 0;  ///< 1, 2, ... of those behind the same word
  std::string form, lemma, upos, xpos, feats, deps, misc;

  bool operator==(const EmptyNode&) const = default;
};

struct Sentence {
  std::vector<std::string> comments;  ///< whole lines with their '#'
  std::vector<Word> words;
  std::vector<MultiwordToken> multiwords;  ///< in the order of the words, never overlapping
  std::vector<EmptyNode> empty_nodes;      ///< in the order of the file
  std::size_t line = 0;                    ///< where it begins in its file, from 1; 0 = in none

  std::size_t size() const { return words.size(); }
  /// The value of the first comment "# KEY = VALUE" (`key` is such as "sent_id", "text", "newdoc id"); of "# KEY"
  /// alone the empty string.
  std::optional<std::string> comment(std::string_view key) const;
  std::vector<int> heads() const;
  std::vector<std::string> relations() const;

  bool operator==(const Sentence& other) const {
    return comments == other.comments && words == other.words && multiwords == other.multiwords &&
           empty_nodes == other.empty_nodes;
  }
};

/// A sentence that was left out by lenient reading.
struct Skipped {
  std::size_t line = 0;             ///< of the defect, from 1
  std::string reason;               ///< what was expected, what came
  std::optional<std::string> text;  ///< its "# text", where it has one that is valid UTF-8
  std::size_t before = 0;           ///< index in Document::sentences of the sentence that comes behind it
};

struct Document {
  std::vector<Sentence> sentences;
  std::vector<Skipped> skipped;  ///< in the order of the file; empty unless reading was lenient
};

struct ReadOptions {
  /// Leave sentences with a defect out and count them, instead of throwing at the first.
  bool lenient = false;
  /// Refuse heads that form no tree with one root. Otherwise HEAD may be "_" or any whole number; see repair.h.
  bool check_trees = true;
};

/// Reads a file's content. Throws Error "SOURCE:LINE: what was expected, what came" at the first defect: bytes that are
/// no UTF-8, a byte-order mark, carriage returns; other than 10 columns, an empty column, a FORM of white space alone,
/// a space where none may be (only FORM, LEMMA and MISC may hold some); numbers of words that do not count 1, 2, ...;
/// ranges that are backwards, overlap, reach beyond the sentence, stand elsewhere than before their first word or fill
/// other columns than FORM, FEATS (Typo=Yes) and MISC; empty nodes out of order or with a HEAD; a comment behind words,
/// a sentence without words, a blank line missing at the end; a HEAD that is no number; no tree. Labels and tags are
/// not judged, nor whether the text is in the normal form C.
Document read_conllu(std::string_view content, const std::string& source, const ReadOptions& options = {});

/// read_conllu of a file, with its path as the source.
Document read_conllu_file(const std::string& path, const ReadOptions& options = {});

/// The lines of a sentence, with the blank line behind it. Does not check: read_conllu does.
std::string conllu_text(const Sentence& sentence);
std::string conllu_text(const std::vector<Sentence>& sentences);

/// A surface token: a multiword token, or a word that belongs to none.
struct SurfaceToken {
  int first = 0;  ///< number of its first word, from 1
  int last = 0;   ///< number of its last word; `first` unless a multiword token
  std::string_view form;
  std::string_view misc;
};

/// The surface tokens from left to right. They point into `sentence`.
std::vector<SurfaceToken> surface_tokens(const Sentence& sentence);

/// The value of KEY in a MISC or FEATS column ("SpaceAfter=No|Lang=fr"); nothing where it is missing.
std::optional<std::string_view> column_value(std::string_view column, std::string_view key);

/// Whether a token is followed by white space: its MISC says SpaceAfter=No or not. Where UDPipe wrote SpacesAfter,
/// that decides.
bool space_after(std::string_view misc);

/// Back from the escapes of SpacesBefore, SpacesAfter and SpacesInToken: \s \t \r \n \p (a bar) \\ and \u00A0 (a code
/// point in four hexadecimal digits). Others stay.
std::string unescape_spaces(std::string_view escaped);
/// The escapes for white space as it stands in a text.
std::string escape_spaces(std::string_view spaces);

/// The text that the tokens spell with their white space: FORMs (or SpacesInToken) with SpacesBefore, SpacesAfter or a
/// single space between them as MISC says, without the white space behind the last.
std::string spelled_text(const Sentence& sentence);

/// A relation without its subtype: "acl" of "acl:relcl".
std::string_view base_relation(std::string_view deprel);

/// The basic tree; relations with their subtypes. Throws Error when it is none (check_tree).
Tree tree_of(const Sentence& sentence);
/// A sentence of a tree's words, without tags. Words without a relation get "_".
Sentence sentence_of(const Tree& tree);

}  // namespace torsor::syntax
