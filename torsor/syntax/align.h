// Words of a parse and tokens of a tokenizer, both known by their bytes of the text.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "torsor/data/tokenizer.h"
#include "torsor/syntax/parse.h"

namespace torsor::syntax {

/// The bytes of each token of `text`: the pieces that the ids decode to one by one, laid end to end. Throws Error where
/// they do not spell the text.
std::vector<ByteSpan> token_spans(const Tokenizer& tokenizer, std::span<const TokenId> ids, std::string_view text);

/// A word by its sentence and place in it, both from 0.
struct WordPlace {
  std::size_t sentence = 0;
  std::size_t word = 0;
};

/// Which word each token belongs to. Words are numbered from 0 through all parsed sentences.
struct Alignment {
  std::vector<WordPlace> words;  ///< by word
  std::vector<int> word_of;      ///< by token; -1 where it has none (special tokens, white space, unparsed text)
  std::vector<int> sentence_of;  ///< by token: the sentence of its word, else -1
  std::vector<int> first_token;  ///< by word: its lowest token, the first subword; -1 when swallowed
  std::vector<int> last_token;   ///< by word; -1 when swallowed
  std::vector<int> owner;        ///< by word: itself, or the word to which its bytes went when swallowed
  std::vector<int> token_head;   ///< by token: first subword of the head word, for first subwords of words with one
                                 ///< that is no root; else -1
  std::size_t multi_word_tokens = 0;  ///< tokens that cover several words
  std::size_t swallowed = 0;          ///< words without a token of their own

  /// More than one token in twenty with a word covers several: syntax of words fits this tokenizer badly.
  bool too_coarse() const;
};

/// A token belongs to the word that holds the first byte of it that is no white space; if it covers several words, to
/// the one nearest to the root, of equals the leftmost. A word that gets no token is swallowed: its dependents hang
/// from the word that owns its first byte. `tokens` must not go backwards and have empty spans where they stand for no
/// text, else Error. `text` is the parse's (its hash is not computed here; see require_text).
Alignment align(const Parse& parse, std::string_view text, std::span<const ByteSpan> tokens);

}  // namespace torsor::syntax
