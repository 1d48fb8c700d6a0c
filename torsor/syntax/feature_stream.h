// The features of mode incremental, token by token: nothing at a token depends on a byte behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "torsor/syntax/features.h"

namespace torsor::syntax {

/// What a token shows of a word.
struct ShownWord {
  CausalTag tag = {};
  ArcFeatures arc = {};
};

/// The head of word `number` (from 1) of its sentence as f_syn reads it, into `arc`; nothing where it is unknown.
void show_head(const ParseWord& word, int number, ArcFeatures& arc);

/// What stands ahead of a sentence's first word for causal tags: nothing but that it begins.
ShownWord sentence_start();

/// Words come when they are complete, tokens in their order, each after the words that its bytes complete. The work for
/// a token is bounded by the length of its sentence, not by that of the text. Copies go on independently.
class FeatureStream {
 public:
  /// Of the options, those of kDelayed are read; under other rules no token shows a tag.
  explicit FeatureStream(const FeatureOptions& options) : options_(options) {}

  /// Word `number` (from 1) of `sentence`, which is number `index` of the text. Of its arcs those to earlier words are
  /// looked at. `begun` is how many bytes of the text end with its first character: before that nobody knows that a
  /// word begins. Returns what the word shows where its tag is carried.
  ShownWord complete(const ParseSentence& sentence, std::size_t index, std::size_t number, std::uint32_t begun);

  /// The first character of a word that is not complete has been read; `first` of its sentence. Again for the same word
  /// changes nothing.
  void begins(std::uint32_t begun, std::size_t sentence, bool first);

  struct Token {
    ShownWord shown;
    std::int32_t sentence = -1;
    std::vector<Link> links;  ///< that become known here
  };
  /// The next token, of these bytes; `blank` where they are white space alone.
  Token token(ByteSpan bytes, bool blank);

 private:
  struct Place {
    ByteSpan bytes;
    std::uint32_t token;
  };
  struct Word {
    std::size_t sentence;
    std::size_t number;   // in its sentence, from 1
    std::uint32_t begin;  // first byte
    std::uint32_t begun;
    ShownWord before;               // what its first token carries
    std::vector<std::size_t> left;  // numbers of the dependents that it took, nearest first
    std::size_t head;               // number of a head on its left; 0 = none
  };

  FeatureOptions options_;
  std::uint32_t next_ = 0;                            // token
  std::vector<Word> fresh_;                           // complete since the last token
  ShownWord last_;                                    // of the newest complete word
  std::int32_t last_sentence_ = -1;                   // of it
  int waiting_ = 0;                                   // words of its sentence without a head
  std::vector<std::optional<std::uint32_t>> tokens_;  // of the words of the newest sentence: with their first bytes
  struct Open {
    std::uint32_t begun;
    std::size_t sentence;
    bool first;
  };
  std::optional<Open> open_;  // the word that has begun
  std::deque<Place> places_;  // tokens that a word may begin in that is not complete yet
  std::optional<ShownWord> repeated_;
};

}  // namespace torsor::syntax
